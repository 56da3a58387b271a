//! Named cases: what a block is, and what may be claimed of it.

use super::scenarios::{plain, prompt};
use super::*;
use crate::events::ExtraKey;

#[test]
fn salts_and_adapters_are_worlds_of_their_own() {
    let mut fixture = plain();
    let tokens = prompt();
    let salted = |salt: &str| {
        let mut event = store(&[1, 2, 3, 4, 5], None, &tokens[..20]);
        event.extra_keys.as_mut().unwrap()[0] = Some(vec![ExtraKey::Text(salt.into())]);
        event
    };
    fixture.store(0, salted("a"));
    let mut child = store(&[6, 7, 8, 9, 10], Some(5), &tokens[20..]);
    child.extra_keys = Some(vec![None; 5]);
    fixture.store(0, child);
    let lora = Stored {
        lora_name: Some("a".into()),
        extra_keys: Some(vec![Some(vec![ExtraKey::Text("a".into())]); 5]),
        ..store(&[11, 12, 13, 14, 15], None, &tokens[..20])
    };
    fixture.store(1, lora);
    let sglang = Stored {
        cache_salt: Some("a".into()),
        extra_keys: None,
        ..store(&[21, 22, 23, 24, 25], None, &tokens[..20])
    };
    fixture.store(2, sglang);
    let depth = |fixture: &mut Fixture, replica, lora, salt| {
        fixture.depth(replica, &text_hashes(&tokens, lora, salt)).0
    };
    let whole = text_hashes(&tokens, None, None).len();
    let half = text_hashes(&tokens[..20], None, None).len();
    assert_eq!(depth(&mut fixture, 0, None, Some("a")), whole);
    assert_eq!(depth(&mut fixture, 1, Some("a"), None), half);
    assert_eq!(depth(&mut fixture, 2, None, Some("a")), half);
    for (replica, lora, salt) in [
        (0, None, None),
        (0, Some("a"), None),
        (0, None, Some("b")),
        (1, None, None),
        (1, None, Some("a")),
        (2, None, None),
    ] {
        assert_eq!(
            depth(&mut fixture, replica, lora, salt),
            0,
            "{replica} {lora:?} {salt:?}"
        );
    }
}

#[test]
fn an_adapter_known_by_number_alone_claims_nothing() {
    let mut fixture = plain();
    let event = Stored {
        lora_id: Some(1),
        extra_keys: None,
        ..store(&[1, 2, 3], None, &words(0, 12))
    };
    assert_eq!(fixture.store(0, event).stored, 3);
    assert_eq!(fixture.credits(), Credits::new());
}

#[test]
fn nothing_is_claimed_at_or_after_an_image_whose_tokens_do_not_match_the_text() {
    let mut fixture = plain();
    let tokens = prompt();
    let mut event = store(&(100..110).collect::<Vec<_>>(), None, &tokens);
    let image = |name: &str| {
        Some(vec![ExtraKey::Media {
            identifier: name.into(),
            offset: 1,
        }])
    };
    event.extra_keys.as_mut().unwrap()[5] = image("cat");
    fixture.store(0, event.clone());
    let before = text_hashes(&tokens[..20], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (before, before));
    // Another image under the same tokens is another block.
    let nodes = fixture.index.stats().nodes;
    event.extra_keys.as_mut().unwrap()[5] = image("dog");
    event.hashes = hashes(&(200..210).collect::<Vec<_>>());
    fixture.store(1, event);
    assert_eq!(fixture.index.stats().nodes, nodes + 5);
}

#[test]
fn a_token_without_bytes_ends_what_can_be_claimed() {
    let mut fixture = plain();
    let mut tokens = prompt();
    tokens[21] = 5000;
    fixture.store_prompt(0, 100, &tokens);
    let known = text_hashes(&tokens[..20], None, None);
    assert_eq!(fixture.depth(0, &known).0, known.len());
    assert_eq!(fixture.credits().len(), known.len());
}

#[test]
fn sparse_stores_and_other_groups_are_not_credited() {
    let mut fixture = plain();
    let tokens = prompt();
    let group = |mut event: Stored, group, kind: &'static str| {
        event.group = Some(group);
        event.kind = Some(kind.into());
        event
    };
    let mut sparse = group(store(&[1, 2], None, &tokens[..32]), 0, "sliding_window");
    sparse.block_size = 4;
    assert_eq!(fixture.store(0, sparse).other_group, 2);
    let dense = group(store(&[1, 2], None, &tokens[..8]), 0, "sliding_window");
    assert_eq!(fixture.store(0, dense).other_group, 2);
    assert_eq!(fixture.credits(), Credits::new());
    let of: Vec<u64> = (1..11).collect();
    fixture.store(0, group(store(&of, None, &tokens), 1, "full_attention"));
    let whole = fixture.text_depth(0, &tokens);
    assert!(whole.0 > 3);
    let other = KvEvent::Removed(Removed {
        hashes: hashes(&of),
        medium: None,
        group: Some(0),
    });
    assert_eq!(fixture.apply(0, vec![other]).other_group, 10);
    assert_eq!(fixture.text_depth(0, &tokens), whole);
}

