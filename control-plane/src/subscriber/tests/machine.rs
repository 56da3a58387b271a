//! The state machine against written-out sequences.

use bytes::Bytes;

use super::super::machine::{FRUITLESS_REPLAYS_MAX, Machine};
use super::super::signals::{Input, Output, Position, digest};

/// A batch of a given life of the engine.
pub(super) fn payload(life: u64, seq: u64) -> Bytes {
    Bytes::from(format!("{life}/{seq}"))
}

pub(super) fn live(life: u64, seq: u64) -> Input {
    Input::Live {
        seq,
        payload: payload(life, seq),
    }
}

pub(super) fn replayed(life: u64, seq: u64) -> Input {
    Input::Replayed {
        seq,
        payload: payload(life, seq),
    }
}

fn position(life: u64, seq: u64) -> Position {
    Position {
        seq,
        digest: digest(&payload(life, seq)),
    }
}

/// One line per step: what it led to. `a5` applied 5, `r3` replay from 3, `!restart` reset.
fn trace(machine: &mut Machine, inputs: impl IntoIterator<Item = Input>) -> Vec<String> {
    inputs
        .into_iter()
        .map(|input| {
            let mut out = Vec::new();
            machine.step(input, &mut out);
            let words: Vec<_> = out
                .into_iter()
                .map(|output| match output {
                    Output::Apply { seq, .. } => format!("a{seq}"),
                    Output::Reset(loss) => format!("!{}", loss.as_str()),
                    Output::Replay { from, .. } => format!("r{from}"),
                    Output::Reconnect => "reconnect".into(),
                    Output::PassedBy(true) => "passed-by".into(),
                    Output::PassedBy(false) => "heard".into(),
                    Output::Synced(true) => "synced".into(),
                    Output::Synced(false) => "lost".into(),
                })
                .collect();
            words.join(" ")
        })
        .collect()
}

fn check(machine: &mut Machine, steps: &[(Input, &str)]) {
    let got = trace(machine, steps.iter().map(|(input, _)| input.clone()));
    for (number, ((input, expected), got)) in steps.iter().zip(&got).enumerate() {
        assert_eq!(got, expected, "step {number}: {input:?}\nall: {got:?}");
    }
}

#[test]
fn late_joiner_replays_from_the_start_and_takes_nothing_twice() {
    let mut m = Machine::new(true, None);
    check(
        &mut m,
        &[
            (Input::Connected, "r0"),
            (live(1, 3), ""),
            (live(1, 4), ""),
            (replayed(1, 0), "a0"),
            (replayed(1, 1), "a1"),
            (replayed(1, 2), "a2"),
            (replayed(1, 3), "a3"),
            (Input::ReplayEnd, "a4 synced"),
            (live(1, 5), "a5"),
        ],
    );
    assert_eq!(m.last(), Some(position(1, 5)));
}

#[test]
fn a_replay_that_overtakes_live_batches() {
    let mut m = Machine::new(true, None);
    let steps = [
        (Input::Connected, "r0"),
        (replayed(1, 0), "a0"),
        (replayed(1, 1), "a1"),
        (Input::ReplayEnd, "synced"),
        // Published before the end of the replay, taken from the socket after it.
        (live(1, 0), ""),
        (live(1, 1), ""),
        (live(1, 2), "a2"),
    ];
    check(&mut m, &steps);
}

#[test]
fn an_engine_that_has_published_nothing_is_known() {
    let mut m = Machine::new(true, None);
    check(
        &mut m,
        &[
            (Input::Connected, "r0"),
            (Input::ReplayEnd, "synced"),
            (live(1, 0), "a0"),
        ],
    );
}

fn synced_at(can_replay: bool, last: u64) -> Machine {
    let mut m = Machine::new(can_replay, None);
    let mut out = Vec::new();
    m.step(Input::Connected, &mut out);
    m.step(Input::ReplayEnd, &mut out);
    for seq in 0..=last {
        m.step(live(1, seq), &mut out);
    }
    assert_eq!(m.last(), Some(position(1, last)));
    m
}

