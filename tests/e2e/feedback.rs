//! Whether the filter knows if its predictions are right, and whether anybody hears of it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::client::{Client, Reply};
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use prefix_picker_tests::workload::{Kind, Request, Sizes, Workload};
use serde_json::json;

/// The pool of the shipped configuration.
const POOL: &str = "demo";
/// Wanted share of exact ones where events have arrived.
const WANTED: f64 = 0.99;
/// Requests of a wrong template within which the alarm must be there.
const WITHIN: u64 = 100;
/// A gateway reports with its polls, and a poll waits for news this long at most.
const REPORTED: Duration = Duration::from_secs(6);

fn sizes() -> Sizes {
    Sizes {
        shared: 4,
        open: 12,
        ..crate::faults::sizes()
    }
}

/// All of it: a pool that is right, and one whose control plane was given another template.
pub(crate) async fn feedback(places: &Places, short: bool) -> Result<()> {
    right(places, if short { 120 } else { 400 }).await?;
    wrong(places, true).await?;
    wrong(places, false).await?;
    reports(places).await
}

/// A body that is made to ask for a full report arrives whole, and the engine reports.
async fn reports(places: &Places) -> Result<()> {
    let sample = (
        "\"max_body_bytes\": 33554432,".to_owned(),
        "\"max_body_bytes\": 33554432, \"full_report_sample\": 1,".to_owned(),
    );
    let pool = (
        "- name: demo".to_owned(),
        "- name: demo\n  full_reports: true".to_owned(),
    );
    let options = Options {
        envoy_edits: vec![sample],
        control_plane_edits: vec![pool],
        ..Options::default()
    };
    let stack = Stack::start("feedback-reports", places, options).await?;
    let client = stack.client()?;
    let body = crate::faults::chat(&crate::faults::words(9, 600), "Hello.");
    let (mut told, mut tokens) = (Vec::new(), Vec::new());
    for i in 0..6 {
        let before = stored(&stack).await?;
        let reply = client
            .post("/v1/chat/completions", &body, &format!("report-{i}"), &[])
            .await?;
        ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
        tokens.push(reply.prompt_tokens);
        stack.settle().await?;
        told.push(stored(&stack).await? - before);
        // A worker asks once a second at most.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    let asked = stack.filter_metric("full_reports_total").await?;
    println!("  full reports: {asked} asked for in 6 requests; stores told after each: {told:?}");
    ensure!(asked == 6, "{asked} were asked for");
    ensure!(
        tokens.iter().all(|n| n == tokens.first().unwrap_or(&0)),
        "{tokens:?}"
    );
    ensure!(told.iter().skip(1).all(|n| *n > 0), "{told:?}");
    // A client that has its own say is not overruled, and then nothing is announced again.
    let mut own = body.clone();
    if let Some(map) = own.as_object_mut() {
        let xargs = json!({"kv_cache_report_mode": "incremental"});
        map.insert("vllm_xargs".to_owned(), xargs);
    }
    let before = stored(&stack).await?;
    client
        .post("/v1/chat/completions", &own, "report-own", &[])
        .await?;
    stack.settle().await?;
    let silent = stored(&stack).await? - before;
    ensure!(silent == 0, "{silent} stores without a report");
    ensure!(
        stack.filter_metric("full_reports_total").await? == 6,
        "overruled"
    );
    Ok(())
}

/// Stores that engines have told, all together.
async fn stored(stack: &Stack) -> Result<u64> {
    let text = stack.control_plane_metrics().await?;
    let lines = text
        .lines()
        .filter(|l| l.starts_with("prefix_picker_kv_events_total{") && l.contains("\"stored\""));
    Ok(lines
        .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
        .sum())
}

/// Normal traffic, one request at a time once the events before it have arrived.
async fn right(places: &Places, requests: u64) -> Result<()> {
    // Otherwise blocks of token ids are known only from the first such prompt on.
    let ids = (
        "- name: demo".to_owned(),
        "- name: demo\n  token_ids: on".to_owned(),
    );
    let options = Options {
        control_plane_edits: vec![ids],
        ..Options::default()
    };
    let mut stack = Stack::start("feedback", places, options).await?;
    let client = stack.client()?;
    let mut workload = Workload::new(3, sizes());
    let (mut compared, mut unchanged) = (0, 0);
    for i in 0..requests {
        stack.settle().await?;
        let request = workload.request();
        let id = format!("feedback-{i}");
        let reply = post(&client, &request, &id).await?;
        workload.answered(request.conversation, &reply.text);
        let entry = stack.log.wait(&id).await?;
        ensure!(
            entry.cached_tokens == reply.cached_tokens,
            "{id}: the log has {:?} cached tokens, the answer {:?}",
            entry.cached_tokens,
            reply.cached_tokens
        );
        compared += u64::from(entry.predicted_tokens.is_some());
        if i % 10 == 0 {
            unchanged += u64::from(is_unchanged(&stack, &request, &reply).await?);
        }
    }
    ensure!(
        unchanged == requests.div_ceil(10),
        "{unchanged} answers are as the engine sent them"
    );
    let exact = outcome(&stack, "exact").await?;
    let mut all = 0;
    for name in [
        "exact",
        "over",
        "under",
        "early",
        "no_usage",
        "no_figure",
        "null",
        "unreadable",
        "apart",
    ] {
        let n = outcome(&stack, name).await?;
        println!("  {name}: {n}");
        all += n;
    }
    ensure!(
        all == compared,
        "{all} of {compared} predictions were compared"
    );
    ensure!(
        exact as f64 >= WANTED * all as f64,
        "{exact} of {all} are exact"
    );
    let telling = stack
        .filter_metric(&format!("feedback_telling_total_pool=_={POOL}_=_"))
        .await?;
    println!("  telling: {telling} of {all}");
    ensure!(telling * 2 >= all, "too little was there to be found");
    exported(&stack, all).await?;

    // Streams without usage say nothing.
    for i in 0..5 {
        let body = json!({"model": "sim", "max_tokens": 2, "stream": true,
            "messages": [{"role": "user", "content": "Hello."}]});
        client
            .post("/v1/chat/completions", &body, &format!("silent-{i}"), &[])
            .await?;
    }
    ensure!(outcome(&stack, "no_usage").await? == 5, "no_usage");
    ensure!(alarm(&stack).await? == 0, "an alarm without reason");
    Ok(())
}

/// The figures reach Prometheus on both sides.
async fn exported(stack: &Stack, all: u64) -> Result<()> {
    let admin = Client::new(stack.ports.admin)?;
    let (_, text) = admin.get("/stats/prometheus").await?;
    let label = format!("feedback_responses_total{{outcome=\"exact\",pool=\"{POOL}\"}}");
    ensure!(text.contains(&label), "no {label}");
    for histogram in ["predicted", "cached", "error"] {
        let name = format!("feedback_{histogram}_tokens_count{{pool=\"{POOL}\"}}");
        wait(&name, Duration::from_secs(15), async || {
            let Ok((_, text)) = admin.get("/stats/prometheus").await else {
                return false;
            };
            let line = text.lines().find(|line| line.contains(&name));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()) == Some(all)
        })
        .await?;
    }
    wait("the control plane to have it all", REPORTED, async || {
        let Ok(text) = stack.control_plane_metrics().await else {
            return false;
        };
        let lines = text
            .lines()
            .filter(|l| l.starts_with("prefix_picker_feedback_responses_total{"));
        let counts = lines.filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok());
        counts.sum::<u64>() == all
    })
    .await?;
    let text = stack.control_plane_metrics().await?;
    ensure!(
        text.contains("prefix_picker_engine_prefix_cache_hits_total{"),
        "the engines' own counters"
    );
    Ok(())
}

