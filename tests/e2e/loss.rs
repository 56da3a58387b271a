//! What is lost under a load that does not wait: an engine, what engines say of themselves, the control
//! plane.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use prefix_picker_tests::client::Client;
use prefix_picker_tests::open_loop::{
    Fired, Run, Shot, arrivals, counts, failures, lag, loads, spread,
};
use prefix_picker_tests::stack::{Places, Stack};
use serde_json::Value;

use crate::load::{Engine, all_good, chat, text};

pub(crate) const ENGINES: usize = 4;
pub(crate) const ENGINE: Engine = Engine {
    speed: 0.25,
    seats: 64,
};
const FRESH: u32 = 150;
const ANSWER: u32 = 24;

/// Prompts under eight system prompts at 0.4 of what the engines can serve; half of them streamed.
pub(crate) fn shots(name: &str, length: Duration) -> Vec<Shot> {
    let rate = 0.4 * ENGINES as f64 * ENGINE.capacity(FRESH, ANSWER);
    let systems: Vec<String> = (0..8).map(|n| text(500 + n, 600)).collect();
    let shot = |(n, due): (usize, Duration)| {
        let system = &systems[n * 5 % 8];
        let streamed = n / 8 % 2 == 0;
        let body = chat(system, &text(7_000 + n as u64, FRESH), ANSWER);
        Shot {
            due,
            id: format!("{name}-{n}"),
            body: if streamed { body } else { whole(&body) },
            gateway: 0,
        }
    };
    println!(
        "  {ENGINES} engines at {} of a real one's speed; {rate:.0} requests/s",
        ENGINE.speed
    );
    arrivals(3, rate, length)
        .into_iter()
        .enumerate()
        .map(shot)
        .collect()
}

/// The same, to be answered in one piece.
fn whole(body: &Bytes) -> Bytes {
    let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(map) = body.as_object_mut() {
        map.retain(|name, _| !name.starts_with("stream"));
    }
    Bytes::from(body.to_string())
}

/// `kill -9` of an engine under load: what had not begun to be answered is served elsewhere, so that
/// only streams that had begun there break off; afterwards nothing fails.
pub(crate) async fn killed(places: &Places, short: bool) -> Result<()> {
    let (kill, length) = if short { (5, 12) } else { (20, 60) };
    let (kill, length) = (Duration::from_secs(kill), Duration::from_secs(length));
    let mut stack = Stack::start("killed", places, ENGINE.options(ENGINES)).await?;
    let run = Run::start(&[stack.ports.envoy], shots("killed", length))?;
    run.reach(kill).await;
    let victim = stack.endpoint(1);
    // Some of them will have begun to be answered, and others not.
    let mut state = stack.engine_state(1).await?;
    let enough = |state: &Value| state["requests"].as_u64().is_some_and(|n| n >= 6);
    while !enough(&state) && run.start.elapsed() < kill + Duration::from_secs(2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        state = stack.engine_state(1).await?;
    }
    stack.engines.get_mut(1).context("no second engine")?.kill();
    let kill = run.start.elapsed();
    let fired = run.finish().await?;

    let failed = failures(&fired);
    let at_once = Duration::from_millis(50);
    let in_flight = fired
        .iter()
        .filter(|f| {
            f.due <= kill && f.end() + at_once >= kill && f.engine.as_ref() == Some(&victim)
        })
        .count();
    let (mut moved, mut last) = (0, None);
    for f in &fired {
        let entry = stack.log.wait(&f.id).await?;
        let named = entry.endpoint.unwrap_or_default().starts_with(&victim);
        if named && f.ok() && f.end() > kill && f.engine.as_ref() != Some(&victim) {
            moved += 1;
        }
        if named && f.due > kill {
            last = Some(f.due.saturating_sub(kill));
        }
    }
    println!(
        "  {} requests, the engine had {} when it was killed; {} broke off, {moved} were served elsewhere; the last \
         that was sent there first came {last:.2?} after; sent {:.0} ms late (p99)",
        fired.len(),
        state["requests"],
        failed.len(),
        lag(&fired)
    );
    for f in &failed {
        let begun = f.status == 200 && f.engine.as_ref() == Some(&victim);
        ensure!(begun && f.due <= kill, "failed for no reason: {f:?}");
    }
    ensure!(
        !failed.is_empty() && failed.len() <= in_flight,
        "{failed:?}"
    );
    ensure!(moved > 0, "nothing was tried elsewhere");
    ensure!(
        last.is_none_or(|last| last < Duration::from_secs(2)),
        "still sent to a dead engine {last:?} after"
    );
    let others: Vec<String> = stack
        .endpoints()
        .into_iter()
        .filter(|e| *e != victim)
        .collect();
    let later = kill + Duration::from_secs(2);
    let load = loads(&fired, &others, later, length);
    println!("  in flight on the others afterwards: {load:.1?}");
    ensure!(spread(&load) <= 1.5, "{load:?}");
    Ok(())
}