#[test]
fn a_gap_is_filled_before_what_follows_it() {
    let mut m = synced_at(true, 5);
    let steps = [
        (live(1, 9), "lost r5"),
        (replayed(1, 5), ""),
        (replayed(1, 6), "a6"),
        (live(1, 10), ""),
        (replayed(1, 7), "a7"),
        (replayed(1, 8), "a8"),
        (replayed(1, 9), "a9"),
        (Input::ReplayEnd, "a10 synced"),
    ];
    check(&mut m, &steps);
}

#[test]
fn a_gap_without_replay_drops_and_goes_on() {
    let mut m = synced_at(false, 5);
    check(
        &mut m,
        &[
            (live(1, 9), "lost !no_replay a9 synced"),
            (live(1, 10), "a10"),
        ],
    );
}

#[test]
fn a_ring_that_no_longer_reaches_back() {
    let mut m = synced_at(true, 5);
    let steps = [
        (live(1, 900), "lost r5"),
        (replayed(1, 800), "!history_lost a800"),
        (replayed(1, 801), "a801"),
    ];
    check(&mut m, &steps);
}

#[test]
fn restart_seen_by_a_number_going_back() {
    for (can_replay, expected) in [
        (true, "lost !restart r0"),
        (false, "lost !restart a0 synced"),
    ] {
        let mut m = synced_at(can_replay, 1000);
        check(&mut m, &[(live(2, 0), expected)]);
    }
}

#[test]
fn restart_seen_by_a_replay_that_is_empty() {
    let mut m = synced_at(true, 1000);
    let steps = [
        (Input::Disconnected, "lost"),
        (Input::Connected, "r1000"),
        (live(2, 3), ""),
        (Input::ReplayEnd, "!restart r0"),
        (replayed(2, 0), "a0"),
        (replayed(2, 1), "a1"),
        (replayed(2, 2), "a2"),
        (replayed(2, 3), "a3"),
        (Input::ReplayEnd, "synced"),
        (live(2, 4), "a4"),
    ];
    check(&mut m, &steps);
}

#[test]
fn restart_whose_numbers_have_passed_ours_is_seen_by_the_digest() {
    let mut m = synced_at(true, 10);
    let steps = [
        (Input::Disconnected, "lost"),
        (Input::Connected, "r10"),
        (replayed(2, 10), "!restart r0"),
        (replayed(2, 0), "a0"),
    ];
    check(&mut m, &steps);
}

#[test]
fn a_lost_connection_without_replay_is_a_loss() {
    let mut m = synced_at(false, 5);
    // 6 would follow, but a restarted engine may have a batch 6 too.
    let steps = [
        (Input::Disconnected, "lost"),
        (Input::Connected, "!no_replay"),
        (live(2, 6), "a6 synced"),
    ];
    check(&mut m, &steps);
}

#[test]
fn a_snapshot_goes_on_where_it_ended_if_the_engine_is_the_same() {
    let mut m = Machine::new(true, Some(position(1, 7)));
    check(
        &mut m,
        &[
            (Input::Connected, "r7"),
            (replayed(1, 7), ""),
            (replayed(1, 8), "a8"),
            (Input::ReplayEnd, "synced"),
        ],
    );
    let mut m = Machine::new(true, Some(position(1, 7)));
    check(
        &mut m,
        &[(Input::Connected, "r7"), (replayed(2, 7), "!restart r0")],
    );
    let mut m = Machine::new(true, Some(position(1, 7)));
    check(
        &mut m,
        &[(Input::Connected, "r7"), (Input::ReplayEnd, "!restart r0")],
    );
    let mut m = Machine::new(false, Some(position(1, 7)));
    check(&mut m, &[(Input::Connected, "!no_replay")]);
}

