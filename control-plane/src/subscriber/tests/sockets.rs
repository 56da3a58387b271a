//! The subscriber over real ZMQ sockets on the loopback.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::super::live::QUEUED_BATCHES_MAX;
use super::super::{Loss, Position, Sink, Source, Undecodable, run};

const WAIT_MAX: Duration = Duration::from_secs(60);
const END: &[u8] = &[0xff; 8];

fn message(frames: &[&[u8]]) -> ZmqMessage {
    let frames: Vec<Bytes> = frames
        .iter()
        .map(|frame| Bytes::copy_from_slice(frame))
        .collect();
    ZmqMessage::try_from(frames).unwrap()
}

/// How a replay is framed.
#[derive(Clone, Copy)]
enum Framing {
    /// vLLM up to 0.25.
    WithoutTopic,
    /// vLLM 0.26 and later.
    WithTopic,
}

/// One life of an engine: a PUB socket, a ROUTER socket, and what it has published.
struct Engine {
    life: u64,
    publisher: PubSocket,
    published: Arc<Mutex<Vec<Bytes>>>,
    events: String,
    replay: String,
    replay_task: JoinHandle<()>,
}

impl Engine {
    async fn start(life: u64, events: &str, replay: &str, framing: Framing) -> Self {
        let mut publisher = PubSocket::new();
        let events = publisher.bind(events).await.unwrap().to_string();
        let mut router = RouterSocket::new();
        let replay = router.bind(replay).await.unwrap().to_string();
        let published = Arc::new(Mutex::new(Vec::new()));
        let ring = published.clone();
        let replay_task = tokio::spawn(serve_replays(router, ring, framing));
        Self {
            life,
            publisher,
            published,
            events,
            replay,
            replay_task,
        }
    }

    async fn new() -> Self {
        Self::start(
            1,
            "tcp://127.0.0.1:0",
            "tcp://127.0.0.1:0",
            Framing::WithTopic,
        )
        .await
    }

    /// Publishes the next batch; `heard`: by whoever is subscribed.
    async fn publish(&mut self, heard: bool) {
        let seq = self.published.lock().unwrap().len();
        let payload = format!("{}/{seq}", self.life);
        self.published
            .lock()
            .unwrap()
            .push(Bytes::from(payload.clone()));
        if heard {
            let seq = (seq as u64).to_be_bytes();
            self.publisher
                .send(message(&[b"kv@a", &seq, payload.as_bytes()]))
                .await
                .unwrap();
        }
    }

    async fn die(self) {
        self.replay_task.abort();
        let _ = self.replay_task.await;
        self.publisher.close().await;
    }

    fn source(&self) -> Source {
        Source {
            name: "test".into(),
            events: self.events.clone(),
            replay: Some(self.replay.clone()),
            topic: String::new(),
        }
    }
}

async fn serve_replays(mut router: RouterSocket, ring: Arc<Mutex<Vec<Bytes>>>, framing: Framing) {
    while let Ok(request) = router.recv().await {
        let frames = request.into_vec();
        let [id, empty, start] = &frames[..] else {
            panic!("{frames:?}")
        };
        assert!(empty.is_empty(), "no delimiter");
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
            let answer = match framing {
                Framing::WithoutTopic => message(&[id, b"", &seq, &payload]),
                Framing::WithTopic => message(&[id, b"", b"kv@a", &seq, &payload]),
            };
            router.send(answer).await.unwrap();
        }
        let end = match framing {
            Framing::WithoutTopic => message(&[id, b"", END, b""]),
            Framing::WithTopic => message(&[id, b"", b"", END, b""]),
        };
        router.send(end).await.unwrap();
    }
}

#[derive(Default)]
struct Seen {
    /// Payloads applied since the last reset.
    known: Vec<String>,
    resets: Vec<Loss>,
    overflows: u32,
    synced: bool,
    passed_by: bool,
}

/// Remembers what it is told.
#[derive(Clone)]
struct Recorder {
    seen: Arc<Mutex<Seen>>,
    /// Batches are taken while this is true.
    gate: Arc<AtomicBool>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            seen: Arc::default(),
            gate: Arc::new(AtomicBool::new(true)),
        }
    }
}

