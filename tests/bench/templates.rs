//! The filter's own work for a prompt of 100,000 tokens with publishers' templates and tokenizers, in
//! real Envoy.
//!
//! The engine is a stub that answers at once; its KV events are ours: the prompt's tokens, by the real
//! tokenizer, so that the look-up finds the whole of it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use prefix_picker::profiles::load_model_dir;
use prefix_picker_core::prompt::{Api, CompiledProfile, Prompt, parse_request};
use prefix_picker_tests::stack::{Options, Places, Stack, wait};
use serde_json::Value;
use tokenizers::Tokenizer;
use zeromq::{PubSocket, Socket, SocketSend, ZmqMessage};

use crate::{TIMING_SAMPLE, conversation, frame, load, phases, stub};

/// Who published the template, and the folder under `.tools/tokenizers`.
const MODELS: [(&str, &str); 2] = [("Llama 3.1", "llama3_1"), ("Qwen3", "qwen3")];
/// Length of the prompt.
const TOKENS: usize = 100_000;
const TURNS: usize = 48;
const BLOCK_SIZE: usize = 16;
/// So many that the figures are of code that V8 has optimised, as it is after the first few hundred.
const REQUESTS: usize = 3_000;

/// Measures each; says so where one was not fetched.
pub(crate) async fn report(places: &Places) -> Result<()> {
    for (name, folder) in MODELS {
        let model = places.root.join(".tools/tokenizers").join(folder);
        if model.join("tokenizer.json").exists() {
            one(places, name, &model).await?;
        } else {
            println!("{name}: skipped, {} is not there", model.display());
        }
    }
    Ok(())
}

async fn one(places: &Places, name: &str, model: &Path) -> Result<()> {
    let (body, ids) = prompt_of_100k(model)?;
    let http = stub::start().await?;
    let mut events = PubSocket::new();
    let address = events.bind("tcp://127.0.0.1:0").await?.to_string();
    let port: u16 = address
        .rsplit(':')
        .next()
        .and_then(|port| port.parse().ok())
        .context("the publisher's port")?;
    let file = std::env::temp_dir().join(format!("bench-{}.yaml", std::process::id()));
    std::fs::write(&file, control_plane(model))?;
    let mut options = Options {
        // No replay: nothing was published before.
        external_engines: vec![(http, port, 1)],
        control_plane_file: Some(file.clone()),
        ..Options::default()
    };
    let limits = "\"max_body_bytes\"";
    options.envoy_edits.push((
        limits.to_owned(),
        format!("\"timing_sample\": {TIMING_SAMPLE}, {limits}"),
    ));
    let stack = Stack::start("bench-template", places, options).await?;
    publish(&mut events, &stack, &ids).await?;

    let body = body.to_string();
    println!(
        "{name}, body of {} bytes, {} prompt tokens",
        body.len(),
        ids.len()
    );
    let request = load::request(&body);
    let mut latencies = load::latencies(stack.ports.envoy, &request, REQUESTS).await?;
    latencies.sort_by(f64::total_cmp);
    let matched = stack.filter_metric("matched_tokens_total").await?;
    ensure!(
        matched > (REQUESTS * TOKENS * 9 / 10) as u64,
        "only {matched} tokens were matched in {REQUESTS} requests"
    );
    phases(&stack, name).await?;
    std::fs::remove_file(file)?;
    std::fs::remove_dir_all(&stack.dir)?;
    Ok(())
}

/// A body whose prompt has about [`TOKENS`] tokens, and these.
fn prompt_of_100k(model: &Path) -> Result<(Value, Vec<u32>)> {
    let tokenizer =
        Tokenizer::from_file(model.join("tokenizer.json")).map_err(|e| anyhow!("{e}"))?;
    let profile = CompiledProfile::compile(&load_model_dir(model)?.profile)?;
    let mut bytes = 400_000;
    loop {
        let body = conversation(bytes, TURNS);
        let request = parse_request(Api::ChatCompletions, body.to_string().as_bytes())?;
        let Prompt::Text(prompt) = profile.render(&request, 0)? else {
            return Err(anyhow!("no text"));
        };
        let encoding = tokenizer
            .encode(prompt.text, false)
            .map_err(|e| anyhow!("{e}"))?;
        let ids = encoding.get_ids();
        if ids.len().abs_diff(TOKENS) < TOKENS / 50 {
            return Ok((body, ids.to_vec()));
        }
        bytes = bytes * TOKENS / ids.len();
    }
}

fn control_plane(model: &Path) -> String {
    format!(
        "listen: 127.0.0.1:9400\ntokens: [change-me-gateway-token]\ndata_dir: x\npools:\n- name: bench\n  \
         model_dir: {}\n  models: [sim]\n  clusters: [pool]\n  replicas:\n  - {{name: engine-1, endpoint: \
         127.0.0.1:8101, events: tcp://127.0.0.1:5557}}\n",
        model.display()
    )
}

/// Tells the prompt's blocks, and waits until the filter has them.
async fn publish(events: &mut PubSocket, stack: &Stack, ids: &[u32]) -> Result<()> {
    let count = ids.len() / BLOCK_SIZE;
    let hashes: Vec<u64> = (1..=count as u64).map(|n| n << 20).collect();
    let tokens = ids.get(..count * BLOCK_SIZE).context("blocks")?;
    let payload = frame::stored(&hashes, None, tokens, BLOCK_SIZE as u32)?;
    let mut message = ZmqMessage::from(payload);
    message.push_front(0_u64.to_be_bytes().to_vec().into());
    message.push_front(b"kv".to_vec().into());
    // A subscription takes a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    events.send(message).await?;
    wait("the prompt's blocks", Duration::from_secs(20), async || {
        let seq = stack.filter_metric("table_seq").await;
        seq.is_ok_and(|seq| seq > 0)
    })
    .await
}