#[test]
fn a_replay_that_breaks_off_goes_on_where_it_ended() {
    let mut m = Machine::new(true, None);
    let steps = [
        (Input::Connected, "r0"),
        (replayed(1, 0), "a0"),
        (replayed(1, 1), "a1"),
        (Input::ReplayFailed, "r1"),
        (replayed(1, 1), ""),
        (replayed(1, 2), "a2"),
        // A hole inside: the engine's queue ran over.
        (replayed(1, 4), "r2"),
        (replayed(1, 2), ""),
        (replayed(1, 3), "a3"),
        (Input::ReplayEnd, "synced"),
    ];
    check(&mut m, &steps);
}

#[test]
fn a_replay_endpoint_that_is_dead_is_given_up() {
    let mut m = synced_at(true, 5);
    let mut steps = vec![(live(1, 9), "lost r5")];
    steps.extend((1..FRUITLESS_REPLAYS_MAX).map(|_| (Input::ReplayFailed, "r5")));
    steps.push((Input::ReplayFailed, "!replay_failed a9 synced"));
    steps.push((live(1, 10), "a10"));
    check(&mut m, &steps);
}

#[test]
fn silence_is_checked_and_a_dead_connection_found() {
    let mut m = synced_at(true, 5);
    check(
        &mut m,
        &[
            (Input::Idle, "r5"),
            (replayed(1, 5), ""),
            (Input::ReplayEnd, ""),
        ],
    );
    check(
        &mut m,
        &[
            (Input::Idle, "r5"),
            (live(1, 6), ""),
            (replayed(1, 5), ""),
            (Input::ReplayEnd, "a6"),
        ],
    );
    // A replay endpoint that is dead does no harm as long as nothing is missing.
    check(
        &mut m,
        &[
            (Input::Idle, "r6"),
            (live(1, 7), ""),
            (Input::ReplayFailed, "a7"),
        ],
    );
    check(
        &mut m,
        &[
            (Input::Idle, "r7"),
            (replayed(1, 7), ""),
            (replayed(1, 8), "a8"),
            (Input::ReplayEnd, "reconnect"),
        ],
    );
}

#[test]
fn live_batches_let_go_are_replayed() {
    let mut m = synced_at(true, 5);
    check(
        &mut m,
        &[
            (Input::Overflow, "lost r5"),
            (replayed(1, 5), ""),
            (replayed(1, 6), "a6"),
        ],
    );
    // Let go again while the replay runs: once more.
    check(
        &mut m,
        &[
            (Input::Overflow, ""),
            (Input::ReplayEnd, "r6"),
            (replayed(1, 6), ""),
            (Input::ReplayEnd, "synced"),
        ],
    );
    let mut m = synced_at(false, 5);
    check(
        &mut m,
        &[
            (Input::Overflow, "lost !no_replay"),
            (live(1, 8), "a8 synced"),
        ],
    );
}

/// A check that finds something, on a connection that then is made anew.
fn missed(m: &mut Machine, seq: u64, end: &str) {
    let (ask, apply) = (format!("r{}", seq - 1), format!("a{seq}"));
    check(
        m,
        &[
            (Input::Idle, &ask),
            (replayed(1, seq - 1), ""),
            (replayed(1, seq), &apply),
            (Input::ReplayEnd, end),
            (Input::Disconnected, "lost"),
            (Input::Connected, &format!("r{seq}")),
            (replayed(1, seq), ""),
            (Input::ReplayEnd, "synced"),
        ],
    );
}

#[test]
fn live_batches_that_pass_by_are_noticed() {
    let mut m = synced_at(true, 5);
    // This connection has brought some: it died.
    missed(&mut m, 6, "reconnect");
    missed(&mut m, 7, "reconnect");
    missed(&mut m, 8, "reconnect passed-by");
    // Said once, until one is heard.
    missed(&mut m, 9, "reconnect");
    check(&mut m, &[(live(1, 10), "heard a10"), (live(1, 11), "a11")]);
    // Heard in between: they do come.
    let mut m = synced_at(true, 5);
    missed(&mut m, 6, "reconnect");
    for seq in [7, 9, 11] {
        missed(&mut m, seq, "reconnect");
        check(&mut m, &[(live(1, seq + 1), &format!("a{}", seq + 1))]);
    }
}
