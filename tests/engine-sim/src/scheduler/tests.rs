//! The scheduler against a real engine: the same prompts in the same order give the same bytes on the wire.

use super::*;
use crate::config::WireVersion;
use crate::event::Form;
use crate::hash::none_hash;
use serde_json::Value;

const REQUESTS: &str = include_str!("../../../vectors/vllm-real/requests-main.jsonl");
const CAPTURE: &str = include_str!("../../../vectors/vllm-real/capture-main.jsonl");

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t.as_u64().unwrap() as u32)
        .collect()
}

/// The requests of one HTTP call, in the engine's order.
fn requests_of(call: &Value, generated: &[u32]) -> Vec<NewRequest> {
    let body = &call["body"];
    let wire = WireVersion::default();
    let salt = body["cache_salt"].as_str();
    let session = call["headers"]["X-Session-ID"]
        .as_str()
        .or(body["session_id"].as_str())
        .or(body["vllm_xargs"]["session_id"].as_str());
    let prompts = match call["token_ids"][0] {
        Value::Array(_) => call["token_ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(ids)
            .collect(),
        _ => vec![ids(&call["token_ids"])],
    };
    let copies = body["n"].as_u64().unwrap_or(1) as usize;
    let mut out = Vec::new();
    for mut prompt in prompts {
        if let Some(keep) = body["truncate_prompt_tokens"].as_u64() {
            prompt.drain(..prompt.len() - keep as usize);
        }
        for _ in 0..copies {
            let count = body["max_tokens"].as_u64().unwrap() as usize;
            let output = (0..count)
                .map(|i| generated.get(i).copied().unwrap_or(0))
                .collect();
            out.push(NewRequest {
                id: 0,
                prompt: prompt.clone(),
                output,
                hasher: Hasher::new(wire, none_hash(wire, None, 0), None, salt),
                lora: None,
                salt: salt.map(String::from),
                session: session.map(String::from),
                skip_read: body["prompt_logprobs"].is_u64(),
                report_full: body["vllm_xargs"]["kv_cache_report_mode"] == "full",
            });
        }
    }
    out
}

/// Runs the recorded calls; gives the batches and, per call, the cached tokens of its requests.
fn replay(calls: &[Value], generated: &[u32]) -> (Vec<Vec<KvEvent>>, Vec<u64>) {
    let limits = Limits {
        block_size: 32,
        max_num_seqs: 32,
        max_num_batched_tokens: 2048,
    };
    let mut engine = Scheduler::new(limits, 128);
    let (mut batches, mut cached) = (Vec::new(), Vec::new());
    let mut id = 0;
    for call in calls {
        if call["path"] == "/reset_prefix_cache" {
            assert!(engine.reset_prefix_cache());
            continue;
        }
        if call["status"] != 200 || call["token_ids"].is_null() {
            continue;
        }
        let generated = if call["label"] == "completion-generates-a-block" {
            generated
        } else {
            &[]
        };
        let mut hits = std::collections::BTreeMap::new();
        let mut run = |engine: &mut Scheduler| {
            let step = engine.step();
            hits.extend(
                step.outputs
                    .iter()
                    .map(|o| (o.id, u64::from(o.cached_tokens))),
            );
            if !step.events.is_empty() {
                batches.push(step.events);
            }
        };
        for mut request in requests_of(call, generated) {
            id += 1;
            request.id = id;
            engine.add(request);
            run(&mut engine); // prompts of one call reached the real engine in different steps
        }
        while !engine.is_idle() {
            run(&mut engine);
        }
        cached.push(hits.values().sum());
    }
    (batches, cached)
}

#[test]
fn publishes_what_the_real_engine_published() {
    let (calls, capture) = (lines(REQUESTS), lines(CAPTURE));
    // The only tokens that we cannot know from the requests: two blocks that the engine generated itself.
    let mut generated = ids(&capture[2]["decoded"][1][0]["token_ids"]);
    generated.extend(ids(&capture[3]["decoded"][1][0]["token_ids"]));
    generated.drain(..8);
    let (batches, _) = replay(&calls, &generated);
    assert_eq!(batches.len(), capture.len());
    let form = Form {
        wire: WireVersion::default(),
        bytes_hashes: false,
        rank: 0,
    };
    for (batch, real) in batches.iter().zip(&capture) {
        let real_bytes = base64(real["frames_b64"][2].as_str().unwrap());
        let time = f64::from_be_bytes(real_bytes[2..10].try_into().unwrap());
        assert_eq!(form.encode(time, batch), real_bytes, "seq {}", real["seq"]);
    }
}

#[test]
fn reports_the_cached_tokens_that_the_real_engine_reported() {
    let calls = lines(REQUESTS);
    let (_, cached) = replay(&calls, &[]);
    let real: Vec<_> = calls
        .iter()
        .filter(|c| c["status"] == 200 && !c["token_ids"].is_null())
        .collect();
    assert_eq!(cached.len(), real.len());
    for (ours, call) in cached.iter().zip(real) {
        if call["body"]["n"].is_u64() {
            continue; // the real engine counts its first copy only
        }
        assert_eq!(
            *ours, call["usage"]["prompt_tokens_details"]["cached_tokens"],
            "{}",
            call["label"]
        );
    }
}

fn base64(text: &str) -> Vec<u8> {
    let sextet = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u8> = text.bytes().filter(|c| *c != b'=').map(sextet).collect();
    let mut out = Vec::new();
    for four in digits.chunks(4) {
        let n = four
            .iter()
            .enumerate()
            .fold(0u32, |n, (i, d)| n | u32::from(*d) << (18 - 6 * i));
        out.extend_from_slice(&n.to_be_bytes()[1..four.len()]);
    }
    out
}

fn request(id: RequestId, prompt: Vec<u32>, output: usize) -> NewRequest {
    let wire = WireVersion::default();
    let hasher = Hasher::new(wire, none_hash(wire, None, 0), None, None);
    NewRequest {
        id,
        prompt,
        output: vec![1; output],
        hasher,
        lora: None,
        salt: None,
        session: None,
        skip_read: false,
        report_full: false,
    }
}

#[test]
fn long_prompts_are_computed_in_chunks() {
    let limits = Limits {
        block_size: 4,
        max_num_seqs: 2,
        max_num_batched_tokens: 8,
    };
    let mut engine = Scheduler::new(limits, 16);
    engine.add(request(1, (0..20).collect(), 1));
    let steps: Vec<_> = (0..3).map(|_| engine.step()).collect();
    assert_eq!(
        steps.iter().map(|s| s.prefill_tokens).collect::<Vec<_>>(),
        [8, 8, 4]
    );
    assert!(steps.iter().all(|s| s.events.len() == 1));
    assert_eq!(
        steps.iter().map(|s| s.outputs.len()).collect::<Vec<_>>(),
        [0, 0, 1]
    );
    assert!(engine.is_idle());
}

#[test]
fn requests_wait_for_a_seat_and_for_blocks() {
    let limits = Limits {
        block_size: 4,
        max_num_seqs: 2,
        max_num_batched_tokens: 64,
    };
    let mut engine = Scheduler::new(limits, 8);
    for id in 0..3 {
        engine.add(request(id, vec![id as u32 + 10; 9], 8));
    }
    engine.step();
    assert_eq!((engine.running(), engine.waiting()), (2, 1));
    let mut finished = Vec::new();
    for _ in 0..200 {
        finished.extend(
            engine
                .step()
                .outputs
                .into_iter()
                .filter(|o| o.finished)
                .map(|o| o.id),
        );
    }
    finished.sort_unstable();
    assert_eq!(finished, [0, 1, 2]);
    assert!(
        engine.counters().preemptions > 0,
        "17 tokens twice do not fit into 7 blocks of 4"
    );
    assert_eq!(engine.pool().free_count(), 7);
}

#[test]
fn abort_frees_blocks_and_reset_waits_for_it() {
    let limits = Limits {
        block_size: 4,
        max_num_seqs: 2,
        max_num_batched_tokens: 64,
    };
    let mut engine = Scheduler::new(limits, 8);
    engine.add(request(1, vec![5; 9], 8));
    engine.step();
    assert!(!engine.reset_prefix_cache());
    engine.abort(1);
    assert!(engine.is_idle() && engine.reset_prefix_cache());
    assert!(
        engine.step().events.is_empty(),
        "an idle engine publishes nothing"
    );
    engine.add(request(2, vec![5; 9], 1));
    let events = engine.step().events;
    assert_eq!(events.first(), Some(&KvEvent::Cleared));
    assert_eq!(events.len(), 2);
}
