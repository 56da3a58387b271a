//! One fault of an engine, or of what is configured of it, each.

use engine_sim::WireVersion;
use prefix_picker::doctor::Options;
use prefix_picker::doctor::Status::{self, Fail, Ok, Skipped, Warn};

use super::fleet::{Fleet, expect, healthy, item, model_with, run};

type Expected<'a> = (&'a str, &'a str, Status, &'a str, &'a str);

/// The second engine differs: these faults of engines and pools, and no other.
fn check(name: &str, edit: impl FnOnce(&mut engine_sim::Config), expected: &[Expected<'_>]) {
    expect(
        &Fleet::start(name, edit).doctor(),
        &["engine.", "pool."],
        expected,
    );
}

#[test]
fn all_is_well() {
    let report = Fleet::start("well", |_| {}).doctor();
    let is_of_engines = |id: &str| id.starts_with("engine.") || id.starts_with("pool.");
    let ours = || report.items.iter().filter(|item| is_of_engines(item.id));
    let bad: Vec<_> = ours().filter(|item| item.status != Ok).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let ids: std::collections::BTreeSet<_> = ours().map(|item| item.id).collect();
    assert_eq!(ids.len(), 18, "{ids:?}");
}

#[test]
fn an_old_version_is_well_too() {
    for version in [WireVersion(0, 15, 0), WireVersion(0, 24, 0)] {
        let mut fleet = Fleet::start("old", |_| {});
        fleet.engines = ["a", "b"]
            .map(|name| {
                let wire = version;
                engine_sim::spawn(engine_sim::Config {
                    wire,
                    ..healthy(name)
                })
                .unwrap()
            })
            .into();
        let report = fleet.doctor();
        expect(&report, &["engine.", "pool."], &[]);
        // Its hashes begin at random.
        let skipped = report.items.iter().filter(|item| item.status == Skipped);
        let skipped: Vec<_> = skipped.filter(|item| item.id == "engine.hashes").collect();
        assert_eq!(skipped.len(), 2, "{}", report.text(false));
    }
}

#[test]
fn no_events() {
    let fleet = Fleet::start("no-events", |engine| {
        (engine.events, engine.replay) = (None, None);
    });
    let report = fleet.doctor();
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.events",
            "b",
            Fail,
            "nobody listens",
            "enable_kv_cache_events",
        )],
    );
    for id in ["engine.topic", "engine.replay", "engine.event_sources"] {
        let item = item(&report, id, "b");
        assert_eq!(item.status, Skipped, "{item:?}");
        assert_eq!(item.found, "no events: see engine.events");
    }
}

/// What the engine says of its events tells the cure, and is no second fault.
#[test]
fn events_and_replay_at_other_ports() {
    let fleet = Fleet::start("ports", |_| {});
    let engine = &fleet.engines[1];
    let (events, replay) = (
        engine.events_endpoint().unwrap(),
        engine.replay_endpoint().unwrap(),
    );
    let nobody = format!("tcp://127.0.0.1:{}", super::fleet::free_port());
    let at = |field: &str, from: &str, to: &str| {
        let yaml = fleet.yaml();
        let from = format!(", {field}: '{from}'");
        assert!(yaml.contains(&from), "{yaml}");
        let to = match to {
            "" => String::new(),
            to => format!(", {field}: '{to}'"),
        };
        let yaml = yaml.replace(&from, &to);
        run(
            &prefix_picker::config::Config::parse(&yaml).unwrap(),
            &Options::default(),
        )
    };
    for (field, from, to, id, status, found) in [
        (
            "events",
            &events,
            nobody.as_str(),
            "engine.events",
            Fail,
            "nobody listens there",
        ),
        (
            "replay",
            &replay,
            &nobody,
            "engine.replay",
            Fail,
            "nobody listens there",
        ),
        ("replay", &replay, &events, "engine.replay", Fail, "(PUB)"),
        ("replay", &replay, "", "engine.replay", Warn, "no `replay`"),
    ] {
        let report = at(field, from, to);
        let cure = format!("`{field}`");
        expect(&report, &["engine."], &[(id, "b", status, found, &cure)]);
        let fault = item(&report, id, "b");
        assert!(fault.fix.contains(from.as_str()), "{fault:?}");
        assert!(!fault.fix.contains("start the engine"), "{fault:?}");
        let sources = item(&report, "engine.event_sources", "b");
        assert_eq!(sources.status, Skipped, "{sources:?}");
        assert!(sources.found.contains(id), "{sources:?}");
    }
}

