//! A request whose body ends with trailers: over HTTP/2 no piece of the body is then marked as the last.

use anyhow::{Result, anyhow};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Request};

/// Posts `body` with trailers over HTTP/2; the answer's status.
pub(crate) async fn send(port: u16, body: &[u8], request_id: &str) -> Result<u16> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let (client, connection) = h2::client::handshake(stream).await?;
    let driver = tokio::spawn(connection);
    let mut client = client.ready().await?;
    let request = Request::post(format!("http://127.0.0.1:{port}/v1/chat/completions"))
        .header("content-type", "application/json")
        .header("x-request-id", request_id)
        .header("te", "trailers")
        .body(())?;
    let (answer, mut stream) = client.send_request(request, false)?;
    for piece in body.chunks(8_000) {
        stream.send_data(Bytes::copy_from_slice(piece), false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("none"));
    stream.send_trailers(trailers)?;
    let answer = tokio::time::timeout(std::time::Duration::from_secs(20), answer).await;
    driver.abort();
    Ok(answer
        .map_err(|_| anyhow!("no answer to a request with trailers"))??
        .status()
        .as_u16())
}
