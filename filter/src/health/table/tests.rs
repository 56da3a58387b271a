use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::record::*;
use super::*;

const A: &str = "10.0.0.1:8000";
const B: &str = "10.0.0.2:8000";

/// A time, as a real clock has it.
const START: u64 = 1_700_000_000_000;

fn apply_n(table: &mut Table, n: usize, signal: Signal, now_ms: u64) -> Change {
    let changes = (0..n).map(|_| table.apply(A, signal, now_ms, now_ms));
    changes.last().unwrap()
}

#[test]
fn two_attempts_without_an_answer_eject() {
    let mut table = Table::default();
    assert_eq!(
        apply_n(&mut table, 1, Signal::Unreached, START),
        Change::Noted
    );
    assert_eq!(table.access(A, START), Access::Open);
    assert_eq!(
        apply_n(&mut table, 1, Signal::Unreached, START + 500),
        Change::Ejected
    );
    assert_eq!(table.access(A, START + 500), Access::Closed);
    assert_eq!(table.access(B, START + 500), Access::Open);
    assert_eq!(table.ejected(START + 500), 1);
    // Any answer in between shows that it is there.
    for between in [Signal::Served, Signal::Refused, Signal::Busy, Signal::Error] {
        let mut table = Table::default();
        for n in 0..10 {
            table.apply(A, Signal::Unreached, START + n, START + n);
            table.apply(A, between, START + n, START + n);
        }
        assert_eq!(
            table.ejected(START + 10),
            usize::from(between == Signal::Error),
            "{between:?}"
        );
    }
    // Long apart, they are no row.
    let mut table = Table::default();
    for n in 0..10 {
        let now = START + n * UNREACHED_MS;
        assert_eq!(table.apply(A, Signal::Unreached, now, now), Change::Noted);
    }
}

#[test]
fn five_errors_in_a_row_eject_and_client_errors_are_none() {
    let mut table = Table::default();
    assert_eq!(apply_n(&mut table, 4, Signal::Error, START), Change::Noted);
    // Says nothing of whether it works.
    assert_eq!(
        apply_n(&mut table, 9, Signal::Refused, START),
        Change::Nothing
    );
    assert_eq!(
        apply_n(&mut table, 1, Signal::Error, START + 9_000),
        Change::Ejected
    );
    let mut table = Table::default();
    apply_n(&mut table, 4, Signal::Error, START);
    assert_eq!(apply_n(&mut table, 1, Signal::Served, START), Change::Noted);
    assert_eq!(apply_n(&mut table, 4, Signal::Error, START), Change::Noted);
    // Too long after.
    assert_eq!(
        apply_n(&mut table, 1, Signal::Error, START + ERRORS_MS),
        Change::Noted
    );
    let mut table = Table::default();
    assert_eq!(
        apply_n(&mut table, 1_000, Signal::Refused, START),
        Change::Nothing
    );
    assert!(table.is_empty());
}

#[test]
fn refusals_for_overload_eject_nobody_and_fade() {
    let mut table = Table::default();
    apply_n(&mut table, 3, Signal::Busy, START);
    assert_eq!(table.access(A, START), Access::Open);
    assert_eq!(table.strain(A, START), 12);
    assert_eq!(table.strain(A, START + 1_000), 9);
    assert_eq!(table.strain(A, START + 2_000), 6);
    assert_eq!(table.strain(A, START + 4_000), 3);
    assert_eq!(table.strain(A, START + 40_000), 0);
    apply_n(&mut table, 1_000, Signal::Busy, START + 40_000);
    assert_eq!(table.strain(A, START + 40_000), STRAIN_MAX / 1_000);
    assert_eq!(table.access(A, START + 40_000), Access::Open);
    // And then there is nothing to remember.
    table.apply(B, Signal::Served, START + 100_000, START + 100_000);
    assert!(table.is_empty());
}

