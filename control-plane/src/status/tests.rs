use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::reasons::code;
use prefix_picker_core::sync::decisions::{Decision, Decisions, Mark, Other, Told};
use serde_json::{Value, json};

use super::*;
use crate::engine::tests::{at, config, engine_of, stored};
use crate::engine::{Load, Scraped, Trouble};
use prefix_picker_core::recent::place;

struct Bench {
    engine: Engine,
    config: Config,
}

fn bench() -> Bench {
    let config = config(&std::env::temp_dir());
    Bench {
        engine: engine_of(&config),
        config,
    }
}

const A: ReplicaIndex = ReplicaIndex(0);

impl Bench {
    fn healthy(&self, replica: ReplicaIndex) {
        let load = Load {
            running: 3,
            waiting: 1,
            kv_usage_permille: 250,
        };
        let scraped = Scraped {
            healthy: Some(true),
            load: Some(load),
            block_size: Some(16),
            ..Scraped::default()
        };
        self.engine.scraped(replica, scraped);
        self.engine.synced(replica, true);
    }

    fn told(&self, count: usize, change: impl Fn(&mut Decision)) {
        let mut record = Decision {
            enforced: true,
            agreed: true,
            chosen: place("127.0.0.1:1"),
            prompt_tokens: 990,
            chosen_tokens: 512,
            served_tokens: 512,
            told: Some(Told {
                prompt_tokens: 1_000,
                cached_tokens: 500,
            }),
            reason: code("prefix"),
            first: 7,
            marks: vec![Mark { key: 9, tokens: 64 }],
            ..Decision::default()
        };
        change(&mut record);
        self.engine.live().take(&Decisions {
            counts: vec![(record.reason, u32::try_from(count).unwrap())],
            records: vec![record; count],
            ..Decisions::default()
        });
    }

    fn status(&self) -> Value {
        self.engine.announce_loads(50);
        serde_json::to_value(overview(&self.engine, &self.config, None)).unwrap()
    }

    fn alarms(&self) -> Vec<String> {
        let status = self.status();
        let alarms = status["alarms"].as_array().unwrap().iter();
        alarms
            .map(|alarm| alarm["id"].as_str().unwrap().to_owned())
            .collect()
    }
}

#[test]
fn a_fleet_with_traffic_is_told_as_it_is() {
    let b = bench();
    b.healthy(A);
    let text =
        "A prompt that is long enough for some blocks of the engine's and of ours. ".repeat(8);
    b.engine.apply(A, at(1), &stored(&b.engine, &text, 100));
    b.engine.cache_counted(A, 200, 50);
    let _polls = b.engine.live().polling("gateway", "0.1.0");
    b.told(4, |_| ());
    let other = Other {
        reason: code("body_too_large"),
        ..Other::default()
    };
    b.engine.live().take(&Decisions {
        others: vec![other],
        counts: vec![(code("body_too_large"), 1), (250, 1), (251, 1)],
        ..Decisions::default()
    });
    let status = b.status();
    assert_eq!(status["schema"], SCHEMA);
    let blocks = text.len() / 16;
    let replica = &status["pools"][0]["replicas"][0];
    let expected = json!({
        "replica": "a", "endpoint": "127.0.0.1:1", "state": "ready", "why": null, "synced": true,
        "running": 3, "waiting": 1, "kv_usage": 0.25,
        "cached_blocks": blocks, "cached_tokens": blocks * 16,
        "recent": {"requests": 4, "prompt_tokens": 4_000, "saved_tokens": 2_000, "measured": 4, "hit_rate": 0.5},
        "engine": {"queries": 200, "hits": 50, "hit_rate": 0.25},
        "event_age_ms": 50, "reset_age_ms": null, "version": null,
    });
    assert_eq!(replica, &expected);
    let fleet = &status["fleet"];
    assert_eq!(
        (&fleet["replicas"], &fleet["pickable"]),
        (&json!(3), &json!(1))
    );
    assert_eq!(fleet["recent"], replica["recent"]);
    assert_eq!(fleet["ever"], replica["recent"]);
    assert_eq!(fleet["engines"], replica["engine"]);
    let history = fleet["history"].as_array().unwrap();
    assert_eq!(history.len(), 30);
    assert_eq!(
        history[29],
        json!({"requests": 4, "saved_tokens": 2_000, "hit_rate": 0.5})
    );
    let reasons = json!([
        {"reason": "prefix", "recent": 4, "ever": 4},
        {"reason": null, "recent": 2, "ever": 2},
        {"reason": "body_too_large", "recent": 1, "ever": 1},
    ]);
    assert_eq!(status["reasons"], reasons);
    assert_eq!(status["gateways"]["versions"], json!({"0.1.0": 1}));
    let hot = json!([{"hash": "0000000000000009", "tokens": 64, "requests": 4, "replicas": 0}]);
    assert_eq!(status["prefixes"], hot);
    let down = &status["pools"][1]["replicas"][0];
    assert_eq!(down["why"], "its health is not known yet");
    assert_eq!(down["recent"]["hit_rate"], json!(null));
}

