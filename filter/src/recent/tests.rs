use super::*;
use crate::testing::FakeHost;

const PLACE: u64 = 77;
/// Few enough buckets that keys share them.
const SMALL: Board = Board {
    name: "pp/small",
    bits: 2,
    size: 8,
};

fn names(keys: &[u64]) -> Vec<Anchor> {
    keys.iter().map(|&key| Anchor::name(key)).collect()
}

fn places(board: &Board, host: &FakeHost, key: u64) -> Vec<u64> {
    let look = board.look(host, names(&[key]));
    look.claims().map(|(_, claim)| claim.place).collect()
}

#[test]
fn claims_are_seen_until_they_end_or_are_taken_back() {
    let host = FakeHost::default();
    for board in [SMALL, SENT] {
        board.prepare(&host);
        let keys: Vec<u64> = (1..=10).map(|n| n << 8).collect();
        let look = board.look(&host, names(&keys));
        let claimed = board.claim(&host, look, PLACE, 1_000);
        assert!(keys.iter().all(|&k| places(&board, &host, k) == [PLACE]));
        assert!(places(&board, &host, 5).is_empty());
        // Another's claims on some of them are that one's to take back.
        let look = board.look(&host, names(&keys[..2]));
        let other = board.claim(&host, look, PLACE, 1_000);
        assert!(other.made.is_empty());
        board.release(&host, &other);
        assert!(keys.iter().all(|&k| places(&board, &host, k) == [PLACE]));
        let moved = board.moved(&host, claimed, 78);
        assert!(keys.iter().all(|&k| places(&board, &host, k) == [78]));
        board.release(&host, &moved);
        assert!(keys.iter().all(|&k| places(&board, &host, k).is_empty()));
        let look = board.look(&host, names(&keys));
        let _ = board.claim(&host, look, PLACE, 1_000);
        host.advance_ms(1_000);
        assert!(keys.iter().all(|&k| places(&board, &host, k).is_empty()));
    }
}

#[test]
fn two_that_write_a_bucket_at_a_time_are_both_seen() {
    let host = FakeHost::default();
    SMALL.prepare(&host);
    let keys: Vec<u64> = (1..=4).collect();
    let first = SMALL.look(&host, names(&keys));
    let second = SMALL.look(&host, names(&keys));
    let _ = SMALL.claim(&host, first, 1, 1_000);
    let late = SMALL.claim(&host, second, 2, 1_000);
    assert_eq!(late.made.len(), keys.len());
    assert!(keys.iter().all(|&k| places(&SMALL, &host, k) == [1, 2]));
}

#[test]
fn host_calls_are_bounded_whatever_others_do() {
    let host = FakeHost::default();
    SENT.prepare(&host);
    for in_the_way in [false, true] {
        let keys: Vec<u64> = (1..=10).map(|n| n * 0x0123_4567_89ab).collect();
        let before = host.shared_calls.get();
        let look = SENT.look(&host, names(&keys));
        let spent = host.shared_calls.get() - before;
        if in_the_way {
            let others = SENT.look(&host, names(&keys));
            let _ = SENT.claim(&host, others, 3, 9_000);
        }
        let before = host.shared_calls.get();
        let _ = SENT.claim(&host, look, 4, 1_000);
        let spent = spent + host.shared_calls.get() - before;
        assert!(spent <= CALLS_MAX as u64, "{spent}");
    }
}

#[test]
fn keys_are_made_once_and_bounded() {
    let host = FakeHost::default();
    SMALL.prepare(&host);
    let look = SMALL.look(&host, names(&[9]));
    let _ = SMALL.claim(&host, look, PLACE, 1_000);
    SMALL.prepare(&host);
    assert_eq!(places(&SMALL, &host, 9), [PLACE]);
    for key in 0..1_000 {
        let look = SMALL.look(&host, names(&[key]));
        let _ = SMALL.claim(&host, look, PLACE, 1_000);
    }
    let shared = host.shared.borrow();
    assert_eq!(shared.len(), 4);
    assert!(shared.values().all(|(bytes, _)| bytes.len() <= 1 + 8 * 35));
}

/// Blocks are noted for being small, or for ending in zeros.
#[test]
fn odd_keys_are_spread_over_the_buckets() {
    for keys in [
        (0..2_000u64).map(|n| n << 40).collect::<Vec<_>>(),
        (0..2_000u64).map(|n| (n << 50) | 5).collect(),
        (0..2_000u64).map(|n| n * 0x0123_4567_89ab).collect(),
    ] {
        let mut indices: Vec<u64> = keys.iter().map(|&key| SENT.index(key)).collect();
        indices.sort_unstable();
        indices.dedup();
        assert!(indices.len() > 500, "{}", indices.len());
        assert!(indices.iter().all(|&index| index < 1_024));
    }
}
