use super::*;

mod unworkable;

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
        config.models_interval_ms,
    ];
    assert_eq!(numbers, [10_000, 200, 1000, 3, 5000, 2000]);
    assert_eq!((config.down_after_misses, config.page_bytes), (3, 4096));
    assert_eq!(
        (config.log_level.as_str(), config.log_format),
        ("info", LogFormat::Text)
    );
    let pool = &config.pools[0];
    assert_eq!(
        (pool.token_ids, pool.full_reports, pool.memory_budget_bytes),
        (TokenIds::Auto, false, 1 << 30)
    );
    assert_eq!(pool.engine, EngineFlags::default());
    assert_eq!(
        (pool.adapters_on_demand, pool.api_key_file.as_ref()),
        (false, None)
    );
    let replica = &pool.replicas[0];
    assert_eq!(replica.name, "127.0.0.1:8101");
    assert_eq!(
        (replica.replay.as_deref(), replica.topic.as_str()),
        (None, "")
    );
    assert_eq!(replica.metrics, "http://127.0.0.1:8101/metrics");
    assert_eq!(replica.health, "http://127.0.0.1:8101/health");
    assert_eq!(replica.api, "http://127.0.0.1:8101");
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
models_interval_ms: 700
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
    adapters_on_demand: true
    api_key_file: key
    utc_offset: '-03:30'
    tokenizer_mode: hf
    chat_template: t.jinja
    default_chat_template_kwargs: {enable_thinking: false}
    exclude_tools_when_tool_choice_none: true
    chat_template_content_format: openai
    interleave_mm_strings: true
    trust_request_chat_template: true
    reasoning_effort_map: {minimal: low}
    anthropic_disabled_thinking_effort: low
    media_strings: {image: '<image_{i}>', audio: '<audio>'}
    media_io_kwargs: {video: {num_frames: 8}}
    system_start_date: '2026-11-29'
    harmony_system_instructions: true
    tool_server: true
    vllm_version: 0.32.0
    replicas:
      - name: r
        endpoint: '[::1]:8000'
        events: 'tcp://[::1]:5557'
        replay: tcp://engine.local:5558
        topic: kv@
        metrics: http://localhost:1/m
        health: http://localhost:1/h
        api: http://localhost:1/root/
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
        (pool.token_ids, pool.full_reports, pool.adapters_on_demand),
        (TokenIds::On, true, true)
    );
    assert_eq!(config.models_interval_ms, 700);
    assert_eq!(pool.api_key_file.as_deref(), Some(Path::new("key")));
    let map = |json: serde_json::Value| json.as_object().unwrap().clone();
    let flags = EngineFlags {
        tokenizer_mode: crate::profiles::TokenizerMode::Hf,
        chat_template: Some("t.jinja".into()),
        content_format: ContentFormat::Openai,
        default_chat_template_kwargs: map(serde_json::json!({"enable_thinking": false})),
        exclude_tools_when_tool_choice_none: true,
        interleave_mm_strings: true,
        trust_request_chat_template: true,
        reasoning_effort_map: map(serde_json::json!({"minimal": "low"})),
        anthropic_disabled_thinking_effort: Some("low"),
        media_strings: [("audio", "<audio>"), ("image", "<image_{i}>")]
            .map(|(modality, text)| (modality.to_owned(), text.to_owned()))
            .into(),
        renames_media: true,
        utc_offset_minutes: -210,
        system_start_date: Some("2026-11-29".into()),
        harmony_system_instructions: true,
        tool_server: true,
        vllm_version: Some("0.32.0".into()),
    };
    assert_eq!(pool.engine, flags);
    let replica = &pool.replicas[0];
    assert_eq!(replica.events, "tcp://[::1]:5557");
    assert_eq!(replica.replay.as_deref(), Some("tcp://engine.local:5558"));
    assert_eq!(
        (replica.topic.as_str(), replica.health.as_str()),
        ("kv@", "http://localhost:1/h")
    );
    assert_eq!(replica.api, "http://localhost:1/root");
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
    tokenizer_mode: fast
    anthropic_disabled_thinking_effort: off
    media_strings: {smell: x, image: 7}
    mm_processor_kwargs: fast
    enable_tower_connector_lora: 1
    chat_templat: x
    reasoning_effort_map: low
    content_format: string
    chat_template_content_format: string
    vllm_version: 0.32
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
pools[0].chat_templat: unknown field; did you mean `chat_template`?
pools[0].name: missing: expected a name
pools[0].model_dir: empty: expected the model's folder
pools[0].models: empty: expected at least one model name
pools[0].clusters: "pool": expected a list of strings
pools[0].replicas[0].colour: unknown field; known are name, endpoint, data_parallel_rank, events, replay, topic, metrics, health, api
pools[0].replicas[0].endpoint: "engine:8000": expected ip:port as Envoy's cluster has it, like 10.0.0.7:8000 or "[fd00::7]:8000" (for names there is discovery)
pools[0].replicas[0].events: "127.0.0.1:5557": expected a ZMQ endpoint like tcp://10.0.0.7:5557 or tcp://[fd00::7]:5557
pools[0].replicas[0].replay: "tcp://*:5558": expected a ZMQ endpoint like tcp://10.0.0.7:5557 or tcp://[fd00::7]:5557
pools[0].replicas[0].metrics: "ftp://x": expected a URL like http://10.0.0.7:8000/metrics
pools[0].token_ids: "maybe": expected one of auto, on, off
pools[0].memory_budget_bytes: 5: expected a whole number from 1048576 to 17592186044416
pools[0].tokenizer_mode: "fast": expected one of auto, hf, mistral, deepseek_v32, deepseek_v4, deepseek_v41, cohere, inkling, kimi_audio, kimi_k3
pools[0].content_format: both this and chat_template_content_format: expected one of them
pools[0].reasoning_effort_map: "low": expected a mapping
pools[0].anthropic_disabled_thinking_effort: "off": expected one of auto, none, low, medium, high, xhigh, max
pools[0].media_strings.smell: unknown modality: expected audio, image or video
pools[0].media_strings.image: 7: expected a text like <image>
pools[0].mm_processor_kwargs: "fast": expected a mapping
pools[0].enable_tower_connector_lora: 1: expected true or false
pools[0].utc_offset: 2: expected an offset like +02:00
pools[0].vllm_version: 0.32: expected a version like 0.32.0 (quote it)
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
        errors("a: [").starts_with("line 1, column 4: not YAML: "),
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
pools[0].replicas[1].endpoint: "127.0.0.1:8101": the same endpoint as pools[0].replicas[0].endpoint (only ranks of one engine may share it, in one pool, each with its own data_parallel_rank)
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