/// The control plane reads another chat template than the engines use.
///
/// With `usage` the responses tell; without, they carry no figure and the engines' counters must.
async fn wrong(places: &Places, usage: bool) -> Result<()> {
    let name = if usage {
        "feedback-wrong"
    } else {
        "feedback-wrong-silent"
    };
    let model = other_template(places, name)?;
    let edit = (
        "model_dir: tests/engine-sim/model".to_owned(),
        format!("model_dir: {}", model.display()),
    );
    let options = Options {
        control_plane_edits: vec![edit],
        ..Options::default()
    };
    let stack = Stack::start(name, places, options).await?;
    let client = stack.client()?;
    let mut workload = Workload::new(4, sizes());
    // The engines' counters are judged by slices; how far these reach is a matter of polls.
    let within = if usage { WITHIN } else { 3 * WITHIN };
    let mut sent = 0;
    while sent < within && alarm(&stack).await? == 0 {
        let mut request = workload.request();
        if matches!(request.kind, Kind::Text | Kind::TokenIds) {
            // No template in these. The conversation must end all the same, to make room for others.
            workload.answered(request.conversation, "");
            continue;
        }
        if !usage && let Some(body) = request.body.as_object_mut() {
            body.insert("stream".to_owned(), json!(true));
            body.remove("stream_options");
        }
        stack.settle().await?;
        let reply = post(&client, &request, &format!("wrong-{sent}")).await?;
        workload.answered(request.conversation, &reply.text);
        sent += 1;
    }
    wait("the alarm", REPORTED, async || {
        alarm(&stack).await.is_ok_and(|on| on == 1)
    })
    .await
    .with_context(|| format!("after {sent} requests"))?;
    let log = stack.control_plane.as_ref().context("the control plane")?;
    let log = std::fs::read_to_string(log.log())?;
    let line = log
        .lines()
        .find(|line| line.contains("prediction mismatch"));
    let line = line.context("no line in the log")?;
    ensure!(
        line.contains("chat template") && line.contains(POOL),
        "{line}"
    );
    let by = if usage {
        "responses"
    } else {
        "the engines' counters"
    };
    println!("  wrong template: alarm after at most {sent} requests, by {by}");
    Ok(())
}

