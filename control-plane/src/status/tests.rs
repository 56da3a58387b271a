use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::reasons::code;
use prefix_picker_core::sync::decisions::{Decision, Decisions, Mark, Other, Told};
use serde_json::{Value, json};

use super::*;
use crate::engine::tests::{at, config, engine_of, stored};
use crate::engine::{Load, Scraped};

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
    b.engine.live().polled("gateway", "0.1.0");
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
        "event_age_ms": 50, "version": null,
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
    let down = Scraped {
        healthy: Some(false),
        ..Scraped::default()
    };
    b.engine.scraped(A, down);
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
    b.engine.live().polled("x", "0.1.0");
    b.engine.live().polled("y", "");
    assert!(b.alarms().contains(&"gateway_versions".to_owned()));
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
