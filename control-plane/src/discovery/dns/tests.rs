//! Against a DNS server of our own, over UDP and TCP.

use std::str::FromStr;

use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::proto::rr::rdata::SRV;

use super::*;

#[path = "../../../tests/discovery/dns_server.rs"]
mod dns_server;

use dns_server::{Says, Server};

fn lookup(server: &Server, records: Records) -> Lookup {
    Lookup::new(DnsConfig {
        name: "vllm.test".into(),
        records,
        interval_ms: 100,
        server: Some(server.address),
    })
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
    let mut lookup = lookup(&server, Records::Addresses(8000));
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
    let mut lookup = lookup(&server, Records::Addresses(8000));
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
    assert_eq!(lookup.partly.take().unwrap().kind, Kind::Server);
    // Where nothing at all can be had, that is said.
    server.set(
        "vllm.test",
        RecordType::A,
        Says::Code(ResponseCode::ServFail),
    );
    assert_eq!(kind(lookup.look_up().await), Kind::Server);
}

#[tokio::test]
async fn srv_records_tell_hosts_and_ports() {
    let server = Server::start().await;
    let mut lookup = lookup(&server, Records::Srv);
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
