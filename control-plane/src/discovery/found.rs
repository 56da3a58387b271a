//! An address that was found -> a replica's configuration.

use std::net::{IpAddr, SocketAddr};

use prefix_picker_core::sync::replica_name;

use crate::config::{DiscoveryConfig, ReplicaConfig};
use crate::engine::Standing;

/// A replica that is listed somewhere.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Found {
    /// What no other replica ever has: a pod that is made anew is another one, whatever its name.
    pub key: String,
    /// Where it is, and where it tells what.
    pub replica: ReplicaConfig,
    /// What is said of it.
    pub standing: Standing,
}

/// One place where an engine serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Names its replicas.
    pub name: String,
    /// What no other place ever has.
    pub key: String,
    /// Its address.
    pub ip: IpAddr,
    /// Where it serves.
    pub port: u16,
    /// Of several engines at this address, the how manieth: its ports for events count up with it.
    pub nth: u16,
    /// What is said of it.
    pub standing: Standing,
}

/// The replicas of one place: one, or one a rank.
pub fn replicas(place: &Place, config: &DiscoveryConfig) -> Vec<Found> {
    let ranks = config.data_parallel_size.max(1);
    let found = (0..ranks).filter_map(|rank| {
        let nth = place.nth.checked_mul(ranks)?.checked_add(rank)?;
        let rank = (ranks > 1).then_some(rank);
        let (ip, name) = (place.ip, replica_name(&place.name, rank));
        let endpoint = SocketAddr::new(ip, place.port);
        let zmq = |base: u16| {
            let address = SocketAddr::new(ip, base.checked_add(nth)?);
            Some(format!("tcp://{address}"))
        };
        let metrics = SocketAddr::new(ip, config.metrics_port.unwrap_or(place.port));
        let replica = ReplicaConfig {
            name: name.into_owned(),
            endpoint,
            data_parallel_rank: rank,
            events: zmq(config.events_port)?,
            replay: config.replay_port.and_then(zmq),
            topic: config.topic.clone(),
            metrics: format!("http://{metrics}{}", config.metrics_path),
            health: format!("http://{endpoint}{}", config.health_path),
            api: format!("http://{endpoint}"),
        };
        Some(Found {
            key: replica_name(&place.key, rank).into_owned(),
            replica,
            standing: place.standing,
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DnsConfig, Records, SourceConfig};

    fn config() -> DiscoveryConfig {
        DiscoveryConfig {
            source: SourceConfig::Dns(DnsConfig {
                name: "n".into(),
                records: Records::Addresses(8000),
                interval_ms: 5_000,
                server: None,
            }),
            events_port: 5557,
            replay_port: Some(6557),
            topic: "kv".into(),
            data_parallel_size: 1,
            metrics_port: None,
            metrics_path: "/metrics".into(),
            health_path: "/health".into(),
        }
    }

    fn place(ip: &str, nth: u16) -> Place {
        Place {
            name: "p".into(),
            key: "p|u".into(),
            ip: ip.parse().unwrap(),
            port: 8000,
            nth,
            standing: Standing::NotReady,
        }
    }

    #[test]
    fn addresses_of_either_family_become_urls() {
        let found = replicas(&place("10.0.0.7", 0), &config());
        let replica = &found[0].replica;
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].key.as_str(), replica.name.as_str()), ("p|u", "p"));
        assert_eq!(found[0].standing, Standing::NotReady);
        assert_eq!(replica.endpoint.to_string(), "10.0.0.7:8000");
        assert_eq!(replica.events, "tcp://10.0.0.7:5557");
        assert_eq!(replica.replay.as_deref(), Some("tcp://10.0.0.7:6557"));
        assert_eq!(replica.metrics, "http://10.0.0.7:8000/metrics");
        let config = DiscoveryConfig {
            replay_port: None,
            metrics_port: Some(9),
            metrics_path: "/m".into(),
            health_path: "/ping".into(),
            ..config()
        };
        let replica = &replicas(&place("fd00::7", 0), &config)[0].replica;
        assert_eq!(replica.endpoint.to_string(), "[fd00::7]:8000");
        assert_eq!(
            (replica.events.as_str(), &replica.replay),
            ("tcp://[fd00::7]:5557", &None)
        );
        assert_eq!(replica.metrics, "http://[fd00::7]:9/m");
        assert_eq!(replica.health, "http://[fd00::7]:8000/ping");
        assert_eq!(replica.api, "http://[fd00::7]:8000");
    }

    #[test]
    fn ranks_and_several_engines_of_one_address_count_ports_up() {
        let config = DiscoveryConfig {
            data_parallel_size: 2,
            ..config()
        };
        let found = replicas(&place("10.0.0.7", 3), &config);
        let told: Vec<_> = found
            .iter()
            .map(|f| {
                (
                    f.key.as_str(),
                    f.replica.name.as_str(),
                    f.replica.data_parallel_rank,
                    f.replica.events.as_str(),
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                ("p|u#0", "p#0", Some(0), "tcp://10.0.0.7:5563"),
                ("p|u#1", "p#1", Some(1), "tcp://10.0.0.7:5564"),
            ]
        );
        assert_eq!(
            found[1].replica.replay.as_deref(),
            Some("tcp://10.0.0.7:6564")
        );
        // Ports that there cannot be.
        assert!(replicas(&place("10.0.0.7", u16::MAX), &config).is_empty());
    }
}
