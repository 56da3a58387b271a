use super::*;

const MINIMAL: &str = "
tokens: [secret-token]
data_dir: state
pools:
  - name: demo
    model_dir: model
    models: [demo]
    clusters: [pool]
    replicas:
      - endpoint: 127.0.0.1:8101
        events: tcp://127.0.0.1:5557
";

fn errors(text: &str) -> String {
    match Config::parse(text) {
        Ok(config) => format!("accepted: {config:?}"),
        Err(ConfigError::Invalid(errors)) => {
            errors.iter().map(|error| format!("{error}\n")).collect()
        }
        Err(other) => other.to_string(),
    }
}

#[test]
fn defaults_are_as_documented() {
    let config = Config::parse(MINIMAL).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:9400");
    assert_eq!(config.fleet_secret, FleetSecret::Generated);
    let numbers = [
        config.snapshot_interval_ms,
        config.scrape_interval_ms,
        config.scrape_timeout_ms,
        config.publish_interval_ms,
        config.startup_grace_ms,
    ];
    assert_eq!(numbers, [10_000, 200, 1000, 3, 5000]);
    assert_eq!((config.down_after_misses, config.page_bytes), (3, 4096));
    assert_eq!(
        (config.log_level.as_str(), config.log_format),
        ("info", LogFormat::Text)
    );
    let pool = &config.pools[0];
    assert_eq!(
        (pool.token_ids, pool.full_reports, pool.utc_offset_minutes),
        (TokenIds::Auto, false, 0)
    );
    assert_eq!(
        (pool.memory_budget_bytes, pool.content_format),
        (1 << 30, ContentFormat::Auto)
    );
    let replica = &pool.replicas[0];
    assert_eq!(replica.name, "127.0.0.1:8101");
    assert_eq!(
        (replica.replay.as_deref(), replica.topic.as_str()),
        (None, "")
    );
    assert_eq!(replica.metrics, "http://127.0.0.1:8101/metrics");
    assert_eq!(replica.health, "http://127.0.0.1:8101/health");
}

#[test]
fn every_field_is_read() {
    let config = Config::parse(
        "
listen: '[::1]:9500'
tokens: [old, new]
token_files: [a, b]
fleet_secret: sixteen-bytes-or-more
data_dir: d
snapshot_interval_ms: 1
scrape_interval_ms: 20
scrape_timeout_ms: 30
down_after_misses: 4
publish_interval_ms: 5
startup_grace_ms: 6
page_bytes: 8192
log_level: debug
log_format: json
pools:
  - name: p
    model_dir: m
    models: [x, y]
    clusters: [c]
    token_ids: on
    full_reports: true
    memory_budget_bytes: 2097152
    utc_offset: '-03:30'
    default_chat_template_kwargs: {enable_thinking: false}
    exclude_tools_when_tool_choice_none: true
    content_format: openai
    replicas:
      - name: r
        endpoint: '[::1]:8000'
        events: 'tcp://[::1]:5557'
        replay: tcp://engine.local:5558
        topic: kv@
        metrics: http://localhost:1/m
        health: http://localhost:1/h
",
    )
    .unwrap();
    assert_eq!(
        (
            config.listen.to_string().as_str(),
            config.tokens.len(),
            config.token_files.len()
        ),
        ("[::1]:9500", 2, 2)
    );
    assert_eq!(
        config.fleet_secret,
        FleetSecret::Inline("sixteen-bytes-or-more".into())
    );
    let pool = &config.pools[0];
    assert_eq!(
        (pool.token_ids, pool.full_reports, pool.utc_offset_minutes),
        (TokenIds::On, true, -210)
    );
    assert_eq!(pool.default_chat_template_kwargs["enable_thinking"], false);
    assert!(pool.exclude_tools_when_tool_choice_none);
    assert_eq!(pool.content_format, ContentFormat::Openai);
    let replica = &pool.replicas[0];
    assert_eq!(replica.events, "tcp://[::1]:5557");
    assert_eq!(replica.replay.as_deref(), Some("tcp://engine.local:5558"));
    assert_eq!(
        (replica.topic.as_str(), replica.health.as_str()),
        ("kv@", "http://localhost:1/h")
    );
}

