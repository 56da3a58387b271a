//! Dashboards and alerts name nothing that is not exported.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use prefix_picker_tests::client::Client;
use prefix_picker_tests::stack::{Options, Places, Stack, wait};

use crate::discovery::api;
use crate::faults::{chat, words};
use crate::unheld::python;

/// Whatever has series only once it happened is made to happen; then both sides are scraped.
pub(crate) async fn dashboards(places: &Places) -> Result<()> {
    let api = api::Api::start().await;
    let dir = std::env::temp_dir().join(format!("prefix-picker-e2e-{}-found", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("prefix-picker.yaml");
    let shipped = std::fs::read_to_string(places.root.join("envoy/prefix-picker.yaml"))?;
    std::fs::write(&file, with_found_pool(&shipped, &api))?;
    let options = Options {
        control_plane_file: Some(file),
        ..Options::default()
    };
    let mut stack = Stack::start("dashboards", places, options).await?;
    let client = stack.client()?;
    change_pods(&stack, &api).await?;
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
    std::fs::remove_dir_all(dir)?;
    Ok(())
}

/// Beside the shipped pool one whose replicas are pods.
fn with_found_pool(shipped: &str, api: &api::Api) -> String {
    format!(
        "{shipped}\n- name: found\n  model_dir: tests/engine-sim/model\n  models: [found]\n  clusters: [found]\n  \
         discovery:\n    kubernetes: {{namespace: ml, label_selector: app=vllm, api_server: 'http://{}'}}\n",
        api.address
    )
}

/// A pod comes and goes, and the API server fails once.
async fn change_pods(stack: &Stack, api: &api::Api) -> Result<()> {
    let told = async |line: &str| {
        let text = stack.control_plane_metrics().await;
        text.is_ok_and(|text| text.lines().any(|of| of == line))
    };
    let patience = Duration::from_secs(20);
    api.set_pod(&api::pod("vllm-0", "127.0.0.1"));
    let there = "prefix_picker_discovery_replicas{pool=\"found\"} 1";
    wait("a pod", patience, async || told(there).await).await?;
    api.delete_pod("vllm-0");
    let gone = "prefix_picker_discovery_replicas{pool=\"found\"} 0";
    wait("no pod", patience, async || told(gone).await).await?;
    api.refuse(Some(500));
    api.disconnect();
    let failing = "prefix_picker_discovery_failing{pool=\"found\"} 1";
    wait("a failure", patience, async || told(failing).await).await?;
    api.refuse(None);
    Ok(())
}