#[test]
fn a_group_that_turns_out_sparse_loses_its_credit() {
    let mut fixture = plain();
    let tokens = prompt();
    let mut event = store(&(1..11).collect::<Vec<_>>(), None, &tokens);
    event.group = Some(0);
    fixture.store(0, event);
    assert!(fixture.text_depth(0, &tokens).0 > 3);
    let mut sparse = store(&[50], None, &tokens);
    (sparse.group, sparse.block_size) = (Some(0), 4);
    assert_eq!(fixture.store(0, sparse).demoted, 1);
    assert_eq!(fixture.credits(), Credits::new());
}

#[test]
fn other_tokens_of_the_same_text_hold_the_same_blocks_for_the_smaller_count() {
    let mut fixture = plain();
    let tokens = prompt();
    let mut split: Vec<u32> = tokens.iter().flat_map(|n| [n + 1000, n + 2000]).collect();
    split.splice(0..2, [tokens[0]]);
    split.push(3);
    fixture.store_prompt(0, 100, &split);
    let wanted = text_hashes(&tokens, None, None);
    let alone = fixture.credits()[&(wanted[2], r(0))].1;
    let of = fixture.store_prompt(1, 100, &tokens);
    let credits = fixture.credits();
    let both = credits[&(wanted[2], r(0))].1;
    assert!(both < alone);
    assert_eq!(credits[&(wanted[2], r(1))].1, both);
    fixture.apply(1, vec![remove(&of)]);
    assert_eq!(fixture.credits()[&(wanted[2], r(0))].1, alone);
}

#[test]
fn lookahead_costs_its_tokens() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens);
    let hash = text_hashes(&tokens, None, None)[1];
    let without = fixture.credits()[&(hash, r(0))].1;
    fixture.store(
        1,
        Stored {
            lookahead: 1,
            ..store(&(1..11).collect::<Vec<_>>(), None, &words(10, 40))
        },
    );
    assert_eq!(
        without,
        fixture.credits()[&(hash, r(1))].1,
        "the nodes were there already"
    );
    let mut fixture = plain();
    fixture.store(
        1,
        Stored {
            lookahead: 1,
            ..store(&(1..11).collect::<Vec<_>>(), None, &tokens)
        },
    );
    assert_eq!(without - 1, fixture.credits()[&(hash, r(1))].1);
}

#[test]
fn token_ids_are_emitted_from_the_next_stores_on() {
    let mut fixture = plain();
    let tokens: Vec<u32> = (0..200).map(|n| n % 150).collect();
    let ids = hash_ids(
        namespace_seed(Family::TokenIds, None, None),
        &tokens,
        usize::MAX,
    );
    fixture.store_prompt(0, 100, &tokens);
    assert_eq!(fixture.depth(0, &ids), (0, 0));
    fixture.index.set_token_ids(true);
    fixture.store(0, store(&[900], Some(149), &words(0, 4)));
    assert_eq!(fixture.depth(0, &ids), (0, 0));
    fixture.store_prompt(1, 100, &tokens);
    // What one replica told is true of all that hold it.
    assert_eq!(fixture.depth(0, &ids), (3, 3));
    let credits = fixture.credits();
    assert_eq!(fixture.depth(1, &ids), (3, 3));
    let counts: Vec<u32> = ids.iter().map(|hash| credits[&(*hash, r(0))].1).collect();
    assert_eq!(counts, [64, 128, 192]);
    assert!(fixture.text_depth(0, &tokens).0 > 10);
}

#[test]
fn what_may_be_salted_claims_nothing_where_salts_are_not_told_and_matter() {
    let tokens = prompt();
    let old = Stored {
        extra_keys: None,
        ..store(&[1, 2, 3, 4, 5], None, &tokens[..20])
    };
    let whole = text_hashes(&tokens[..20], None, None).len();
    let mut trusting = plain();
    trusting.store(0, old.clone());
    assert_eq!(trusting.text_depth(0, &tokens).0, whole);
    let mut fixture = Fixture::new(IndexConfig {
        untold_salts: true,
        ..config()
    });
    fixture.store(0, old.clone());
    let next = Stored {
        extra_keys: None,
        ..store(&[6], Some(5), &tokens[20..24])
    };
    fixture.store(0, next);
    assert_eq!(fixture.credits(), Credits::new());
    // An engine that tells is believed, whatever others did.
    fixture.store(1, store(&[1, 2, 3, 4, 5], None, &tokens[..20]));
    assert_eq!(fixture.text_depth(1, &tokens).0, whole);
    assert_eq!(fixture.text_depth(0, &tokens).0, 0);
    let sglang = Stored {
        cache_salt: Some("a".into()),
        ..old
    };
    fixture.store(2, sglang);
    let salted = text_hashes(&tokens[..20], None, Some("a"));
    assert_eq!(fixture.depth(2, &salted).0, whole);
}

