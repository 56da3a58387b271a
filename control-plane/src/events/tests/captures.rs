//! What real engines sent (`tests/vectors/vllm-real`).

use base64::Engine as _;

use super::golden::{expected, vector};
use super::*;

/// Lines of a capture that hold frames: the frames and the line.
fn messages(name: &str) -> Vec<(Vec<Vec<u8>>, Value)> {
    let decode = |frame: &Value| {
        base64::engine::general_purpose::STANDARD
            .decode(frame.as_str().unwrap())
            .unwrap()
    };
    vector(name)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|line| {
            Some((
                line["frames_b64"].as_array()?.iter().map(decode).collect(),
                line,
            ))
        })
        .collect()
}

/// Checks a capture; returns how many stored, removed and cleared events it holds, and END markers.
fn check(name: &str) -> [usize; 4] {
    let mut counts = [0; 4];
    for (frames, line) in messages(name) {
        let (seq, payload) = match frame::parse(&frames).unwrap() {
            frame::Frame::Batch {
                topic,
                seq,
                payload,
            } => {
                // The captures of replays do not name them.
                if line.get("seq").is_some() {
                    assert_eq!(Some(seq), line["seq"].as_u64());
                    assert_eq!(std::str::from_utf8(topic).ok(), line["topic"].as_str());
                }
                (seq, payload)
            }
            frame::Frame::End => {
                counts[3] += 1;
                continue;
            }
        };
        let batch = decode_batch(payload).unwrap();
        let decoded = &line["decoded"];
        assert_eq!((&batch.notes[..], &batch.problems[..]), (&[][..], &[][..]));
        assert_eq!(
            (Some(batch.ts), batch.rank),
            (decoded[0].as_f64(), decoded[2].as_i64())
        );
        let events: Vec<KvEvent> = decoded[1]
            .as_array()
            .unwrap()
            .iter()
            .map(expected)
            .collect();
        assert_eq!(batch.events, events, "{name}, seq {seq}");
        for event in &batch.events {
            let kind = match event {
                KvEvent::Stored(_) => 0,
                KvEvent::Removed(_) => 1,
                KvEvent::Cleared => 2,
            };
            counts[kind] += 1;
        }
    }
    counts
}

#[test]
fn live_events_of_one_group() {
    assert_eq!(check("vllm-real/capture-main.jsonl"), [41, 177, 1, 0]);
}

#[test]
fn live_events_of_a_hybrid_model() {
    let [stored, _, _, ends] = check("vllm-real/capture-engine3-hybrid.jsonl");
    assert!(stored > 0 && ends == 0);
}

#[test]
fn replays_are_what_was_sent_live() {
    let name = "vllm-real/capture-replay.jsonl";
    assert_eq!(check(name)[3], 3);
    let live = messages("vllm-real/capture-main.jsonl");
    let mut seqs = Vec::new();
    for (frames, _) in messages(name) {
        let parsed = frame::parse(&frames).unwrap();
        if let frame::Frame::Batch { seq, .. } = parsed {
            let (sent, _) = &live[usize::try_from(seq).unwrap()];
            assert_eq!(parsed, frame::parse(sent).unwrap());
            seqs.push(seq);
        }
    }
    // Asked from 0, 35 and 1000 on, and from 38 by a socket that takes one answer only.
    assert_eq!(
        seqs,
        (0..40).chain(35..40).chain([38]).collect::<Vec<u64>>()
    );
}

#[test]
fn salts_are_found() {
    let events = messages("vllm-real/capture-main.jsonl")
        .into_iter()
        .flat_map(|(frames, _)| {
            let Ok(frame::Frame::Batch { payload, .. }) = frame::parse(&frames) else {
                panic!()
            };
            decode_batch(payload).unwrap().events
        });
    let mut salts: Vec<String> = events
        .filter_map(|event| match event {
            KvEvent::Stored(stored) => stored.identity(0).salt.map(str::to_owned),
            _ => None,
        })
        .collect();
    salts.sort();
    salts.dedup();
    assert_eq!(salts, ["tenant-a", "tenant-b"]);
}
