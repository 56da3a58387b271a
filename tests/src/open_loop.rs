//! Load that does not wait: each request starts by the clock, whatever became of those before it.
//!
//! All times are from when a request was due, not from when it was sent, so that a generator that lags
//! shows as latency and not as less load. [`lag`] says how much it did.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;

use crate::client::usage;
use crate::stats::percentile;
use crate::workload::Random;

/// One request to come.
#[derive(Debug, Clone)]
pub struct Shot {
    /// When it starts, from the run's start.
    pub due: Duration,
    /// Its `x-request-id`.
    pub id: String,
    /// JSON for `/v1/chat/completions`.
    pub body: Bytes,
    /// Which of the run's gateways gets it.
    pub gateway: usize,
}

/// What became of one.
#[derive(Debug, Clone)]
pub struct Fired {
    /// As in its [`Shot`].
    pub id: String,
    /// As in its [`Shot`].
    pub due: Duration,
    /// How late it was sent.
    pub lag: Duration,
    /// From `due` to the first byte of the answer's body; `None`: there was none.
    pub first: Option<Duration>,
    /// From `due` to the end, good or bad.
    pub took: Duration,
    /// HTTP status; 0: no answer began.
    pub status: u16,
    /// Why there is no whole answer.
    pub error: Option<String>,
    /// Who answered, by its `x-engine`: `127.0.0.1:port`.
    pub engine: Option<String>,
    /// Tokens of the prompt, by the answer.
    pub prompt_tokens: u64,
    /// And how many of them were cached.
    pub cached_tokens: u64,
}

impl Fired {
    /// A whole answer came, and it is a good one.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.status == 200 && self.error.is_none()
    }

    /// Its end, from the run's start.
    #[must_use]
    pub fn end(&self) -> Duration {
        self.due + self.took
    }
}

/// Arrival times of a Poisson process of `rate` a second, for so long.
#[must_use]
pub fn arrivals(seed: u64, rate: f64, length: Duration) -> Vec<Duration> {
    let mut random = Random::new(seed);
    let mut at = 0.0;
    let next = || {
        let uniform = ((random.bits() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        at -= uniform.ln() / rate;
        (at < length.as_secs_f64()).then(|| Duration::from_secs_f64(at))
    };
    std::iter::from_fn(next).collect()
}

/// A run under way.
#[derive(Debug)]
pub struct Run {
    /// When it began.
    pub start: Instant,
    fired: tokio::task::JoinHandle<Result<Vec<Fired>>>,
}

impl Run {
    /// Starts to send `shots`, in the order of their times, to the gateways at these ports.
    ///
    /// # Errors
    /// The HTTP library cannot be set up, or a shot names no gateway.
    pub fn start(ports: &[u16], shots: Vec<Shot>) -> Result<Self> {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(60))
            .no_proxy()
            .build()?;
        let urls: Vec<String> = ports
            .iter()
            .map(|port| format!("http://127.0.0.1:{port}/v1/chat/completions"))
            .collect();
        let url = |shot: &Shot| urls.get(shot.gateway).cloned().context("no such gateway");
        let shots: Vec<(Shot, String)> = shots
            .into_iter()
            .map(|shot| url(&shot).map(|url| (shot, url)))
            .collect::<Result<_>>()?;
        let start = Instant::now();
        let fired = tokio::spawn(async move {
            let mut all = Vec::with_capacity(shots.len());
            for (shot, url) in shots {
                tokio::time::sleep_until((start + shot.due).into()).await;
                all.push(tokio::spawn(fire(http.clone(), start, shot, url)));
            }
            let mut fired = Vec::with_capacity(all.len());
            for one in all {
                fired.push(one.await?);
            }
            Ok(fired)
        });
        Ok(Self { start, fired })
    }

    /// Waits until so long after the start.
    pub async fn reach(&self, at: Duration) {
        tokio::time::sleep_until((self.start + at).into()).await;
    }

    /// All that became of it, in the order of the shots; waits for the last answer.
    ///
    /// # Errors
    /// A task panicked.
    pub async fn finish(self) -> Result<Vec<Fired>> {
        self.fired.await?
    }
}

async fn fire(http: reqwest::Client, start: Instant, shot: Shot, url: String) -> Fired {
    let since = || start.elapsed().saturating_sub(shot.due);
    let mut fired = Fired {
        id: shot.id.clone(),
        due: shot.due,
        lag: since(),
        first: None,
        took: Duration::ZERO,
        status: 0,
        error: None,
        engine: None,
        prompt_tokens: 0,
        cached_tokens: 0,
    };
    let request = http
        .post(url)
        .header("content-type", "application/json")
        .header("x-request-id", &shot.id)
        .body(shot.body.clone());
    let mut body = Vec::new();
    match request.send().await {
        Ok(mut answer) => {
            fired.status = answer.status().as_u16();
            let engine = answer.headers().get("x-engine");
            fired.engine = engine.and_then(|v| v.to_str().ok()).map(str::to_owned);
            loop {
                match answer.chunk().await {
                    Ok(Some(chunk)) => {
                        fired.first.get_or_insert_with(since);
                        body.extend_from_slice(&chunk);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        fired.error = Some(format!("{error:?}"));
                        break;
                    }
                }
            }
        }
        Err(error) => fired.error = Some(format!("{error:?}")),
    }
    fired.took = since();
    let text = String::from_utf8_lossy(&body);
    (fired.prompt_tokens, fired.cached_tokens) = usage(&text);
    if fired.error.is_none() && fired.status != 200 {
        fired.error = Some(text.chars().take(200).collect());
    }
    fired
}

/// For each engine: how many of these requests it had at once, on average from `from` to `to`.
#[must_use]
pub fn loads(fired: &[Fired], engines: &[String], from: Duration, to: Duration) -> Vec<f64> {
    let inside = |f: &Fired| f.end().min(to).saturating_sub(f.due.max(from));
    let of = |engine: &String| {
        let its = fired.iter().filter(|f| f.engine.as_ref() == Some(engine));
        its.map(|f| inside(f).as_secs_f64()).sum::<f64>()
    };
    let span = to.saturating_sub(from).as_secs_f64().max(1e-9);
    engines.iter().map(|engine| of(engine) / span).collect()
}

/// For each engine: how many of the requests that were due from `from` to `to` it answered.
#[must_use]
pub fn counts(fired: &[Fired], engines: &[String], from: Duration, to: Duration) -> Vec<f64> {
    let due = |f: &&Fired| f.due >= from && f.due < to;
    let of = |engine: &String| {
        let its = fired.iter().filter(due);
        its.filter(|f| f.engine.as_ref() == Some(engine)).count() as f64
    };
    engines.iter().map(of).collect()
}

/// The largest of these, as a multiple of their mean; 0 where all are 0.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let most = values.iter().copied().fold(0.0, f64::max);
    if mean > 0.0 { most / mean } else { 0.0 }
}

