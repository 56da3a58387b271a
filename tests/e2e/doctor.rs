//! `prefix-picker doctor` against a whole installation: all ok; and against gateways and traffic that
//! are broken in one way each, in real Envoy.

use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use held_ports::Held;
use prefix_picker_tests::client::Client;
use prefix_picker_tests::ports;
use prefix_picker_tests::process::Process;
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use serde_json::Value;

use crate::accuracy::real_engines;
use crate::faults::{chat, words};

const PATH: &str = "/v1/chat/completions";

/// A gateway with one fault.
struct Broken {
    name: &'static str,
    /// What is taken out of Envoy's file, from here until there, and what takes its place.
    from: &'static str,
    until: &'static str,
    to: &'static str,
    id: &'static str,
    status: &'static str,
    /// Words of what was found, and of the cure.
    found: &'static str,
    fix: &'static str,
}

const BROKEN: [Broken; 7] = [
    Broken {
        name: "flag",
        from: "                allow_on_headers_stop_iteration: true\n",
        until: "",
        to: "",
        id: "gateway.flag",
        status: "fail",
        found: "requests with a body hang",
        fix: "allow_on_headers_stop_iteration: true",
    },
    Broken {
        name: "override",
        from: "    load_balancing_policy:\n",
        until: "    circuit_breakers:\n",
        to: "    lb_policy: LEAST_REQUEST\n",
        id: "gateway.override_host",
        status: "fail",
        found: "LEAST_REQUEST",
        fix: "override_host_sources",
    },
    Broken {
        name: "limit",
        from: "              request_body_buffer_limit: 33554432\n",
        until: "",
        to: "",
        id: "gateway.buffer_limit",
        status: "fail",
        found: "per_connection_buffer_limit_bytes is 1048576",
        fix: "request_body_buffer_limit: 33554432",
    },
    Broken {
        name: "token",
        from: "\"token\": \"change-me-gateway-token\"",
        until: "",
        to: "\"token\": \"another\"",
        id: "gateway.token",
        status: "fail",
        found: "its polls are refused",
        fix: "`tokens`",
    },
    Broken {
        name: "policy",
        from: "failure_policy: FAIL_RELOAD",
        until: "",
        to: "failure_policy: FAIL_OPEN",
        id: "gateway.failure_policy",
        status: "warn",
        found: "FAIL_OPEN",
        fix: "FAIL_RELOAD",
    },
    Broken {
        name: "removal",
        from: "          early_header_mutation_extensions:\n",
        until: "          access_log:\n",
        to: "",
        id: "gateway.destination_header",
        status: "warn",
        found: "by the filter only",
        fix: "early_header_mutation_extensions",
    },
    Broken {
        name: "endpoints",
        from: "THIRD",
        until: "",
        to: "",
        id: "gateway.endpoints",
        status: "fail",
        found: "lacks the replicas",
        fix: "the same addresses",
    },
];

pub(crate) async fn doctor(places: &Places) -> Result<()> {
    let options = Options {
        engine_args: vec!["--enable-force-include-usage".to_owned()],
        ..Options::default()
    };
    let mut stack = Stack::start("doctor", places, options).await?;
    let client = stack.client()?;
    for n in 0..30u64 {
        let body = chat(&words(7, 400), &words(100 + n, 20));
        let reply = client.post(PATH, &body, &format!("well-{n}"), &[]).await?;
        ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
    }
    told(&stack, 30).await?;
    let healthy = examine(places, &stack, stack.ports.admin)?;
    ensure!(healthy.code == Some(0), "exit code {:?}", healthy.code);
    let bad = healthy.items.iter().filter(|item| item["status"] != "ok");
    // Where no dashboards are shipped there are none to look at.
    let bad: Vec<_> = bad
        .filter(|item| item["id"] != "dashboards.metrics")
        .collect();
    ensure!(bad.is_empty(), "a healthy fleet: {bad:#?}");
    println!("  healthy: {} items ok", healthy.items.len());
    for broken in &BROKEN {
        gateway(places, &stack, broken).await?;
    }
    volatile_starts(places, &stack).await?;
    engine_restarted(places, &mut stack).await?;
    control_plane_gone(places, &mut stack).await
}

