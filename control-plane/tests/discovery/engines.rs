//! Engines that do nothing but tell: health, metrics, models, and KV events that can be replayed. Each is
//! an address of its own on the loopback; they share their ports, as pods do.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::IncomingStream;
use bytes::Bytes;
use held_ports::Held;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// Blocks that each engine holds from its beginning.
pub(crate) const BLOCKS: usize = 32;
const BLOCK: usize = 16;
const END: &[u8] = &[0xff; 8];

/// One store of text that no other engine holds.
pub(crate) fn payload(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let w = &mut out;
    rmp::encode::write_array_len(w, 3).unwrap();
    rmp::encode::write_f64(w, 0.0).unwrap();
    rmp::encode::write_array_len(w, 1).unwrap();
    rmp::encode::write_array_len(w, 7).unwrap();
    rmp::encode::write_str(w, "BlockStored").unwrap();
    rmp::encode::write_array_len(w, BLOCKS as u32).unwrap();
    for block in 0..BLOCKS as u64 {
        rmp::encode::write_uint(w, (number + 1) * 1_000 + block).unwrap();
    }
    rmp::encode::write_nil(w).unwrap();
    rmp::encode::write_array_len(w, (BLOCKS * BLOCK) as u32).unwrap();
    for token in 0..(BLOCKS * BLOCK) as u64 {
        // Ordinary tokens of any byte-level vocabulary; the first ones spell the number.
        let digit = number.checked_shr(8 * token as u32).unwrap_or(token * 31) % 256;
        rmp::encode::write_uint(w, 300 + digit).unwrap();
    }
    rmp::encode::write_uint(w, BLOCK as u64).unwrap();
    rmp::encode::write_nil(w).unwrap();
    rmp::encode::write_str(w, "GPU").unwrap();
    rmp::encode::write_uint(w, 0).unwrap();
    out
}

fn message(frames: &[&[u8]]) -> ZmqMessage {
    let frames: Vec<Bytes> = frames
        .iter()
        .map(|frame| Bytes::copy_from_slice(frame))
        .collect();
    ZmqMessage::try_from(frames).unwrap()
}

/// The ports that all engines have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) http: u16,
    pub(crate) events: u16,
    pub(crate) replay: u16,
}

/// What an engine says of itself over HTTP.
#[derive(Clone, Debug, Default)]
pub(crate) struct Says {
    /// The answer to `/kv_event_sources`, if it knows the path.
    pub(crate) sources: Option<serde_json::Value>,
}

type Alive = Arc<Mutex<HashMap<IpAddr, Says>>>;

/// See the module.
pub(crate) struct Engines {
    alive: Alive,
    pub(crate) ports: Ports,
    _held: Held,
    running: HashMap<IpAddr, Engine>,
    servers: Vec<JoinHandle<()>>,
}

struct Engine {
    publisher: PubSocket,
    replays: JoinHandle<()>,
    ring: Arc<Mutex<Vec<Bytes>>>,
}

/// At which address an engine was asked.
#[derive(Clone, Copy)]
struct At(IpAddr);

impl Connected<IncomingStream<'_, TcpListener>> for At {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(stream.io().local_addr().unwrap().ip())
    }
}

impl Engines {
    pub(crate) async fn start() -> Self {
        let held = Held::new(3).unwrap();
        let ports = Ports {
            http: held.at(0),
            events: held.at(1),
            replay: held.at(2),
        };
        let any = TcpListener::bind(("0.0.0.0", ports.http)).await.unwrap();
        let alive = Alive::default();
        let mut engines = Self {
            servers: vec![tokio::spawn(serve(any, alive.clone()))],
            alive,
            ports,
            _held: held,
            running: HashMap::new(),
        };
        if let Ok(v6) = TcpListener::bind(("::1", ports.http)).await {
            engines
                .servers
                .push(tokio::spawn(serve(v6, engines.alive.clone())));
        }
        engines
    }

    /// An engine comes up at an address, with text of this number in its cache.
    pub(crate) async fn run(&mut self, ip: &str, number: u64) {
        let ports = self.ports;
        self.run_at(ip, number, ports.events, ports.replay, Says::default())
            .await;
    }

