//! The page in a headless Chromium, with a control plane that has 200 replicas and traffic.
//!
//! The replicas are one small server, which is there at many addresses; what gateways tell is posted as
//! they do. Where there is no Chromium or no node, it says so and nothing is tested. Screenshots go to
//! `.run/page/`. `HOLD=1` leaves it running for a look.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use prefix_picker::config::Config;
use prefix_picker::engine::Engine;
use prefix_picker::events::{EngineHash, KvEvent, KvEventBatch, Stored};
use prefix_picker::serve::Serve;
use prefix_picker::subscriber::Position;
use prefix_picker_core::reasons::code;
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::{Decision, Decisions, Mark, Other, Told};
use prefix_picker_core::sync::{MAJOR, Poll};
use tokio::net::TcpListener;

const REPLICAS: usize = 200;
/// The last few are of a second pool.
const SMALL: usize = 4;
const TOKEN: &str = "a-token";

/// A fake engine's port is the same everywhere; its address tells which one it is.
fn endpoint(number: usize, port: u16) -> String {
    if number + 1 == REPLICAS {
        return format!("[::1]:{port}");
    }
    format!("127.0.{}.{}:{port}", 1 + number / 100, 1 + number % 100)
}

fn name(number: usize) -> String {
    match number {
        3 => format!(
            "a-replica-with-quite-a-long-name-{}-0",
            "as-kubernetes-makes-them".repeat(2)
        ),
        _ => format!("replica-{number}"),
    }
}

fn config(dir: &Path, port: u16) -> Config {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/engine-sim/model");
    let mut text = format!(
        "listen: 127.0.0.1:0\ntokens: [{TOKEN}]\nfleet_secret: a-secret-of-the-tests\ndata_dir: {}\n\
         scrape_interval_ms: 1000\nscrape_timeout_ms: 10000\nstartup_grace_ms: 3000\nlog_level: error\npools:\n",
        dir.display()
    );
    let pools = [
        ("chat", "meta-llama/Llama-4-Scout", 0..REPLICAS - SMALL),
        (
            "code",
            "<img src=x onerror=alert(1)>",
            REPLICAS - SMALL..REPLICAS,
        ),
    ];
    for (pool, served, replicas) in pools {
        let _ = write!(
            text,
            "  - name: {pool}\n    model_dir: {}\n    models: ['{served}']\n    clusters: [{pool}]\n    replicas:\n",
            model.display()
        );
        for number in replicas {
            let at = endpoint(number, port);
            // Nobody publishes events there: what is cached is put into the engine by the test.
            let _ = writeln!(
                text,
                "      - {{name: {}, endpoint: '{at}', events: 'tcp://{}'}}",
                name(number),
                endpoint(number, 9)
            );
        }
    }
    Config::parse(&text).expect("the test's configuration")
}

/// Serves `/health`, `/metrics` and `/version` of all engines. One of them is down.
async fn engines() -> u16 {
    let listener = TcpListener::bind("[::]:0").await.expect("a port");
    let port = listener.local_addr().expect("its address").port();
    static SCRAPES: AtomicU64 = AtomicU64::new(1);
    let number = |headers: &HeaderMap| -> u64 {
        let host = headers.get("host").and_then(|host| host.to_str().ok());
        let host = host
            .unwrap_or_default()
            .rsplit_once(':')
            .map_or("", |(host, _)| host);
        host.rsplit('.')
            .next()
            .and_then(|last| last.parse().ok())
            .unwrap_or(0)
    };
    let metrics = move |headers: HeaderMap| async move {
        let n = number(&headers);
        let queries = SCRAPES.fetch_add(1, Ordering::Relaxed) * 100;
        format!(
            "vllm:num_requests_running {}\nvllm:num_requests_waiting {}\nvllm:kv_cache_usage_perc {}\n\
             vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"4096\"}} 1\n\
             vllm:prefix_cache_queries_total {queries}\nvllm:prefix_cache_hits_total {}\n",
            n % 23,
            n % 5,
            (n * 7 % 100) as f64 / 100.0,
            queries * (40 + n % 50) / 100,
        )
    };
    let health = move |headers: HeaderMap| async move {
        match number(&headers) {
            9 => axum::http::StatusCode::SERVICE_UNAVAILABLE,
            _ => axum::http::StatusCode::OK,
        }
    };
    let app = Router::new()
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/version", get(|| async { r#"{"version": "0.33.0"}"# }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    port
}

/// What engines would have announced.
fn fill(engine: &Engine) {
    for member in engine.members() {
        let n = u64::from(member.slot.0);
        // One is not followed.
        if n == 5 {
            continue;
        }
        let blocks = 20 + n * 37 % 400;
        let token = |at: u64| u32::try_from(10 + (n * 31 + at * at) % 200).unwrap_or(10);
        let stored = Stored {
            hashes: (0..blocks)
                .map(|at| EngineHash::from_u64(n * 1_000 + at))
                .collect(),
            tokens: (0..blocks * 16).map(token).collect(),
            block_size: 16,
            block_size_given: true,
            ..Stored::default()
        };
        let batch = KvEventBatch {
            events: vec![KvEvent::Stored(stored)],
            ..KvEventBatch::default()
        };
        engine.apply(member.slot, Position { seq: 1, digest: 1 }, &batch);
        engine.synced(member.slot, true);
    }
}

