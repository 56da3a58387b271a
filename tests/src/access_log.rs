//! Envoy's access log of the shipped configuration: one JSON object a line.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Deserialize;

/// What Envoy logged about one request.
#[derive(Debug, Clone, Deserialize)]
pub struct Entry {
    /// `x-request-id` as the client sent it.
    #[serde(default)]
    pub request_id: Option<String>,
    /// The status sent to the client; 0 if there was none.
    #[serde(default)]
    pub status: u16,
    /// Why the filter did what it did.
    #[serde(default)]
    pub reason: Option<String>,
    /// The endpoints it named, in order (as in the header).
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Tokens it expected the first of them to have cached.
    #[serde(default, deserialize_with = "number")]
    pub predicted_tokens: Option<u64>,
    /// Tokens that the filter read in the response to have been cached.
    #[serde(default, deserialize_with = "number")]
    pub cached_tokens: Option<u64>,
    /// The rank asked for, where a test has Envoy log that.
    #[serde(default, deserialize_with = "number")]
    pub asked_rank: Option<u64>,
    /// `ip:port` of the engine that answered.
    #[serde(default)]
    pub upstream: Option<String>,
}

/// Filter state is logged as text: `"128"`, or null.
fn number<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    let value = Option::<serde_json::Value>::deserialize(d)?;
    Ok(match value {
        Some(serde_json::Value::String(s)) => s.parse().ok(),
        Some(v) => v.as_u64(),
        None => None,
    })
}

/// Follows a log file as it grows.
#[derive(Debug)]
pub struct AccessLog {
    path: PathBuf,
    at: u64,
    partial: String,
    by_id: HashMap<String, Entry>,
    without_id: Vec<Entry>,
}

impl AccessLog {
    /// A follower of `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            at: 0,
            partial: String::new(),
            by_id: HashMap::new(),
            without_id: Vec::new(),
        }
    }

    /// Reads what has been added.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn refresh(&mut self) -> Result<()> {
        let Ok(mut file) = File::open(&self.path) else {
            return Ok(());
        };
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        self.at += file.read_to_end(&mut bytes)? as u64;
        self.partial.push_str(&String::from_utf8_lossy(&bytes));
        let Some(end) = self.partial.rfind('\n') else {
            return Ok(());
        };
        let rest = self.partial.split_off(end + 1);
        let lines = std::mem::replace(&mut self.partial, rest);
        for line in lines.lines().filter(|l| l.starts_with('{')) {
            let Ok(entry) = serde_json::from_str::<Entry>(line) else {
                continue;
            };
            match entry.request_id.clone() {
                Some(id) => drop(self.by_id.insert(id, entry)),
                None => self.without_id.push(entry),
            }
        }
        Ok(())
    }

    /// The entry of a request, once it is there.
    ///
    /// # Errors
    /// It is not there after 15 s (Envoy flushes its log every second where it is not told otherwise).
    pub async fn wait(&mut self, request_id: &str) -> Result<Entry> {
        let start = Instant::now();
        loop {
            self.refresh()?;
            if let Some(entry) = self.by_id.get(request_id) {
                return Ok(entry.clone());
            }
            if start.elapsed() > Duration::from_secs(15) {
                bail!(
                    "no line for request {request_id} in {}",
                    self.path.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether any entry read so far is such.
    #[must_use]
    pub fn any(&self, such: impl Fn(&Entry) -> bool) -> bool {
        self.by_id.values().any(such)
    }

    /// How many entries have each reason.
    #[must_use]
    pub fn reasons(&self) -> std::collections::BTreeMap<String, u64> {
        let mut counts = std::collections::BTreeMap::new();
        for e in self.by_id.values().chain(&self.without_id) {
            *counts
                .entry(e.reason.clone().unwrap_or_else(|| "(none)".to_owned()))
                .or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[tokio::test]
    async fn follows_a_growing_log() {
        let path = std::env::temp_dir().join(format!("access-log-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        let mut log = AccessLog::new(&path);
        write!(
            file,
            "[info] not ours\n{{\"request_id\":\"a\",\"status\":200,\"predicted_tokens\":\"64\""
        )
        .unwrap();
        log.refresh().unwrap();
        assert!(log.by_id.is_empty());
        writeln!(
            file,
            ",\"reason\":\"matched\",\"endpoint\":null,\"upstream\":\"127.0.0.1:1\"}}"
        )
        .unwrap();
        let a = log.wait("a").await.unwrap();
        assert_eq!(
            (a.status, a.predicted_tokens, a.endpoint),
            (200, Some(64), None)
        );
        assert_eq!(log.reasons().get("matched"), Some(&1));
        std::fs::remove_file(&path).unwrap();
    }
}
