//! Whether the filter's prediction is what the engine then reports as `cached_tokens`.
//!
//! One request at a time, each sent once the events of all before it have reached the filter, so
//! that every difference is an error of ours and not of timing. A second stretch sends several at
//! once and only has to succeed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow, ensure};
use prefix_picker_tests::client::{Client, Reply};
use prefix_picker_tests::stack::{Options, Places, Stack};
use prefix_picker_tests::stats::{Histogram, percentile};
use prefix_picker_tests::workload::{Kind, Request, Sizes, Workload};
use tokenizers::Tokenizer;

use crate::faults::Background;

/// Longest of our blocks in bytes (soft cut wanted from 256 on, hard cut at 320 plus a character).
const BLOCK_BYTES: usize = 324;
/// Ids in a block of a token-id prompt.
const BLOCK_IDS: u64 = 64;
/// Wanted share of predictions within the tolerance.
const WANTED: f64 = 0.999;

/// What one run came to.
#[derive(Debug, Default)]
struct Figures {
    requests: u64,
    failed: Vec<String>,
    compared: u64,
    cached_256: u64,
    after_evictions: u64,
    within: u64,
    within_64: u64,
    not_compared: BTreeMap<String, u64>,
    over: Histogram,
    under: Histogram,
    exact: u64,
    by_kind: BTreeMap<Kind, (u64, u64)>,
    outside: Vec<String>,
    cached_tokens: u64,
    prompt_tokens: u64,
    tolerances: Vec<f64>,
}

/// Three simulated engines with caches so small that they evict all the time.
pub(crate) async fn simulated(places: &Places, requests: u64) -> Result<()> {
    let blocks = if requests < 1000 { "700" } else { "1100" };
    let engine_args = ["--blocks", blocks, "--speed", "20"]
        .map(String::from)
        .to_vec();
    let mut stack = Stack::start(
        "accuracy",
        places,
        Options {
            engine_args,
            // Else the control plane learns only from the first such prompts that there are any, and
            // what engines have by then is never announced again.
            control_plane_edits: vec![(
                "  models: [sim]\n".to_owned(),
                "  models: [sim]\n  token_ids: on\n".to_owned(),
            )],
            ..Options::default()
        },
    )
    .await?;
    let sizes = Sizes {
        shared: 5,
        shared_sentences: 60,
        open: 20,
        turns: 7,
        ..crate::faults::sizes()
    };
    let model = places.root.join("tests/engine-sim/model");
    let figures = run(&mut stack, sizes, &model, 16, requests).await?;

    println!("  several at once:");
    let load = Background::start(&stack, 8)?;
    tokio::time::sleep(std::time::Duration::from_secs(if requests < 1000 {
        3
    } else {
        15
    }))
    .await;
    load.finish().await?;
    figures.judge()
}

/// Two real vLLM engines, started by `make test-vllm`, whose ports are in `VLLM_PORTS`
/// (`http,events,replay` for each, separated by spaces).
pub(crate) async fn vllm(places: &Places) -> Result<()> {
    let options = Options {
        external_engines: real_engines("VLLM_PORTS")?,
        control_plane_file: Some(places.root.join("tests/vllm/prefix-picker.yaml")),
        ..Options::default()
    };
    let mut stack = Stack::start("vllm", places, options).await?;
    let model = places.root.join(".tools/vllm/tiny-qwen3");
    let sizes = Sizes {
        model: "tiny-qwen3".to_owned(),
        shared: 3,
        shared_sentences: 45,
        open: 10,
        turns: 5,
        token_ids_below: 100_000,
        max_tokens: 12,
    };
    let figures = run(&mut stack, sizes, &model, 32, 360).await?;
    figures.judge()
}

