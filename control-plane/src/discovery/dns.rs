//! Replicas by the addresses of a name, or by its SRV records.
//!
//! A name is asked for again and again, and not by the time to live of its records, which says how long
//! others may be told what was, not how soon a replica must be known. Addresses of both families count.
//! What cannot be looked up (one family, one SRV target) stays as it was; an answer without any address
//! is a failure, since a resolver that is confused gives those, and a pool without engines harms nobody
//! by being believed to have some: they are seen to be down.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::found::{Found, Place, replicas};
use super::{Failure, Kind, News};
use crate::config::{DiscoveryConfig, DnsConfig, REPLICAS_MAX, Records};
use crate::engine::Standing;

/// How long one server may take, and how often it is asked.
const TIMEOUT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 2;

/// Looks up for ever.
pub async fn run(pool: usize, config: DiscoveryConfig, dns: DnsConfig, news: mpsc::Sender<News>) {
    let mut lookup = Lookup::new(dns.clone());
    let mut ticks = tokio::time::interval(Duration::from_millis(dns.interval_ms));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let told = match lookup.look_up().await {
            Ok(endpoints) => News {
                partly: lookup.partly.take(),
                ..News::list(pool, found(&endpoints, &config))
            },
            Err(why) => News::failure(pool, why),
        };
        if news.send(told).await.is_err() {
            return;
        }
    }
}

/// The replicas at these endpoints.
fn found(endpoints: &BTreeSet<SocketAddr>, config: &DiscoveryConfig) -> Vec<Found> {
    let place = |endpoint: &SocketAddr| Place {
        name: endpoint.to_string(),
        key: format!("dns|{endpoint}"),
        ip: endpoint.ip(),
        port: endpoint.port(),
        nth: 0,
        standing: Standing::Serving,
    };
    let places = endpoints.iter().take(REPLICAS_MAX).map(place);
    places.flat_map(|place| replicas(&place, config)).collect()
}

/// What one question brought.
enum Answer<T> {
    /// Records, at least one.
    Some(Vec<T>),
    /// There are none of this kind: `true`: nor is there such a name.
    None(bool),
    /// It is not known.
    Failed(Failure),
}

/// Looks a name up, and remembers what it found.
struct Lookup {
    dns: DnsConfig,
    resolver: Option<TokioResolver>,
    /// The last addresses of each name, for when it cannot be looked up.
    known: BTreeMap<(String, RecordType), Vec<IpAddr>>,
    /// Why a part of the last look-up is as it was.
    partly: Option<Failure>,
}

impl Lookup {
    fn new(dns: DnsConfig) -> Self {
        Self {
            dns,
            resolver: None,
            known: BTreeMap::new(),
            partly: None,
        }
    }

    async fn look_up(&mut self) -> Result<BTreeSet<SocketAddr>, Failure> {
        let looked_up = self.look_up_now().await;
        if looked_up.is_err() {
            // The system's servers may be others by now.
            self.resolver = None;
        }
        looked_up
    }

    async fn look_up_now(&mut self) -> Result<BTreeSet<SocketAddr>, Failure> {
        let name = self.dns.name.clone();
        let resolver = match &self.resolver {
            Some(resolver) => resolver.clone(),
            None => self.resolver.insert(resolver(&self.dns)?).clone(),
        };
        let targets = match self.dns.records {
            Records::Addresses(port) => vec![(name.clone(), port)],
            Records::Srv => match srv(&resolver, &name).await {
                Answer::Some(targets) => targets,
                Answer::None(no_name) => return Err(none(&name, "SRV", no_name)),
                Answer::Failed(failure) => return Err(failure),
            },
        };
        let mut endpoints = BTreeSet::new();
        let mut known = BTreeMap::new();
        let (mut failure, mut answered, mut no_name) = (None, false, false);
        for (target, port) in targets.iter().take(REPLICAS_MAX) {
            for family in [RecordType::A, RecordType::AAAA] {
                let key = (target.clone(), family);
                let answer = addresses(&resolver, target, family).await;
                answered |= !matches!(answer, Answer::Failed(_));
                let found = match answer {
                    Answer::Some(found) => found,
                    Answer::None(not_there) => {
                        no_name |= not_there;
                        continue;
                    }
                    Answer::Failed(why) => {
                        failure = Some(why);
                        self.known.get(&key).cloned().unwrap_or_default()
                    }
                };
                endpoints.extend(found.iter().map(|ip| SocketAddr::new(*ip, *port)));
                known.insert(key, found);
            }
        }
        if endpoints.is_empty() || !answered {
            return Err(failure.unwrap_or_else(|| none(&name, "A or AAAA", no_name)));
        }
        self.partly = failure;
        self.known = known;
        Ok(endpoints)
    }
}