/// Real vLLM engines, started by `make test-vllm`: nothing of them fails, and what is not ok is printed.
pub(crate) async fn vllm(places: &Places) -> Result<()> {
    let options = Options {
        external_engines: real_engines("VLLM_PORTS")?,
        control_plane_file: Some(places.root.join("tests/vllm/prefix-picker.yaml")),
        ..Options::default()
    };
    let stack = Stack::start("vllm-doctor", places, options).await?;
    let client = stack.client()?;
    // Enough to be judged by, and a gateway that has had its table.
    for n in 0..20u64 {
        let mut body = chat(&words(7, 60), &words(100 + n, 20));
        body["model"] = "tiny-qwen3".into();
        let id = format!("vllm-doctor-{n}");
        let reply = client.post(PATH, &body, &id, &[]).await?;
        ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
    }
    let told = examine(places, &stack, stack.ports.admin)?;
    for item in told.items.iter().filter(|item| item["status"] != "ok") {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        println!(
            "  {} {} {}: {}",
            text("status"),
            text("id"),
            text("subject"),
            text("found")
        );
    }
    let ok = told.items.iter().filter(|item| item["status"] == "ok");
    println!("  {} of {} items ok", ok.count(), told.items.len());
    let failed: Vec<_> = told
        .items
        .iter()
        .filter(|item| item["status"] == "fail")
        .collect();
    ensure!(failed.is_empty(), "healthy real engines: {failed:#?}");
    // These must have been looked at, or the rest says little.
    for id in [
        "engine.events",
        "engine.topic",
        "engine.replay",
        "engine.hashes",
        "engine.tokenizer",
        "engine.template",
        "engine.prefix_caching",
        "engine.disaggregated",
    ] {
        let of = told.items.iter().filter(|item| item["id"] == id);
        let ok = of.filter(|item| item["status"] == "ok").count();
        ensure!(ok == 2, "{id} is ok of {ok} of two engines");
    }
    ensure!(told.code == Some(0), "exit code {:?}", told.code);
    Ok(())
}

/// What doctor said.
struct Told {
    code: Option<i32>,
    items: Vec<Value>,
}

impl Told {
    /// The item of this id that is no `ok`.
    fn has(&self, id: &str, status: &str, found: &str, fix: &str) -> Result<()> {
        let mut of = self.items.iter().filter(|item| item["id"] == id);
        let item = of.find(|item| item["status"] != "ok");
        let item = item.with_context(|| format!("{id} is ok"))?;
        let contains = |field: &str, words: &str| {
            let text = item[field].as_str();
            text.is_some_and(|text| text.contains(words))
        };
        ensure!(
            item["status"] == status && contains("found", found) && contains("fix", fix),
            "{item:#}, expected {status}, {found:?}, {fix:?}"
        );
        let expected = i32::from(self.items.iter().any(|item| item["status"] == "fail"));
        ensure!(self.code == Some(expected), "exit code {:?}", self.code);
        println!("  {id}: {status}");
        Ok(())
    }
}