/// Ports of engines that run already, from an environment variable: `http,events,replay` for each,
/// separated by spaces.
pub(crate) fn real_engines(variable: &str) -> Result<Vec<(u16, u16, u16)>> {
    let ports =
        std::env::var(variable).map_err(|_| anyhow!("{variable} is not set: make test-vllm"))?;
    let engine = |engine: &str| {
        let ports = engine
            .split(',')
            .map(str::parse)
            .collect::<Result<Vec<u16>, _>>()?;
        match ports[..] {
            [http, events, replay] => Ok((http, events, replay)),
            _ => Err(anyhow!("{variable}: {engine}")),
        }
    };
    ports.split_whitespace().map(engine).collect()
}

async fn run(
    stack: &mut Stack,
    sizes: Sizes,
    model: &Path,
    engine_block: u64,
    requests: u64,
) -> Result<Figures> {
    let tokenizer =
        Tokenizer::from_file(model.join("tokenizer.json")).map_err(|e| anyhow!("{e}"))?;
    let mut workload = Workload::new(42, sizes);
    let mut figures = Figures::default();
    let client = stack.client()?;
    // For each conversation, how many blocks had been evicted when it was last heard of.
    let mut evicted_at = BTreeMap::new();
    for i in 0..requests {
        stack.settle().await?;
        let request = workload.request();
        // "After evictions": some engine evicted something since this conversation's turn before.
        let evicted = stack.evictions().await?;
        let before = evicted_at
            .insert(request.conversation, evicted)
            .unwrap_or(0);
        figures.after_evictions += u64::from(evicted > before);
        let id = format!("accuracy-{i}");
        figures.requests += 1;
        let Some(reply) = send(&client, &request, &id, &mut figures).await else {
            continue;
        };
        workload.answered(request.conversation, &reply.text);
        let tolerance = tolerance(&request, &tokenizer).max(engine_block);
        figures
            .compare(stack, &request, &reply, &id, tolerance)
            .await?;
    }
    stack.log.refresh()?;
    println!("{figures}");
    println!("  reasons: {:?}", stack.log.reasons());
    Ok(figures)
}

async fn send(
    client: &Client,
    request: &Request,
    id: &str,
    figures: &mut Figures,
) -> Option<Reply> {
    match client.post(request.path, &request.body, id, &[]).await {
        Ok(reply) if reply.status == 200 => return Some(reply),
        Ok(reply) => figures.failed.push(format!(
            "{id} {:?}: {} {}",
            request.kind, reply.status, reply.body
        )),
        Err(error) => figures
            .failed
            .push(format!("{id} {:?}: {error:#}", request.kind)),
    }
    None
}

/// Most tokens that one of our blocks can hold in this prompt: counted in every window of the prompt's
/// own text with the engine's tokenizer.
fn tolerance(request: &Request, tokenizer: &Tokenizer) -> u64 {
    if request.kind == Kind::TokenIds {
        return BLOCK_IDS;
    }
    most_tokens_in_a_block(&request.text(), tokenizer)
}

/// Most tokens in any stretch of a text that is as long as our longest block.
pub(crate) fn most_tokens_in_a_block(text: &str, tokenizer: &Tokenizer) -> u64 {
    let Ok(encoding) = tokenizer.encode(text, false) else {
        return 0;
    };
    let ends: Vec<usize> = encoding.get_offsets().iter().map(|o| o.1).collect();
    let (mut from, mut most) = (0, 0);
    for (to, end) in ends.iter().enumerate() {
        while ends
            .get(from)
            .is_some_and(|start| end - start > BLOCK_BYTES)
        {
            from += 1;
        }
        most = most.max(to + 1 - from);
    }
    most as u64
}