fn none(name: &str, what: &str, no_name: bool) -> Failure {
    let (kind, text) = if no_name {
        (
            Kind::NotFound,
            format!("{name}: the DNS knows no such name"),
        )
    } else {
        (
            Kind::Empty,
            format!("{name}: the DNS has no {what} records"),
        )
    };
    Failure { kind, text }
}

fn resolver(dns: &DnsConfig) -> Result<TokioResolver, Failure> {
    let builder = match dns.server {
        Some(server) => {
            let connection = |mut connection: ConnectionConfig| {
                connection.port = server.port();
                connection
            };
            let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
            let connections = connections.map(connection).to_vec();
            let server = NameServerConfig::new(server.ip(), true, connections);
            let config = ResolverConfig::from_name_servers(vec![server]);
            Ok(TokioResolver::builder_with_config(
                config,
                TokioRuntimeProvider::default(),
            ))
        }
        None => TokioResolver::builder_tokio(),
    };
    let built = builder.and_then(|mut builder| {
        set_options(builder.options_mut());
        builder.build()
    });
    built.map_err(|error| Failure {
        kind: Kind::Client,
        text: format!("the DNS cannot be asked (/etc/resolv.conf): {error}"),
    })
}

fn set_options(options: &mut ResolverOpts) {
    options.timeout = TIMEOUT;
    options.attempts = ATTEMPTS;
    // Each look-up is meant.
    options.cache_size = 0;
}

async fn addresses(resolver: &TokioResolver, name: &str, family: RecordType) -> Answer<IpAddr> {
    records(resolver, name, family, |data| match data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    })
    .await
}

async fn srv(resolver: &TokioResolver, name: &str) -> Answer<(String, u16)> {
    records(resolver, name, RecordType::SRV, |data| match data {
        // The root: the service is decidedly not there.
        RData::SRV(srv) if srv.target.is_root() || srv.port == 0 => None,
        RData::SRV(srv) => Some((srv.target.to_string(), srv.port)),
        _ => None,
    })
    .await
}

async fn records<T>(
    resolver: &TokioResolver,
    name: &str,
    kind: RecordType,
    read: impl Fn(&RData) -> Option<T>,
) -> Answer<T> {
    match resolver.lookup(name, kind).await {
        Ok(answer) => {
            let found = answer.answers().iter();
            let found: Vec<T> = found.filter_map(|record| read(&record.data)).collect();
            if found.is_empty() {
                Answer::None(false)
            } else {
                Answer::Some(found)
            }
        }
        Err(error) if error.is_nx_domain() => Answer::None(true),
        Err(error) if is_no_data(&error) => Answer::None(false),
        Err(error) => Answer::Failed(failure(name, kind, &error)),
    }
}

/// There is such a name, without records of this kind. (A server that refuses gives no records either.)
fn is_no_data(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NoError)
}

fn failure(name: &str, kind: RecordType, error: &NetError) -> Failure {
    let unreachable = matches!(
        error,
        NetError::Timeout | NetError::NoConnections | NetError::Io(_) | NetError::Busy
    );
    Failure {
        kind: if unreachable {
            Kind::Unreachable
        } else {
            Kind::Server
        },
        text: format!("{name}: {kind} records cannot be looked up: {error}"),
    }
}

#[cfg(test)]
mod tests;