/// One address has several forms, and a figure of one engine is not another's.
#[test]
fn doubles_in_other_words_are_refused() {
    let text = format!(
        "{MINIMAL}
      - {{endpoint: '[::ffff:127.0.0.1]:8101', events: 'tcp://[::ffff:127.0.0.1]:5557'}}
      - {{endpoint: '127.0.0.1:8103', events: 'tcp://127.0.0.1:5559', replay: 'tcp://127.0.0.1:5570'}}
      - {{endpoint: '127.0.0.1:8104', events: 'tcp://127.0.0.1:5561', replay: 'tcp://[::ffff:127.0.0.1]:5570'}}
      - {{endpoint: '127.0.0.1:8105', events: 'tcp://127.0.0.1:5563', metrics: 'http://127.0.0.1:8104/metrics'}}
"
    );
    let expected = r#"pools[0].replicas[1].endpoint: "[::ffff:127.0.0.1]:8101": the same endpoint as pools[0].replicas[0].endpoint (only ranks of one engine may share it, in one pool, each with its own data_parallel_rank)
pools[0].replicas[1].events: "tcp://[::ffff:127.0.0.1]:5557": the same events endpoint as pools[0].replicas[0].events
pools[0].replicas[3].replay: "tcp://[::ffff:127.0.0.1]:5570": the same replay endpoint as pools[0].replicas[2].replay
pools[0].replicas[4].metrics: "http://127.0.0.1:8104/metrics": the same as of pools[0].replicas[3], which is another engine: expected this one's own
"#;
    assert_eq!(errors(&text), expected);
}

