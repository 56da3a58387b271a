//! Events, replay, faults and limits of a running engine.
#![allow(clippy::unwrap_used, clippy::expect_used)] // how tests fail

#[path = "support.rs"]
mod support;

use std::time::{Duration, Instant};

use engine_sim::{Config, Engine};
use serde_json::json;
use support::{chat, fault, get, post, start, state};
use zeromq::{DealerSocket, Socket as _, SocketRecv as _, SocketSend as _, SubSocket, ZmqMessage};

const CHAT: &str = "/v1/chat/completions";
/// Longer than anything takes.
const SOON: Duration = Duration::from_secs(30);

/// A subscriber, and the sequence number of what it hears next. Nothing tells when the engine knows of it,
/// so prompts are sent until one is heard of.
async fn subscribe(engine: &Engine) -> (SubSocket, u64) {
    let mut socket = SubSocket::new();
    socket
        .connect(&engine.events_endpoint().unwrap())
        .await
        .unwrap();
    socket.subscribe("").await.unwrap();
    let begun = Instant::now();
    for word in 1000.. {
        assert!(begun.elapsed() < SOON, "no event");
        let body = json!({"prompt": vec![word; 16], "max_tokens": 1});
        assert_eq!(post(engine, "/v1/completions", &body).await.status, 200);
        let heard = tokio::time::timeout(Duration::from_millis(100), socket.recv());
        if heard.await.is_ok() {
            break;
        }
    }
    // A word that was late may be among them.
    let first = state(engine).await["next_seq"].as_u64().unwrap();
    let last = json!({"prompt": vec![999; 16], "max_tokens": 1});
    assert_eq!(post(engine, "/v1/completions", &last).await.status, 200);
    while next(&mut socket).await.1 != first {}
    (socket, first + 1)
}

/// Topic, sequence number, payload.
async fn next(socket: &mut SubSocket) -> (String, u64, Vec<u8>) {
    let frames = tokio::time::timeout(SOON, socket.recv())
        .await
        .expect("an event")
        .unwrap()
        .into_vec();
    assert_eq!(frames.len(), 3);
    (
        String::from_utf8(frames[0].to_vec()).unwrap(),
        u64::from_be_bytes(frames[1][..].try_into().unwrap()),
        frames[2].to_vec(),
    )
}