#[test]
fn one_probe_at_a_time_and_success_restores() {
    let mut table = Table::default();
    apply_n(&mut table, 2, Signal::Unreached, START);
    assert!(!table.claim_probe(A, START + EJECTED_MS - 1));
    let now = START + EJECTED_MS;
    assert_eq!(table.access(A, now), Access::Probe);
    assert!(table.claim_probe(A, now));
    assert!(!table.claim_probe(A, now + 1), "one at a time");
    assert_eq!(table.access(A, now + 1), Access::Closed);
    // What was sent before says nothing.
    assert_eq!(
        table.apply(A, Signal::Served, START - 1, now + 2),
        Change::Nothing
    );
    assert_eq!(
        table.apply(A, Signal::Unreached, START - 1, now + 2),
        Change::Nothing
    );
    assert_eq!(table.access(A, now + 2), Access::Closed);
    assert_eq!(
        table.apply(A, Signal::Served, now, now + 300),
        Change::Restored
    );
    assert_eq!(table.access(A, now + 300), Access::Open);
    // A probe that is never heard of is not waited for.
    apply_n(&mut table, 2, Signal::Unreached, now + 400);
    let later = now + 400 + 2 * EJECTED_MS;
    assert!(table.claim_probe(A, later));
    assert!(!table.claim_probe(A, later + PROBE_MS - 1));
    assert!(table.claim_probe(A, later + PROBE_MS));
}

#[test]
fn each_time_it_stays_away_for_longer_up_to_a_minute() {
    let mut table = Table::default();
    apply_n(&mut table, 2, Signal::Unreached, START);
    let (mut now, mut stays) = (START, Vec::new());
    for _ in 0..9 {
        let start = now;
        while !table.claim_probe(A, now) {
            now += 100;
        }
        stays.push((now - start) / 1_000);
        assert_eq!(table.apply(A, Signal::Unreached, now, now), Change::Ejected);
    }
    assert_eq!(stays, [2, 4, 8, 16, 32, 60, 60, 60, 60]);
    // Back, and at once away again: no shorter.
    while !table.claim_probe(A, now) {
        now += 100;
    }
    assert_eq!(table.apply(A, Signal::Served, now, now), Change::Restored);
    apply_n(&mut table, 2, Signal::Unreached, now + 1_000);
    assert_eq!(table.access(A, now + 60_000), Access::Closed);
    // After a while of calm, short again.
    now += 61_000;
    assert_eq!(table.apply(A, Signal::Served, now, now), Change::Restored);
    now += CALM_MS;
    apply_n(&mut table, 2, Signal::Unreached, now);
    assert_eq!(table.access(A, now + EJECTED_MS), Access::Probe);
}

#[test]
fn a_probe_that_is_refused_tells_what_it_can() {
    for (cause, count) in [(Signal::Unreached, 2), (Signal::Error, 5)] {
        for signal in [Signal::Refused, Signal::Busy] {
            let mut table = Table::default();
            apply_n(&mut table, count, cause, START);
            let now = START + EJECTED_MS;
            assert!(table.claim_probe(A, now));
            let change = table.apply(A, signal, now, now);
            // It is there; whether it works again is another matter.
            let there = cause == Signal::Unreached;
            assert_eq!(change == Change::Restored, there, "{cause:?} {signal:?}");
            let access = if there { Access::Open } else { Access::Probe };
            assert_eq!(table.access(A, now), access);
        }
    }
}

#[test]
fn a_clock_that_is_set_back_frees_everybody() {
    let mut table = Table::default();
    apply_n(&mut table, 2, Signal::Unreached, START);
    apply_n(&mut table, 5, Signal::Busy, START);
    let before = START - 3_600_000;
    assert_eq!(table.access(A, before), Access::Open);
    assert_eq!(table.strain(A, before), 0);
    assert!(table.claim_probe(A, before));
}

#[test]
fn a_table_is_bounded_and_keeps_what_matters() {
    let mut table = Table::default();
    for n in 0..10 {
        let name = format!("ejected-{n}");
        table.apply(&name, Signal::Unreached, START, START);
        table.apply(&name, Signal::Unreached, START, START);
    }
    for n in 0..10_000 {
        table.apply(&format!("busy-{n}"), Signal::Busy, START, START);
    }
    assert_eq!(table.records.len(), RECORDS_MAX);
    assert_eq!(table.ejected(START), 10);
    assert!(table.encode().len() < 64 << 10);
    let mut full = Table::default();
    for n in 0..1_000 {
        for _ in 0..2 {
            full.apply(&format!("e-{n}"), Signal::Unreached, START, START);
        }
    }
    assert_eq!(full.ejected(START), RECORDS_MAX);
    table.apply(&"x".repeat(200), Signal::Unreached, START, START);
    table.apply("", Signal::Unreached, START, START);
    assert!(
        table
            .records
            .iter()
            .all(|r| !r.name.is_empty() && r.name.len() < 200)
    );
}

/// The rules once more, as plainly as can be, with all of an endpoint's past.
#[derive(Default)]
struct Naive {
    past: Vec<(Signal, u64)>,
    away: Option<Away>,
    came_back: Option<u64>,
    last_stay: u64,
}