#[test]
fn what_cannot_be_an_address_or_a_date() {
    let field = |line: &str| {
        let text = format!("{MINIMAL}        {line}\n");
        errors(&text).trim_end().to_owned()
    };
    assert_eq!(
        field("api: http://10.0.0.7:8000/v1/"),
        "pools[0].replicas[0].api: \"http://10.0.0.7:8000/v1/\": expected a URL like http://10.0.0.7:8000, without the /v1"
    );
    assert_eq!(
        field("health: /healthz"),
        "pools[0].replicas[0].health: \"/healthz\": expected a URL like http://10.0.0.7:8000/health"
    );
    let date = |date: &str| errors(&format!("{MINIMAL}    system_start_date: '{date}'\n"));
    for good in ["2026-11-30", "2028-02-29", "2000-02-29"] {
        assert!(date(good).starts_with("accepted"), "{good}");
    }
    for bad in [
        "2026-02-29",
        "2026-13-01",
        "2026-04-31",
        "2026-00-01",
        "2026-01-00",
        "1900-02-29",
    ] {
        assert!(date(bad).contains("expected a date"), "{bad}");
    }
}

/// What a `[` begins is a list to YAML.
#[test]
fn addresses_without_quotes() {
    for line in [
        "listen: [::1]:9400\n",
        "pools: [{endpoint: [::1]:8101}]\n",
        "a: 1\nlisten: [fd00::7]:9400\nb: 2\n",
    ] {
        let told = errors(line);
        assert!(
            told.contains("quote an IPv6 address: \"["),
            "{line}: {told}"
        );
    }
    for line in ["a: [1]:2\n", "listen: '[::1]:9400\n"] {
        let told = errors(line);
        assert!(!told.contains("IPv6"), "{line}: {told}");
    }
}

#[test]
fn ranks_of_one_engine_share_its_endpoint() {
    let replica = |endpoint: &str, port: u16, rank: &str| {
        format!("      - {{endpoint: '{endpoint}', events: 'tcp://127.0.0.1:{port}', {rank}}}\n")
    };
    let with = |more: &[String]| format!("{MINIMAL}{}", more.concat());
    let ranks = with(&[
        replica("[::1]:8102", 5561, "data_parallel_rank: 0"),
        replica("[::1]:8102", 5562, "data_parallel_rank: 65534"),
    ]);
    let config = Config::parse(&ranks).unwrap();
    let replicas = &config.pools[0].replicas;
    let names: Vec<_> = replicas.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(
        names,
        ["127.0.0.1:8101", "[::1]:8102#0", "[::1]:8102#65534"]
    );
    assert_eq!(replicas[0].data_parallel_rank, None);
    assert_eq!(replicas[2].data_parallel_rank, Some(65_534));
    assert_eq!(replicas[1].metrics, replicas[2].metrics);
    // A name of one's own may look like that, too.
    let config = with(&[replica("[::1]:8102", 5561, "name: 'gpu-1#0'")]);
    assert!(Config::parse(&config).is_ok());

    let shared = "the same endpoint as pools[0].replicas[0].endpoint";
    for (rank, said) in [
        ("data_parallel_rank: 1", shared),
        ("name: other", shared),
        (
            "data_parallel_rank: 65535",
            "a whole number from 0 to 65534",
        ),
        ("data_parallel_rank: -1", "a whole number from 0 to 65534"),
        ("rank: 1", "unknown field"),
    ] {
        let errors = errors(&with(&[replica("127.0.0.1:8101", 5561, rank)]));
        assert!(errors.contains(said), "{rank}: {errors}");
    }
    let twice = errors(&with(&[
        replica("[::1]:8102", 5561, "data_parallel_rank: 1"),
        replica("[::1]:8102", 5562, "data_parallel_rank: 1, name: other"),
    ]));
    assert!(
        twice.contains("the same endpoint as pools[0].replicas[1]"),
        "{twice}"
    );
    let other_pool = "  - {name: q, model_dir: m, models: [q], clusters: [c], replicas: [\
        {endpoint: '[::1]:8102', events: 'tcp://127.0.0.1:5563', data_parallel_rank: 1}]}\n";
    let first = replica("[::1]:8102", 5561, "data_parallel_rank: 0");
    let apart = errors(&with(&[first, other_pool.to_owned()]));
    assert!(
        apart.contains("pools[1].replicas[0].endpoint: \"[::1]:8102\""),
        "{apart}"
    );
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
    let source = concat!(
        include_str!("../config.rs"),
        include_str!("discovery.rs"),
        include_str!("flags.rs")
    );
    let names = [read::TOP, read::POOL, flags::FIELDS, read::REPLICA];
    let discovery = [discovery::FIELDS, discovery::DNS, discovery::KUBERNETES];
    for name in [names.concat(), discovery.concat()].concat() {
        assert!(source.contains(&format!("`{name}`")), "{name}");
    }
}

