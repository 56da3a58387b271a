use super::*;
use crate::config;
use crate::pools::View;
use crate::testing::FakeHost;

fn standalone(pools: &str) -> Result<Standalone, String> {
    let json = format!(r#"{{"standalone": {{"pools": {pools}}}}}"#);
    config::parse(json.as_bytes()).map(|c| c.standalone.unwrap())
}

fn view(host: &FakeHost) -> View {
    View::decode(&host.shared(pools::KEY).bytes).unwrap()
}

#[test]
fn the_least_that_works() {
    let s = standalone(
        r#"[{"name": "p", "replicas": [{"endpoint": "10.0.0.1:8000"}, {"endpoint": "[::1]:8000"}]}]"#,
    );
    let s = s.unwrap();
    assert_eq!(s.expire_ms, history::TTL_MS);
    let host = FakeHost::default();
    s.publish(&host);
    let view = view(&host);
    assert_eq!((view.table, view.head.replicas.len()), (None, 2));
    // Any model, on any cluster.
    let pool = view.pool_of(Some("c"), "whatever");
    assert_eq!(pool, Some((0, crate::pools::Wanted::Base)));
    assert_eq!(view.pool(0).unwrap().block_size, BLOCK_SIZE);
    assert_eq!(view.replica_called("[::1]:8000"), Some(ReplicaIndex(1)));
}

#[test]
fn ranks_of_an_engine_are_replicas() {
    let s = standalone(
        r#"[{"name": "p", "replicas": [{"endpoint": "10.0.0.1:8000", "data_parallel_rank": 0},
            {"endpoint": "10.0.0.1:8000", "data_parallel_rank": 1}]}]"#,
    );
    let host = FakeHost::default();
    s.unwrap().publish(&host);
    let view = view(&host);
    let called = |name| view.replica_called(name).map(|r| r.0);
    assert_eq!(called("10.0.0.1:8000#0"), Some(0));
    assert_eq!(called("10.0.0.1:8000#1"), Some(1));
    assert_eq!(called("10.0.0.1:8000"), None);
}

#[test]
fn all_workers_write_the_same_once() {
    let pools = r#"[{"name": "p", "replicas": [{"endpoint": "10.0.0.1:8000"}]}]"#;
    let host = FakeHost::default();
    standalone(pools).unwrap().publish(&host);
    let before = host.shared(pools::KEY).cas;
    standalone(pools).unwrap().publish(&host);
    assert_eq!(host.shared(pools::KEY).cas, before);
    // Another configuration has other numbers: work in flight is counted by them.
    let epoch = view(&host).head.epoch;
    standalone(&pools.replace(":8000", ":8001"))
        .unwrap()
        .publish(&host);
    assert_ne!(view(&host).head.epoch, epoch);
    // A name that is listed first goes before a pool that takes any.
    let two = r#"[{"name": "any", "replicas": [{"endpoint": "10.0.0.1:8000"}]},
        {"name": "m", "models": ["m"], "replicas": [{"endpoint": "10.0.0.2:8000"}]}]"#;
    standalone(two).unwrap().publish(&host);
    let view = view(&host);
    assert_eq!(view.pool_of(None, "m").unwrap().0, 1);
    assert_eq!(view.pool_of(None, "n").unwrap().0, 0);
}