#[test]
fn a_dropped_block_costs_its_tokens_unless_lookahead_is_told() {
    let tokens = prompt();
    let of: Vec<u64> = (1..11).collect();
    let counted = |eagle_drops_block, lookahead| {
        let mut fixture = Fixture::new(IndexConfig {
            eagle_drops_block,
            ..config()
        });
        let event = Stored {
            lookahead,
            ..store(&of, None, &tokens)
        };
        fixture.store(0, event);
        let hash = text_hashes(&tokens, None, None)[2];
        fixture.credits()[&(hash, r(0))].1
    };
    let whole = counted(false, 0);
    assert_eq!(counted(true, 0), whole - 4);
    assert_eq!(counted(true, 2), whole - 2);
}

#[test]
fn a_part_of_a_block_gives_way_to_the_whole() {
    // vLLM from 0.24 on, Mamba in align mode: entries that end within a block of the group.
    let mut fixture = plain();
    let tokens = words(10, 64);
    let of_group = |mut event: Stored| {
        event.group = Some(1);
        event.kind = Some("full_attention".into());
        event
    };
    fixture.store(0, of_group(store(&[1], None, &tokens[..16])));
    fixture.store(0, of_group(store(&[2], Some(1), &tokens[16..20])));
    let part = text_hashes(&tokens[..20], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, part);
    // Another one, whose parent was never announced.
    let stats = fixture.store(0, of_group(store(&[4], Some(3), &tokens[24..28])));
    assert_eq!(stats.orphans, 1);
    assert_eq!(fixture.text_depth(0, &tokens).0, part);
    fixture.apply(0, vec![remove(&[2]), remove(&[4])]);
    let first = text_hashes(&tokens[..16], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, first);
    fixture.store(0, of_group(store(&[5], Some(1), &tokens[16..32])));
    let whole = text_hashes(&tokens[..32], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, whole);
    assert_eq!(fixture.index.stats().pending, 0);
}

#[test]
fn groups_of_other_kinds_neither_add_nor_take_credit() {
    let mut fixture = plain();
    let tokens = prompt();
    let of: Vec<u64> = (1..11).collect();
    let of_kind = |group, kind: &'static str, of: &[u64], block_size| {
        let mut event = store(of, None, &tokens);
        event.group = Some(group);
        event.kind = Some(kind.into());
        event.block_size = block_size;
        KvEvent::Stored(event)
    };
    // The same hashes in every group; windows and checkpoints are sparse; the order is any.
    let events = vec![
        of_kind(0, "mamba", &of[9..], 4),
        of_kind(1, "sliding_window", &of[7..], 4),
        of_kind(2, "full_attention", &of, 4),
        of_kind(3, "chunked_local_attention", &of[8..], 4),
        of_kind(4, "cross_attention", &of[..5], 8),
    ];
    fixture.apply(0, events);
    let whole = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (whole, whole));
    let gone = |group| {
        KvEvent::Removed(Removed {
            hashes: hashes(&of),
            medium: Some("GPU".into()),
            group: Some(group),
        })
    };
    fixture.apply(0, vec![gone(0), gone(1), gone(3), gone(4), gone(9)]);
    assert_eq!(fixture.text_depth(0, &tokens), (whole, whole));
    fixture.apply(0, vec![gone(2)]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, 0));
}

#[test]
fn describing_offload_stores_and_their_repeats_are_counted() {
    let mut fixture = plain();
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens);
    let whole = text_hashes(&tokens, None, None).len();
    // `self_describing_kv_events`: tokens, but no extra keys; overlapping chunks repeat hashes.
    let chunk = |from: usize, to: usize| {
        let parent = (from > 0).then(|| of[from - 1]);
        KvEvent::Stored(Stored {
            medium: Some("CPU".into()),
            extra_keys: None,
            ..store(&of[from..to], parent, &tokens[from * 4..to * 4])
        })
    };
    fixture.apply(0, vec![chunk(0, 6), chunk(4, 10)]);
    fixture.apply(0, vec![remove(&of)]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, whole));
    fixture.apply(0, vec![remove_from(&of[4..6], "CPU")]);
    assert_eq!(fixture.text_depth(0, &tokens), (0, whole));
    fixture.apply(0, vec![remove_from(&of[4..6], "CPU")]);
    let head = text_hashes(&tokens[..16], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens), (0, head));
}
