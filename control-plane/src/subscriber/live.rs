//! Drains an engine's PUB socket into a bounded queue.
//!
//! The socket is always read, also while the queue is full: an engine whose subscribers lag drops
//! events or, with a full publisher queue, stalls. What does not fit is let go, and the loss is
//! marked in the queue.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use zeromq::{Socket, SocketEvent, SocketOptions, SocketRecv, SubSocket, ZmqError, ZmqMessage};

use crate::events::frame::{self, Frame};

/// Most batches in the queue. Fewer in tests, which let it run over.
pub(super) const QUEUED_BATCHES_MAX: usize = if cfg!(test) { 1_024 } else { 16_384 };
/// Most bytes in the queue.
const QUEUED_BYTES_MAX: usize = 128 << 20;
/// One try to connect; the library itself tries again within it, ever more rarely.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between tries.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// What the reader says.
#[derive(Debug)]
pub enum LiveEvent {
    /// Subscribed.
    Connected,
    /// No longer subscribed.
    Disconnected,
    /// A batch was published.
    Batch {
        /// Its number.
        seq: u64,
        /// Its bytes.
        payload: Bytes,
    },
    /// Batches were let go.
    Overflow,
}

/// A task that keeps a subscription; stopped when dropped.
#[derive(Debug)]
pub struct LiveReader {
    events: mpsc::Receiver<LiveEvent>,
    queued_bytes: Arc<AtomicUsize>,
    reconnect: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for LiveReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LiveReader {
    /// Starts the task.
    #[must_use]
    pub fn spawn(endpoint: String, topic: String) -> Self {
        let (sender, events) = mpsc::channel(QUEUED_BATCHES_MAX);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let reconnect = Arc::new(Notify::new());
        let queue = Queue {
            sender,
            bytes: queued_bytes.clone(),
            lost: false,
        };
        let task = tokio::spawn(keep_subscribed(endpoint, topic, queue, reconnect.clone()));
        Self {
            events,
            queued_bytes,
            reconnect,
            task,
        }
    }

    /// The next event; `None` if the task is gone.
    pub async fn next(&mut self) -> Option<LiveEvent> {
        let event = self.events.recv().await;
        if let Some(LiveEvent::Batch { payload, .. }) = &event {
            self.queued_bytes
                .fetch_sub(payload.len(), Ordering::Relaxed);
        }
        event
    }

    /// Drops the connection and makes a new one.
    pub fn reconnect(&self) {
        self.reconnect.notify_one();
    }
}

struct Queue {
    sender: mpsc::Sender<LiveEvent>,
    bytes: Arc<AtomicUsize>,
    lost: bool,
}

impl Queue {
    /// Queues a batch, or lets it go.
    fn offer(&mut self, seq: u64, payload: Bytes) {
        // A hole in front must be seen before what follows it.
        if self.lost && self.sender.try_send(LiveEvent::Overflow).is_ok() {
            self.lost = false;
        }
        let len = payload.len();
        let fits = self.bytes.load(Ordering::Relaxed).saturating_add(len) <= QUEUED_BYTES_MAX;
        if self.lost || !fits {
            self.lost = true;
            return;
        }
        self.bytes.fetch_add(len, Ordering::Relaxed);
        if self
            .sender
            .try_send(LiveEvent::Batch { seq, payload })
            .is_err()
        {
            self.bytes.fetch_sub(len, Ordering::Relaxed);
            self.lost = true;
        }
    }

    /// Ends once the mark of a loss is queued, so that it is seen even if nothing follows.
    async fn mark_loss(&mut self) {
        if !self.lost {
            return std::future::pending().await;
        }
        if self.sender.send(LiveEvent::Overflow).await.is_ok() {
            self.lost = false;
        }
    }
}

async fn keep_subscribed(
    endpoint: String,
    topic: String,
    mut queue: Queue,
    reconnect: Arc<Notify>,
) {
    loop {
        match connect(&endpoint, &topic).await {
            Ok((socket, monitor)) => {
                if queue.sender.send(LiveEvent::Connected).await.is_err() {
                    return;
                }
                drain(socket, monitor, &mut queue, &reconnect).await;
                queue.lost = false;
                if queue.sender.send(LiveEvent::Disconnected).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%endpoint, %error, "event endpoint not reached"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// What a socket says of its connections.
trait Monitor: Stream<Item = SocketEvent> + Unpin + Send {}
impl<S: Stream<Item = SocketEvent> + Unpin + Send> Monitor for S {}

async fn connect(endpoint: &str, topic: &str) -> Result<(SubSocket, impl Monitor), ZmqError> {
    let mut options = SocketOptions::default();
    options.connect_timeout(CONNECT_TIMEOUT);
    let mut socket = SubSocket::with_options(options);
    // Before connecting, so that no loss of the connection goes unseen.
    let monitor = socket.monitor();
    socket.subscribe(topic).await?;
    socket.connect(endpoint).await?;
    Ok((socket, monitor))
}

/// Reads until the connection is lost. The library would connect again by itself, but waits up to
/// 30 s and does not say from where on events are heard again; so a lost connection ends here.
async fn drain(
    mut socket: SubSocket,
    mut monitor: impl Monitor,
    queue: &mut Queue,
    reconnect: &Notify,
) {
    loop {
        tokio::select! {
            message = socket.recv() => match message {
                Ok(message) => take(message, queue),
                Err(error) => {
                    tracing::debug!(%error, "event socket failed");
                    return;
                }
            },
            event = poll_fn(|context| pin!(&mut monitor).poll_next(context)) => {
                if matches!(event, None | Some(SocketEvent::Disconnected(_) | SocketEvent::Closed)) {
                    return;
                }
            }
            () = queue.mark_loss() => {}
            () = reconnect.notified() => return,
        }
    }
}

fn take(message: ZmqMessage, queue: &mut Queue) {
    let frames = message.into_vec();
    match frame::parse(&frames) {
        Ok(Frame::Batch { seq, .. }) => {
            if let Some(payload) = frames.into_iter().next_back() {
                queue.offer(seq, payload);
            }
        }
        Ok(Frame::End) => {}
        Err(error) => tracing::warn!(%error, "message is not an engine's"),
    }
}
