//! What kind of socket is at an endpoint: the first words of ZMTP 3 (<https://rfc.zeromq.org/spec/23/>),
//! in which each side names its own. A library only says that two kinds do not fit.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::CONNECT_TIMEOUT;
use super::names::NoName;

/// How long a socket may take to name itself.
const WORDS_TIMEOUT: Duration = Duration::from_secs(2);
/// Length of a greeting, in bytes.
const GREETING: usize = 64;
/// Most bytes of a first command.
const COMMAND_MAX: u64 = 4096;
/// Most characters of a kind that are told.
const KIND_CHARS: usize = 20;

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A socket of this kind: `PUB`, `ROUTER`, ...
    Socket(String),
    /// No connection.
    Nobody,
    /// The endpoint has a name that does not resolve.
    NoName(NoName),
    /// Connections are accepted, and nothing is said for so many seconds.
    Silent(u64),
    /// Something that speaks no ZeroMQ.
    Other,
    /// Not to be asked so: another transport than TCP.
    Unknown,
}

/// Looks what is at an endpoint like `tcp://10.0.0.7:5557`.
pub(super) async fn peer(endpoint: &str) -> Peer {
    let Some(address) = endpoint.strip_prefix("tcp://") else {
        return Peer::Unknown;
    };
    let Ok(Ok(mut stream)) = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await else {
        return Peer::Nobody;
    };
    match timeout(WORDS_TIMEOUT, first_words(&mut stream)).await {
        Ok(Ok(Some(kind))) => Peer::Socket(kind),
        Ok(Ok(None) | Err(_)) => Peer::Other,
        Err(_) => Peer::Silent(WORDS_TIMEOUT.as_secs()),
    }
}

/// The kind of socket, if it is one.
async fn first_words(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    stream.write_all(&greeting()).await?;
    let mut theirs = [0; GREETING];
    stream.read_exact(&mut theirs).await?;
    if theirs.first() != Some(&0xff) || theirs.get(9) != Some(&0x7f) {
        return Ok(None);
    }
    let flags = stream.read_u8().await?;
    let length = match flags {
        0x04 => u64::from(stream.read_u8().await?),
        0x06 => stream.read_u64().await?,
        _ => return Ok(None),
    };
    let Ok(length) = usize::try_from(length.min(COMMAND_MAX)) else {
        return Ok(None);
    };
    let mut command = vec![0; length];
    stream.read_exact(&mut command).await?;
    Ok(kind(&command))
}

/// Version 3.0, no encryption.
fn greeting() -> Vec<u8> {
    let mut greeting = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0];
    greeting.extend_from_slice(b"NULL");
    greeting.resize(GREETING, 0);
    greeting
}

/// `Socket-Type` of a READY command: names with a length of one byte, values with one of four.
fn kind(command: &[u8]) -> Option<String> {
    let mut rest = command.strip_prefix(b"\x05READY")?;
    while let Some((length, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(usize::from(*length))?;
        let (length, after) = after.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (value, after) = after.split_at_checked(length)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            let value = String::from_utf8_lossy(value);
            return Some(value.chars().take(KIND_CHARS).collect());
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use zeromq::{PubSocket, RouterSocket, Socket};

    use super::*;

    #[tokio::test]
    async fn kinds() {
        let mut publisher = PubSocket::new();
        let at = publisher.bind("tcp://127.0.0.1:0").await.unwrap();
        assert_eq!(peer(&at.to_string()).await, Peer::Socket("PUB".to_owned()));
        let mut router = RouterSocket::new();
        let at = router.bind("tcp://[::1]:0").await.unwrap();
        let found = peer(&at.to_string()).await;
        assert_eq!(found, Peer::Socket("ROUTER".to_owned()));
        drop(router);
        assert_eq!(peer("ipc:///tmp/x").await, Peer::Unknown);
    }

    #[tokio::test]
    async fn no_sockets() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = format!("tcp://{}", listener.local_addr().unwrap());
        assert_eq!(peer(&at).await, Peer::Silent(2));
        let answer = async {
            // The connection from before comes first.
            let _first = listener.accept().await.unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let text = format!("HTTP/1.1 400 Bad Request\r\n{}", "x".repeat(80));
            stream.write_all(text.as_bytes()).await.unwrap();
            let _ = stream.read(&mut [0; 64]).await;
        };
        let (found, ()) = tokio::join!(peer(&at), answer);
        assert_eq!(found, Peer::Other);
        drop(listener);
        assert_eq!(peer(&at).await, Peer::Nobody);
    }

    #[test]
    fn broken_words() {
        let ready = b"\x05READY\x0bSocket-Type\0\0\0\x03PUB";
        assert_eq!(kind(ready).as_deref(), Some("PUB"));
        for end in 0..ready.len() {
            assert_eq!(kind(&ready[..end]), None);
        }
        assert_eq!(kind(b"\x05ERROR\x03no."), None);
    }
}