/// Every message of one replay, the end marker last.
async fn replay(engine: &Engine, from: u64) -> Vec<Vec<Vec<u8>>> {
    let mut socket = DealerSocket::new();
    socket
        .connect(&engine.replay_endpoint().unwrap())
        .await
        .unwrap();
    let ask = vec![
        bytes::Bytes::new(),
        bytes::Bytes::copy_from_slice(&from.to_be_bytes()),
    ];
    socket
        .send(ZmqMessage::try_from(ask).unwrap())
        .await
        .unwrap();
    let mut out = Vec::new();
    loop {
        let message = tokio::time::timeout(SOON, socket.recv())
            .await
            .expect("an answer")
            .unwrap();
        let frames: Vec<Vec<u8>> = message.into_vec().iter().map(|f| f.to_vec()).collect();
        let end = frames[frames.len() - 2] == [0xff; 8];
        out.push(frames);
        if end {
            return out;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publishes_and_replays_in_each_versions_framing() {
    for (wire, parts) in [("0.25", 3), ("0.26", 4), ("0.32", 4), ("0.10", 3)] {
        let engine = start(Config {
            wire: wire.parse().unwrap(),
            topic: "kv@x".into(),
            ..Config::default()
        });
        let (mut live, first) = subscribe(&engine).await;
        post(&engine, CHAT, &chat("one")).await;
        post(
            &engine,
            CHAT,
            &chat("two, and some more so that another block fills up with it"),
        )
        .await;
        let end = state(&engine).await["next_seq"].as_u64().unwrap();
        assert!(end >= first + 2);
        let mut payloads = Vec::new();
        for seq in first..end {
            let (topic, got, payload) = next(&mut live).await;
            assert_eq!((topic.as_str(), got), ("kv@x", seq));
            payloads.push(payload);
        }
        let mut answers = replay(&engine, first + 1).await;
        let marker = answers.pop().unwrap();
        let topic: &[u8] = if parts == 4 { b"kv@x" } else { b"" };
        assert_eq!(answers.len() as u64, end - first - 1, "{wire}");
        for (i, frames) in answers.iter().enumerate() {
            assert_eq!(frames.len(), parts, "{wire}");
            assert!(frames[0].is_empty() && (parts == 3 || frames[1] == topic));
            assert_eq!(frames[parts - 2], (first + 1 + i as u64).to_be_bytes());
            assert_eq!(frames[parts - 1], payloads[i + 1]);
        }
        assert!(
            marker.len() == parts
                && marker[parts - 1].is_empty()
                && marker[..parts - 2].iter().all(Vec::is_empty)
        );
        assert_eq!(
            replay(&engine, 1000).await.len(),
            1,
            "past the end: the marker only"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_ring_reaches_a_slow_reader() {
    let engine = start(Config {
        buffer_steps: 3000,
        block_size: 1,
        blocks: 8192,
        ..Config::default()
    });
    let body = json!({"model": "sim", "prompt": [1], "max_tokens": 4000, "ignore_eos": true});
    assert_eq!(post(&engine, "/v1/completions", &body).await.status, 200);
    let answers = replay(&engine, 0).await;
    assert_eq!(answers.len(), 3001);
    assert_eq!(
        answers[0][2],
        1000u64.to_be_bytes(),
        "4000 batches, the oldest forgotten"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_batches_leave_a_gap_that_replay_fills_or_not() {
    for replayable in [true, false] {
        let engine = start(Config::default());
        let (mut live, first) = subscribe(&engine).await;
        let ask = async |text: &str| {
            post(
                &engine,
                "/v1/completions",
                &json!({"prompt": text.repeat(40), "max_tokens": 1}),
            )
            .await
        };
        ask("one ").await;
        fault(
            &engine,
            json!({"kind": "drop_events", "batches": 1, "replayable": replayable}),
        )
        .await;
        ask("two ").await;
        ask("three ").await;
        let heard = (next(&mut live).await.1, next(&mut live).await.1);
        assert_eq!(heard, (first, first + 2));
        let dropped: Vec<_> = state(&engine).await["batches"]
            .as_array()
            .unwrap()
            .iter()
            .skip(first as usize)
            .map(|b| b["dropped"] == true)
            .collect();
        assert_eq!(dropped, [false, true, false]);
        assert_eq!(
            replay(&engine, first).await.len(),
            if replayable { 4 } else { 3 }
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restarts_on_the_same_ports_with_nothing_left() {
    let engine = start(Config::default());
    let before = post(&engine, CHAT, &chat("x")).await;
    post(&engine, CHAT, &chat("x")).await;
    let (addr, events) = (engine.addr(), engine.events_endpoint());
    engine.restart(Duration::from_millis(50));
    assert_eq!((engine.addr(), engine.events_endpoint()), (addr, events));
    let now = state(&engine).await;
    assert_eq!(
        (
            now["next_seq"].as_u64(),
            now["cached_blocks"].as_u64(),
            now["incarnation"].as_u64()
        ),
        (Some(0), Some(0), Some(1))
    );
    let (mut live, first) = subscribe(&engine).await;
    assert_eq!(
        post(&engine, CHAT, &chat("x"))
            .await
            .text
            .contains("\"cached_tokens\":0"),
        before.text.contains("\"cached_tokens\":0")
    );
    assert_eq!(next(&mut live).await.1, first);
    fault(&engine, json!({"kind": "restart", "down_ms": 2000})).await;
    for (is_there, what) in [(false, "nobody listens"), (true, "it is back")] {
        let begun = Instant::now();
        while reqwest::get(engine.url() + "/health").await.is_ok() != is_there {
            assert!(begun.elapsed() < SOON, "{what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert_eq!(state(&engine).await["incarnation"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn dies_and_breaks_what_is_under_way() {
    let engine = start(Config {
        speed: 1.0,
        ..Config::default()
    });
    let body = json!({"prompt": "x", "max_tokens": 4000, "ignore_eos": true, "model": "sim"});
    let url = engine.url();
    let under_way = tokio::spawn(async move {
        let request = reqwest::Client::new()
            .post(url + "/v1/completions")
            .header("content-type", "application/json");
        request.body(body.to_string()).send().await
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    fault(&engine, json!({"kind": "die"})).await;
    assert!(engine.wait_dead(SOON));
    assert!(under_way.await.unwrap().is_err());
    assert!(reqwest::get(engine.url() + "/health").await.is_err());
    engine.restart(Duration::ZERO);
    assert_eq!(get(&engine, "/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_stalls_and_sickens_on_command() {
    let engine = start(Config::default());
    fault(&engine, json!({"kind": "refuse", "requests": 2})).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(post(&engine, CHAT, &chat("x")).await.status);
    }
    assert_eq!(statuses, [503, 503, 200]);
    let begun = Instant::now();
    fault(&engine, json!({"kind": "stall", "ms": 300})).await;
    assert_eq!(post(&engine, CHAT, &chat("x")).await.status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(300));
    fault(&engine, json!({"kind": "unhealthy"})).await;
    assert_eq!(
        (
            get(&engine, "/health").await.status,
            post(&engine, CHAT, &chat("x")).await.status
        ),
        (503, 500)
    );
    fault(&engine, json!({"kind": "unhealthy", "on": false})).await;
    assert_eq!(get(&engine, "/health").await.status, 200);
    for bad in [
        json!({"kind": "nonsense"}),
        json!({"kind": "slow", "factor": 0.0}),
        json!({"kind": "stall", "sm": 1}),
    ] {
        assert_eq!(post(&engine, "/sim/fault", &bad).await.status, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_only_so_many_and_forgets_clients_that_leave() {
    let engine = start(Config {
        speed: 1.0,
        max_num_seqs: 1,
        max_num_queued_reqs: Some(2),
        ..Config::default()
    });
    let body =
        json!({"prompt": "x", "max_tokens": 4000, "ignore_eos": true, "model": "sim"}).to_string();
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let request = reqwest::Client::new()
                .post(engine.url() + "/v1/completions")
                .header("content-type", "application/json");
            tokio::spawn(request.body(body.clone()).send())
        })
        .collect();
    let begun = Instant::now();
    while state(&engine).await["running"] != 1 || state(&engine).await["requests"] != 2 {
        assert!(begun.elapsed() < SOON);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        get(&engine, "/metrics")
            .await
            .text
            .contains("vllm:num_requests_waiting{engine=\"0\",model_name=\"sim\"} 1.0")
    );
    assert_eq!(post(&engine, CHAT, &chat("x")).await.status, 503);
    clients.iter().for_each(|c| c.abort());
    while state(&engine).await["requests"] != 0 {
        assert!(begun.elapsed() < SOON * 2);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let now = state(&engine).await;
    assert_eq!(
        (now["aborted"].as_u64(), now["prefill_tokens"].as_u64()),
        (Some(2), Some(0))
    );
    assert_eq!(now["free_blocks"], now["usable_blocks"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn time_passes_by_the_model() {
    let ask = async |config: Config| {
        let engine = start(config);
        let body = json!({"prompt": vec![5; 4000], "max_tokens": 20, "ignore_eos": true});
        let begun = Instant::now();
        post(&engine, "/v1/completions", &body).await;
        begun.elapsed()
    };
    // 4,000 tokens at 20,000/s and 20 steps of 8 ms: 0.36 s (and more on a machine with much to do).
    let real = ask(Config {
        speed: 1.0,
        ..Config::default()
    })
    .await;
    assert!(
        real >= Duration::from_millis(350) && real < Duration::from_secs(20),
        "{real:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_adds_up_to_what_is_cached() {
    let engine = start(Config {
        blocks: 64,
        noncanonical_rate: 0.05,
        ..Config::default()
    });
    for i in 0..60 {
        let text = format!(
            "{} question number {i} about parcels, weather and trains. ",
            i % 7
        )
        .repeat(1 + i % 5);
        assert_eq!(post(&engine, CHAT, &chat(&text)).await.status, 200);
    }
    let blocks = get(&engine, "/sim/blocks").await.json()["blocks"]
        .as_object()
        .unwrap()
        .clone();
    let now = state(&engine).await;
    assert!(now["evictions"].as_u64().unwrap() > 50);
    let copies: u64 = blocks.values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(copies, now["cached_blocks"].as_u64().unwrap());
    // Count stores and removals in the payloads by the one thing both forms have: the hash after a list head.
    let (mut stored, mut removed) = (0, 0);
    for frames in replay(&engine, 0).await {
        let payload = frames.last().unwrap();
        stored += count_hashes(payload, b"BlockStored");
        removed += count_hashes(payload, b"BlockRemoved");
    }
    assert_eq!(stored - removed, copies);
}

/// Sum of the lengths of `block_hashes` of events with this tag (map form, lists below 65,536).
fn count_hashes(payload: &[u8], tag: &[u8]) -> u64 {
    let mut key = tag.to_vec();
    key.push(0xa0 | 12);
    key.extend_from_slice(b"block_hashes");
    let at = payload
        .windows(key.len())
        .enumerate()
        .filter(|(_, w)| *w == key)
        .map(|(i, _)| i + key.len());
    at.map(|i| match payload[i] {
        0xdc => u64::from(u16::from_be_bytes([payload[i + 1], payload[i + 2]])),
        fix => u64::from(fix & 0xf),
    })
    .sum()
}
