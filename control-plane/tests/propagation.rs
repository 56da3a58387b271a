//! From an engine's publish to the answer of a gateway's long-poll, over real sockets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prefix_picker::config::Config;
use prefix_picker::serve::Serve;
use prefix_picker_core::sync::{Answer, Have, MAJOR, Poll, TableUpdate};
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

const PUBLISHES: u64 = 200;
/// A block of ours is about 64 tokens, so each store completes a few.
const TOKENS: usize = 512;
const BLOCK: usize = 16;

/// One store of fresh text, as vLLM 0.23 would send it.
fn payload(number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let w = &mut out;
    rmp::encode::write_array_len(w, 3).unwrap();
    rmp::encode::write_f64(w, 0.0).unwrap();
    rmp::encode::write_array_len(w, 1).unwrap();
    rmp::encode::write_array_len(w, 7).unwrap();
    rmp::encode::write_str(w, "BlockStored").unwrap();
    rmp::encode::write_array_len(w, (TOKENS / BLOCK) as u32).unwrap();
    for block in 0..TOKENS / BLOCK {
        rmp::encode::write_uint(w, (number + 1) * 1000 + block as u64).unwrap();
    }
    rmp::encode::write_nil(w).unwrap();
    rmp::encode::write_array_len(w, TOKENS as u32).unwrap();
    for token in 0..TOKENS as u64 {
        // Ordinary tokens of any byte-level vocabulary.
        rmp::encode::write_uint(w, 300 + (number * 7919 + token * 31) % 500).unwrap();
    }
    rmp::encode::write_uint(w, BLOCK as u64).unwrap();
    rmp::encode::write_nil(w).unwrap();
    rmp::encode::write_str(w, "GPU").unwrap();
    rmp::encode::write_uint(w, 0).unwrap();
    out
}

fn message(frames: Vec<Bytes>) -> ZmqMessage {
    ZmqMessage::try_from(frames).unwrap()
}

/// An engine that remembers nothing.
async fn answer_replays(mut router: RouterSocket) {
    while let Ok(request) = router.recv().await {
        let id = request.get(0).unwrap().clone();
        let end = vec![
            id,
            Bytes::new(),
            Bytes::new(),
            Bytes::from_static(&[0xff; 8]),
            Bytes::new(),
        ];
        router.send(message(end)).await.unwrap();
    }
}

struct Gateway {
    client: reqwest::Client,
    url: String,
    have: Option<Have>,
    head_version: u64,
    profiles: Vec<u64>,
}

impl Gateway {
    /// One poll. True: it brought changes of the table.
    async fn poll(&mut self, wait_ms: u32) -> bool {
        let poll = Poll {
            protocol: MAJOR,
            have: self.have,
            head_version: self.head_version,
            profiles: self.profiles.clone(),
            wait_ms,
            ..Poll::default()
        };
        let request = self
            .client
            .post(&self.url)
            .bearer_auth("a-token")
            .body(serde_json::to_vec(&poll).unwrap());
        let body = request
            .send()
            .await
            .unwrap()
            .error_for_status()
            .unwrap()
            .bytes()
            .await
            .unwrap();
        let answer = Answer::decode(&body).unwrap();
        if let Some(head) = &answer.head {
            self.head_version = prefix_picker_core::sync::Head::version_of(head).unwrap().1;
        }
        self.profiles
            .extend(answer.profiles.iter().map(|profile| profile.hash));
        let (seq, changed) = match answer.table {
            TableUpdate::None => return false,
            TableUpdate::Delta { to_seq, .. } => (to_seq, true),
            TableUpdate::Load {
                start_seq,
                next_page,
                ..
            } => {
                assert_eq!(next_page, None, "a small table is one answer");
                (start_seq, false)
            }
        };
        self.have = Some(Have {
            epoch: answer.epoch.0,
            generation: answer.generation,
            seq,
        });
        changed
    }
}

fn config(dir: &Path, events: &str, replay: &str) -> Config {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/engine-sim/model");
    Config::parse(&format!(
        "
listen: 127.0.0.1:0
tokens: [a-token]
data_dir: {}
snapshot_interval_ms: 0
pools:
  - name: demo
    model_dir: {}
    models: [sim]
    clusters: [pool]
    replicas:
      - {{endpoint: '127.0.0.1:1', events: '{events}', replay: '{replay}'}}
",
        dir.display(),
        model.display(),
    ))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn from_publish_to_a_gateways_answer() {
    let dir =
        std::env::temp_dir().join(format!("prefix-picker-propagation-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let mut publisher = PubSocket::new();
    let events = publisher
        .bind("tcp://127.0.0.1:0")
        .await
        .unwrap()
        .to_string();
    let mut router = RouterSocket::new();
    let replay = router.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
    let replays = tokio::spawn(answer_replays(router));

    let serve = Serve::open(config(&dir, &events, &replay)).await.unwrap();
    let url = format!("http://{}/v1/sync", serve.address().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(serve.run(async {
        let _ = stopped.await;
    }));
    let mut gateway = Gateway {
        client: reqwest::Client::new(),
        url,
        have: None,
        head_version: 0,
        profiles: Vec::new(),
    };
    gateway.poll(10_000).await;

    let mut times = Vec::new();
    for number in 0..PUBLISHES {
        // A poll is under way when the engine publishes, as almost always.
        let poll = tokio::spawn(async move {
            while !gateway.poll(10_000).await {}
            (gateway, Instant::now())
        });
        tokio::time::sleep(Duration::from_millis(2 + number % 7)).await;
        let frames = vec![
            Bytes::new(),
            Bytes::copy_from_slice(&number.to_be_bytes()),
            Bytes::from(payload(number)),
        ];
        let begin = Instant::now();
        publisher.send(message(frames)).await.unwrap();
        let (back, end) = tokio::time::timeout(Duration::from_secs(30), poll)
            .await
            .expect("news never came")
            .unwrap();
        gateway = back;
        times.push(end.duration_since(begin));
    }
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!(
        "publish to answer: p50 {:?}, p90 {:?}, p99 {:?}",
        at(50),
        at(90),
        at(99)
    );
    // Far above what an idle machine needs; a wait that should not be there is longer.
    assert!(at(50) < Duration::from_millis(100), "{:?}", at(50));

    drop(stop);
    serving.await.unwrap().unwrap();
    replays.abort();
    std::fs::remove_dir_all(dir).unwrap();
}
