//! Against a DNS server of our own, over UDP and TCP.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, Record};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

use super::*;

/// What the server says of a name and kind.
#[derive(Clone, Debug)]
enum Says {
    Records(Vec<RData>),
    Code(ResponseCode),
    Nothing,
}

type Zone = Arc<Mutex<HashMap<(String, RecordType), Says>>>;

/// The longest answer over UDP.
const UDP_MAX: usize = 1_200;

struct Server {
    zone: Zone,
    address: SocketAddr,
}

fn answer(zone: &Zone, question: &[u8]) -> Option<Message> {
    let question = Message::from_vec(question).unwrap();
    let query = question.queries[0].clone();
    let name = query.name().to_string();
    let key = (name.trim_end_matches('.').to_owned(), query.query_type());
    let zone = zone.lock().unwrap();
    let known = zone.keys().any(|(name, _)| *name == key.0);
    let says = zone.get(&key).cloned().unwrap_or(if known {
        Says::Records(vec![])
    } else {
        Says::Code(ResponseCode::NXDomain)
    });
    let mut answer = Message::response(question.metadata.id, question.metadata.op_code);
    answer.metadata.recursion_available = true;
    answer.add_query(query.clone());
    match says {
        Says::Nothing => return None,
        Says::Code(code) => answer.metadata.response_code = code,
        Says::Records(records) => {
            for data in records {
                // A long time to live: nothing is kept that long.
                answer.add_answer(Record::from_rdata(query.name().clone(), 3600, data));
            }
        }
    }
    Some(answer)
}

impl Server {
    async fn start() -> Self {
        let zone = Zone::default();
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = udp.local_addr().unwrap();
        let tcp = TcpListener::bind(address).await.unwrap();
        let known = zone.clone();
        tokio::spawn(async move {
            let mut bytes = [0; 4096];
            while let Ok((len, peer)) = udp.recv_from(&mut bytes).await {
                let Some(answer) = answer(&known, &bytes[..len]) else {
                    continue;
                };
                let mut out = answer.to_vec().unwrap();
                if out.len() > UDP_MAX {
                    out = answer.truncate().to_vec().unwrap();
                }
                udp.send_to(&out, peer).await.unwrap();
            }
        });
        let known = zone.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = tcp.accept().await {
                let known = known.clone();
                tokio::spawn(async move {
                    while let Ok(len) = socket.read_u16().await {
                        let mut bytes = vec![0; len.into()];
                        socket.read_exact(&mut bytes).await.unwrap();
                        let Some(answer) = answer(&known, &bytes) else {
                            continue;
                        };
                        let out = answer.to_vec().unwrap();
                        socket
                            .write_u16(out.len().try_into().unwrap())
                            .await
                            .unwrap();
                        socket.write_all(&out).await.unwrap();
                    }
                });
            }
        });
        Self { zone, address }
    }

    fn set(&self, name: &str, kind: RecordType, says: Says) {
        self.zone
            .lock()
            .unwrap()
            .insert((name.to_owned(), kind), says);
    }

    fn set_addresses(&self, name: &str, addresses: &[&str]) {
        let parsed = || addresses.iter().map(|text| text.parse::<IpAddr>().unwrap());
        let data = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => RData::A(ip.into()),
            IpAddr::V6(ip) => RData::AAAA(ip.into()),
        };
        let (v4, v6): (Vec<_>, Vec<_>) = parsed().partition(IpAddr::is_ipv4);
        let records = |ips: Vec<IpAddr>| Says::Records(ips.into_iter().map(data).collect());
        self.set(name, RecordType::A, records(v4));
        self.set(name, RecordType::AAAA, records(v6));
    }

    fn lookup(&self, records: Records) -> Lookup {
        Lookup::new(DnsConfig {
            name: "vllm.test".into(),
            records,
            interval_ms: 100,
            server: Some(self.address),
        })
    }
}

fn endpoints(found: Result<BTreeSet<SocketAddr>, Failure>) -> Vec<String> {
    found.unwrap().iter().map(ToString::to_string).collect()
}

fn kind(found: Result<BTreeSet<SocketAddr>, Failure>) -> Kind {
    found.unwrap_err().kind
}

