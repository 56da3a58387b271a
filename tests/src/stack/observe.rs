//! What the parts of an installation say about themselves.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use prefix_picker_core::sync::news::{OthersNews, PlaceWork, Report};
use serde_json::Value;

use super::{Stack, wait};
use crate::client::Client;

/// The gateways' token in the shipped files.
const TOKEN: &str = "change-me-gateway-token";

impl Stack {
    /// One of the filter's counters or gauges, by its name without the common start.
    ///
    /// # Errors
    /// Envoy's admin page does not answer, or does not know it.
    pub async fn filter_metric(&self, name: &str) -> Result<u64> {
        let admin = Client::new(self.ports.admin)?;
        let (_, text) = admin
            .get(&format!("/stats?filter=prefix_picker_filter_{name}"))
            .await?;
        let line = text
            .lines()
            .find(|l| l.contains(&format!("prefix_picker_filter_{name}: ")));
        let value = line
            .and_then(|l| l.rsplit(' ').next())
            .and_then(|v| v.parse().ok());
        value.with_context(|| format!("no metric {name}"))
    }

    /// The state of one simulated engine (`/sim/state`).
    ///
    /// # Errors
    /// It does not answer.
    pub async fn engine_state(&self, i: usize) -> Result<Value> {
        let (_, text) = self.engine_client(i)?.get("/sim/state").await?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Whether every event that the engines have published so far has reached the filter.
    ///
    /// # Errors
    /// Some part does not answer.
    pub async fn settled(&self) -> Result<bool> {
        let before = self.control_plane_seqs().await?;
        for (i, &applied) in before.iter().enumerate() {
            let Ok(state) = self.engine_state(i).await else {
                continue;
            };
            let last = state["last_seq"].as_u64();
            if last.is_some() && last != applied {
                return Ok(false);
            }
        }
        // What is applied is published a little later; engines that tell no number, later still.
        let simulated = self.options.external_engines.is_empty();
        tokio::time::sleep(Duration::from_millis(if simulated { 8 } else { 200 })).await;
        let text = self.control_plane_metrics().await?;
        let table = metric(&text, "prefix_picker_table_seq").context("no table_seq")?;
        Ok(before == self.control_plane_seqs().await?
            && table == self.filter_metric("table_seq").await?)
    }

    /// For each engine, the number of the last batch that the control plane has applied, if any.
    async fn control_plane_seqs(&self) -> Result<Vec<Option<u64>>> {
        let text = self.control_plane_metrics().await?;
        let all = (0..self.ports.engines.len()).map(|i| {
            let name = format!("replica=\"engine-{}\"", i + 1);
            let line = text
                .lines()
                .find(|l| l.starts_with("prefix_picker_replica_last_seq{") && l.contains(&name));
            line?.rsplit(' ').next()?.parse().ok()
        });
        Ok(all.collect())
    }

    /// Waits for [`Stack::settled`].
    ///
    /// # Errors
    /// Not within 15 s.
    pub async fn settle(&self) -> Result<()> {
        wait(
            "the filter to have all events",
            Duration::from_secs(15),
            async || self.settled().await.unwrap_or(false),
        )
        .await
    }

    /// Blocks that the engines have told to have removed, all together.
    ///
    /// # Errors
    /// The control plane does not answer.
    pub async fn evictions(&self) -> Result<u64> {
        let text = self.control_plane_metrics().await?;
        let removed = text.lines().filter(|l| {
            l.starts_with("prefix_picker_kv_events_total{") && l.contains("\"removed\"")
        });
        Ok(removed
            .filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
            .sum())
    }

    /// What `prefix-picker report` says of the last hour, in JSON.
    ///
    /// # Errors
    /// It fails, or says something else.
    pub fn report(&self) -> Result<Value> {
        let token = self.dir.join("gateway.token");
        std::fs::write(&token, TOKEN)?;
        let url = format!("http://127.0.0.1:{}", self.ports.control_plane);
        let mut command = Command::new(self.places.bin.join("prefix-picker"));
        command.args([
            "report",
            "--since",
            "1h",
            "--json",
            "--url",
            &url,
            "--token-file",
        ]);
        let out = command.arg(token).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(out.status.success(), "{}: {said}", out.status);
        Ok(serde_json::from_slice(&out.stdout)?)
    }

    /// The control plane's status, as its page shows it.
    ///
    /// # Errors
    /// It does not answer, or with something else.
    pub async fn status(&self) -> Result<Value> {
        let client = Client::new(self.ports.control_plane)?;
        let token = format!("Bearer {TOKEN}");
        let headers = [("authorization", token.as_str())];
        let (code, text) = client.get_with("/v1/status", &headers).await?;
        ensure!(code == 200, "{code}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// The control plane's metrics.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn control_plane_metrics(&self) -> Result<String> {
        Ok(Client::new(self.ports.control_plane)?
            .get("/metrics")
            .await?
            .1)
    }
}

/// Work in flight as Envoys tell each other, seen by posing as one more of them.
#[derive(Debug)]
pub struct Observer {
    http: reqwest::Client,
    url: String,
    seq: u64,
}

impl Stack {
    /// An observer of what the filter has in flight.
    ///
    /// # Errors
    /// The HTTP library cannot be set up.
    pub fn observer(&self) -> Result<Observer> {
        Ok(Observer {
            http: reqwest::Client::builder().no_proxy().build()?,
            url: format!("http://127.0.0.1:{}/v1/news", self.ports.control_plane),
            seq: 0,
        })
    }
}

impl Observer {
    /// Totals by endpoint, all Envoys together; those with nothing are not there.
    ///
    /// # Errors
    /// The control plane does not answer, or has not heard of any Envoy lately.
    pub async fn in_flight(&mut self) -> Result<Vec<PlaceWork>> {
        self.seq += 1;
        let report = Report {
            gateway: "observer".to_owned(),
            seq: self.seq,
            ..Report::default()
        };
        let request = self.http.post(&self.url).bearer_auth(TOKEN);
        let answer = request.body(report.encode()?).send().await?;
        let news = OthersNews::decode(&answer.error_for_status()?.bytes().await?)?;
        ensure!(news.gateways > 0, "no Envoy was heard of");
        Ok(news.work)
    }
}

/// The value of a metric without labels.
fn metric(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|l| {
        l.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}
