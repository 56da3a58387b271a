//! A second Envoy beside the first for the same engines, with the same or another control plane.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use held_ports::Held;

use super::{Stack, WORKERS, wait};
use crate::access_log::AccessLog;
use crate::client::Client;
use crate::ports;
use crate::process::Process;

/// Another Envoy; ends when it is dropped.
#[derive(Debug)]
pub struct Gateway {
    /// Its process.
    pub process: Process,
    /// What it logs of requests.
    pub log: AccessLog,
    /// Sends requests to it.
    pub client: Client,
    /// Where it listens.
    pub port: u16,
    held: Vec<Held>,
}

impl Stack {
    /// Starts another Envoy, from the first one's file but for its ports, and waits until it answers.
    ///
    /// # Errors
    /// It does not start.
    pub async fn another_envoy(&self, name: &str) -> Result<Gateway> {
        self.another_envoy_of(name, self.ports.control_plane).await
    }

    /// Starts another control plane for the same engines, and another Envoy that polls it.
    ///
    /// # Errors
    /// One does not start.
    pub async fn another_fleet(&self, name: &str) -> Result<(Process, Gateway)> {
        let held = Held::new(1)?;
        let port = held.at(0);
        let control_plane = self.another_control_plane(name, port)?;
        let mut gateway = self.another_envoy_of(name, port).await?;
        gateway.held.push(held);
        Ok((control_plane, gateway))
    }

    /// Starts another control plane for the same engines, from the first one's file but for its port and
    /// folder.
    ///
    /// # Errors
    /// It does not start.
    pub fn another_control_plane(&self, name: &str, port: u16) -> Result<Process> {
        let file = self.dir.join("prefix-picker.yaml");
        let text = std::fs::read_to_string(file)?;
        let text = ports::substitute(&text, &[(self.ports.control_plane, port)]);
        let data = self.dir.join("data").display().to_string();
        let file = self.dir.join(format!("{name}-prefix-picker.yaml"));
        std::fs::write(&file, text.replace(&data, &format!("{data}-{name}")))?;
        self.spawn_control_plane(&format!("{name}-control-plane"), &file)
    }

    async fn another_envoy_of(&self, name: &str, control_plane: u16) -> Result<Gateway> {
        let held = Held::new(2)?;
        let at = |i: usize| held.at(i);
        let moves = [
            (self.ports.envoy, at(0)),
            (self.ports.admin, at(1)),
            (self.ports.control_plane, control_plane),
        ];
        let file = self.dir.join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(self.envoy_file())?;
        std::fs::write(&file, ports::substitute(&text, &moves))?;
        let mut command = Command::new(&self.places.envoy);
        command
            .current_dir(&self.places.root)
            .arg("-c")
            .arg(file)
            .args(["--concurrency", WORKERS])
            .args(["--file-flush-interval-msec", "20"])
            .args(["--log-level", "warning", "--disable-hot-restart"]);
        let process = Process::start(name, command, &self.dir)?;
        let admin = Client::new(at(1))?;
        let loads = "/stats?filter=prefix_picker_filter_sync_loads_total";
        wait(
            "another Envoy's table",
            Duration::from_secs(30),
            async || {
                let stats = admin.get(loads).await;
                stats.is_ok_and(|(_, text)| text.lines().any(|line| !line.ends_with(": 0")))
            },
        )
        .await?;
        Ok(Gateway {
            process,
            log: AccessLog::new(&self.dir.join(format!("{name}.log"))),
            client: Client::new(at(0))?,
            port: at(0),
            held: vec![held],
        })
    }
}