/// The simulator's model with another chat template.
fn other_template(places: &Places, name: &str) -> Result<PathBuf> {
    let from = places.root.join("tests/engine-sim/model");
    let to = std::env::temp_dir().join(format!(
        "prefix-picker-e2e-{}-{name}-model",
        std::process::id()
    ));
    std::fs::create_dir_all(&to)?;
    for file in std::fs::read_dir(from)? {
        let file = file?;
        std::fs::copy(file.path(), to.join(file.file_name()))?;
    }
    let template =
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] ";
    std::fs::write(to.join("chat_template.jinja"), template)?;
    Ok(to)
}

async fn post(client: &Client, request: &Request, id: &str) -> Result<Reply> {
    let reply = client.post(request.path, &request.body, id, &[]).await?;
    ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
    Ok(reply)
}

/// Does an engine send the same bytes to who asks it directly, but for what differs from answer to
/// answer?
async fn is_unchanged(stack: &Stack, request: &Request, reply: &Reply) -> Result<bool> {
    let direct = stack.engine_client(0)?;
    let direct = post(&direct, request, "direct").await?;
    let (a, b) = (comparable(&reply.body), comparable(&direct.body));
    if a != b {
        println!("  through Envoy: {a}\n  directly:      {b}");
    }
    Ok(a == b)
}

/// A body without ids, times, and figures of caches.
fn comparable(body: &str) -> String {
    let mut text = body.to_owned();
    for key in [
        "id",
        "created",
        "system_fingerprint",
        "cached_tokens",
        "created_cache_tokens",
    ] {
        let key = format!("\"{key}\":");
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(&key) {
            let (before, after) = rest.split_at(at + key.len());
            out.push_str(before);
            rest = after
                .find([',', '}'])
                .map_or("", |end| after.split_at(end).1);
        }
        out.push_str(rest);
        text = out;
    }
    text
}

async fn outcome(stack: &Stack, outcome: &str) -> Result<u64> {
    let name = format!("feedback_responses_total_outcome=_={outcome}_=__pool=_={POOL}_=_");
    stack.filter_metric(&name).await
}

async fn alarm(stack: &Stack) -> Result<u64> {
    let text = stack.control_plane_metrics().await?;
    let name = format!("prefix_picker_prediction_mismatch{{pool=\"{POOL}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&name));
    let value = value.context("no alarm metric")?;
    Ok(value.parse()?)
}