#[tokio::test]
async fn addresses_of_both_families_are_found() {
    let server = Server::start().await;
    let mut lookup = server.lookup(Records::Addresses(8000));
    server.set_addresses("vllm.test", &["10.0.0.2", "10.0.0.1", "fd00::1"]);
    assert_eq!(
        endpoints(lookup.look_up().await),
        ["10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:8000"]
    );
    // At once, whatever the time to live said.
    server.set_addresses("vllm.test", &["fd00::2"]);
    assert_eq!(endpoints(lookup.look_up().await), ["[fd00::2]:8000"]);
    // More than fits into a datagram.
    let many: Vec<String> = (0..=255).map(|n| format!("10.9.8.{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    server.set_addresses("vllm.test", &many);
    assert_eq!(endpoints(lookup.look_up().await).len(), 256);
}

#[tokio::test]
async fn what_cannot_be_found_out_is_a_failure() {
    let server = Server::start().await;
    let mut lookup = server.lookup(Records::Addresses(8000));
    let failure = lookup.look_up().await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.text.as_str()),
        (Kind::NotFound, "vllm.test: the DNS knows no such name")
    );
    server.set_addresses("vllm.test", &[]);
    assert_eq!(kind(lookup.look_up().await), Kind::Empty);
    for code in [ResponseCode::ServFail, ResponseCode::Refused] {
        server.set("vllm.test", RecordType::A, Says::Code(code));
        assert_eq!(kind(lookup.look_up().await), Kind::Server, "{code}");
    }
    server.set("vllm.test", RecordType::A, Says::Nothing);
    assert_eq!(kind(lookup.look_up().await), Kind::Unreachable);
    // It goes on afterwards.
    server.set_addresses("vllm.test", &["10.0.0.1"]);
    assert_eq!(endpoints(lookup.look_up().await).len(), 1);
    // One family that is not to be had takes nobody away, and does not keep others from coming.
    server.set_addresses("vllm.test", &["10.0.0.1", "fd00::1"]);
    lookup.look_up().await.unwrap();
    server.set_addresses("vllm.test", &["10.0.0.2"]);
    server.set(
        "vllm.test",
        RecordType::AAAA,
        Says::Code(ResponseCode::ServFail),
    );
    assert_eq!(
        endpoints(lookup.look_up().await),
        ["10.0.0.2:8000", "[fd00::1]:8000"]
    );
}

#[tokio::test]
async fn srv_records_tell_hosts_and_ports() {
    let server = Server::start().await;
    let mut lookup = server.lookup(Records::Srv);
    assert_eq!(kind(lookup.look_up().await), Kind::NotFound);
    let srv = |port, host: &str| RData::SRV(SRV::new(0, 1, port, Name::from_str(host).unwrap()));
    let records = vec![
        srv(8001, "a.test."),
        srv(8002, "b.test."),
        srv(8003, "b.test."),
    ];
    server.set("vllm.test", RecordType::SRV, Says::Records(records));
    server.set_addresses("a.test", &["10.0.0.1"]);
    server.set_addresses("b.test", &["fd00::2"]);
    let all = ["10.0.0.1:8001", "[fd00::2]:8002", "[fd00::2]:8003"];
    assert_eq!(endpoints(lookup.look_up().await), all);
    // A host that cannot be looked up stays where it was.
    server.set(
        "b.test",
        RecordType::AAAA,
        Says::Code(ResponseCode::ServFail),
    );
    assert_eq!(endpoints(lookup.look_up().await), all);
    server.set_addresses("b.test", &[]);
    assert_eq!(endpoints(lookup.look_up().await), all[..1]);
    server.set(
        "vllm.test",
        RecordType::SRV,
        Says::Records(vec![srv(0, ".")]),
    );
    assert_eq!(kind(lookup.look_up().await), Kind::Empty);
}

#[tokio::test]
async fn an_address_is_a_replica_of_its_name() {
    let endpoints = ["10.0.0.1:8000", "[::1]:8000"].map(|text| text.parse().unwrap());
    let text = "
tokens: [t]
data_dir: d
pools:
  - {name: p, model_dir: m, models: [m], clusters: [c], discovery: {dns: {name: n}}}
";
    let config = crate::config::Config::parse(text).unwrap();
    let discovery = config.pools[0].discovery.clone().unwrap();
    let found = found(&endpoints.into_iter().collect(), &discovery);
    let names: Vec<_> = found
        .iter()
        .map(|f| (f.key.as_str(), f.replica.name.as_str()))
        .collect();
    assert_eq!(
        names,
        [
            ("dns|10.0.0.1:8000", "10.0.0.1:8000"),
            ("dns|[::1]:8000", "[::1]:8000")
        ]
    );
}
