//! Two control planes, of which gateways ask the second only while the first is away.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use held_ports::Held;
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack, wait};

use crate::faults::{Background, chat, plant, predict, words};

const ONE: &str = "\"cluster\": \"prefix_picker\"";
const BOTH: &str = "\"clusters\": [\"prefix_picker\", \"standby\"]";
/// Prompt tokens that a planted prompt must be known to have cached.
const KNOWN: u64 = 256;

/// What the shipped installation is given for a second control plane.
fn options(port: u16) -> Options {
    let before = "\n  clusters:\n";
    let cluster = format!(
        "  - name: standby\n    type: STATIC\n    connect_timeout: 1s\n    load_assignment:\n      cluster_name: standby\n      endpoints:\n      - lb_endpoints:\n        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}\n"
    );
    Options {
        envoy_edits: vec![
            (ONE.to_owned(), BOTH.to_owned()),
            (before.to_owned(), format!("{before}{cluster}")),
        ],
        // Both have the same, so that either's table is of use to whoever asks.
        control_plane_lines: vec!["fleet_secret: one-for-both-of-them".to_owned()],
        ..Options::default()
    }
}

async fn in_use(stack: &Stack, at: u64, patience: Duration) -> Result<Duration> {
    let begin = Instant::now();
    wait("the other control plane", patience, async || {
        let used = stack.filter_metric("control_plane_in_use").await;
        used.is_ok_and(|used| used == at)
    })
    .await?;
    Ok(begin.elapsed())
}

/// `kill -9` of the first under load: the second's table is in use within 3 s, with all that engines held
/// before, and what they store from then on. Started again, the first is asked again after a minute.
pub(crate) async fn standby(places: &Places, short: bool) -> Result<()> {
    let held = Held::new(1)?;
    let port = held.at(0);
    let mut stack = Stack::start("standby", places, options(port)).await?;
    let second = stack.another_control_plane("second", port)?;
    let client = Client::new(port)?;
    wait("the second", Duration::from_secs(30), async || {
        client.get("/readyz").await.is_ok_and(|a| a.0 == 200)
    })
    .await?;
    let known = chat(&words(1, 300), "Hello.");
    plant(&mut stack, &known, "known").await?;
    let load = Background::start(&stack, 4)?;
    let loads = stack.filter_metric("sync_loads_total").await?;
    let first = stack.control_plane.as_mut().context("the first")?;
    first.kill();
    let took = in_use(&stack, 1, Duration::from_secs(3)).await?;
    wait("the second's table", Duration::from_secs(3), async || {
        let now = stack.filter_metric("sync_loads_total").await;
        now.is_ok_and(|now| now > loads)
    })
    .await?;
    println!("  asked after {:.1} s", took.as_secs_f64());
    let entry = predict(&mut stack, &known, "by-the-second").await?;
    ensure!(entry.predicted_tokens >= Some(KNOWN), "{entry:?}");
    // Only the second can tell of what is stored now.
    let later = chat(&words(2, 300), "Hello.");
    let later_known = async |stack: &mut Stack, id: &str| -> Result<()> {
        let begin = Instant::now();
        loop {
            let entry = predict(stack, &later, id).await?;
            if entry.predicted_tokens >= Some(KNOWN) {
                return Ok(());
            }
            ensure!(begin.elapsed() < Duration::from_secs(5), "{entry:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let reply = stack
        .client()?
        .post("/v1/chat/completions", &later, "later", &[])
        .await?;
    ensure!(reply.status == 200, "{} {}", reply.status, reply.body);
    later_known(&mut stack, "stored-later").await?;
    load.finish().await?;
    if short {
        return Ok(());
    }
    stack.start_control_plane()?;
    let took = in_use(&stack, 0, Duration::from_secs(90)).await?;
    println!("  the first again after {:.1} s", took.as_secs_f64());
    ensure!(took > Duration::from_secs(55), "too early");
    drop(second);
    stack.settle().await?;
    later_known(&mut stack, "by-the-first").await
}