/// A port of another number leads to the engine's own, as a service's or a container's may.
#[test]
fn ports_are_mapped_on_the_way() {
    let fleet = Fleet::start("mapped", |_| {});
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let inner = fleet.engines[1].events_endpoint().unwrap();
    let at = inner.strip_prefix("tcp://").unwrap().to_owned();
    let listener = runtime
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let outer = format!("tcp://{}", listener.local_addr().unwrap());
    runtime.spawn(async move {
        while let Result::Ok((mut from, _)) = listener.accept().await {
            let at = at.clone();
            tokio::spawn(async move {
                let mut to = tokio::net::TcpStream::connect(at).await.unwrap();
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    let yaml = fleet.yaml().replace(&inner, &outer);
    let report = run(
        &prefix_picker::config::Config::parse(&yaml).unwrap(),
        &Options::default(),
    );
    expect(&report, &["engine."], &[]);
    let sources = item(&report, "engine.event_sources", "b");
    assert_eq!(sources.status, Ok, "{sources:?}");
    assert!(sources.found.contains("ports are mapped"), "{sources:?}");
}

/// Without requests nothing else tells: what is found and its cure must agree.
#[test]
fn what_only_the_engine_says_of_its_events() {
    let mut fleet = Fleet::start("only-sources", |_| {});
    fleet.replica = ", topic: kv@".to_owned();
    let quiet = Options {
        probe: false,
        ..Options::default()
    };
    let report = run(&fleet.config(), &quiet);
    let sources = item(&report, "engine.event_sources", "b");
    assert_eq!(sources.status, Warn, "{sources:?}");
    assert!(
        sources.found.contains("topic") && sources.fix.contains("`topic`"),
        "{sources:?}"
    );
}

#[test]
fn wrong_topic() {
    let mut fleet = Fleet::start("topic", |engine| engine.topic = "kv@pod-b@sim".to_owned());
    fleet.replica = ", topic: kv@".to_owned();
    fleet.engines[0] = engine_sim::spawn(engine_sim::Config {
        topic: "kv@pod-a@sim".to_owned(),
        ..healthy("a")
    })
    .unwrap();
    expect(&fleet.doctor(), &["engine."], &[]);
    fleet.replica = ", topic: kv@pod-a".to_owned();
    expect(
        &fleet.doctor(),
        &["engine."],
        &[(
            "engine.topic",
            "b",
            Fail,
            "\"kv@pod-b@sim\"",
            "set the replica's `topic` to \"kv@pod-b@sim\"",
        )],
    );
}

#[test]
fn wrong_template() {
    let mut fleet = Fleet::start("template", |_| {});
    fleet.model_dir = model_with(&fleet.state.0, "chat_template.jinja", |text| {
        let turn = "message.role + '\\n'";
        assert!(text.contains(turn));
        text.replace(turn, "message.role + ':\\n'")
    });
    let fault = "the engine has";
    expect(
        &fleet.doctor(),
        &["engine."],
        &[
            ("engine.template", "a", Fail, fault, "`chat_template`"),
            ("engine.template", "b", Fail, fault, "`chat_template`"),
        ],
    );
}

#[test]
fn a_template_that_is_wrong_with_tools_only() {
    let mut fleet = Fleet::start("tools", |_| {});
    fleet.model_dir = model_with(&fleet.state.0, "chat_template.jinja", |text| {
        assert!(text.contains("# Tools"));
        text.replace("# Tools", "# Functions")
    });
    let found = fleet.doctor();
    let item = found.items.iter().find(|item| item.id == "engine.template");
    let item = item.unwrap();
    assert_eq!(item.status, Fail);
    assert!(
        item.found.contains("# Tools") && item.found.contains("# Functions"),
        "{item:?}"
    );
}

#[test]
fn wrong_tokenizer() {
    let mut fleet = Fleet::start("tokenizer", |_| {});
    // Of another model: the same words, with other ids.
    fleet.model_dir = model_with(&fleet.state.0, "tokenizer.json", |text| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let vocab = json["model"]["vocab"].as_object_mut().unwrap();
        let last = vocab.len() as u64 - 1;
        vocab
            .values_mut()
            .for_each(|id| *id = serde_json::json!(last - id.as_u64().unwrap()));
        json.to_string()
    });
    let fault = "a text";
    expect(
        &fleet.doctor(),
        &["engine."],
        &[
            ("engine.tokenizer", "a", Fail, fault, "`model_dir`"),
            ("engine.tokenizer", "b", Fail, fault, "`model_dir`"),
        ],
    );
}

#[test]
fn a_tokenizer_that_cuts_otherwise() {
    let mut fleet = Fleet::start("merges", |_| {});
    // The same vocabulary, but it never joins what stands behind a space.
    fleet.model_dir = model_with(&fleet.state.0, "tokenizer.json", |text| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["model"]["merges"] = serde_json::json!([]);
        json.to_string()
    });
    let report = fleet.doctor();
    let faults = super::fleet::faults(&report, &["engine."]);
    assert!(
        faults.iter().all(|item| item.id == "engine.tokenizer"),
        "{}",
        report.text(false)
    );
    assert!(
        faults.len() == 2 && faults[0].found.contains("other tokens"),
        "{faults:?}"
    );
}

#[test]
fn replay_missing() {
    check(
        "replay",
        |engine| engine.replay = None,
        &[(
            "engine.replay",
            "b",
            Fail,
            "does not answer",
            "replay_endpoint",
        )],
    );
}

#[test]
fn engine_down() {
    let fleet = Fleet::start("down", |_| {});
    fleet.engines[1].die();
    let started = std::time::Instant::now();
    let report = fleet.doctor();
    expect(
        &report,
        &["engine.", "pool."],
        &[(
            "engine.reachable",
            "b",
            Fail,
            "nobody answers",
            "start the engine",
        )],
    );
    assert!(started.elapsed().as_secs() < 20);
    // As of one that hangs.
    let others = report.items.iter();
    let others = others.filter(|item| item.subject == "b" && item.id != "engine.reachable");
    let others: Vec<_> = others.collect();
    assert_eq!(others.len(), 13, "{}", report.text(false));
    for other in others {
        assert_eq!(other.status, Skipped, "{other:?}");
        assert_eq!(other.found, "nobody answers: see engine.reachable");
    }
}

/// The health check is asked where nobody is, and the engine is there.
#[test]
fn health_is_asked_elsewhere() {
    let mut fleet = Fleet::start("health", |_| {});
    fleet.engines.truncate(1);
    let nobody = super::fleet::free_port();
    fleet.replica = format!(", health: 'http://127.0.0.1:{nobody}/health'");
    let report = fleet.doctor();
    expect(
        &report,
        &["engine."],
        &[("engine.reachable", "a", Fail, "nobody answers", "`health`")],
    );
    assert_eq!(item(&report, "engine.models", "a").status, Ok);
}

#[test]
fn a_dead_fleet_is_told_in_time() {
    let mut fleet = Fleet::start("dead", |_| {});
    fleet.engines.iter().for_each(engine_sim::Engine::die);
    let yaml = fleet.yaml();
    // As many dead ones as a page has room for; 192.0.2.0/24 leads nowhere.
    let more = (1..=200).map(|n| {
        format!("  - {{endpoint: '192.0.2.{n}:8000', events: 'tcp://192.0.2.{n}:5557', replay: 'tcp://192.0.2.{n}:5558'}}\n")
    });
    let config = prefix_picker::config::Config::parse(&(yaml + &more.collect::<String>())).unwrap();
    let started = std::time::Instant::now();
    let report = run(&config, &Options::default());
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    let told = report
        .items
        .iter()
        .filter(|item| item.id == "engine.reachable");
    assert_eq!(told.count(), 202);
    assert!(report.has_failed());
    fleet.engines.clear();
}

#[test]
fn an_unhealthy_engine() {
    let fleet = Fleet::start("unhealthy", |_| {});
    let url = format!("{}/sim/fault", fleet.engines[1].url());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fault = serde_json::json!({"kind": "unhealthy"});
    let post = reqwest::Client::new().post(url).json(&fault).send();
    assert!(runtime.block_on(post).unwrap().status().is_success());
    let report = fleet.doctor();
    let faults = super::fleet::faults(&report, &["engine.reachable"]);
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].found.contains("503") && faults[0].fix.contains("restart"),
        "{faults:?}"
    );
}

#[test]
fn prefix_caching_off() {
    check(
        "caching",
        |engine| engine.prefix_caching = false,
        &[
            (
                "engine.prefix_caching",
                "b",
                Fail,
                "prefix caching is off",
                "--enable-prefix-caching",
            ),
            (
                "engine.events",
                "b",
                Fail,
                "nobody listens",
                "--enable-prefix-caching",
            ),
        ],
    );
}

#[test]
fn mixed_block_sizes() {
    check(
        "blocks",
        |engine| engine.block_size = 32,
        &[(
            "pool.block_size",
            "demo",
            Warn,
            "16 (a), 32 (b)",
            "--block-size",
        )],
    );
}

#[test]
fn mixed_versions() {
    check(
        "versions",
        |engine| engine.wire = WireVersion(0, 31, 0),
        &[(
            "pool.version",
            "demo",
            Warn,
            "0.31.0 (b), 0.32.0 (a)",
            "roll-out",
        )],
    );
}

#[test]
fn no_prompt_tokens_details() {
    check(
        "details",
        |engine| engine.prompt_tokens_details = false,
        &[(
            "engine.cached_tokens",
            "b",
            Warn,
            "does not tell cached_tokens",
            "--enable-prompt-tokens-details",
        )],
    );
}

#[test]
fn no_usage_in_streams() {
    check(
        "streams",
        |engine| engine.force_include_usage = false,
        &[(
            "engine.stream_usage",
            "b",
            Warn,
            "only where the client asks",
            "--enable-force-include-usage",
        )],
    );
}

#[test]
fn hash_seed() {
    let seed = |seed: &str| {
        let seed = seed.to_owned();
        move |engine: &mut engine_sim::Config| engine.python_hash_seed = Some(seed)
    };
    check(
        "seed",
        seed("0"),
        &[(
            "engine.hashes",
            "b",
            Warn,
            "PYTHONHASHSEED=0",
            "must all have the same",
        )],
    );
    check(
        "seed",
        seed("8215"),
        &[(
            "engine.hashes",
            "b",
            Warn,
            "not those of vLLM's own seed",
            "--python-hash-seed",
        )],
    );
    // All have one, and it is told: the one without it is the odd one.
    let fleet = Fleet::start("seed", seed("8215"));
    let options = Options {
        python_hash_seed: Some("8215".to_owned()),
        ..Options::default()
    };
    expect(
        &run(&fleet.config(), &options),
        &["engine."],
        &[(
            "engine.hashes",
            "a",
            Warn,
            "no PYTHONHASHSEED",
            "set PYTHONHASHSEED=8215",
        )],
    );
}

#[test]
fn prefill_and_decode_apart() {
    for role in ["kv_producer", "kv_consumer"] {
        check(
            "roles",
            |engine| engine.kv_role = Some(role.to_owned()),
            &[(
                "engine.disaggregated",
                "b",
                Fail,
                role,
                "take engines that only prefill",
            )],
        );
    }
    check(
        "roles",
        |engine| engine.kv_role = Some("kv_both".to_owned()),
        &[],
    );
}

#[test]
fn ranks_that_are_not_configured() {
    let ports = free_ports_in_a_row();
    check(
        "ranks",
        |engine| {
            engine.data_parallel_size = 2;
            engine.events = Some(format!("tcp://*:{}", ports));
            engine.replay = Some(format!("tcp://*:{}", ports + 2));
        },
        &[(
            "engine.ranks",
            "b",
            Fail,
            "2 data-parallel ranks",
            "list a replica for each rank",
        )],
    );
}

fn free_ports_in_a_row() -> u16 {
    loop {
        let first = super::fleet::free_port();
        let is_free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        if first < 65_000 && (first..first + 4).all(is_free) {
            return first;
        }
    }
}

#[test]
fn another_model_name() {
    check(
        "names",
        |engine| engine.model = "other".to_owned(),
        &[(
            "engine.models",
            "b",
            Fail,
            "\"other\"",
            "--served-model-name",
        )],
    );
}

#[test]
fn no_requests_are_sent_where_none_shall_be() {
    let fleet = Fleet::start("quiet", |_| {});
    let options = Options {
        probe: false,
        ..Options::default()
    };
    let report = run(&fleet.config(), &options);
    expect(&report, &["engine."], &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for engine in &fleet.engines {
        let get = async {
            reqwest::get(format!("{}/metrics", engine.url()))
                .await?
                .text()
                .await
        };
        let text = runtime.block_on(get).unwrap();
        assert!(
            text.contains("vllm:prompt_tokens_total{engine=\"0\",model_name=\"sim\"} 0.0"),
            "{text}"
        );
    }
}

#[test]
fn an_engine_that_embeds() {
    let mut fleet = Fleet::start("embeds", |_| {});
    fleet.engines = ["a", "b"]
        .map(|name| {
            let pooling = true;
            let config = engine_sim::Config {
                pooling,
                ..healthy(name)
            };
            engine_sim::spawn(config).unwrap()
        })
        .into();
    let report = fleet.doctor();
    expect(&report, &["engine.", "pool."], &[]);
    let events = report.items.iter().find(|item| item.id == "engine.events");
    assert_eq!(events.unwrap().status, Ok, "{}", report.text(false));
}

#[test]
fn engines_by_ipv6() {
    let mut fleet = Fleet::start("ipv6", |_| {});
    fleet.engines = vec![
        engine_sim::spawn(engine_sim::Config {
            listen: "[::1]:0".parse().unwrap(),
            events: Some("tcp://[::1]:0".to_owned()),
            replay: Some("tcp://[::1]:0".to_owned()),
            ..healthy("[::1]")
        })
        .unwrap(),
    ];
    let yaml = fleet.yaml().replace("name: [::1], ", "");
    assert!(
        yaml.contains("endpoint: '[::1]:") && yaml.contains("tcp://[::1]:"),
        "{yaml}"
    );
    let report = run(
        &prefix_picker::config::Config::parse(&yaml).unwrap(),
        &Options::default(),
    );
    let bad = report
        .items
        .iter()
        .filter(|item| item.id.starts_with("engine.") && item.status != Ok);
    assert_eq!(bad.count(), 0, "{}", report.text(false));
    assert!(
        report
            .items
            .iter()
            .any(|item| item.subject.starts_with("[::1]:"))
    );
}