struct Away {
    for_errors: bool,
    from: u64,
    to: u64,
    probed: Option<u64>,
}

impl Naive {
    fn access(&self, now: u64) -> Access {
        match &self.away {
            None => Access::Open,
            Some(away) if now < away.to => Access::Closed,
            Some(away) if away.probed.is_some_and(|at| now < at + PROBE_MS) => Access::Closed,
            Some(_) => Access::Probe,
        }
    }

    fn send_away(&mut self, for_errors: bool, now: u64) {
        let again = self.away.is_some() || self.came_back.is_some_and(|at| now < at + CALM_MS);
        self.last_stay = if again {
            (self.last_stay * 2).min(60_000)
        } else {
            2_000
        };
        self.past.clear();
        let to = now + self.last_stay;
        self.away = Some(Away {
            for_errors,
            from: now,
            to,
            probed: None,
        });
    }

    /// How many of the last signals, from the end, are `signal`, each within `within` of the next;
    /// those for which `ignored` is true do not count.
    fn row(&self, signal: Signal, within: u64, ignored: impl Fn(Signal) -> bool) -> usize {
        let mut count = 0;
        let mut next: Option<u64> = None;
        for &(s, at) in self.past.iter().rev() {
            if ignored(s) {
                continue;
            }
            if s != signal || next.is_some_and(|next| next - at >= within) {
                break;
            }
            (count, next) = (count + 1, Some(at));
        }
        count
    }

    fn apply(&mut self, signal: Signal, sent: u64, now: u64) {
        if let Some(away) = &mut self.away {
            let there = matches!(signal, Signal::Refused | Signal::Busy);
            if sent < away.from {
            } else if signal == Signal::Served || there && !away.for_errors {
                (self.away, self.came_back) = (None, Some(now));
            } else if there {
                away.probed = None;
            } else if sent >= away.to {
                self.send_away(signal == Signal::Error, now);
            }
            return;
        }
        self.past.push((signal, now));
        // Errors in between end a row of attempts without an answer, but not the other way round.
        let soft = |s| matches!(s, Signal::Refused | Signal::Busy);
        if signal == Signal::Unreached && self.row(signal, 60_000, |_| false) >= 2 {
            self.send_away(false, now);
        } else if signal == Signal::Error && self.row(signal, 10_000, soft) >= 5 {
            self.send_away(true, now);
        }
    }
}

fn signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        2 => Just(Signal::Served),
        1 => Just(Signal::Refused),
        1 => Just(Signal::Busy),
        5 => Just(Signal::Error),
        4 => Just(Signal::Unreached),
    ]
}

proptest! {
    /// Rows of errors and of attempts without an answer, mixed in one endpoint's past, share the time
    /// of the last failure: each endpoint of the model has one kind of failure.
    #[test]
    fn as_the_naive_model_says(
        steps in proptest::collection::vec(
            (0..4usize, signal(), 0..9_000u64, 0..15_000u64, any::<bool>()), 1..300)
    ) {
        let mut table = Table::default();
        let mut naive: BTreeMap<usize, Naive> = BTreeMap::new();
        let mut now = START;
        for (endpoint, signal, wait, ago, probe) in steps {
            now += wait;
            let signal = match signal {
                Signal::Error if endpoint % 2 == 0 => Signal::Unreached,
                Signal::Unreached if endpoint % 2 == 1 => Signal::Error,
                other => other,
            };
            let name = format!("10.0.0.{endpoint}:8000");
            let model = naive.entry(endpoint).or_default();
            prop_assert_eq!(table.access(&name, now), model.access(now));
            if probe {
                let access = model.access(now);
                prop_assert_eq!(table.claim_probe(&name, now), access != Access::Closed);
                if let Some(away) = &mut model.away && access == Access::Probe {
                    away.probed = Some(now);
                }
            }
            let change = table.apply(&name, signal, now - ago, now);
            model.apply(signal, now - ago, now);
            prop_assert_eq!(table.access(&name, now), model.access(now), "{:?}", change);
            let ejected = naive.values().filter(|n| n.away.is_some()).count();
            prop_assert_eq!(table.ejected(now), ejected);
            prop_assert_eq!(&Table::decode(&table.encode()), &table);
        }
    }

    #[test]
    fn any_bytes_are_a_table(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut table = Table::decode(&bytes);
        let _ = table.access(A, START);
        let _ = table.strain(A, START);
        table.apply(A, Signal::Unreached, START, START);
        prop_assert!(table.records.len() <= RECORDS_MAX);
    }
}