pub(crate) fn discovering(discovery: &str) -> Result<DiscoveryConfig, String> {
    let pool = "{name: demo, model_dir: model, models: [demo], clusters: [pool]";
    let text = format!("tokens: [t]\ndata_dir: d\npools: [{pool}, discovery: {discovery}}}]");
    match Config::parse(&text) {
        Ok(mut config) => Ok(config.pools[0].discovery.take().unwrap()),
        Err(_) => Err(errors(&text)),
    }
}

#[test]
fn discovery_has_defaults() {
    let dns = discovering("{dns: {name: vllm.ml.svc}}").unwrap();
    let expected = DiscoveryConfig {
        source: SourceConfig::Dns(DnsConfig {
            name: "vllm.ml.svc".into(),
            records: Records::Addresses(8000),
            interval_ms: 5_000,
            server: None,
        }),
        events_port: 5557,
        replay_port: Some(5558),
        topic: String::new(),
        data_parallel_size: 1,
        metrics_port: None,
        metrics_path: "/metrics".into(),
        health_path: "/health".into(),
    };
    assert_eq!(dns, expected);
    let kubernetes = discovering("{kubernetes: {label_selector: app=vllm}}").unwrap();
    let expected = KubernetesConfig {
        namespace: None,
        pods: Pods::Labels("app=vllm".into()),
        port: None,
        kubeconfig: None,
        api_server: None,
        token_file: None,
        ca_file: None,
    };
    assert_eq!(kubernetes.source, SourceConfig::Kubernetes(expected));
}