#[test]
fn whatever_comes_in_between_is_replaced_at_the_next_tick() {
    let pools = r#"[{"name": "p", "replicas": [{"endpoint": "10.0.0.1:8000"}]}]"#;
    let host = FakeHost::default();
    let mut vm = Vm::new(&host);
    let s = standalone(pools).unwrap();
    s.publish(&host);
    let ours = host.shared(pools::KEY).bytes;
    host.set_shared(pools::KEY, b"late answer", 0).unwrap();
    let json = format!(r#"{{"standalone": {{"pools": {pools}}}}}"#);
    let config = config::parse(json.as_bytes()).unwrap();
    crate::sync::tick(&mut vm, &host, &config, 1);
    assert_eq!(host.shared(pools::KEY).bytes, ours);
    assert!(host.calls.borrow().is_empty(), "there is nobody to ask");
}

#[test]
fn the_shipped_file_is_right() {
    let yaml = include_str!("../../../envoy/standalone.yaml");
    let json = yaml.split("value: |").nth(1).unwrap();
    let json = json.split("vm_config:").next().unwrap();
    let config = config::parse(json.as_bytes()).unwrap();
    let host = FakeHost::default();
    config.standalone.unwrap().publish(&host);
    for replica in view(&host).head.replicas {
        let port = replica.endpoint.rsplit(':').next().unwrap().to_owned();
        assert!(yaml.contains(&format!("port_value: {port}")));
    }
    // The two shipped files differ in nothing else.
    let other = include_str!("../../../envoy/envoy.yaml");
    let common = |text: &str| -> Vec<String> {
        let start = text.find("stats_config:").unwrap();
        let all = text[start..].lines();
        all.take_while(|line| !line.contains("value: |"))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(common(yaml), common(other));
}

#[test]
fn errors_say_what_and_where() {
    for (pools, said) in [
        ("[]", "standalone.pools: 1 to 64"),
        (
            r#"[{"name": "a", "models": ["m"], "replicas": [{"endpoint": "1.2.3.4:5"}]},
                {"name": "b", "replicas": [{"endpoint": "1.2.3.4:6"}]},
                {"name": "c", "replicas": [{"endpoint": "1.2.3.4:7"}]}]"#,
            "standalone.pools[2]: pools[1] takes all of its requests",
        ),
        (
            r#"[{"name": "", "replicas": [{"endpoint": "1.2.3.4:5"}]}]"#,
            "standalone.pools[0].name",
        ),
        (
            r#"[{"name": "p", "replicas": []}]"#,
            "standalone.pools[0].replicas: at least one",
        ),
        (
            r#"[{"name": "p", "replicas": [{"endpoint": "1.2.3.4:5"}, {"endpoint": "engine:8000"}]}]"#,
            "standalone.pools[0].replicas[1].endpoint: \"engine:8000\"",
        ),
        (
            r#"[{"name": "p", "replicas": [{"endpoint": "1.2.3.4:5"}, {"endpoint": "1.2.3.4:5"}]}]"#,
            "standalone.pools[0].replicas[1].endpoint: 1.2.3.4:5 is there twice",
        ),
        (
            r#"[{"name": "p", "replicas": [{"endpoint": "1.2.3.4:5"}]}, {"name": "p", "replicas": [{"endpoint": "1.2.3.4:6"}]}]"#,
            "standalone.pools[1].name: another",
        ),
        (
            r#"[{"name": "p", "block_size": 0, "replicas": [{"endpoint": "1.2.3.4:5"}]}]"#,
            "block_size",
        ),
        (
            r#"[{"name": "p", "bytes_per_token": -1, "replicas": [{"endpoint": "1.2.3.4:5"}]}]"#,
            "bytes_per_token",
        ),
        (
            r#"[{"name": "p", "models": [""], "replicas": [{"endpoint": "1.2.3.4:5"}]}]"#,
            "models",
        ),
        (
            r#"[{"name": "p", "replicas": [{"endpoint": "1.2.3.4:5", "data_parallel_rank": 65535}]}]"#,
            "standalone.pools[0].replicas[0].data_parallel_rank: must be at most 65534",
        ),
        (
            r#"[{"name": "p", "replicas": [{"endpoint": "1.2.3.4:5", "data_parallel_rank": 1}, {"endpoint": "1.2.3.4:5"}]}]"#,
            "1.2.3.4:5 is there twice",
        ),
        (
            r#"[{"name": "p", "replicas": [{"endpoint": "1.2.3.4:5", "data_parallel_rank": 1}]},
                {"name": "q", "replicas": [{"endpoint": "1.2.3.4:5", "data_parallel_rank": 2}]}]"#,
            "standalone.pools[1].replicas[0].endpoint: 1.2.3.4:5 is there twice",
        ),
        (
            r#"[{"name": "p", "replica": []}]"#,
            "unknown field `replica`",
        ),
    ] {
        let error = standalone(pools).unwrap_err();
        assert!(error.contains(said), "{error} does not say {said}");
    }
    // One of the two is needed, and not both.
    let both = br#"{"control_plane": {"cluster": "c", "token": "t"}, "standalone":
        {"pools": [{"name": "p", "replicas": [{"endpoint": "1.2.3.4:5"}]}]}}"#;
    for json in [&both[..], b"{}"] {
        let error = config::parse(json).unwrap_err();
        assert!(error.contains("one of them"), "{error}");
    }
    let many: Vec<String> = (0..1_025)
        .map(|n| format!(r#"{{"endpoint": "10.0.0.1:{}"}}"#, n + 1))
        .collect();
    let many = format!(r#"[{{"name": "p", "replicas": [{}]}}]"#, many.join(","));
    assert!(standalone(&many).unwrap_err().contains("at most 1024"));
}
