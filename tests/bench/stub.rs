//! An upstream that reads a request and answers at once, and an engine that is always well.

use anyhow::Result;
use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

/// Starts one in this process; its port.
pub(crate) async fn start() -> Result<u16> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let app = Router::new()
        .route(
            "/v1/chat/completions",
            post(async |_: Bytes| "{\"object\":\"chat.completion\"}"),
        )
        .route("/health", get(async || ""))
        .route("/metrics", get(async || ""))
        .layer(DefaultBodyLimit::disable());
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(port)
}
