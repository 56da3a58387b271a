//! Names in a replica's addresses, each looked up once: one that does not resolve is a fault of its own.

use std::collections::BTreeSet;
use std::fmt;

use tokio::net::lookup_host;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::CONNECT_TIMEOUT;
use crate::config::ReplicaConfig;

/// A name that does not resolve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoName {
    /// The name.
    pub name: String,
    /// Nobody said so: there was no answer in time.
    late: bool,
}

impl fmt::Display for NoName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name {} does not resolve", self.name)?;
        if self.late {
            write!(f, " within {} s", CONNECT_TIMEOUT.as_secs())?;
        }
        Ok(())
    }
}

/// The names of a replica's addresses that do not resolve.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<NoName>);

impl Names {
    pub(super) async fn look_up(replica: &ReplicaConfig) -> Self {
        let urls = [
            &replica.health,
            &replica.metrics,
            &replica.api,
            &replica.events,
        ];
        let urls = urls.into_iter().chain(&replica.replay);
        let names: BTreeSet<String> = urls.filter_map(|url| name_in(url)).collect();
        let looks = names.into_iter().map(|name| async move {
            let late = match timeout(CONNECT_TIMEOUT, lookup_host((name.as_str(), 0))).await {
                Ok(Ok(_)) => return None,
                Ok(Err(_)) => false,
                Err(_) => true,
            };
            Some(NoName { name, late })
        });
        let looks: JoinSet<_> = looks.collect();
        Self(looks.join_all().await.into_iter().flatten().collect())
    }

    /// The name in this address, if it does not resolve.
    pub(super) fn lost(&self, url: &str) -> Option<&NoName> {
        if self.0.is_empty() {
            return None;
        }
        let name = name_in(url)?;
        self.0.iter().find(|lost| lost.name == name)
    }
}

/// The host of an address like `http://host:1/path` or `tcp://host:1`, if it is a name.
fn name_in(url: &str) -> Option<String> {
    let host = match url.strip_prefix("tcp://") {
        Some(address) => address.rsplit_once(':')?.0.to_owned(),
        None => reqwest::Url::parse(url).ok()?.host_str()?.to_owned(),
    };
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    (!is_address && !host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_addresses() {
        for (url, name) in [
            ("http://vllm.local:1/metrics", Some("vllm.local")),
            ("tcp://engine-0.vllm:5557", Some("engine-0.vllm")),
            ("http://127.0.0.1:1", None),
            ("http://[::1]:1/x", None),
            ("tcp://10.0.0.7:1", None),
            ("tcp://[fe80::1%eth0]:1", None),
            ("ipc:///tmp/x", None),
        ] {
            assert_eq!(name_in(url).as_deref(), name, "{url}");
        }
    }
}