#[test]
fn all_errors_at_once() {
    let text = "
listen: nonsense
data_dri: x
tokens: [good, 12345]
scrape_interval_ms: fast
log_format: xml
pools:
  - nmae: demo
    model_dir: ''
    models: []
    clusters: pool
    token_ids: maybe
    utc_offset: 2
    memory_budget_bytes: 5
    replicas:
      - endpoint: engine:8000
        events: 127.0.0.1:5557
        replay: tcp://*:5558
        metrics: ftp://x
        colour: red
  - 7
";
    let expected = r#"data_dri: unknown field; did you mean `data_dir`?
listen: "nonsense": expected an address like 127.0.0.1:9400 or [::1]:9400
tokens[1]: expected a token: printable ASCII without spaces (quote it if it is a number)
data_dir: missing: expected a folder
pools[0].nmae: unknown field; did you mean `name`?
pools[0].name: missing: expected a name
pools[0].model_dir: empty: expected the model's folder
pools[0].models: empty: expected at least one model name
pools[0].clusters: "pool": expected a list of strings
pools[0].replicas[0].colour: unknown field; known are name, endpoint, events, replay, topic, metrics, health
pools[0].replicas[0].endpoint: "engine:8000": expected ip:port as Envoy's cluster has it, like 10.0.0.7:8000
pools[0].replicas[0].events: "127.0.0.1:5557": expected a ZMQ endpoint like tcp://10.0.0.7:5557
pools[0].replicas[0].replay: "tcp://*:5558": expected a ZMQ endpoint like tcp://10.0.0.7:5557
pools[0].replicas[0].metrics: "ftp://x": expected a URL like http://10.0.0.7:8000/metrics
pools[0].token_ids: "maybe": expected one of auto, on, off
pools[0].memory_budget_bytes: 5: expected a whole number from 1048576 to 17592186044416
pools[0].utc_offset: 2: expected an offset like +02:00
pools[1]: 7: expected a mapping
scrape_interval_ms: "fast": expected a whole number from 10 to 60000
log_format: "xml": expected one of text, json
"#;
    assert_eq!(errors(text), expected);
}

#[test]
fn what_is_missing_altogether() {
    let expected = "tokens: missing: expected at least one token, here or in token_files
data_dir: missing: expected a folder
pools: missing: expected at least one pool
";
    assert_eq!(errors("{}"), expected);
    assert_eq!(errors("[]"), "[]: expected a mapping\n");
    assert!(
        errors("a: [").starts_with("not YAML: "),
        "{}",
        errors("a: [")
    );
}

#[test]
fn doubles_are_refused() {
    let text = format!(
        "{MINIMAL}
      - endpoint: 127.0.0.1:8101
        name: other
        events: tcp://127.0.0.1:5557
  - name: demo
    model_dir: model
    models: [demo, demo]
    clusters: [pool]
    replicas: []
"
    );
    let expected = r#"pools[1].replicas: empty: expected at least one replica
pools[1].models[1]: the same again
pools[0].replicas[1].endpoint: "127.0.0.1:8101": the same endpoint as pools[0].replicas[0].endpoint
pools[0].replicas[1].events: "tcp://127.0.0.1:5557": the same events endpoint as pools[0].replicas[0].events
pools[1].name: "demo": the same pool name as pools[0].name
pools[1].models: "demo in pool": the same model and cluster as pools[0].models
"#;
    let mut got: Vec<_> = errors(&text).lines().map(str::to_owned).collect();
    let mut wanted: Vec<_> = expected.lines().map(str::to_owned).collect();
    got.sort();
    wanted.sort();
    assert_eq!(got, wanted);
}

#[test]
fn secrets_are_not_shown() {
    let text = MINIMAL
        .replace("[secret-token]", "['with space']")
        .replace("data_dir", "fleet_secret: hunter2\ndata_dir");
    let errors = errors(&text);
    assert!(
        !errors.contains("with space") && !errors.contains("hunter2"),
        "{errors}"
    );
    assert_eq!(errors.lines().count(), 2, "{errors}");
    let config =
        Config::parse(&MINIMAL.replace("data_dir", "fleet_secret: a-long-enough-secret\ndata_dir"))
            .unwrap();
    assert!(!format!("{:?}", config.fleet_secret).contains("long"));
}

#[test]
fn every_field_has_its_documentation() {
    let source = include_str!("../config.rs");
    for name in [read::TOP, read::POOL, read::REPLICA].concat() {
        assert!(source.contains(&format!("`{name}`")), "{name}");
    }
}
