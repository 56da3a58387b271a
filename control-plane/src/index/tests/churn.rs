//! Memory: what comes and goes leaves nothing, and what only comes stays within the budget.

use super::*;

fn prompt(number: u32) -> Vec<u32> {
    let mut tokens = words(0, 40);
    tokens.extend([number % 1000, number / 1000 % 1000, number / 1_000_000, 4]);
    tokens.extend((0..36).map(|n| (n * 11 + number) % 1000));
    tokens
}

fn store_numbered(fixture: &mut Fixture, replica: u16, number: u32) -> Vec<u64> {
    let tokens = prompt(number);
    let shared: Vec<u64> = (1..=10).collect();
    if fixture.index.held_blocks(r(replica)) == 0 {
        fixture.store(replica, store(&shared, None, &tokens[..40]));
    }
    let first = u64::from(number) * 100 + 1_000;
    let of: Vec<u64> = (first..first + 10).collect();
    fixture.store(replica, store(&of, Some(10), &tokens[40..]));
    of
}

#[test]
fn churn_leaves_nothing() {
    let mut fixture = Fixture::new(config());
    let mut after_first = 0;
    for round in 0..5 {
        for number in 0..2_000 {
            let of = store_numbered(&mut fixture, 0, number);
            store_numbered(&mut fixture, 1, number + 500);
            if number % 2 == 0 {
                fixture.apply(0, of.iter().rev().map(|hash| remove(&[*hash])).collect());
            }
        }
        fixture.drain();
        for replica in 0..2 {
            fixture.index.drop_replica(r(replica));
        }
        fixture.drain();
        let stats = fixture.index.stats();
        assert_eq!(
            (
                stats.nodes,
                stats.blocks,
                stats.groups,
                stats.holdings,
                stats.held
            ),
            (0, 0, 0, 0, 0)
        );
        assert!(stats.memory_bytes < 300_000, "{}", stats.memory_bytes);
        if round == 0 {
            after_first = stats.memory_bytes;
        }
        assert!(stats.memory_bytes <= after_first + 20_000);
    }
}

#[test]
fn endless_stores_stay_within_the_budget() {
    let budget = 4 << 20;
    let mut fixture = Fixture::new(IndexConfig {
        memory_budget_bytes: budget,
        ..config()
    });
    for number in 0..20_000 {
        store_numbered(&mut fixture, u16::try_from(number % 2).unwrap(), number);
        if number % 500 == 0 {
            fixture.drain();
            let used = fixture.index.stats().memory_bytes;
            assert!(used < 2 * budget, "{number}: {used}");
        }
    }
    let stats = fixture.index.stats();
    assert!(
        stats.dropped_for_memory > 100_000,
        "{}",
        stats.dropped_for_memory
    );
    assert!(stats.nodes > 10_000, "{}", stats.nodes);
    // What is shared and used by all the rest is still there, and so is the newest.
    let newest = prompt(19_999);
    assert!(fixture.text_depth(1, &newest).0 > 8);
    assert!(fixture.text_depth(0, &newest).0 >= 4);
    // A remove of what was dropped is nothing new.
    let unknown = fixture.apply(0, vec![remove(&[1_000])]).unknown_removes;
    assert_eq!(unknown, 1);
}

#[test]
fn endless_salts_and_orphans_leave_nothing_behind() {
    let mut fixture = Fixture::new(config());
    for number in 0..3_000_u64 {
        let mut event = Stored {
            cache_salt: Some(format!("salt-{number}")),
            ..store(&[number + 1], None, &words(0, 4))
        };
        event.extra_keys = None;
        fixture.store(0, event);
        fixture.store(
            0,
            store(&[1 << 40 | number], Some(1 << 50 | number), &words(0, 4)),
        );
        fixture.apply(0, vec![remove(&[number + 1]), remove(&[1 << 40 | number])]);
    }
    let stats = fixture.index.stats();
    assert_eq!((stats.nodes, stats.pending, stats.held), (0, 0, 0));
    assert!(stats.memory_bytes < 300_000, "{}", stats.memory_bytes);
}

#[test]
fn a_wide_subtree_is_passed_on_in_bounded_steps() {
    let mut fixture = Fixture::new(config());
    let tokens = words(0, 40);
    fixture.store(0, store(&(1..=10).collect::<Vec<_>>(), None, &tokens));
    for number in 0..2_000 {
        store_numbered(&mut fixture, 0, number);
    }
    let whole = fixture.text_depth(0, &prompt(7)).0;
    fixture.index.apply(r(0), &batch(vec![remove(&[3])]));
    assert_eq!(
        fixture.text_depth(0, &prompt(7)).0,
        text_hashes(&tokens[..8], None, None).len()
    );
    fixture.store(0, store(&[3], Some(2), &tokens[8..12]));
    assert_eq!(fixture.text_depth(0, &prompt(7)).0, whole);
}