/// A message of a gateway's: some 60 requests.
fn told(engine: &Engine, round: u64) -> Decisions {
    let members = engine.members();
    let pick = |n: u64| {
        let at = usize::try_from(n * n % 200).unwrap_or(0);
        members
            .get(at)
            .map_or(0, |member| place(&member.head.name()))
    };
    let record = |n: u64| {
        let reason = [
            "prefix",
            "prefix",
            "prefix",
            "recent",
            "load",
            "load_over_prefix",
            "hot_spot",
        ];
        let n = round * 50 + n;
        let prompt = 1_200 + u32::try_from(n * 977 % 9_000).unwrap_or(0);
        let cached = prompt / 16 * 16 * u32::try_from(n * 13 % 90).unwrap_or(0) / 100;
        let family = n % 7 + 1;
        Decision {
            enforced: n % 11 != 3,
            agreed: n % 29 != 4,
            chosen: pick(n),
            prompt_tokens: prompt,
            chosen_tokens: cached,
            served_tokens: cached,
            told: (!n.is_multiple_of(6)).then_some(Told {
                prompt_tokens: prompt,
                cached_tokens: cached,
            }),
            reason: code(
                reason
                    .get(usize::try_from(n % 7).unwrap_or(0))
                    .copied()
                    .unwrap_or(""),
            ),
            first: family << 40,
            marks: (1..8)
                .map(|at| Mark {
                    key: (family << 40) * 31 + at + if at > 4 { n << 8 } else { 0 },
                    tokens: u32::try_from(at * 256).unwrap_or(0),
                })
                .collect(),
            ..Decision::default()
        }
    };
    let other = |n: u64| Other {
        enforced: true,
        reason: code(
            ["body_too_large", "multimodal", "prefix"][usize::try_from(n % 3).unwrap_or(0)],
        ),
        chosen: pick(n),
        prompt_tokens: 90_000,
        status: [200, 200, 503][usize::try_from(n % 3).unwrap_or(0)],
    };
    let mut decisions = Decisions {
        records: (0..50).map(record).collect(),
        others: (0..3).map(|n| other(round + n)).collect(),
        ..Decisions::default()
    };
    for reason in decisions
        .records
        .iter()
        .map(|r| r.reason)
        .collect::<Vec<_>>()
    {
        decisions.count(reason, 1);
    }
    for reason in decisions
        .others
        .iter()
        .map(|o| o.reason)
        .collect::<Vec<_>>()
    {
        decisions.count(reason, 1);
    }
    decisions.count(code("method"), 40);
    decisions
}

async fn feed(client: &reqwest::Client, base: &str, engine: &Engine, round: u64) {
    let post = |path: &str, body: Vec<u8>| {
        let request = client
            .post(format!("{base}{path}"))
            .bearer_auth(TOKEN)
            .body(body);
        async move { request.send().await.expect("the control plane answers") }
    };
    for (gateway, version) in [("one", env!("CARGO_PKG_VERSION")), ("two", "")] {
        let poll = Poll {
            protocol: MAJOR,
            gateway: gateway.to_owned(),
            version: version.to_owned(),
            ..Poll::default()
        };
        let answer = post("/v1/sync", serde_json::to_vec(&poll).expect("JSON")).await;
        assert!(answer.status().is_success(), "{}", answer.status());
    }
    let bytes = told(engine, round).encode().expect("a message");
    let answer = post("/v1/decisions", bytes).await;
    assert!(answer.status().is_success());
}

#[tokio::main]
async fn main() {
    // As for any test: listed by tools, left out where another one is asked for.
    let asked: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    if std::env::args().any(|a| a == "--list")
        || !(asked.is_empty() || asked.iter().any(|a| "page".contains(a.as_str())))
    {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tools = Command::new(root.join("tools/browser.sh"))
        .output()
        .expect("tools/browser.sh");
    if !tools.status.success() {
        let why = String::from_utf8_lossy(&tools.stderr);
        println!("page: SKIPPED, {}", why.trim());
        return;
    }
    let tools = String::from_utf8(tools.stdout).expect("paths");
    let dir = std::env::temp_dir().join(format!("prefix-picker-page-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let port = engines().await;
    let serve = Serve::open(config(&dir, port))
        .await
        .expect("a control plane");
    let base = format!("http://{}", serve.address().expect("its address"));
    let engine = serve.engine();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(serve.run(async {
        let _ = stopped.await;
    }));
    let client = reqwest::Client::new();
    while !client
        .get(format!("{base}/readyz"))
        .send()
        .await
        .is_ok_and(|r| r.status().is_success())
    {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    fill(&engine);
    // So that the curves have more than one point.
    let rounds = if std::env::var_os("HOLD").is_some() {
        60
    } else {
        3
    };
    for round in 0..rounds {
        feed(&client, &base, &engine, round).await;
        tokio::time::sleep(Duration::from_millis(if rounds > 3 { 1_500 } else { 700 })).await;
    }
    let size = |coding: &'static str| {
        let url = format!("{base}/v1/status");
        let request = client.get(url).header("accept-encoding", coding).send();
        async { request.await.unwrap().bytes().await.unwrap().len() }
    };
    let (plain, packed) = (size("identity").await, size("gzip").await);
    println!("page: a status of {REPLICAS} replicas has {plain} bytes, and {packed} packed");
    assert!(packed * 6 < plain, "{packed} of {plain}");
    let status = Command::new("node")
        .arg(root.join("tests/page/page.mjs"))
        .arg(&base)
        .args(tools.lines())
        .arg(root.join(".run/page"))
        .status()
        .expect("node");
    if std::env::var_os("HOLD").is_some() {
        println!("{base}");
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    drop(stop);
    running.await.expect("it runs").expect("it stops well");
    let _ = std::fs::remove_dir_all(&dir);
    assert!(status.success(), "the page's test failed");
    println!("page: ok, screenshots in .run/page/");
}
