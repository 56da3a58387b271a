//! A client that costs next to nothing: the same bytes over kept connections.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The bytes of one request.
pub(crate) fn request(body: &str) -> Vec<u8> {
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nx-bench: 1\r\ncontent-type: application/json\r\n";
    format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: vec![0; 16_384],
        })
    }

    async fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        let mut have = 0;
        loop {
            let room = self
                .buffer
                .get_mut(have..)
                .context("a longer answer than expected")?;
            let n = self.stream.read(room).await?;
            ensure!(n > 0, "the connection was closed");
            have += n;
            let text = String::from_utf8_lossy(self.buffer.get(..have).unwrap_or_default());
            let Some(end) = text.find("\r\n\r\n") else {
                continue;
            };
            ensure!(text.starts_with("HTTP/1.1 200"), "{text}");
            let length = text
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "))
                .context("no content-length")?;
            if have >= end + 4 + length.parse::<usize>()? {
                return Ok(());
            }
        }
    }
}

/// Microseconds of each of `count` requests, one after the other.
pub(crate) async fn latencies(port: u16, request: &[u8], count: usize) -> Result<Vec<f64>> {
    let mut connection = Connection::open(port).await?;
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        connection.send(request).await?;
        all.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(all)
}

/// Requests per second over several connections.
pub(crate) async fn rate(
    port: u16,
    request: &[u8],
    connections: usize,
    time: Duration,
) -> Result<f64> {
    let start = Instant::now();
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let request = request.to_owned();
            tokio::spawn(async move {
                let mut connection = Connection::open(port).await?;
                let mut done = 0_u64;
                while start.elapsed() < time {
                    connection.send(&request).await?;
                    done += 1;
                }
                anyhow::Ok(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
