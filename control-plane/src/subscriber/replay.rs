//! Asks an engine's replay socket for the batches it still has.
//!
//! A DEALER sends an empty frame and a number; the engine answers with one message a batch and an
//! END marker. The engine never reports an error: it sends what it has, or only END. It does not
//! answer at all if its publisher thread is stuck, and up to vLLM 0.32 it may lose the rest of a
//! replay, END included, if it is read slowly. So: read fast, and give up on silence.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketOptions, SocketRecv, SocketSend, ZmqError, ZmqMessage};

use crate::events::frame::{self, Frame};

/// Batches read ahead of the machine. More than an engine keeps by default (10,000), so that the
/// socket is read as fast as it can be.
pub const QUEUED_BATCHES_MAX: usize = 16_384;
/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Silence after which the rest will not come. The engine looks at its replay socket at least every
/// 100 ms.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// What a replay brings.
#[derive(Debug)]
pub enum ReplayEvent {
    /// A batch.
    Batch {
        /// Its number.
        seq: u64,
        /// Its bytes.
        payload: Bytes,
    },
    /// All there is has come.
    End,
    /// No more will come.
    Failed,
}

/// Reads one replay, which ends with `End` or `Failed`.
pub async fn read(endpoint: &str, from: u64, events: mpsc::Sender<ReplayEvent>) {
    let last = match read_all(endpoint, from, &events).await {
        Ok(()) => ReplayEvent::End,
        Err(error) => {
            tracing::debug!(endpoint, from, %error, "replay failed");
            ReplayEvent::Failed
        }
    };
    // Nobody listens any more: then nobody needs it.
    let _ = events.send(last).await;
}

#[derive(Debug, thiserror::Error)]
enum ReplayError {
    #[error(transparent)]
    Zmq(#[from] ZmqError),
    #[error("no answer for {SILENCE_MAX:?}")]
    Silence,
    #[error("nobody listens any more")]
    Unwanted,
}

async fn read_all(
    endpoint: &str,
    from: u64,
    events: &mpsc::Sender<ReplayEvent>,
) -> Result<(), ReplayError> {
    let mut options = SocketOptions::default();
    options.connect_timeout(CONNECT_TIMEOUT);
    let mut socket = DealerSocket::with_options(options);
    socket.connect(endpoint).await?;
    let mut request = ZmqMessage::from(Bytes::new());
    request.push_back(Bytes::copy_from_slice(&from.to_be_bytes()));
    socket.send(request).await?;
    loop {
        let message = timeout(SILENCE_MAX, socket.recv())
            .await
            .map_err(|_| ReplayError::Silence)??;
        let frames = message.into_vec();
        let seq = match frame::parse(&frames) {
            Ok(Frame::End) => return Ok(()),
            Ok(Frame::Batch { seq, .. }) => seq,
            Err(error) => {
                tracing::warn!(endpoint, %error, "message is not an engine's");
                continue;
            }
        };
        if let Some(payload) = frames.into_iter().next_back() {
            events
                .send(ReplayEvent::Batch { seq, payload })
                .await
                .map_err(|_| ReplayError::Unwanted)?;
        }
    }
}