impl Sink for Recorder {
    fn apply(&self, position: Position, payload: &Bytes, _live: bool) -> Result<(), Undecodable> {
        if !self.gate.load(Ordering::Relaxed) {
            // Not as a task: the runtime's sockets and timers may have been this thread's, and would stand still.
            tokio::task::block_in_place(|| {
                while !self.gate.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let text = String::from_utf8(payload.to_vec()).unwrap();
        assert!(text.ends_with(&format!("/{}", position.seq)));
        self.seen.lock().unwrap().known.push(text);
        Ok(())
    }
    fn reset(&self, why: Loss) {
        let mut seen = self.seen.lock().unwrap();
        seen.known.clear();
        seen.resets.push(why);
    }
    fn synced(&self, synced: bool) {
        self.seen.lock().unwrap().synced = synced;
    }
    fn passed_by(&self, passed_by: bool) {
        self.seen.lock().unwrap().passed_by = passed_by;
    }
    fn connected(&self, _connected: bool) {}
    fn replaying(&self, _from: u64) {}
    fn overflowed(&self) {
        self.seen.lock().unwrap().overflows += 1;
    }
}

impl Recorder {
    async fn until(&self, what: &str, fulfilled: impl Fn(&Seen) -> bool) {
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        while !fulfilled(&self.seen.lock().unwrap()) {
            assert!(
                tokio::time::Instant::now() < deadline,
                "{what}: {:?}",
                self.state()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until exactly the first `count` batches of a life are known.
    async fn until_known(&self, life: u64, count: usize) {
        let expected: Vec<_> = (0..count).map(|seq| format!("{life}/{seq}")).collect();
        self.until(&format!("{count} of life {life}"), |seen| {
            seen.synced && seen.known == expected
        })
        .await;
    }

    fn state(&self) -> (usize, Option<String>, Vec<Loss>, bool) {
        let seen = self.seen.lock().unwrap();
        (
            seen.known.len(),
            seen.known.last().cloned(),
            seen.resets.clone(),
            seen.synced,
        )
    }
}

fn follow(source: Source, recorder: &Recorder) -> JoinHandle<()> {
    tokio::spawn(run(source, None, recorder.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_joiner_and_both_framings_of_a_replay() {
    for framing in [Framing::WithoutTopic, Framing::WithTopic] {
        let mut engine = Engine::start(1, "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", framing).await;
        for _ in 0..50 {
            engine.publish(false).await;
        }
        let recorder = Recorder::default();
        let task = follow(engine.source(), &recorder);
        recorder.until_known(1, 50).await;
        for _ in 0..50 {
            engine.publish(true).await;
        }
        recorder.until_known(1, 100).await;
        assert_eq!(recorder.state().2, vec![]);
        task.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_replayed() {
    let mut engine = Engine::new().await;
    let recorder = Recorder::default();
    let task = follow(engine.source(), &recorder);
    recorder.until("connected", |seen| seen.synced).await;
    for seq in 0..30 {
        engine.publish(seq % 10 < 6).await;
    }
    engine.publish(true).await;
    recorder.until_known(1, 31).await;
    assert_eq!(recorder.state().2, vec![]);
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_not_there_yet_and_one_that_restarts() {
    // Ports that nobody else gets while no engine is there.
    let held = held_ports::Held::new(2).unwrap();
    let [events, replay] = [0, 1].map(|number| format!("tcp://127.0.0.1:{}", held.at(number)));
    let first = Engine::start(1, &events, &replay, Framing::WithTopic).await;
    let source = first.source();
    first.die().await;
    let recorder = Recorder::default();
    let task = follow(source, &recorder);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(recorder.state(), (0, None, vec![], false));

    let mut second = Engine::start(2, &events, &replay, Framing::WithTopic).await;
    recorder.until("connected", |seen| seen.synced).await;
    for _ in 0..20 {
        second.publish(true).await;
    }
    recorder.until_known(2, 20).await;
    second.die().await;
    recorder
        .until("the end is noticed", |seen| !seen.synced)
        .await;

    // The new life's numbers have passed ours before we see any of them.
    let mut third = Engine::start(3, &events, &replay, Framing::WithTopic).await;
    for _ in 0..40 {
        third.publish(false).await;
    }
    recorder.until_known(3, 40).await;
    assert_eq!(recorder.state().2, vec![Loss::Restart]);
    third.publish(true).await;
    recorder.until_known(3, 41).await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ipv6_topics_and_no_replay() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: no IPv6 on the loopback");
        return;
    }
    let mut engine = Engine::start(1, "tcp://[::1]:0", "tcp://[::1]:0", Framing::WithTopic).await;
    let recorder = Recorder::default();
    let source = Source {
        replay: None,
        topic: "kv@".into(),
        ..engine.source()
    };
    assert!(
        source.events.starts_with("tcp://[::1]:"),
        "{}",
        source.events
    );
    let task = follow(source, &recorder);
    // Without replay nothing but a batch tells that the subscription is heeded.
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    while recorder.state().0 == 0 {
        assert!(tokio::time::Instant::now() < deadline);
        engine.publish(true).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.publish(true).await;
    let last = |engine: &Engine| engine.published.lock().unwrap().len() - 1;
    let base: usize = recorder.seen.lock().unwrap().known[0][2..].parse().unwrap();
    let all: Vec<_> = (base..=last(&engine))
        .map(|seq| format!("1/{seq}"))
        .collect();
    recorder
        .until("all from the first", |seen| {
            seen.synced && seen.known == all
        })
        .await;
    engine.publish(false).await;
    engine.publish(true).await;
    let after = [format!("1/{}", last(&engine))];
    recorder
        .until("goes on after the loss", |seen| {
            seen.synced && seen.known == after
        })
        .await;
    assert_eq!(recorder.state().2, vec![Loss::NoReplay]);
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slow_index_never_holds_up_the_engine() {
    const BATCHES: usize = 4 * QUEUED_BATCHES_MAX;
    let mut engine = Engine::new().await;
    let recorder = Recorder::default();
    let task = follow(engine.source(), &recorder);
    recorder.until("connected", |seen| seen.synced).await;
    // How long the reader needs to drain the socket depends on what else the machine does: ever longer, until it
    // had read more than the queue holds before any of it was taken.
    for round in 0..8 {
        recorder.gate.store(false, Ordering::Relaxed);
        for _ in 0..BATCHES {
            engine.publish(true).await;
        }
        tokio::time::sleep(Duration::from_millis(250 << round)).await;
        recorder.gate.store(true, Ordering::Relaxed);
        let all = (round + 1) * BATCHES;
        recorder
            .until("all of them", |seen| seen.synced && seen.known.len() == all)
            .await;
        if recorder.seen.lock().unwrap().overflows > 0 {
            break;
        }
    }
    assert_eq!(recorder.state().2, vec![]);
    assert!(
        recorder.seen.lock().unwrap().overflows > 0,
        "the queue never ran over, so nothing was tried"
    );
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_is_continued_or_refused() {
    use super::super::signals::digest;
    let mut engine = Engine::new().await;
    for _ in 0..10 {
        engine.publish(false).await;
    }
    for (text, first, resets) in [("1/6", "1/7", vec![]), ("0/6", "1/0", vec![Loss::Restart])] {
        let recorder = Recorder::default();
        let resume = Position {
            seq: 6,
            digest: digest(text.as_bytes()),
        };
        let task = tokio::spawn(run(engine.source(), Some(resume), recorder.clone()));
        recorder
            .until("caught up", |seen| {
                seen.synced && seen.known.last().is_some_and(|last| last == "1/9")
            })
            .await;
        assert_eq!(recorder.seen.lock().unwrap().known[0], first);
        assert_eq!(recorder.state().2, resets);
        task.abort();
    }
}

/// Engines publish by another topic than the one that is taken: the connection stands, and nothing comes by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_another_topic_pass_by() {
    let mut engine = Engine::new().await;
    let recorder = Recorder::default();
    let source = Source {
        topic: "another".into(),
        ..engine.source()
    };
    let task = follow(source, &recorder);
    recorder.until("connected", |seen| seen.synced).await;
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    let passes_by = || recorder.seen.lock().unwrap().passed_by;
    while !passes_by() {
        assert!(tokio::time::Instant::now() < deadline);
        engine.publish(true).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // All the same they are known, a moment later.
    let published = engine.published.lock().unwrap().len();
    recorder
        .until("by replays", |seen| seen.known.len() >= published)
        .await;
    assert_eq!(recorder.state().2, vec![]);
    task.abort();
}
