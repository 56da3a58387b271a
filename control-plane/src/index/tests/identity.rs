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