#[test]
fn discovery_is_read() {
    let all = discovering(
        "{kubernetes: {namespace: ml, inference_pool: p, port: http, api_server: 'https://[::1]:6443', token_file: t, ca_file: c},
          events_port: 6000, replay_port: none, topic: kv, data_parallel_size: 4, metrics_port: 9, metrics_path: /m, health_path: /h}",
    );
    let all = all.unwrap();
    let SourceConfig::Kubernetes(of) = &all.source else {
        panic!("{all:?}");
    };
    assert_eq!(
        (of.namespace.as_deref(), &of.port),
        (Some("ml"), &Some(PodPort::Name("http".into())))
    );
    assert_eq!(of.pods, Pods::InferencePool("p".into()));
    assert_eq!(
        (all.events_port, all.replay_port, all.data_parallel_size),
        (6000, None, 4)
    );
    assert_eq!(
        (
            all.metrics_port,
            all.metrics_path.as_str(),
            all.health_path.as_str()
        ),
        (Some(9), "/m", "/h")
    );
    let srv = discovering("{dns: {name: _http._tcp.vllm, type: srv, server: '[::1]:53'}}").unwrap();
    let SourceConfig::Dns(of) = &srv.source else {
        panic!("{srv:?}");
    };
    assert_eq!((of.records, of.server.is_some()), (Records::Srv, true));
    // Other replicas may be listed besides.
    let both = format!("{MINIMAL}    discovery: {{dns: {{name: n}}}}\n");
    let both = Config::parse(&both).unwrap();
    assert!(both.replicas().count() == 1 && both.pools[0].discovery.is_some());
}

#[test]
fn discovery_that_cannot_be_is_refused() {
    let cases = [
        ("{}", "discovery.dns: missing: expected dns or kubernetes"),
        (
            "{dns: {name: n}, kubernetes: {label_selector: a=b}}",
            "discovery.kubernetes: both this and dns",
        ),
        ("{dns: {}}", "discovery.dns.name: missing"),
        (
            "{dns: {name: n, type: srv, port: 1}}",
            "discovery.dns.port: with type srv",
        ),
        (
            "{dns: {name: n, server: dns.test}}",
            "discovery.dns.server: \"dns.test\": expected a DNS server's ip:port",
        ),
        ("{dns: {name: n, prot: 1}}", "did you mean `port`?"),
        (
            "{kubernetes: {}}",
            "discovery.kubernetes.label_selector: missing",
        ),
        (
            "{kubernetes: {label_selector: a, inference_pool: b}}",
            "discovery.kubernetes.inference_pool: both this and",
        ),
        (
            "{kubernetes: {label_selector: a, token_file: t}}",
            "token_file: without api_server",
        ),
        (
            "{kubernetes: {label_selector: a, api_server: 'ftp://x'}}",
            "expected a URL like https://",
        ),
        (
            "{kubernetes: {label_selector: a, api_server: 'http://x', kubeconfig: k}}",
            "api_server: both this and kubeconfig",
        ),
        (
            "{dns: {name: n}, data_parallel_size: 2}",
            "discovery.replay_port: 5558: rank n publishes at 5557 plus n",
        ),
        (
            "{dns: {name: n}, data_parallel_size: 2, replay_port: 65535}",
            "65535: with 2 ranks ports go beyond 65535",
        ),
        (
            "{dns: {name: n}, replay_port: 5557}",
            "replay_port: 5557: rank n",
        ),
        (
            "{dns: {name: n}, metrics_path: m}",
            "metrics_path: \"m\": does not begin with /",
        ),
    ];
    for (discovery, part) in cases {
        let error = discovering(discovery).unwrap_err();
        assert!(error.contains(part), "{discovery}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(discovering("{dns: {name: n}, data_parallel_size: 2, replay_port: 6557}").is_ok());
}

#[test]
fn operators_have_tokens_of_their_own() {
    let with = |more: &str| Config::parse(&format!("{MINIMAL}\n{more}\n"));
    let none = with("").unwrap();
    assert!(none.admin_tokens.is_empty() && none.admin_token_files.is_empty());
    let some = with("admin_tokens: [operator]\nadmin_token_files: [ops.token]").unwrap();
    assert_eq!(some.admin_tokens, ["operator"]);
    assert_eq!(some.admin_token_files, [Path::new("ops.token")]);
    for (bad, expected) in [
        ("admin_tokens: [secret-token]", "every gateway could drain"),
        (
            "admin_tokens: [two words]",
            "admin_tokens[0]: expected a token",
        ),
        ("admin_token: x", "did you mean `admin_tokens`?"),
    ] {
        let error = with(bad).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("two words"), "{error}");
    }
}
