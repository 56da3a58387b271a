//! A child process whose life ends with its handle.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A running program; killed (`SIGKILL`) when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with both outputs appended to `<dir>/<name>.log`.
    ///
    /// # Errors
    /// The log cannot be opened, or the program cannot be started.
    pub fn start(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// The operating system's id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its output goes.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// An error with the end of its log if it is not running any more.
    ///
    /// # Errors
    /// It has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended with {status}; its log ends:\n{}",
                self.name,
                self.log_tail(20)
            ),
        }
    }

    /// `SIGKILL`, and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// `SIGTERM`, then waits; the exit code, or an error if it is still there after `patience`.
    ///
    /// # Errors
    /// It did not end in time (it is killed then).
    pub fn terminate(&mut self, patience: Duration) -> Result<Option<i32>> {
        let pid = self.pid().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            if start.elapsed() > patience {
                self.kill();
                bail!("{} did not end within {patience:?} of SIGTERM", self.name);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The last `lines` lines of its log.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..)
            .unwrap_or_default()
            .join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
