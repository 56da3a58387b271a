//! A whole installation on free ports: engines, control plane and Envoy, from the shipped files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

mod gateway;
mod observe;
mod places;

pub use gateway::Gateway;
pub use observe::Observer;
pub use places::{Cut, Options, Places};
use places::{add_engines, edit, replace};

use anyhow::{Context, Result, bail};
use held_ports::Held;

use crate::access_log::AccessLog;
use crate::client::Client;
use crate::ports;
use crate::process::Process;

/// Ports in the shipped files: Envoy, its admin, the control plane, three engines, and each engine's
/// events and replay.
const SHIPPED: [u16; 12] = [
    10000, 9901, 9400, 8101, 8102, 8103, 5557, 5558, 5559, 5560, 5561, 5562,
];
const SHIPPED_ENGINES: usize = 3;
/// Envoy's workers.
const WORKERS: &str = "2";

/// Ports of one installation.
#[derive(Debug, Clone)]
pub struct Ports {
    /// Envoy's listener.
    pub envoy: u16,
    /// Envoy's admin page.
    pub admin: u16,
    /// The control plane.
    pub control_plane: u16,
    /// The engines' HTTP, events and replay.
    pub engines: Vec<(u16, u16, u16)>,
}

/// A running installation; everything ends when it is dropped.
#[derive(Debug)]
pub struct Stack {
    /// Where its logs and files are.
    pub dir: PathBuf,
    /// Its ports.
    pub ports: Ports,
    /// Envoy.
    pub envoy: Option<Process>,
    /// The control plane.
    pub control_plane: Option<Process>,
    /// The simulated engines.
    pub engines: Vec<Process>,
    /// Envoy's access log.
    pub log: AccessLog,
    places: Places,
    options: Options,
    _held: Held,
}