#[test]
fn decisions_are_told_from_a_number_on() {
    let b = bench();
    b.told(3, |_| ());
    b.told(1, |record| record.chosen = 1);
    let list = serde_json::to_value(decisions(&b.engine, 2)).unwrap();
    let mut of_a = list[0].clone();
    of_a["age_ms"] = json!(0);
    let expected = json!({
        "number": 3, "age_ms": 0, "reason": "prefix", "enforced": true, "agreed": true, "pool": "one",
        "replica": "a", "prompt_tokens": 1_000, "predicted_tokens": 512, "cached_tokens": 500, "status": 200,
    });
    assert_eq!(of_a, expected);
    // Of a replica that is gone.
    assert_eq!(
        (&list[1]["replica"], &list[1]["pool"]),
        (&json!(null), &json!(null))
    );
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(decisions(&b.engine, 4), []);
}

/// Each alarm is there when it should be, and goes.
#[test]
fn alarms_come_and_go() {
    let b = bench();
    assert_eq!(b.alarms(), ["none_pickable", "none_pickable", "starting"]);
    b.engine.open();
    for replica in 0..3 {
        b.healthy(ReplicaIndex(replica));
    }
    assert_eq!(b.alarms(), Vec::<String>::new());
    b.engine.synced(A, false);
    assert_eq!(b.alarms(), ["not_followed"]);
    b.engine.synced(A, true);
    // Its state and all figures look well.
    b.engine.passed_by(A, true);
    assert_eq!(b.alarms(), ["events_pass_by"]);
    // Of one that is gone nothing can come.
    let down = Scraped {
        healthy: Some(false),
        ..Scraped::default()
    };
    b.engine.scraped(A, down);
    assert_eq!(b.alarms(), ["replica_down"]);
    b.engine.passed_by(A, false);
    assert_eq!(b.alarms(), ["replica_down"]);
    b.healthy(A);
    // It serves, and nothing is heard of it.
    b.told(20, |_| ());
    assert_eq!(b.alarms(), ["no_events"]);
    b.engine
        .apply(A, at(1), &stored(&b.engine, "some text to be stored", 1));
    assert_eq!(b.alarms(), Vec::<String>::new());
    b.told(9, |record| record.agreed = false);
    assert_eq!(b.alarms(), ["missed_override"]);
    b.told(80, |_| ());
    b.told(9, |record| record.reason = code("no_template"));
    assert_eq!(b.alarms(), ["reason"]);
    let refused = overview(&b.engine, &b.config, Some((3, 10))).alarms;
    assert!(refused.iter().any(|alarm| alarm.id == "refused_token"));
    let long_ago = overview(&b.engine, &b.config, Some((3, 300))).alarms;
    assert!(!long_ago.iter().any(|alarm| alarm.id == "refused_token"));
    let _polls = [("x", "0.1.0"), ("y", "")].map(|(name, of)| b.engine.live().polling(name, of));
    assert!(b.alarms().contains(&"gateway_versions".to_owned()));
}

