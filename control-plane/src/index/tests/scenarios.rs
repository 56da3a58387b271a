//! Named cases: each is a mistake that somebody has made.

use super::*;
use crate::events::ExtraKey;

pub(super) fn plain() -> Fixture {
    Fixture::new(config())
}

/// 40 words: more than four of our blocks.
pub(super) fn prompt() -> Vec<u32> {
    words(10, 40)
}

#[test]
fn a_stored_prompt_is_credited_with_its_tokens() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store_prompt(3, 100, &tokens);
    let wanted = text_hashes(&tokens, None, None);
    assert!(wanted.len() >= 4);
    let credits = fixture.credits();
    assert_eq!(credits.len(), wanted.len());
    for (number, hash) in wanted.iter().enumerate() {
        let (gpu, counted) = credits[&(*hash, r(3))];
        assert!(gpu);
        // Soft cuts lie between words: the tokens whose bytes end there.
        let longest = (0..=tokens.len())
            .rfind(|count| text_hashes(&tokens[..*count], None, None).len() <= number);
        assert_eq!(counted as usize, longest.unwrap(), "block {number}");
    }
}

#[test]
fn two_copies_need_two_removes() {
    let mut fixture = plain();
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens);
    let whole = fixture.text_depth(0, &tokens);
    fixture.store_prompt(0, 100, &tokens);
    fixture.apply(0, vec![remove(&of)]);
    assert_eq!(fixture.text_depth(0, &tokens), whole);
    fixture.apply(0, vec![remove(&of)]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
    assert_eq!(fixture.index.stats().nodes, 0);
}

#[test]
fn many_copies_are_counted() {
    let mut fixture = plain();
    let tokens = prompt();
    for _ in 0..20 {
        fixture.store_prompt(0, 100, &tokens);
    }
    let of: Vec<u64> = (100..110).collect();
    for _ in 0..19 {
        fixture.apply(0, vec![remove(&of)]);
    }
    assert!(fixture.text_depth(0, &tokens).0 > 0);
    fixture.apply(0, vec![remove(&of)]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
}

#[test]
fn a_full_report_sets_where_reports_are_on() {
    let mut fixture = Fixture::new(IndexConfig {
        full_reports: true,
        ..config()
    });
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens);
    let stats = fixture.store(0, store(&of, None, &tokens));
    assert_eq!((stats.reported, stats.stored), (10, 0));
    fixture.apply(0, vec![remove(&of)]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
    // A store with a parent is a copy all the same.
    fixture.store(0, store(&of[..5], None, &tokens[..20]));
    fixture.store(0, store(&of[4..5], Some(of[3]), &tokens[16..20]));
    fixture.apply(0, vec![remove(&of[4..5])]);
    assert_eq!(fixture.index.held_blocks(r(0)), 5);
}

#[test]
fn an_unknown_hash_does_not_stop_a_remove() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens);
    let stats = fixture.apply(0, vec![remove(&[55, 100, 56])]);
    assert_eq!((stats.removed, stats.unknown_removes), (1, 2));
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
}

#[test]
fn one_replicas_remove_is_not_the_others() {
    let mut fixture = plain();
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens);
    fixture.store_prompt(1, 100, &tokens);
    let whole = fixture.text_depth(1, &tokens);
    fixture.apply(0, vec![remove(&of), remove(&of)]);
    assert_eq!(
        (
            fixture.text_depth(0, &tokens),
            fixture.text_depth(1, &tokens)
        ),
        ((0, 0), whole)
    );
}

#[test]
fn engines_with_other_hash_seeds_share_nodes() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens);
    fixture.store_prompt(1, 9_100, &tokens);
    assert_eq!(fixture.index.stats().nodes, 11);
    assert_eq!(
        fixture.text_depth(0, &tokens),
        fixture.text_depth(1, &tokens)
    );
}

#[test]
fn an_orphan_counts_once_its_parents_are_there() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store(0, store(&[104, 105], Some(103), &tokens[16..24]));
    let stats = fixture.store(0, store(&[106, 107, 108, 109], Some(105), &tokens[24..]));
    assert_eq!(stats.orphans, 4);
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
    fixture.store(0, store(&[100, 101, 102, 103], None, &tokens[..16]));
    let whole = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (whole, whole));
    assert_eq!(fixture.index.stats().pending, 0);
}

#[test]
fn an_orphan_removed_meanwhile_leaves_a_hole() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store(0, store(&[104, 105, 106], Some(103), &tokens[16..28]));
    fixture.apply(0, vec![remove(&[105])]);
    fixture.store(0, store(&[100, 101, 102, 103], None, &tokens[..16]));
    let up_to_104 = text_hashes(&tokens[..20], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (up_to_104, up_to_104));
    fixture.store(0, store(&[105], Some(104), &tokens[20..24]));
    let up_to_106 = text_hashes(&tokens[..28], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (up_to_106, up_to_106));
}

#[test]
fn a_decode_replica_without_the_head_matches_nothing() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store(0, store(&[100, 101, 102, 103], None, &tokens[..16]));
    fixture.store(1, store(&[104, 105], Some(103), &tokens[16..24]));
    assert_eq!(fixture.text_depth(1, &tokens), (0, 0));
    fixture.store(1, store(&[100, 101, 102, 103], None, &tokens[..16]));
    assert!(fixture.text_depth(1, &tokens).0 > fixture.text_depth(0, &tokens).0);
}