    pub(crate) async fn run_at(
        &mut self,
        ip: &str,
        number: u64,
        events: u16,
        replay: u16,
        says: Says,
    ) {
        let ip: IpAddr = ip.parse().unwrap();
        let at = |port| format!("tcp://{}", SocketAddr::new(ip, port));
        let ring = Arc::new(Mutex::new(vec![Bytes::from(payload(number))]));
        let mut publisher = PubSocket::new();
        publisher.bind(&at(events)).await.unwrap();
        let mut router = RouterSocket::new();
        router.bind(&at(replay)).await.unwrap();
        let replays = tokio::spawn(answer_replays(router, ring.clone()));
        let engine = Engine {
            publisher,
            replays,
            ring,
        };
        self.running.insert(ip, engine);
        self.alive.lock().unwrap().insert(ip, says);
    }

    /// The engine stores something more.
    pub(crate) async fn store(&mut self, ip: &str, number: u64) {
        let engine = self
            .running
            .get_mut(&ip.parse::<IpAddr>().unwrap())
            .unwrap();
        let payload = Bytes::from(payload(number));
        let seq = {
            let mut ring = engine.ring.lock().unwrap();
            ring.push(payload.clone());
            ring.len() as u64 - 1
        };
        let message = message(&[b"kv@a", &seq.to_be_bytes(), &payload]);
        engine.publisher.send(message).await.unwrap();
    }

    /// The engine is no more.
    pub(crate) async fn end(&mut self, ip: &str) {
        let ip: IpAddr = ip.parse().unwrap();
        self.alive.lock().unwrap().remove(&ip);
        if let Some(engine) = self.running.remove(&ip) {
            engine.replays.abort();
            let _ = engine.replays.await;
            engine.publisher.close().await;
        }
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        for server in &self.servers {
            server.abort();
        }
    }
}

async fn answer_replays(mut router: RouterSocket, ring: Arc<Mutex<Vec<Bytes>>>) {
    while let Ok(request) = router.recv().await {
        let frames = request.into_vec();
        let [id, _, start] = &frames[..] else {
            continue;
        };
        let start = u64::from_be_bytes(start[..].try_into().unwrap()) as usize;
        let kept: Vec<_> = ring
            .lock()
            .unwrap()
            .iter()
            .cloned()
            .enumerate()
            .skip(start)
            .collect();
        for (seq, payload) in kept {
            let seq = (seq as u64).to_be_bytes();
            let _ = router
                .send(message(&[id, b"", b"kv@a", &seq, &payload]))
                .await;
        }
        let _ = router.send(message(&[id, b"", b"", END, b""])).await;
    }
}

async fn serve(listener: TcpListener, alive: Alive) {
    let router = Router::new()
        .route(
            "/health",
            get(|at, alive| says(at, alive, |_| "".into_response())),
        )
        .route(
            "/metrics",
            get(|at, alive| says(at, alive, |_| METRICS.into_response())),
        )
        .route(
            "/version",
            get(|at, alive| {
                says(at, alive, |_| {
                    axum::Json(json!({"version": "0.33.0"})).into_response()
                })
            }),
        )
        .route(
            "/v1/models",
            get(|at, alive| {
                says(at, alive, |_| {
                    axum::Json(json!({"data": [{"id": "sim", "max_model_len": 8192}]}))
                        .into_response()
                })
            }),
        )
        .route(
            "/kv_event_sources",
            get(|at, alive| {
                says(at, alive, |says| match &says.sources {
                    Some(sources) => axum::Json(sources.clone()).into_response(),
                    None => StatusCode::NOT_FOUND.into_response(),
                })
            }),
        )
        .with_state(alive);
    let service = router.into_make_service_with_connect_info::<At>();
    axum::serve(listener, service).await.unwrap();
}

const METRICS: &str = "vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n\
    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1\n";

async fn says(
    ConnectInfo(At(ip)): ConnectInfo<At>,
    State(alive): State<Alive>,
    answer: impl FnOnce(&Says) -> Response,
) -> Response {
    match alive.lock().unwrap().get(&ip) {
        Some(says) => answer(says),
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
