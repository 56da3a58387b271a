//! A DNS server of our own, over UDP and TCP.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

/// What the server says of a name and kind.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    Records(Vec<RData>),
    Code(ResponseCode),
    Nothing,
}

type Zone = Arc<Mutex<HashMap<(String, RecordType), Says>>>;

/// The longest answer over UDP.
const UDP_MAX: usize = 1_200;

pub(crate) struct Server {
    zone: Zone,
    pub(crate) address: SocketAddr,
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

/// The two with the same port, which one may have and the other not.
async fn both() -> (TcpListener, UdpSocket) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (tcp, udp);
        }
    }
}

impl Server {
    pub(crate) async fn start() -> Self {
        let zone = Zone::default();
        let (tcp, udp) = both().await;
        let address = tcp.local_addr().unwrap();
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

    pub(crate) fn set(&self, name: &str, kind: RecordType, says: Says) {
        self.zone
            .lock()
            .unwrap()
            .insert((name.to_owned(), kind), says);
    }

    pub(crate) fn set_addresses(&self, name: &str, addresses: &[&str]) {
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
}