impl Stack {
    /// Starts everything and waits until the filter has a table.
    ///
    /// # Errors
    /// Something did not start; the message has the end of its log.
    pub async fn start(name: &str, places: &Places, options: Options) -> Result<Self> {
        let dir =
            std::env::temp_dir().join(format!("prefix-picker-e2e-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir)?;
        let held = Held::new(3 + 3 * (SHIPPED_ENGINES + options.more_engines))?;
        let at = |i: usize| held.at(i);
        let mut engines: Vec<_> = (0..SHIPPED_ENGINES + options.more_engines)
            .map(|i| (at(3 + 3 * i), at(4 + 3 * i), at(5 + 3 * i)))
            .collect();
        if !options.external_engines.is_empty() {
            engines.clone_from(&options.external_engines);
        }
        let ports = Ports {
            envoy: at(0),
            admin: at(1),
            control_plane: at(2),
            engines,
        };
        let log = AccessLog::new(&dir.join("envoy.log"));
        let (envoy, control_plane, engines) = (None, None, Vec::new());
        let mut stack = Self {
            dir,
            ports,
            envoy,
            control_plane,
            engines,
            log,
            places: places.clone(),
            options,
            _held: held,
        };
        stack.write_files()?;
        if stack.options.external_engines.is_empty() {
            for i in 0..stack.started_engines() {
                let engine = stack.spawn_engine(i)?;
                stack.engines.push(engine);
            }
        }
        if !stack.options.no_control_plane {
            stack.start_control_plane()?;
        }
        stack.start_envoy()?;
        stack.wait_ready().await?;
        Ok(stack)
    }

    /// `port -> port` for the shipped files.
    fn moves(&self) -> Vec<(u16, u16)> {
        let p = &self.ports;
        let mut to = vec![p.envoy, p.admin, p.control_plane];
        let shipped = || p.engines.iter().take(SHIPPED_ENGINES);
        to.extend(shipped().map(|e| e.0));
        // Fewer engines than shipped: nothing names the others, see `write_files`.
        to.resize(3 + SHIPPED_ENGINES, 1);
        to.extend(shipped().flat_map(|e| [e.1, e.2]));
        SHIPPED.iter().copied().zip(to).collect()
    }

    fn write_files(&self) -> Result<()> {
        let root = &self.places.root;
        let moves = self.moves();
        let file = self.options.envoy_file.clone();
        let file = file.unwrap_or_else(|| PathBuf::from("envoy/envoy.yaml"));
        let envoy = std::fs::read_to_string(root.join(file))?;
        let beyond = self
            .ports
            .engines
            .get(SHIPPED_ENGINES..)
            .unwrap_or_default();
        let envoy = add_engines(&envoy, beyond);
        let surplus = SHIPPED
            .get(3 + self.ports.engines.len()..6)
            .unwrap_or_default();
        let stays = |line: &&str| {
            !surplus
                .iter()
                .any(|port| line.contains(&format!("port_value: {port}")))
        };
        let envoy = envoy.lines().filter(stays).collect::<Vec<_>>().join("\n");
        let mut envoy = edit(&ports::substitute(&envoy, &moves), &self.options)?;
        let shipped_wasm = "target/wasm32-wasip1/wasm/";
        let wasm_dir = self.places.wasm.parent().context("the wasm's folder")?;
        envoy = envoy.replace(shipped_wasm, &format!("{}/", wasm_dir.display()));
        std::fs::write(self.envoy_file(), envoy)?;

        let file = self.options.control_plane_file.clone();
        let file = file.unwrap_or_else(|| root.join("envoy/prefix-picker.yaml"));
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let text = add_engines(&text, beyond);
        let text = replace(
            &ports::substitute(&text, &moves),
            &self.options.control_plane_edits,
        )?;
        let mut lines = self.options.control_plane_lines.clone();
        lines.push(format!("data_dir: {}", self.dir.join("data").display()));
        let replaced = |line: &&str| {
            lines
                .iter()
                .any(|l| l.split(':').next() == line.split(':').next())
        };
        let text: Vec<_> = text
            .lines()
            .filter(|l| !replaced(l))
            .chain(lines.iter().map(String::as_str))
            .collect();
        std::fs::write(self.dir.join("prefix-picker.yaml"), text.join("\n"))?;
        Ok(())
    }

    fn envoy_file(&self) -> PathBuf {
        self.dir.join("envoy.yaml")
    }

    /// Engines that are there from the start.
    fn started_engines(&self) -> usize {
        let all = self.ports.engines.len();
        all.saturating_sub(self.options.late_engines)
    }

    fn spawn_engine(&self, i: usize) -> Result<Process> {
        let (http, events, replay) = *self.ports.engines.get(i).context("no such engine")?;
        let mut command = Command::new(self.places.bin.join("engine-sim"));
        command.current_dir(&self.places.root);
        command.args(["--listen", &format!("127.0.0.1:{http}")]);
        command.args([
            "--events",
            &format!("tcp://*:{events}"),
            "--replay",
            &format!("tcp://*:{replay}"),
        ]);
        command.args(&self.options.engine_args);
        Process::start(&format!("engine-{i}"), command, &self.dir)
    }

    /// Kills one engine and starts it again on the same ports (sequence numbers from 0, cache empty); or
    /// starts the next of those that come late.
    ///
    /// # Errors
    /// It does not start.
    pub async fn restart_engine(&mut self, i: usize) -> Result<()> {
        if let Some(engine) = self.engines.get_mut(i) {
            engine.kill();
        }
        let engine = self.spawn_engine(i)?;
        match self.engines.get_mut(i) {
            Some(slot) => *slot = engine,
            None => self.engines.push(engine),
        }
        let client = self.engine_client(i)?;
        wait("the engine", Duration::from_secs(10), async || {
            client.get("/health").await.is_ok_and(|a| a.0 == 200)
        })
        .await
    }

    /// Starts the control plane (again).
    ///
    /// # Errors
    /// The program is not there.
    pub fn start_control_plane(&mut self) -> Result<()> {
        let file = self.dir.join("prefix-picker.yaml");
        self.control_plane = Some(self.spawn_control_plane("control-plane", &file)?);
        Ok(())
    }

    fn spawn_control_plane(&self, name: &str, file: &Path) -> Result<Process> {
        let mut command = Command::new(self.places.bin.join("prefix-picker"));
        command
            .current_dir(&self.places.root)
            .args(["serve", "--config"])
            .arg(file);
        Process::start(name, command, &self.dir)
    }

    /// Starts Envoy (again).
    ///
    /// # Errors
    /// The program is not there.
    pub fn start_envoy(&mut self) -> Result<()> {
        let mut command = Command::new(&self.places.envoy);
        command
            .current_dir(&self.places.root)
            .arg("-c")
            .arg(self.envoy_file());
        command.args([
            "--concurrency",
            WORKERS,
            "--file-flush-interval-msec",
            "20",
            "--log-level",
            "warning",
        ]);
        command.arg("--disable-hot-restart");
        self.envoy = Some(Process::start("envoy", command, &self.dir)?);
        Ok(())
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let ready = self.wait_parts().await;
        if ready.is_err() {
            let all = [&mut self.control_plane, &mut self.envoy];
            for part in all.into_iter().flatten().chain(&mut self.engines) {
                part.check()?;
                eprintln!("--- {}\n{}", part.log().display(), part.log_tail(10));
            }
        }
        ready
    }

    async fn wait_parts(&self) -> Result<()> {
        for i in 0..self.started_engines() {
            let engine = self.engine_client(i)?;
            wait("an engine", Duration::from_secs(30), async || {
                engine.get("/health").await.is_ok_and(|a| a.0 == 200)
            })
            .await?;
        }
        let admin = Client::new(self.ports.admin)?;
        wait("Envoy", Duration::from_secs(30), async || {
            admin.get("/ready").await.is_ok_and(|a| a.0 == 200)
        })
        .await?;
        if self.options.no_control_plane {
            return Ok(());
        }
        let control_plane = Client::new(self.ports.control_plane)?;
        wait("the control plane", Duration::from_secs(30), async || {
            control_plane.get("/readyz").await.is_ok_and(|a| a.0 == 200)
        })
        .await?;
        wait("the filter's table", Duration::from_secs(30), async || {
            self.filter_metric("sync_loads_total")
                .await
                .is_ok_and(|n| n > 0)
        })
        .await
    }

    /// A client of Envoy.
    ///
    /// # Errors
    /// The HTTP library cannot be set up.
    pub fn client(&self) -> Result<Client> {
        Client::new(self.ports.envoy)
    }

    /// A client of one engine, past Envoy.
    ///
    /// # Errors
    /// As [`Stack::client`], or there is no such engine.
    pub fn engine_client(&self, i: usize) -> Result<Client> {
        Client::new(self.ports.engines.get(i).context("no such engine")?.0)
    }

    /// [`Stack::endpoint`] of all engines.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        (0..self.ports.engines.len())
            .map(|i| self.endpoint(i))
            .collect()
    }

    /// `127.0.0.1:port` of one engine, as Envoy and the filter write it.
    #[must_use]
    pub fn endpoint(&self, i: usize) -> String {
        self.ports
            .engines
            .get(i)
            .map(|e| format!("127.0.0.1:{}", e.0))
            .unwrap_or_default()
    }
}

/// Waits until `done` says so.
///
/// # Errors
/// It did not within `patience`.
pub async fn wait(what: &str, patience: Duration, done: impl AsyncFn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !done().await {
        if start.elapsed() > patience {
            bail!("{what}: not within {patience:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}
