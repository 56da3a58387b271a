//! Envoy without `allow_on_headers_stop_iteration`, as Envoy Gateway makes it where patch policies are off:
//! assembled from the shipped manifests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::stack::{Options, Places, Stack};

use crate::faults::{chat, words};
use crate::trailers;

const PATH: &str = "/v1/chat/completions";
const CLUSTER: &str = "httproute/inference/llm/rule/0";

/// Python with what the tools in `tests/manifests` need.
pub(crate) fn python(places: &Places) -> Result<PathBuf> {
    let out = Command::new(places.root.join("tools/python.sh"))
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(out.status.success(), "tools/python.sh: {}", out.status);
    Ok(PathBuf::from(String::from_utf8(out.stdout)?.trim()))
}

/// Where shipped files have the filter, which is replaced by where it is.
const SHIPPED_WASM: &str = "target/wasm32-wasip1/wasm/prefix_picker_filter.wasm";

/// A gateway's Envoy, from its manifests.
fn assembled(places: &Places, gateway: &str) -> Result<PathBuf> {
    let out = Command::new(python(places)?)
        .arg(places.root.join("tests/manifests/assemble.py"))
        .args([gateway, "--wasm", SHIPPED_WASM])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(
        out.status.success(),
        "assemble.py {gateway}: {}",
        out.status
    );
    let name = format!("prefix-picker-e2e-{}-{gateway}.yaml", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, out.stdout)?;
    Ok(file)
}

/// Prompts go where they are held, as with the flag; headers of clients choose nothing; bodies of all kinds
/// come through whole.
pub(crate) async fn unheld(places: &Places, short: bool) -> Result<()> {
    let edit = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let options = Options {
        envoy_file: Some(assembled(places, "envoy-gateway-without-patches")?),
        // Small enough to go beyond.
        envoy_edits: vec![
            edit(
                "\"max_body_bytes\": 33554432, \"max_chunked_body_bytes\": 33554432",
                "\"max_body_bytes\": 200000, \"max_chunked_body_bytes\": 200000",
            ),
            edit("max_request_bytes: 33554432", "max_request_bytes: 400000"),
        ],
        control_plane_edits: vec![edit("clusters: [pool]", &format!("clusters: [{CLUSTER}]"))],
        ..Options::default()
    };
    let mut stack = Stack::start("unheld", places, options).await?;
    let file = std::fs::read_to_string(stack.dir.join("envoy.yaml"))?;
    ensure!(
        !file.contains("allow_on_headers_stop_iteration"),
        "the flag is set after all"
    );
    routed(&mut stack, if short { 6 } else { 40 }).await?;
    bodies(&mut stack).await?;
    let missed = stack.filter_metric("missed_override_total").await?;
    ensure!(missed == 0, "{missed} overrides missed");
    let log = stack.envoy.as_ref().map(|envoy| envoy.log_tail(10_000));
    ensure!(
        !log.unwrap_or_default().contains("panicked"),
        "the filter panicked: {}",
        stack.dir.display()
    );
    Ok(())
}

/// Conversations: each second turn finds what the first left, whatever the client asks for.
async fn routed(stack: &mut Stack, conversations: u64) -> Result<()> {
    let client = stack.client()?;
    let engines = stack.endpoints();
    let mut used = std::collections::BTreeSet::new();
    for n in 0..conversations {
        let system = words(500 + n, 400);
        let (first, second) = (format!("unheld-{n}-1"), format!("unheld-{n}-2"));
        let reply = client
            .post(PATH, &chat(&system, "One."), &first, &[])
            .await?;
        ensure!(reply.status == 200, "{first}: {}", reply.status);
        let home = stack
            .log
            .wait(&first)
            .await?
            .upstream
            .context("no engine")?;
        stack.settle().await?;
        let other = engines.iter().find(|e| **e != home).context("one engine")?;
        let forged = [
            ("x-gateway-destination-endpoint", other.as_str()),
            ("x-data-parallel-rank", "5"),
        ];
        let reply = client
            .post(PATH, &chat(&system, "Two."), &second, &forged)
            .await?;
        let entry = stack.log.wait(&second).await?;
        ensure!(
            entry.upstream.as_ref() == Some(&home) && entry.reason.as_deref() == Some("prefix"),
            "{second}: by {:?} ({:?}) instead of {home}",
            entry.upstream,
            entry.reason
        );
        // One of our blocks may be missing: 324 bytes, of which none is more than a token.
        let predicted = entry.predicted_tokens.unwrap_or(0);
        let cached = reply.cached_tokens.unwrap_or(0);
        ensure!(
            predicted > 256 && (predicted..predicted + 324).contains(&cached),
            "{second}: predicted {predicted}, cached {cached}"
        );
        used.insert(home);
    }
    println!(
        "  {conversations} conversations went on where they began, on {} engines",
        used.len()
    );
    ensure!(used.len() > 1, "all on {used:?}");
    Ok(())
}

/// In pieces without a length, with trailers, over the filter's limit, over the buffer's.
async fn bodies(stack: &mut Stack) -> Result<()> {
    let body = chat(&words(77, 3_000), "Hello.").to_string();
    let file = stack.dir.join("body.json");
    std::fs::write(&file, &body)?;
    for (id, protocol) in [
        ("chunked", "--http1.1"),
        ("streamed", "--http2-prior-knowledge"),
    ] {
        let chunked = ["-H", "transfer-encoding: chunked"];
        let more = if id == "chunked" { &chunked[..] } else { &[] };
        let status = curl(stack.ports.envoy, protocol, more, &file, id)?;
        named(stack, id, &status, &["load", "prefix"]).await?;
    }
    let status = trailers::send(stack.ports.envoy, body.as_bytes(), "trailers").await?;
    named(stack, "trailers", &status.to_string(), &["prefix", "load"]).await?;

    let longer =
        serde_json::json!({"model": "sim", "max_tokens": 1, "prompt": "x".repeat(250_000)});
    std::fs::write(&file, longer.to_string())?;
    let status = curl(stack.ports.envoy, "--http1.1", &[], &file, "longer")?;
    // The engine refuses it; it was named all the same, by its header.
    let entry = stack.log.wait("longer").await?;
    let first = entry.endpoint.as_deref().and_then(|e| e.split(',').next());
    ensure!(
        entry.reason.as_deref() == Some("body_too_large") && first == entry.upstream.as_deref(),
        "longer: {status}, {entry:?}"
    );
    std::fs::write(&file, "x".repeat(500_000))?;
    let status = curl(stack.ports.envoy, "--http1.1", &[], &file, "too-long")?;
    ensure!(status == "413", "beyond the buffer: {status}");
    Ok(())
}

async fn named(stack: &mut Stack, id: &str, status: &str, reasons: &[&str]) -> Result<()> {
    let entry = stack.log.wait(id).await?;
    let first = entry.endpoint.as_deref().and_then(|e| e.split(',').next());
    let reason = entry.reason.as_deref().unwrap_or_default();
    println!("  {id}: {status}, {reason}");
    ensure!(
        status == "200" && reasons.contains(&reason) && first == entry.upstream.as_deref(),
        "{id}: {status}, {entry:?}"
    );
    Ok(())
}

fn curl(port: u16, protocol: &str, more: &[&str], file: &Path, id: &str) -> Result<String> {
    let out = Command::new("curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-m",
            "20",
            protocol,
        ])
        .args(["-H", "content-type: application/json", "-H"])
        .arg(format!("x-request-id: {id}"))
        .args(more)
        .arg("--data-binary")
        .arg(format!("@{}", file.display()))
        .arg(format!("http://127.0.0.1:{port}{PATH}"))
        .output()?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