#[test]
fn an_ancestor_that_goes_takes_the_credit_and_brings_it_back() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens);
    let whole = fixture.text_depth(0, &tokens);
    fixture.apply(0, vec![remove(&[100])]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
    fixture.store(0, store(&[100], None, &tokens[..4]));
    assert_eq!(fixture.text_depth(0, &tokens), whole);
}

#[test]
fn tiers_are_counted_apart() {
    let mut fixture = plain();
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens);
    let whole = fixture.text_depth(0, &tokens).0;
    fixture.apply(0, vec![placeholder(&of)]);
    fixture.apply(0, vec![remove(&of[6..])]);
    let in_gpu = text_hashes(&tokens[..24], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (in_gpu, whole));
    fixture.apply(0, vec![remove_from(&of, "cpu")]);
    assert_eq!(fixture.text_depth(0, &tokens), (in_gpu, in_gpu));
}

#[test]
fn a_placeholder_may_come_before_its_block() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.apply(0, vec![placeholder(&[100, 101])]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
    let of = fixture.store_prompt(0, 100, &tokens);
    fixture.apply(0, vec![remove(&of)]);
    let on_cpu = text_hashes(&tokens[..8], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (0, on_cpu));
}

#[test]
fn offloaded_tokens_without_identity_claim_nothing_new() {
    let mut fixture = plain();
    let tokens = prompt();
    // They may be a salted prompt's: offload events leave the extra keys out.
    let event = Stored {
        medium: Some("CPU".into()),
        extra_keys: None,
        ..store(&[100, 101], None, &tokens[..8])
    };
    fixture.store(0, event);
    assert_eq!(fixture.credits(), Credits::new());
}

#[test]
fn a_reset_empties_the_gpu_and_keeps_the_rest() {
    let mut fixture = plain();
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens);
    fixture.store_prompt(1, 100, &tokens);
    let whole = fixture.text_depth(0, &tokens).0;
    fixture.apply(0, vec![placeholder(&of[..5])]);
    fixture.apply(0, vec![KvEvent::Cleared]);
    let on_cpu = text_hashes(&tokens[..20], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (0, on_cpu));
    assert_eq!(fixture.text_depth(1, &tokens), (whole, whole));
    fixture.apply(1, vec![KvEvent::Cleared]);
    assert_eq!(fixture.text_depth(1, &tokens), (0, 0));
}

#[test]
fn a_restarted_replica_matches_nothing_old() {
    let mut fixture = plain();
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens);
    fixture.store(0, store(&[900], Some(899), &tokens[..4]));
    fixture
        .index
        .set_position(r(0), StreamPosition::after(7, b"payload"));
    fixture.index.drop_replica(r(0));
    assert_eq!(fixture.credits(), Credits::new());
    assert_eq!(fixture.index.position(r(0)), None);
    let stats = fixture.apply(0, vec![remove(&of)]);
    assert_eq!(stats.unknown_removes, 10);
    // A child of an old block is an orphan now.
    let stats = fixture.store(0, store(&[950], Some(109), &tokens[..4]));
    assert_eq!(stats.orphans, 1);
}

#[test]
fn odd_events_neither_panic_nor_claim() {
    let mut fixture = plain();
    let mut events = vec![
        store(&[], None, &[]),
        store(&[], None, &words(0, 16)),
        Stored {
            block_size: 0,
            ..store(&[1], None, &words(0, 16))
        },
        Stored {
            block_size: u32::MAX,
            ..store(&[1, 2], None, &words(0, 16))
        },
        Stored {
            extra_keys: Some(vec![]),
            ..store(&[1, 2], None, &words(0, 8))
        },
        Stored {
            extra_keys: Some(vec![Some(vec![ExtraKey::Unknown])]),
            ..store(&[7], None, &words(0, 64))
        },
        store(&[9], Some(9), &words(0, 4)),
    ];
    events.push(store(&[9], Some(9), &words(0, 4)));
    for event in events {
        fixture.store(0, event);
    }
    assert_eq!(fixture.credits(), Credits::new());
}

#[test]
fn a_hash_that_changes_its_content_is_held_once() {
    let mut fixture = plain();
    let (one, two) = (words(0, 40), words(100, 40));
    fixture.store_prompt(0, 100, &one);
    let of: Vec<u64> = (100..110).collect();
    let stats = fixture.store(0, store(&of, None, &two));
    assert_eq!(stats.conflicts, 10);
    assert_eq!(fixture.text_depth(0, &one), (0, 0));
    assert!(fixture.text_depth(0, &two).0 > 3);
    assert_eq!(fixture.index.stats().nodes, 11);
}

#[test]
fn two_hashes_of_one_content_both_hold_it() {
    let mut fixture = plain();
    let tokens = prompt();
    let first = fixture.store_prompt(0, 100, &tokens);
    let second = fixture.store_prompt(0, 200, &tokens);
    let whole = fixture.text_depth(0, &tokens);
    fixture.apply(0, vec![remove(&first)]);
    assert_eq!(fixture.text_depth(0, &tokens), whole);
    fixture.apply(0, vec![placeholder(&second[..3]), KvEvent::Cleared]);
    let on_cpu = text_hashes(&tokens[..12], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (0, on_cpu));
    fixture.apply(0, vec![remove_from(&second, "CPU")]);
    assert_eq!(fixture.index.stats().nodes, 0);
}

#[test]
fn blocks_of_one_token_work() {
    let mut fixture = plain();
    let tokens = prompt();
    let of: Vec<u64> = (1..=40).collect();
    fixture.store(0, store(&of, None, &tokens));
    let whole = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, whole);
}
