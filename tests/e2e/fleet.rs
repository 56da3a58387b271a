//! Fleets that change or are doubled, under a load that does not wait.

use std::time::Duration;

use anyhow::{Result, ensure};
use prefix_picker_tests::open_loop::{Run, Shot, arrivals, hit_rate, lag, loads};
use prefix_picker_tests::stack::{Options, Places, Stack};
use prefix_picker_tests::workload::Random;
use serde_json::{Value, json};

use crate::load::{Engine, all_good, chat, text};

/// An engine that comes late, to a fleet whose prefixes are all elsewhere while other prompts have none:
/// within 30 s it has its share, neither starved by the ones nor flooded by the others.
pub(crate) async fn added_replica(places: &Places, short: bool) -> Result<()> {
    const ENGINES: usize = 6;
    const FRESH: u32 = 150;
    const ANSWER: u32 = 48;
    let engine = Engine {
        speed: 0.25,
        seats: 128,
    };
    let (added, after) = if short { (3, 13) } else { (15, 45) };
    let (added, after) = (Duration::from_secs(added), Duration::from_secs(after));
    let length = added + after;
    // A load that is half of what one engine fewer can serve.
    let rate = 0.4 * (ENGINES - 1) as f64 * engine.capacity(FRESH, ANSWER);
    let systems: Vec<String> = (0..15).map(|n| text(300 + n, 800)).collect();
    let mut random = Random::new(5);
    let mut shot = |(n, due): (u64, Duration)| {
        let user = text(20_000 + n, FRESH);
        // One in five shares nothing.
        let body = if random.one_in(5) {
            chat(&text(90_000 + n, 800), &user, ANSWER)
        } else {
            chat(&systems[random.below(systems.len())], &user, ANSWER)
        };
        Shot {
            due,
            id: format!("added-{n}"),
            body,
            gateway: 0,
        }
    };
    let shots: Vec<Shot> = (0..)
        .zip(arrivals(4, rate, length))
        .map(&mut shot)
        .collect();
    let options = Options {
        late_engines: 1,
        control_plane_lines: vec!["startup_grace_ms: 300".to_owned()],
        ..engine.options(ENGINES)
    };
    let mut stack = Stack::start("added", places, options).await?;
    println!(
        "  {} engines and one more at {} of a real one's speed; {rate:.0} requests/s",
        ENGINES - 1,
        engine.speed
    );
    let run = Run::start(&[stack.ports.envoy], shots)?;
    run.reach(added).await;
    stack.restart_engine(ENGINES - 1).await?;
    let there = run.start.elapsed();
    let fired = run.finish().await?;
    all_good("with a new engine", &fired)?;
    let share = |from: Duration, to: Duration| {
        let load = loads(&fired, &stack.endpoints(), from, to);
        let mean = load.iter().sum::<f64>() / load.len().max(1) as f64;
        load.last().copied().unwrap_or_default() / mean
    };
    let step = Duration::from_secs(1);
    let mut shares = Vec::new();
    let mut at = there;
    while at + step <= length {
        shares.push(share(at, at + step));
        at += step;
    }
    println!(
        "  {:.1} % cached; the new one's load by the second, in means: {shares:.2?}; sent {:.0} ms late (p99)",
        100.0 * hit_rate(fired.iter()),
        lag(&fired)
    );
    // By then: the last third, at most 30 s after.
    let from = there + (length.saturating_sub(there) * 2 / 3).min(Duration::from_secs(30));
    let settled = share(from, length);
    println!(
        "  from {:.1?} after: {settled:.2}",
        from.saturating_sub(there)
    );
    ensure!(
        (0.5..=1.2).contains(&settled),
        "it carries {settled:.2} of the mean"
    );
    let most = shares.iter().copied().fold(0.0, f64::max);
    ensure!(most <= 1.5, "it was flooded: {most:.2} times the mean");
    Ok(())
}

/// Conversations over a few shared system prompts, as they would be sent whatever came back.
fn conversations(rate: f64, length: Duration, gateways: usize) -> Vec<Shot> {
    const OPEN: usize = 40;
    let mut random = Random::new(11);
    let system = |n: usize| json!({"role": "system", "content": text(600 + n as u64, 500)});
    let begin = |random: &mut Random| vec![system(random.below(6))];
    let mut open: Vec<Vec<Value>> = (0..OPEN).map(|_| begin(&mut random)).collect();
    let mut shots = Vec::new();
    for (n, due) in (0u64..).zip(arrivals(6, rate, length)) {
        // In turns, so that the next of one conversation comes after the answer to the last.
        let at = n as usize % OPEN;
        let messages = &mut open[at];
        if messages.len() > 12 {
            *messages = begin(&mut random);
        }
        messages.push(json!({"role": "user", "content": text(40_000 + n, 120)}));
        let body =
            json!({"model": "sim", "max_tokens": 16, "ignore_eos": true, "messages": messages});
        messages.push(json!({"role": "assistant", "content": text(70_000 + n, 30)}));
        shots.push(Shot {
            due,
            id: format!("talk-{n}"),
            body: body.to_string().into(),
            gateway: random.below(gateways),
        });
    }
    shots
}

/// Two Envoys, each with a control plane of its own, before the same engines: as much is found cached as
/// with one of each.
pub(crate) async fn two_fleets(places: &Places, short: bool) -> Result<()> {
    const WARM: Duration = Duration::from_secs(2);
    let engine = Engine {
        speed: 1.0,
        seats: 64,
    };
    // Rates of fewer requests differ by the limit itself, by chance.
    let length = Duration::from_secs(if short { 35 } else { 60 });
    let rate = 40.0;
    let options = engine.options(4);
    let alone = Stack::start("fleet-alone", places, options.clone()).await?;
    let two = Stack::start("fleet-two", places, options).await?;
    let (_control_plane, second) = two.another_fleet("second").await?;
    println!(
        "  4 engines at {} of a real one's speed; {rate:.0} requests/s",
        engine.speed
    );
    let first = Run::start(&[alone.ports.envoy], conversations(rate, length, 1))?;
    let ports = [two.ports.envoy, second.port];
    let both = Run::start(&ports, conversations(rate, length, 2))?;
    let (a, b) = (first.finish().await?, both.finish().await?);
    let mut rates = Vec::new();
    for (name, stack, fired) in [("one", &alone, &a), ("two", &two, &b)] {
        all_good(name, fired)?;
        let load = loads(fired, &stack.endpoints(), Duration::ZERO, length);
        // The first ones find nothing wherever they go.
        let hits = hit_rate(fired.iter().filter(|f| f.due >= WARM));
        println!(
            "  {name}: {} requests, {:.2} % cached; in flight {load:.1?}; sent {:.0} ms late (p99)",
            fired.len(),
            100.0 * hits,
            lag(fired)
        );
        rates.push(hits);
    }
    let [one, two] = rates[..] else {
        anyhow::bail!("two runs");
    };
    ensure!(two >= one - 0.02, "{two:.4} cached instead of {one:.4}");
    Ok(())
}
