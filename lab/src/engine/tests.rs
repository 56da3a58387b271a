use super::*;
use crate::regime::SMALL;

fn trace(prompts: &[(u32, u32)]) -> Trace {
    let mut trace = Trace::default();
    for &(prompt, output) in prompts {
        trace.segments.push(prompt);
        trace.requests.push(Request {
            at: 0.0,
            chain: Box::new([(trace.segments.len() - 1) as u32]),
            prompt,
            output,
            answer: None,
            key: 0,
        });
    }
    trace
}

/// Runs to the end; arrivals at their times. First and last token of each request.
fn run(trace: &Trace, arrivals: &[f64], kv_tokens: u64) -> Vec<(f64, f64)> {
    let mut engine = Engine::new(SMALL, kv_tokens, trace.segments.len());
    let mut times = vec![(f64::NAN, f64::NAN); arrivals.len()];
    let mut next = None;
    let mut at = 0;
    let mut outcomes = Vec::new();
    loop {
        let arrival = arrivals.get(at).copied().unwrap_or(f64::INFINITY);
        match next {
            Some(time) if time <= arrival => {
                next = engine.advance(time, trace, &mut outcomes);
                for outcome in outcomes.drain(..) {
                    match outcome {
                        Outcome::First(id, _) => times[id].0 = time,
                        Outcome::Last(id) => times[id].1 = time,
                    }
                }
            }
            None if arrival.is_infinite() => return times,
            _ => {
                next = engine.arrive(at, arrival, trace).or(next);
                at += 1;
            }
        }
    }
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6 * b.abs().max(1.0), "{a} {b}");
}

#[test]
fn a_lone_request_takes_its_prefill_and_its_steps() {
    let [(first, last)] = run(&trace(&[(1_600, 11)]), &[1.0], 100_000)[..] else {
        panic!()
    };
    let prefill = 1_600.0 * (1.0 + 800.0 / SMALL.attention_tokens) * SMALL.per_prompt_token;
    close(first, 1.0 + SMALL.step + prefill);
    let steps: f64 = (0..10)
        .map(|n| SMALL.step + SMALL.per_request + f64::from(1_601 + n) * SMALL.per_context_token)
        .sum();
    close(last, first + steps);
}

#[test]
fn steps_in_one_go_take_as_long_as_one_by_one() {
    // An arrival in the midst of a long answer begins with the step after the one under way.
    let trace = trace(&[(160, 1_000), (160, 2)]);
    let times = run(&trace, &[0.0, 3.0], 100_000);
    let alone = run(&trace, &[0.0], 100_000);
    let (start, step) = (alone[0].0, (alone[0].1 - alone[0].0) / 999.0);
    let begun = times[1].0 - (SMALL.step + SMALL.per_request + 160.0 * SMALL.per_prompt_token);
    assert!((3.0..3.0 + 1.1 * step).contains(&begun), "{begun}");
    assert!(times[0].1 > alone[0].1);
    assert!(start < 0.1);
}

#[test]
fn a_long_prompt_is_computed_in_chunks_beside_decodes() {
    let trace = trace(&[(160, 500), (80_000, 2)]);
    let times = run(&trace, &[0.0, 0.5], 200_000);
    let alone = run(&trace, &[0.0], 200_000);
    // Ten chunks: the answer goes on, one token a chunk.
    assert!(times[0].1 > alone[0].1 + 3.0);
    assert!(times[1].0 > 4.0 && times[1].0 < times[0].1 + 5.0);
}

#[test]
fn without_memory_a_request_waits_for_another_to_end() {
    let trace = trace(&[(1_600, 100), (1_600, 100)]);
    let room = run(&trace, &[0.0, 0.0], 4_000);
    let tight = run(&trace, &[0.0, 0.0], 2_000);
    assert!(room[1].0 < room[0].1);
    assert!(tight[1].0 > tight[0].1);
}

#[test]
fn seats_are_limited() {
    let many: Vec<(u32, u32)> = vec![(16, 200); 300];
    let times = run(&trace(&many), &vec![0.0; 300], 1_000_000);
    assert!(times[255].0 < times[0].1);
    assert!(times[256].0 > times[0].1);
    assert!(times.iter().all(|t| t.1.is_finite()));
}
