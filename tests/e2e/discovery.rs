//! Pods that come and go behind one Envoy cluster, found through an API server in memory.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use prefix_picker_tests::stack::{Options, Places, Stack};

use crate::faults::{chat, predict, words};

#[path = "../../control-plane/tests/discovery/api.rs"]
#[allow(dead_code, clippy::unwrap_used)] // more than this case needs; a test's server
pub(crate) mod api;

/// How long a change may take until requests heed it: the watch, a scrape, a head, and for one that comes
/// the 30 s in which its share is small.
const HEEDED: Duration = Duration::from_secs(40);
/// Prompt tokens that are known of one that was sent before.
const KNOWN: u64 = 256;

fn config(api: &api::Api) -> String {
    // Each pod's own port by its name, and its events where its engine says: all share one address here.
    format!(
        "listen: 127.0.0.1:9400\ntokens: [change-me-gateway-token]\ndata_dir: unused\npools:\n- name: demo\n  \
         model_dir: tests/engine-sim/model\n  models: [sim]\n  clusters: [pool]\n  discovery:\n    kubernetes: \
         {{namespace: ml, label_selector: app=vllm, port: http, api_server: 'http://{}'}}\n",
        api.address
    )
}

/// A pod of one of the engines.
fn pod(stack: &Stack, engine: usize) -> Result<serde_json::Value> {
    let (http, ..) = *stack.ports.engines.get(engine).context("no such engine")?;
    let mut pod = api::pod(&format!("vllm-{engine}"), "127.0.0.1");
    let port = pod.pointer_mut("/spec/containers/0/ports/0/containerPort");
    *port.context("a port")? = http.into();
    Ok(pod)
}

/// Sends a prompt until the filter predicts most of it somewhere: there.
async fn known_at(stack: &mut Stack, prompt: &serde_json::Value, id: &str) -> Result<String> {
    let begin = Instant::now();
    for n in 0.. {
        let client = stack.client()?;
        let path = "/v1/chat/completions";
        let reply = client.post(path, prompt, &format!("{id}-{n}"), &[]).await?;
        ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
        let entry = predict(stack, prompt, &format!("{id}-predicted-{n}")).await?;
        if entry.predicted_tokens >= Some(KNOWN) {
            let named = entry.endpoint.context("no endpoint")?;
            // The first of those to try.
            return Ok(named.split(',').next().unwrap_or_default().to_owned());
        }
        ensure!(begin.elapsed() < HEEDED, "{id}: {entry:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    unreachable!()
}

/// Where requests that share nothing go, with any before: of the next 24. `seed`: its own for each call.
async fn spread(
    stack: &mut Stack,
    seed: u64,
    id: &str,
) -> Result<std::collections::BTreeSet<String>> {
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..24 {
        // A prompt of an earlier round would go where that one went.
        let prompt = chat(&words(seed << 8 | n, 60), id);
        let (client, id) = (stack.client()?, format!("{id}-{n}"));
        let reply = client
            .post("/v1/chat/completions", &prompt, &id, &[])
            .await?;
        ensure!(reply.status == 200, "{id}: {} {}", reply.status, reply.body);
        seen.extend(stack.log.wait(&id).await?.upstream);
    }
    Ok(seen)
}

async fn until_spread(
    stack: &mut Stack,
    seed: &mut u64,
    engines: &[usize],
    id: &str,
) -> Result<()> {
    let wanted: std::collections::BTreeSet<_> =
        engines.iter().map(|e| stack.endpoint(*e)).collect();
    let begin = Instant::now();
    for n in 0.. {
        *seed += 1;
        let seen = spread(stack, *seed, &format!("{id}-{n}")).await?;
        if seen == wanted {
            println!("  {id}: {:.1} s", begin.elapsed().as_secs_f64());
            return Ok(());
        }
        ensure!(begin.elapsed() < HEEDED, "{id}: {seen:?}, not {wanted:?}");
    }
    unreachable!()
}

/// Envoy knows all three engines throughout; requests go to those that are pods.
pub(crate) async fn discovery(places: &Places) -> Result<()> {
    let api = api::Api::start().await;
    let dir = std::env::temp_dir().join(format!("prefix-picker-e2e-{}-pods", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("discovery.yaml");
    std::fs::write(&file, config(&api))?;
    let options = Options {
        control_plane_file: Some(file),
        ..Options::default()
    };
    let mut stack = Stack::start("discovery", places, options).await?;
    for engine in [0, 1] {
        api.set_pod(&pod(&stack, engine)?);
    }
    let mut seed = 1_000;
    until_spread(&mut stack, &mut seed, &[0, 1], "two-pods").await?;
    let prompt = chat(&words(1, 300), "Hello.");
    let home = known_at(&mut stack, &prompt, "first").await?;
    let home = usize::from(home != stack.endpoint(0));
    // Its pod goes: the prompt is known nowhere, and then where it went.
    api.delete_pod(&format!("vllm-{home}"));
    until_spread(&mut stack, &mut seed, &[1 - home], "one-pod").await?;
    let next = known_at(&mut stack, &prompt, "second").await?;
    ensure!(next == stack.endpoint(1 - home), "{next}");
    // Another comes, and the last of the first two is not ready.
    api.set_pod(&pod(&stack, 2)?);
    until_spread(&mut stack, &mut seed, &[1 - home, 2], "another-pod").await?;
    api.change_pod(&format!("vllm-{}", 1 - home), |pod| {
        api::set_ready(pod, false)
    });
    until_spread(&mut stack, &mut seed, &[2], "not-ready").await?;
    api.change_pod(&format!("vllm-{}", 1 - home), |pod| {
        api::set_ready(pod, true)
    });
    until_spread(&mut stack, &mut seed, &[1 - home, 2], "ready").await?;
    let back = known_at(&mut stack, &prompt, "third").await?;
    ensure!(
        back == stack.endpoint(1 - home),
        "its cache was forgotten: {back}"
    );
    std::fs::remove_dir_all(dir)?;
    Ok(())
}