/// What is amiss outside, with the time since when and what to do.
#[test]
fn alarms_about_discovery_models_and_prompts() {
    let mut b = bench();
    b.engine.open();
    for replica in 0..3 {
        b.healthy(ReplicaIndex(replica));
    }
    let alarm = |b: &Bench, id: &str| {
        let status = b.status();
        let alarms = status["alarms"].as_array().unwrap();
        alarms.iter().find(|alarm| alarm["id"] == id).cloned()
    };
    // Another model than the pool's.
    b.engine.lacks_models(A, Some("other-model".to_owned()));
    let wrong = alarm(&b, "wrong_model").unwrap();
    assert_eq!(
        (&wrong["severity"], &wrong["pool"]),
        (&json!("critical"), &json!("one"))
    );
    let text = wrong["text"].as_str().unwrap();
    assert!(
        text.contains("served by: a (the first serves other-model)"),
        "{text}"
    );
    assert_eq!(wrong["since_s"], 0, "{wrong}");
    assert_eq!(b.engine.details(A).unwrap().lacks.unwrap().0, "other-model");
    assert!(wrong["fix"].as_str().unwrap().contains("docs/doctor.md"));
    // Of one that is down it is not known.
    let down = Scraped {
        healthy: Some(false),
        ..Scraped::default()
    };
    b.engine.scraped(A, down);
    assert_eq!(alarm(&b, "wrong_model"), None);
    b.healthy(A);
    b.engine.lacks_models(A, None);
    assert_eq!(b.alarms(), Vec::<String>::new());

    // Discovery; what a pool without it is told of is nothing.
    b.engine
        .live()
        .discovery_said(0, false, Some("no such name"));
    assert_eq!(b.alarms(), Vec::<String>::new());
    let discovery = "{dns: {name: vllm.models.svc}}";
    b.config.pools[0].discovery = crate::config::tests::discovering(discovery).ok();
    let failing = alarm(&b, "discovery_failing").unwrap();
    assert_eq!(failing["severity"], "warning");
    let text = failing["text"].as_str().unwrap();
    assert!(
        text.contains("the 2 replica(s) that were listed last stay: no such name"),
        "{text}"
    );
    assert_eq!(failing["since_s"], 0);
    assert!(
        failing["fix"]
            .as_str()
            .unwrap()
            .contains("docs/operations.md")
    );
    b.engine.live().discovery_said(0, true, None);
    assert_eq!(b.alarms(), Vec::<String>::new());

    // Prompts that begin with something new each time.
    let told = |first: fn(u64) -> u64| {
        let record = |n: u64| Decision {
            chosen: place("127.0.0.1:1"),
            prompt_tokens: 1_000,
            reason: code("prefix"),
            first: first(n),
            second: 7,
            agreed: true,
            ..Decision::default()
        };
        let records = (1..=30).map(record).collect();
        b.engine.report().take(&Decisions {
            records,
            ..Decisions::default()
        });
    };
    told(|_| 5);
    assert_eq!(alarm(&b, "volatile_start"), None);
    told(|n| 100 + n);
    let volatile = alarm(&b, "volatile_start").unwrap();
    assert_eq!(
        (&volatile["pool"], &volatile["since_s"]),
        (&json!("one"), &json!(null))
    );
    let text = volatile["text"].as_str().unwrap();
    assert!(
        text.starts_with("50 % of requests and 50 % of prompt tokens"),
        "{text}"
    );
}

/// Why a replica is down is told as it was met with.
#[test]
fn a_refused_connection_is_not_called_a_health_check_that_fails() {
    let b = bench();
    b.healthy(A);
    let why = |trouble| {
        let down = Scraped {
            healthy: Some(false),
            ..Scraped::default()
        };
        b.engine.health_met(A, trouble);
        b.engine.scraped(A, down);
        let status = b.status();
        let why = &status["pools"][0]["replicas"][0]["why"];
        why.as_str().unwrap().to_owned()
    };
    assert_eq!(why(None), "its health check fails");
    assert!(why(Some(Trouble::Refused)).starts_with("it refuses connections"));
    assert!(why(Some(Trouble::Late)).contains("in time"));
    assert_eq!(why(Some(Trouble::Unreachable)), "it cannot be reached");
    assert!(why(Some(Trouble::Broken)).contains("breaks off"));
    assert_eq!(
        why(Some(Trouble::Status(503))),
        "its health check answers 503"
    );
}

#[test]
fn others_that_may_serve_are_counted_in_the_pool() {
    let b = bench();
    assert_eq!(others_pickable(&b.engine, A), 0);
    b.healthy(A);
    b.healthy(ReplicaIndex(2));
    assert_eq!(others_pickable(&b.engine, A), 0);
    b.healthy(ReplicaIndex(1));
    assert_eq!(others_pickable(&b.engine, A), 1);
}
