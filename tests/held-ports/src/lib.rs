//! TCP ports for tests that nobody else gets.
//!
//! A port that was free a moment ago may be anybody's a moment later: of another test, of the client's end
//! of a connection. One that is bound is not given away; as long as nobody listens there, connections are
//! refused. `SO_REUSEADDR`, set after the port was got, lets a program bind and listen there all the same
//! (Linux, `inet_csk_bind_conflict`): all servers of the tests set it, too, as servers do.

use std::io::{Error, ErrorKind, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::TcpSocket;

/// Ports that are held until this is dropped.
#[derive(Debug)]
pub struct Held {
    sockets: Vec<TcpSocket>,
    ports: Vec<u16>,
}

impl Held {
    /// `count` different ports, held at all addresses of this machine.
    ///
    /// # Errors
    /// The system has none to give.
    pub fn new(count: usize) -> Result<Self> {
        Self::all((0..count).map(|_| 0))
    }

    /// `count` ports in a row.
    ///
    /// # Errors
    /// None were found.
    pub fn in_a_row(count: u16) -> Result<Self> {
        for _ in 0..100 {
            let mut held = Self::new(1)?;
            let first = held.at(0);
            let others = first.saturating_add(1)..first.saturating_add(count);
            match Self::all(others) {
                Ok(others) if others.ports.len() + 1 == usize::from(count) => {
                    held.sockets.extend(others.sockets);
                    held.ports.extend(others.ports);
                    return Ok(held);
                }
                Ok(_) | Err(_) => {}
            }
        }
        let none = format!("no {count} free ports in a row");
        Err(Error::new(ErrorKind::AddrInUse, none))
    }

    fn all(wanted: impl Iterator<Item = u16>) -> Result<Self> {
        let sockets = wanted.map(bound).collect::<Result<Vec<_>>>()?;
        let port = |socket: &TcpSocket| Ok(socket.local_addr()?.port());
        let ports = sockets.iter().map(port).collect::<Result<_>>()?;
        Ok(Self { sockets, ports })
    }

    /// A port by its number; 0 where there is none.
    #[must_use]
    pub fn at(&self, number: usize) -> u16 {
        self.ports.get(number).copied().unwrap_or_default()
    }

    /// The ports, held until this process ends.
    #[must_use]
    pub fn keep(self) -> Vec<u16> {
        std::mem::forget(self.sockets);
        self.ports
    }
}

/// A socket that has a port (0: any), of IPv4 and IPv6 where there is both.
fn bound(port: u16) -> Result<TcpSocket> {
    let socket = match TcpSocket::new_v6() {
        Ok(socket) => {
            socket.bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
            socket
        }
        Err(_) => {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
            socket
        }
    };
    // Only now: with it, one that somebody else holds so could be had by its number.
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test

    use std::collections::HashSet;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn nobody_else_gets_one() {
        let held = Held::new(2).unwrap();
        let other = Held::in_a_row(3).unwrap();
        let taken: HashSet<u16> = held.ports.iter().chain(&other.ports).copied().collect();
        assert_eq!(taken.len(), 5);
        assert!(Held::all(std::iter::once(held.at(0))).is_err());
        // More than half of the ports that Linux gives away.
        for _ in 0..20_000 {
            for any in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
                let Ok(listener) = TcpListener::bind(any) else {
                    continue; // no IPv6
                };
                let port = listener.local_addr().unwrap().port();
                assert!(!taken.contains(&port), "{port} of {taken:?}");
            }
        }
    }

    #[test]
    fn connections_are_refused_until_somebody_listens() {
        let held = Held::new(1).unwrap();
        let port = held.at(0);
        for round in 0..2 {
            for host in ["127.0.0.1", "::1"] {
                let refused = TcpStream::connect((host, port)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{round}");
            }
            let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
            TcpStream::connect(("127.0.0.1", port)).unwrap();
            assert!(TcpListener::bind(("127.0.0.1", port)).is_err());
            drop(listener);
        }
    }

    #[test]
    fn in_a_row_they_are() {
        let held = Held::in_a_row(8).unwrap();
        let first = held.at(0);
        assert!(held.ports.iter().copied().eq(first..first + 8));
    }

    #[test]
    fn kept_ports_outlive_what_held_them() {
        let port = Held::new(1).unwrap().keep()[0];
        assert!(bound(port).is_err());
    }
}