fn examine(places: &Places, stack: &Stack, admin: u16) -> Result<Told> {
    let mut command = Command::new(places.bin.join("prefix-picker"));
    command.current_dir(&places.root);
    command.args(["doctor", "--json", "--config"]);
    command.arg(stack.dir.join("prefix-picker.yaml"));
    command.args(["--envoy-admin", &format!("http://127.0.0.1:{admin}")]);
    let dashboards = places.root.join("envoy/dashboards");
    if dashboards.exists() {
        command.arg("--dashboards").arg(dashboards);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told: Value = serde_json::from_str(&text)
        .with_context(|| format!("{text} {}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(told["schema"] == "prefix-picker.doctor/1", "{told}");
    let items = told["items"].as_array().context("items")?.clone();
    Ok(Told {
        code: output.status.code(),
        items,
    })
}

/// Another Envoy for the same fleet, with one fault; nothing else of it is bad.
async fn gateway(places: &Places, stack: &Stack, broken: &Broken) -> Result<()> {
    let held = Held::new(2)?;
    let at = |i: usize| held.at(i);
    let moves = [(stack.ports.envoy, at(0)), (stack.ports.admin, at(1))];
    let text = std::fs::read_to_string(stack.dir.join("envoy.yaml"))?;
    let mut text = ports::substitute(&text, &moves);
    let third = stack.ports.engines.get(2).context("three engines")?.0;
    let third = format!(
        "        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {third}}}}}}}\n"
    );
    let from = broken.from.replace("THIRD", &third);
    let start = text.find(&from).with_context(|| format!("no {from:?}"))?;
    let rest = text.get(start..).unwrap_or_default();
    let length = match broken.until {
        "" => from.len(),
        until => rest.find(until).with_context(|| format!("no {until:?}"))?,
    };
    text.replace_range(start..start + length, broken.to);
    let name = format!("broken-{}", broken.name);
    let file = stack.dir.join(format!("{name}.yaml"));
    std::fs::write(&file, text)?;
    let mut command = Command::new(&places.envoy);
    command.current_dir(&places.root).arg("-c").arg(file);
    command.args([
        "--concurrency",
        "1",
        "--log-level",
        "error",
        "--disable-hot-restart",
    ]);
    let _envoy = Process::start(&name, command, &stack.dir)?;
    let admin = Client::new(at(1))?;
    let polled = if broken.name == "token" {
        "unauthorized"
    } else {
        "ok"
    };
    let stats = format!("/stats?filter=sync_polls_total_result=_={polled}_=_");
    wait("its first poll", Duration::from_secs(30), async || {
        let stats = admin.get(&stats).await;
        stats.is_ok_and(|(_, text)| text.lines().any(|line| !line.ends_with(": 0")))
    })
    .await?;
    let told = examine(places, stack, at(1))?;
    told.has(broken.id, broken.status, broken.found, broken.fix)?;
    // A wrong token shows in several places.
    let others = [
        "gateway.token",
        "gateway.sync",
        "gateway.table_age",
        "control_plane.tokens",
    ];
    let bad = told.items.iter().filter(|item| {
        let id = item["id"].as_str().unwrap_or_default();
        let bad = item["status"] == "fail" || item["status"] == "warn";
        bad && id != broken.id && !(polled == "unauthorized" || others.contains(&id))
    });
    let bad: Vec<_> = bad.collect();
    ensure!(bad.is_empty(), "{}: also {bad:#?}", broken.name);
    Ok(())
}

/// Waits until the control plane was told of so many requests.
async fn told(stack: &Stack, requests: u64) -> Result<()> {
    wait("decisions", Duration::from_secs(10), async || {
        let metrics = stack.control_plane_metrics().await;
        let line = "prefix_picker_prompt_start_requests{pool=\"demo\"} ";
        let told = metrics.ok().and_then(|text| {
            let mut lines = text.lines();
            lines.find_map(|found| found.strip_prefix(line)?.parse::<u64>().ok())
        });
        told.is_some_and(|told| told >= requests)
    })
    .await
}

/// A timestamp at the beginning of a system prompt that is always the same.
async fn volatile_starts(places: &Places, stack: &Stack) -> Result<()> {
    let client = stack.client()?;
    for n in 0..60u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let system = format!("Time: {:020}. {}", now.as_nanos(), words(9, 400));
        let body = chat(&system, &words(500 + n, 20));
        let reply = client
            .post(PATH, &body, &format!("volatile-{n}"), &[])
            .await?;
        ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
    }
    told(stack, 90).await?;
    let found = examine(places, stack, stack.ports.admin)?;
    found.has(
        "traffic.volatile_start",
        "warn",
        "66 % of requests",
        "timestamp",
    )
}

async fn engine_restarted(places: &Places, stack: &mut Stack) -> Result<()> {
    stack.restart_engine(1).await?;
    // Its requests bring the first events of the new life.
    let _ = examine(places, stack, stack.ports.admin)?;
    let reset = "why=\"restart\"} 1";
    wait("the restart is seen", Duration::from_secs(10), async || {
        let metrics = stack.control_plane_metrics().await;
        metrics.is_ok_and(|text| text.contains(reset))
    })
    .await?;
    let told = examine(places, stack, stack.ports.admin)?;
    told.has(
        "control_plane.resets",
        "warn",
        "engine-2 (once)",
        "look why",
    )
}

async fn control_plane_gone(places: &Places, stack: &mut Stack) -> Result<()> {
    if let Some(mut control_plane) = stack.control_plane.take() {
        control_plane.kill();
    }
    wait("the table ages", Duration::from_secs(20), async || {
        let age = stack.filter_metric("table_age_seconds").await;
        age.is_ok_and(|age| age > 6)
    })
    .await?;
    let told = examine(places, stack, stack.ports.admin)?;
    // One fault: what follows from it is not told as another.
    told.has(
        "gateway.table_age",
        "skipped",
        "see control_plane.reachable",
        "",
    )?;
    told.has(
        "control_plane.reachable",
        "fail",
        "nobody answers",
        "prefix-picker serve",
    )
}