impl Figures {
    async fn compare(
        &mut self,
        stack: &mut Stack,
        r: &Request,
        reply: &Reply,
        id: &str,
        tolerance: u64,
    ) -> Result<()> {
        let Some(cached) = reply.cached_tokens else {
            *self
                .not_compared
                .entry("no cached_tokens in the answer".to_owned())
                .or_default() += 1;
            return Ok(());
        };
        self.cached_tokens += cached;
        self.prompt_tokens += reply.prompt_tokens;
        self.cached_256 += u64::from(cached >= 256);
        let entry = stack.log.wait(id).await?;
        let named = entry.endpoint.clone().unwrap_or_default();
        let first = named.split(',').next().unwrap_or_default().trim();
        if !named.is_empty() && entry.upstream.as_deref() != Some(first) {
            *self
                .not_compared
                .entry("served by another endpoint than named first".to_owned())
                .or_default() += 1;
            return Ok(());
        }
        // Without a prediction the filter promised nothing.
        let predicted = entry.predicted_tokens.unwrap_or(0);
        self.compared += 1;
        self.tolerances.push(tolerance as f64);
        let off = predicted.abs_diff(cached);
        self.within += u64::from(off <= tolerance);
        self.within_64 += u64::from(off <= 64);
        let of_kind = self.by_kind.entry(r.kind).or_default();
        of_kind.0 += 1;
        of_kind.1 += u64::from(off <= tolerance);
        match predicted.cmp(&cached) {
            std::cmp::Ordering::Less => self.under.add(off),
            std::cmp::Ordering::Equal => self.exact += 1,
            std::cmp::Ordering::Greater => self.over.add(off),
        }
        if off > tolerance {
            let reason = entry.reason.unwrap_or_default();
            self.outside.push(format!(
                "{id} {:?} {reason}: predicted {predicted}, cached {cached} of {}, tolerance {tolerance}",
                r.kind, reply.prompt_tokens
            ));
        }
        Ok(())
    }

    fn judge(self) -> Result<()> {
        for line in self.failed.iter().chain(&self.outside).take(20) {
            println!("  {line}");
        }
        ensure!(
            self.failed.is_empty(),
            "{} of {} requests failed",
            self.failed.len(),
            self.requests
        );
        let share = |n: u64| n as f64 / self.compared.max(1) as f64;
        ensure!(
            self.compared * 100 >= self.requests * 99,
            "only {} of {} compared",
            self.compared,
            self.requests
        );
        ensure!(
            share(self.within) >= WANTED,
            "{:.2} % within the tolerance, wanted 99.9 %",
            share(self.within) * 100.0
        );
        ensure!(
            share(self.cached_256) >= 0.5,
            "{:.0} % with 256 cached tokens",
            share(self.cached_256) * 100.0
        );
        ensure!(
            share(self.after_evictions) >= 0.1,
            "{:.0} % after evictions",
            share(self.after_evictions) * 100.0
        );
        Ok(())
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |n: u64| 100.0 * n as f64 / self.compared.max(1) as f64;
        writeln!(
            f,
            "  {} requests, {} failed, {} compared",
            self.requests,
            self.failed.len(),
            self.compared
        )?;
        for (why, count) in &self.not_compared {
            writeln!(f, "  not compared, {why}: {count}")?;
        }
        writeln!(
            f,
            "  cached >= 256 tokens: {:.1} %; after evictions: {:.1} %; hit rate {:.1} %",
            of(self.cached_256),
            of(self.after_evictions),
            100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
        )?;
        writeln!(
            f,
            "  within max(our block, engine block): {:.2} % (p50 {:.0} tokens, p99 {:.0}), within 64 tokens: {:.2} %, exact: {:.1} %",
            of(self.within),
            percentile(&self.tolerances, 50.0),
            percentile(&self.tolerances, 99.0),
            of(self.within_64),
            of(self.exact)
        )?;
        writeln!(
            f,
            "  over-claims  ({}), tokens: {}",
            self.over.count(),
            self.over
        )?;
        writeln!(
            f,
            "  under-claims ({}), tokens: {}",
            self.under.count(),
            self.under
        )?;
        let kinds = self
            .by_kind
            .iter()
            .map(|(kind, (all, within))| format!("{kind:?} {within}/{all}"));
        write!(
            f,
            "  within, by kind: {}",
            kinds.collect::<Vec<_>>().join(", ")
        )
    }
}
