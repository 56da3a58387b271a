//! Dashboards and alerts name nothing that is not exported.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack};

use crate::faults::{chat, words};
use crate::unheld::python;

/// Whatever has series only once it happened is made to happen; then both sides are scraped.
pub(crate) async fn dashboards(places: &Places) -> Result<()> {
    let mut stack = Stack::start("dashboards", places, Options::default()).await?;
    let client = stack.client()?;
    for round in 0..2 {
        for n in 0..20 {
            let id = format!("dashboards-{round}-{n}");
            let body = chat(&words(n % 5, 300), &id);
            let reply = client.post("/v1/chat/completions", &body, &id, &[]).await?;
            ensure!(reply.status == 200, "{id}: {}", reply.status);
        }
        stack.settle().await?;
        if round == 0 {
            stack.restart_engine(0).await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }
    // Envoy merges histograms every five seconds; a snapshot is written every ten.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let admin = Client::new(stack.ports.admin)?;
    let scrapes = [
        ("envoy.txt", admin.get("/stats/prometheus").await?.1),
        ("control-plane.txt", stack.control_plane_metrics().await?),
    ];
    let mut command = Command::new(python(places)?);
    command.arg(places.root.join("tests/manifests/promql.py"));
    for (name, text) in scrapes {
        let file = stack.dir.join(name);
        std::fs::write(&file, text)?;
        command.arg(file);
    }
    let out = command.output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    println!("  {}", said.trim());
    let errors = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{said}{errors}");
    Ok(())
}