/// What the engines' metrics say, as far as the test lets it through.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Says {
    #[default]
    Truth,
    /// The same for ever.
    Same,
    /// Nothing, for as long as one waits.
    Nothing,
}

#[derive(Default)]
struct Scraped {
    engines: OnceLock<Vec<Client>>,
    says: Mutex<Says>,
    last: Mutex<Vec<String>>,
}

impl Scraped {
    fn say(&self, what: Says) {
        *self.says.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    async fn of(&self, engine: usize) -> Result<String> {
        let says = *self.says.lock().unwrap_or_else(PoisonError::into_inner);
        if says == Says::Nothing {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        if says == Says::Truth {
            let engines = self.engines.get().context("too early")?;
            let client = engines.get(engine).context("no such engine")?;
            let (_, text) = client.get("/metrics").await?;
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            last.resize(ENGINES, String::new());
            if let Some(slot) = last.get_mut(engine) {
                *slot = text;
            }
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(engine).cloned().context("too early")
    }
}

/// Serves `/<engine>/metrics`; the port.
async fn serve(scraped: Arc<Scraped>) -> Result<u16> {
    let answer = async |State(scraped): State<Arc<Scraped>>, Path(engine): Path<usize>| {
        let text = scraped.of(engine).await;
        text.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
    };
    let router = Router::new()
        .route("/{engine}/metrics", get(answer))
        .with_state(scraped);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(port)
}

/// Engines whose metrics stand still, then are not to be had; then the control plane dies. No request
/// fails, and what this Envoy has in flight itself is enough to spread the load. In the long form one
/// engine's metrics stand still while it is busy for somebody else: that is believed for 10 s.
pub(crate) async fn frozen(places: &Places, short: bool) -> Result<()> {
    let phase = Duration::from_secs(if short { 4 } else { 25 });
    let scraped = Arc::new(Scraped::default());
    let port = serve(Arc::clone(&scraped)).await?;
    let mut options = ENGINE.options(ENGINES);
    for n in 1..=ENGINES {
        let name = format!("name: engine-{n},");
        let metrics = format!(
            "{name} metrics: \"http://127.0.0.1:{port}/{}/metrics\",",
            n - 1
        );
        options.control_plane_edits.push((name, metrics));
    }
    let mut stack = Stack::start("frozen", places, options).await?;
    let clients: Result<Vec<Client>> = (0..ENGINES).map(|i| stack.engine_client(i)).collect();
    let _ = scraped.engines.set(clients?);
    let run = Run::start(&[stack.ports.envoy], shots("frozen", 4 * phase))?;
    run.reach(phase).await;
    if !short {
        busy(&stack, 0).await?;
    }
    scraped.say(Says::Same);
    run.reach(2 * phase).await;
    scraped.say(Says::Nothing);
    run.reach(3 * phase).await;
    if let Some(control_plane) = &mut stack.control_plane {
        control_plane.kill();
    }
    let fired = run.finish().await?;
    all_good("without metrics", &fired)?;
    let names = ["metrics", "frozen", "not to be had", "no control plane"];
    for (n, name) in (0..).zip(names) {
        let (mut from, to) = (phase * n, phase * (n + 1));
        if !short && n == 1 {
            from += Duration::from_secs(12);
        }
        report(&stack, &fired, name, from, to)?;
    }
    Ok(())
}

/// Gives an engine much to do, past Envoy, and waits until its metrics were read.
async fn busy(stack: &Stack, engine: usize) -> Result<()> {
    for n in 0..40 {
        let (client, body) = (
            stack.engine_client(engine)?,
            whole(&chat("", &text(n, 300), 100)),
        );
        let body: Value = serde_json::from_slice(&body)?;
        tokio::spawn(async move {
            let path = "/v1/chat/completions";
            client.post(path, &body, "elsewhere", &[]).await
        });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

fn report(stack: &Stack, fired: &[Fired], name: &str, from: Duration, to: Duration) -> Result<()> {
    // The first second fills up.
    let from = from.max(Duration::from_secs(1));
    let load = loads(fired, &stack.endpoints(), from, to);
    let count = counts(fired, &stack.endpoints(), from, to);
    let least = load.iter().copied().fold(f64::MAX, f64::min);
    let mean = load.iter().sum::<f64>() / load.len().max(1) as f64;
    println!(
        "  {name:<18}in flight {load:.1?}, {:.2} to {:.2} times the mean; requests {count:?}",
        least / mean,
        spread(&load)
    );
    ensure!(
        spread(&load) <= 1.5 && least >= 0.5 * mean,
        "{name}: the load is not spread: {load:?}"
    );
    Ok(())
}
