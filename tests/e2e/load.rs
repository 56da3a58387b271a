//! Picks under a load that does not wait, held against Envoy's own least-request: both get the same
//! requests at the same times, on engines of their own, so that what disturbs one disturbs the other.
//!
//! Engines are slowed down until they and not the machine are the limit.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use prefix_picker_tests::open_loop::{
    Fired, Run, Shot, arrivals, counts, failures, first_ms, hit_rate, lag, loads, spread,
};
use prefix_picker_tests::stack::{Options, Places, Stack};
use prefix_picker_tests::stats::percentile;
use serde_json::json;

use crate::faults::words;

/// Tokens of one of [`words`], measured.
const TOKENS_PER_WORD: f64 = 5.65;

/// A streamed chat request whose answer has exactly so many tokens.
pub(crate) fn chat(system: &str, user: &str, answer: u32) -> Bytes {
    let body = json!({"model": "sim", "max_tokens": answer, "ignore_eos": true,
        "stream": true, "stream_options": {"include_usage": true}, "messages": [
            {"role": "system", "content": system}, {"role": "user", "content": user}]});
    Bytes::from(body.to_string())
}

/// `tokens` tokens of text that depends on `seed` only.
pub(crate) fn text(seed: u64, tokens: u32) -> String {
    words(seed, (f64::from(tokens) / TOKENS_PER_WORD) as usize)
}

/// An engine's load, by its own time model (`tests/engine-sim/README.md`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Engine {
    /// Times as fast as a real engine.
    pub(crate) speed: f64,
    /// Requests that run at once.
    pub(crate) seats: u32,
}

impl Engine {
    /// Requests a second that it serves with all seats taken, each with so many tokens to compute and to
    /// generate.
    pub(crate) fn capacity(self, fresh: u32, answer: u32) -> f64 {
        let a_step = f64::from(self.seats) / f64::from(answer);
        let step_ms = 8.0 + 0.05 * f64::from(self.seats) + a_step * f64::from(fresh) / 20.0;
        1_000.0 * self.speed * a_step / step_ms
    }

    pub(crate) fn options(self, engines: usize) -> Options {
        let args = ["--speed", &self.speed.to_string()];
        let seats = ["--max-num-seqs", &self.seats.to_string()];
        let rest = ["--noncanonical-rate", "0", "--blocks", "20000"];
        Options {
            more_engines: engines - 3,
            engine_args: [&args[..], &seats, &rest]
                .concat()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            ..Options::default()
        }
    }
}

/// An installation with the filter, and one with Envoy's least-request.
async fn both(name: &str, places: &Places, options: Options) -> Result<(Stack, Stack)> {
    let plain = options.clone().least_request();
    let ours = Stack::start(name, places, options).await?;
    let plain = Stack::start(&format!("{name}-plain"), places, plain).await?;
    Ok((ours, plain))
}

/// The same requests to both.
async fn fire(ours: &Stack, plain: &Stack, shots: Vec<Shot>) -> Result<(Vec<Fired>, Vec<Fired>)> {
    let first = Run::start(&[ours.ports.envoy], shots.clone())?;
    let second = Run::start(&[plain.ports.envoy], shots)?;
    Ok((first.finish().await?, second.finish().await?))
}

pub(crate) fn all_good(what: &str, fired: &[Fired]) -> Result<()> {
    let failed = failures(fired);
    let few: Vec<_> = failed.iter().take(3).collect();
    ensure!(
        failed.is_empty(),
        "{what}: {} of {} failed: {few:?}",
        failed.len(),
        fired.len()
    );
    Ok(())
}

/// Requests a second that ended well before `until`.
fn goodput(fired: &[Fired], until: Duration) -> f64 {
    let done = fired.iter().filter(|f| f.ok() && f.end() <= until).count();
    done as f64 / until.as_secs_f64()
}