/// The share of prompt tokens that were found cached.
#[must_use]
pub fn hit_rate<'a>(fired: impl Iterator<Item = &'a Fired>) -> f64 {
    let (mut cached, mut prompt) = (0, 0);
    for f in fired {
        cached += f.cached_tokens;
        prompt += f.prompt_tokens;
    }
    cached as f64 / prompt.max(1) as f64
}

/// Times to the first byte in milliseconds, of those that have one.
#[must_use]
pub fn first_ms(fired: &[Fired]) -> Vec<f64> {
    let first = fired.iter().filter_map(|f| f.first);
    first.map(|d| d.as_secs_f64() * 1_000.0).collect()
}

/// How late 99 of 100 requests were sent at most, in milliseconds.
#[must_use]
pub fn lag(fired: &[Fired]) -> f64 {
    let lags: Vec<f64> = fired.iter().map(|f| f.lag.as_secs_f64() * 1e3).collect();
    percentile(&lags, 99.0)
}

/// Those that failed, with why.
#[must_use]
pub fn failures(fired: &[Fired]) -> Vec<&Fired> {
    fired.iter().filter(|f| !f.ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(engine: &str, due: u64, took: u64) -> Fired {
        Fired {
            id: String::new(),
            due: Duration::from_secs(due),
            lag: Duration::ZERO,
            first: None,
            took: Duration::from_secs(took),
            status: 200,
            error: None,
            engine: Some(engine.to_owned()),
            prompt_tokens: 100,
            cached_tokens: 25,
        }
    }

    #[test]
    fn arrivals_come_at_the_rate_and_by_the_seed() {
        let length = Duration::from_secs(100);
        let a = arrivals(1, 50.0, length);
        assert!((4_700..5_300).contains(&a.len()), "{}", a.len());
        assert!(a.is_sorted() && a.last() < Some(&length));
        assert_eq!(a, arrivals(1, 50.0, length));
        assert_ne!(a, arrivals(2, 50.0, length));
    }

    #[test]
    fn loads_count_what_is_inside() {
        let all = [fired("a", 0, 10), fired("a", 8, 4), fired("b", 20, 1)];
        let engines = ["a", "b"].map(str::to_owned);
        let at = Duration::from_secs;
        assert_eq!(loads(&all, &engines, at(0), at(10)), [1.2, 0.0]);
        assert_eq!(loads(&all, &engines, at(10), at(30)), [0.1, 0.05]);
        assert_eq!(counts(&all, &engines, at(8), at(21)), [1.0, 1.0]);
        assert_eq!(spread(&[3.0, 1.0]), 1.5);
        assert_eq!(spread(&[0.0, 0.0]), 0.0);
        assert_eq!(hit_rate(all.iter()), 0.25);
    }
}
