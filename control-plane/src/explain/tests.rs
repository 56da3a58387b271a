use std::path::PathBuf;

use prefix_picker_core::ids::ReplicaIndex;
use serde_json::json;

use super::*;
use crate::config::Config;
use crate::engine::tests::{Gateway, at, config, engine_of, stored};
use crate::engine::{Load, Scraped};

struct Setup {
    engine: Engine,
    dir: PathBuf,
}

impl Setup {
    fn new(name: &str) -> Self {
        Self::with(name, |_| ())
    }

    fn with(name: &str, change: impl FnOnce(&mut Config)) -> Self {
        let dir = format!("prefix-picker-explain-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        let mut config: Config = config(&dir);
        change(&mut config);
        let engine = engine_of(&config);
        for (replica, waiting) in [(0, 0), (1, 30), (2, 0)] {
            let scraped = Scraped {
                healthy: Some(true),
                load: Some(Load {
                    running: 4,
                    waiting,
                    kv_usage_permille: 100,
                }),
                ..Scraped::default()
            };
            engine.scraped(ReplicaIndex(replica), scraped);
            engine.synced(ReplicaIndex(replica), true);
        }
        engine.announce_loads(0);
        Self { engine, dir }
    }

    fn ask(&self, ask: Value) -> Result<Value, Refusal> {
        let ask: Ask = serde_json::from_value(ask).unwrap();
        let answer = explain(&self.engine, &ask, 1_700_000_000)?;
        // Asking twice gives the same answer.
        let again = explain(&self.engine, &ask, 1_700_000_000)?;
        assert_eq!(answer, again);
        Ok(serde_json::to_value(answer).unwrap())
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn words() -> String {
    "some words that are long enough for a block of ours and for more ".repeat(40)
}

#[test]
fn ranks_of_an_endpoint_are_told_apart() {
    let s = Setup::with("ranks", |config| {
        for (rank, replica) in (0..).zip(&mut config.pools[0].replicas) {
            replica.endpoint = "127.0.0.1:1".parse().unwrap();
            replica.data_parallel_rank = Some(rank);
        }
    });
    let busy = prefix_picker_core::sync::news::Report {
        gateway: "g".into(),
        seq: 1,
        work: vec![PlaceWork {
            place: place("127.0.0.1:1#0"),
            requests: 50,
            tokens: 50_000,
            context: 90_000,
        }],
        ..Default::default()
    };
    assert!(s.engine.gateways().take(&busy));
    let ask = json!({"path": "/v1/completions", "request": {"model": "sim", "prompt": words()}});
    let answer = s.ask(ask).unwrap();
    let told = |replica: usize, field: &str| answer["replicas"][replica][field].clone();
    assert_eq!(told(0, "data_parallel_rank"), 0);
    assert_eq!(told(1, "data_parallel_rank"), 1);
    assert_eq!(told(0, "load")["requests"], 50);
    assert_eq!(told(1, "load")["requests"], 34);
    // The other rank is at the same endpoint: nowhere to try.
    assert_eq!(answer["decision"]["endpoints"], json!(["127.0.0.1:1"]));
    assert_eq!(answer["decision"]["replicas"], json!(["b"]));
}

#[test]
fn who_holds_a_prompt_what_it_costs_and_who_gets_it() {
    let s = Setup::new("holds");
    let text = words();
    for (replica, first) in [(0, 1), (1, 1000)] {
        s.engine.apply(
            ReplicaIndex(replica),
            at(0),
            &stored(&s.engine, &text, first),
        );
    }
    s.engine.publish();
    let ask = json!({"path": "/v1/completions", "request": {"model": "sim", "prompt": text}});
    let answer = s.ask(ask.clone()).unwrap();
    // As a gateway finds it.
    s.engine.open();
    let mut gateway = Gateway::default();
    gateway.settle(&s.engine);
    for (replica, blocks) in gateway.matches(&text) {
        assert!(blocks > 3);
        let told = &answer["replicas"][usize::from(replica)]["matched"]["gpu_blocks"];
        assert_eq!(*told, u64::from(blocks));
    }
    assert_eq!(answer["schema"], SCHEMA);
    assert_eq!(
        (&answer["pool"], &answer["looked_up"]),
        (&json!("one"), &json!(true))
    );
    let (a, b) = (&answer["replicas"][0], &answer["replicas"][1]);
    assert_eq!(answer["replicas"].as_array().unwrap().len(), 2);
    assert!(a["matched"]["hit_tokens"].as_u64() > Some(1_000));
    assert_eq!(a["matched"], b["matched"]);
    // The same there, but a queue before it.
    let total = |r: &Value| r["cost_us"]["total"].as_u64().unwrap();
    assert!(total(b) > total(a) && b["cost_us"]["queue"].as_u64() > Some(0));
    assert_eq!(answer["decision"]["reason"], "prefix");
    assert_eq!(answer["decision"]["replicas"], json!(["a", "b"]));
    assert_eq!(answer["decision"]["endpoints"][0], "127.0.0.1:1");
    // Gateways that have much there: it is told, and counts.
    let before = total(a);
    let busy = prefix_picker_core::sync::news::Report {
        gateway: "g".into(),
        seq: 1,
        work: vec![PlaceWork {
            place: place("127.0.0.1:1"),
            requests: 9,
            tokens: 5_000,
            context: 90_000,
        }],
        ..Default::default()
    };
    assert!(s.engine.gateways().take(&busy));
    let answer = s.ask(ask.clone()).unwrap();
    let load = &answer["replicas"][0]["load"];
    assert_eq!(
        (&load["requests"], &load["backlog_tokens"]),
        (&json!(9), &json!(5_000))
    );
    assert!(total(&answer["replicas"][0]) > before);
    // Drained: what it holds is told, but it is no candidate.
    s.engine.drain(ReplicaIndex(0), true);
    let answer = s.ask(ask).unwrap();
    assert_eq!(answer["replicas"][0]["state"], "draining");
    assert_eq!(answer["replicas"][0]["cost_us"], Value::Null);
    assert_eq!(answer["decision"]["replicas"], json!(["b"]));
}

#[test]
fn a_chat_is_rendered_by_the_pools_profile() {
    let s = Setup::new("chat");
    let body = json!({"model": "sim", "messages": [{"role": "user", "content": words()}]});
    let parsed = parse_request(Api::ChatCompletions, &serde_json::to_vec(&body).unwrap()).unwrap();
    let compiled = s.engine.pools()[0].compiled().unwrap();
    let Ok(Prompt::Text(text)) = compiled.render(&parsed, 0) else {
        panic!("not rendered");
    };
    s.engine
        .apply(ReplicaIndex(1), at(0), &stored(&s.engine, &text.text, 1));
    s.engine.publish();
    let ask = json!({"path": "/v1/chat/completions", "request": body});
    let answer = s.ask(ask).unwrap();
    assert!(
        answer["replicas"][1]["matched"]["any_tokens"].as_u64() > Some(1_000),
        "{answer}"
    );
    assert_eq!(answer["replicas"][0]["matched"]["any_tokens"], 0);
    assert_eq!(answer["api"], "chat_completions");
}

#[test]
fn token_ids_once_they_are_indexed() {
    let s = Setup::new("ids");
    let ids: Vec<u32> = (0..640).map(|n| n % 200).collect();
    let ask = json!({"token_ids": ids, "model": "sim"});
    let answer = s.ask(ask.clone()).unwrap();
    assert_eq!(answer["why"]["reason"], "token_ids_off");
    assert_eq!(
        (&answer["looked_up"], &answer["prompt_tokens"]),
        (&json!(false), &json!(640))
    );
    assert_eq!(answer["decision"]["replicas"][0], "a");
    let _ = s.engine.answer(&prefix_picker_core::sync::Poll {
        token_id_pools: vec!["one".into()],
        ..Default::default()
    });
    let answer = s.ask(ask).unwrap();
    assert_eq!(
        (&answer["why"], &answer["blocks"]),
        (&Value::Null, &json!(10))
    );
}

#[test]
fn what_cannot_be_answered_says_why() {
    let s = Setup::new("refused");
    let completion = |model: &str| json!({"model": model, "prompt": "x"});
    let refused = |ask: Value| s.ask(ask).unwrap_err().to_string();
    let both = "expected either path and request, or token_ids";
    assert_eq!(refused(json!({})), both);
    assert_eq!(
        refused(json!({"path": "/v1/completions", "token_ids": [1]})),
        both
    );
    let text = refused(json!({"path": "/v1/models", "request": {}}));
    assert!(text.contains("do not look into"), "{text}");
    let text = refused(json!({"path": "/v1/completions", "request": completion("gpt")}));
    assert!(text.contains("models are sim, other"), "{text}");
    let text = refused(json!({"path": "/v1/completions", "request": {"prompt": "x"}}));
    assert!(text.contains("one, two; say pool"), "{text}");
    let ask = json!({"path": "/v1/completions", "request": {"prompt": "x"}, "pool": "two"});
    assert_eq!(s.ask(ask).unwrap()["replicas"][0]["replica"], "c");
    let ask =
        json!({"path": "/v1/completions", "request": completion("sim"), "cluster": "elsewhere"});
    assert!(refused(ask).contains("cluster"));
    // A body that no gateway can read goes by load.
    let ask = json!({"path": "/v1/completions", "request": {"model": "sim", "prompt": 5}});
    let answer = s.ask(ask).unwrap();
    assert_eq!(
        (&answer["looked_up"], &answer["decision"]["reason"]),
        (&json!(false), &json!("load"))
    );
    assert!(answer["why"]["text"].is_string());
}