/// One prefix that all requests share, asked for three times as often as one engine could serve, on
/// eight: nobody has more than one and a half times the mean, as much is served as by least-request, and
/// four tokens in five are found cached all the same.
pub(crate) async fn hot_prefix(places: &Places, short: bool) -> Result<()> {
    const ENGINES: usize = 8;
    const FRESH: u32 = 150;
    const ANSWER: u32 = 64;
    let engine = Engine {
        speed: 0.25,
        seats: 128,
    };
    let rate = 3.0 * engine.capacity(FRESH, ANSWER);
    let (warm, length) = if short { (4, 30) } else { (10, 60) };
    let (warm, length) = (Duration::from_secs(warm), Duration::from_secs(length));
    let system = text(1, 1_200);
    let shot = |(n, due): (u64, Duration)| Shot {
        due,
        id: format!("hot-{n}"),
        body: chat(&system, &text(1_000 + n, FRESH), ANSWER),
        gateway: 0,
    };
    let shots: Vec<Shot> = (0..).zip(arrivals(1, rate, length)).map(shot).collect();
    println!(
        "  engines at {} of a real one's speed with {} seats; {rate:.0} requests/s, {:.0} at most by one engine",
        engine.speed,
        engine.seats,
        rate / 3.0
    );
    let (ours, plain) = both("hot", places, engine.options(ENGINES)).await?;
    let (a, b) = fire(&ours, &plain, shots).await?;
    all_good("with the filter", &a)?;
    all_good("least-request", &b)?;
    let mut of = Vec::new();
    for (name, stack, fired) in [("picked", &ours, &a), ("least-request", &plain, &b)] {
        let load = loads(fired, &stack.endpoints(), warm, length);
        let prompt = fired.first().map_or(0, |f| f.prompt_tokens);
        let ttft = first_ms(fired);
        let (good, hits) = (goodput(fired, length), hit_rate(fired.iter()));
        println!(
            "  {name:<14}{good:.1}/s of prompts of {prompt}; {:.1} % cached; in flight {load:.1?}, at most {:.2} times the mean; \
             first token p50 {:.0}, p90 {:.0} ms; sent {:.0} ms late (p99)",
            100.0 * hits,
            spread(&load),
            percentile(&ttft, 50.0),
            percentile(&ttft, 90.0),
            lag(fired)
        );
        of.push((good, hits, spread(&load)));
    }
    let [(good, hits, most), (plain_good, ..)] = of[..] else {
        anyhow::bail!("two runs");
    };
    ensure!(most <= 1.5, "one engine had {most:.2} times the mean");
    ensure!(
        good >= 0.97 * plain_good,
        "{good:.1}/s served, {plain_good:.1} by least-request"
    );
    ensure!(hits >= 0.8, "only {:.1} % cached", 100.0 * hits);
    Ok(())
}

/// Prompts that share nothing: spread and first token as by least-request, but for one part in twenty.
pub(crate) async fn unique(places: &Places, short: bool) -> Result<()> {
    const ENGINES: usize = 4;
    const PROMPT: u32 = 800;
    const ANSWER: u32 = 8;
    let engine = Engine {
        speed: 0.5,
        seats: 64,
    };
    let rate = 0.4 * ENGINES as f64 * engine.capacity(PROMPT, ANSWER);
    // Least-request, too, spreads by chance: the fewer requests, the wider.
    let length = Duration::from_secs(if short { 40 } else { 90 });
    let shot = |(n, due): (u64, Duration)| Shot {
        due,
        id: format!("unique-{n}"),
        body: chat(&text(10_000 + n, PROMPT), "Go on.", ANSWER),
        gateway: 0,
    };
    let shots: Vec<Shot> = (0..).zip(arrivals(2, rate, length)).map(shot).collect();
    let (ours, plain) = both("unique", places, engine.options(ENGINES)).await?;
    let (a, b) = fire(&ours, &plain, shots).await?;
    all_good("with the filter", &a)?;
    all_good("least-request", &b)?;
    let prompt = a.first().map_or(0, |f| f.prompt_tokens);
    let prefill_ms = prompt as f64 / 20.0 / engine.speed;
    println!(
        "  engines at {} of a real one's speed; {rate:.0} requests/s of {prompt} tokens, {prefill_ms:.0} ms to compute",
        engine.speed
    );
    ensure!(prefill_ms >= 20.0, "prompts are too short");
    let mut of = Vec::new();
    for (name, stack, fired) in [("picked", &ours, &a), ("least-request", &plain, &b)] {
        let count = counts(fired, &stack.endpoints(), Duration::ZERO, length);
        let load = loads(fired, &stack.endpoints(), Duration::ZERO, length);
        let ttft = first_ms(fired);
        let mean = ttft.iter().sum::<f64>() / ttft.len().max(1) as f64;
        let (p50, p90) = (percentile(&ttft, 50.0), percentile(&ttft, 90.0));
        println!(
            "  {name:<14}requests {count:?}: {:.3} times the mean; in flight {load:.2?}: {:.3}; first token mean {mean:.1}, \
             p50 {p50:.1}, p90 {p90:.1} ms; sent {:.0} ms late (p99)",
            spread(&count),
            spread(&load),
            lag(fired)
        );
        of.push((spread(&count), spread(&load), [mean, p50, p90]));
    }
    let [(count, load, ttft), (plain_count, plain_load, plain_ttft)] = of[..] else {
        anyhow::bail!("two runs");
    };
    // Its own spread is 1.02 to 1.07 by chance: ours may not be compared with a lucky one.
    let by_plain = |spread: f64| spread.max(1.05) + 0.05;
    ensure!(
        count <= by_plain(plain_count) && load <= by_plain(plain_load),
        "spread wider than by least-request"
    );
    for (ours, plain) in ttft.into_iter().zip(plain_ttft) {
        ensure!(
            ours <= 1.05 * plain,
            "first token after {ours:.1} ms, by least-request {plain:.1} ms"
        );
    }
    Ok(())
}
