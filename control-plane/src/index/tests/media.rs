//! Media items: events as an engine sends them for prompts with items anywhere, and requests' text
//! with one placeholder for each.

use super::*;
use crate::events::ExtraKey;
use prefix_picker_core::blocks::{HARD_CUT_HOLDBACK_TOKENS, MediaKey, TextBlock, TextChain};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Piece {
    Words(Vec<u32>),
    Item {
        name: &'static str,
        placeholder: u32,
        tokens: usize,
    },
}

use Piece::{Item, Words};

/// An item's identifier, first token, and the token after its last.
type Place = (&'static str, usize, usize);

fn tokens_of(prompt: &[Piece]) -> (Vec<u32>, Vec<Place>) {
    let (mut tokens, mut places) = (Vec::new(), Vec::new());
    for piece in prompt {
        match piece {
            Words(words) => tokens.extend(words),
            Item {
                name,
                placeholder,
                tokens: count,
            } => {
                places.push((*name, tokens.len(), tokens.len() + count));
                tokens.extend(vec![*placeholder; *count]);
            }
        }
    }
    (tokens, places)
}

/// As vLLM's `_gen_mm_extra_hash_keys` (0.32, `v1/core/kv_cache_utils.py`) for one block.
fn keys_of(places: &[Place], start: usize, end: usize) -> Option<Vec<ExtraKey>> {
    let keys: Vec<ExtraKey> = places
        .iter()
        .filter(|(_, from, to)| *from < end && *to > start)
        .map(|(name, from, _)| ExtraKey::Media {
            identifier: (*name).into(),
            offset: *from as i64 - start as i64,
        })
        .collect();
    (!keys.is_empty()).then_some(keys)
}

/// What a gateway makes of the request's text.
fn request(prompt: &[Piece], salt: Option<&str>) -> Vec<TextBlock> {
    let mut chain = TextChain::new(namespace_seed(Family::Text, None, salt));
    let (mut blocks, mut at) = (Vec::new(), 0);
    for piece in prompt {
        let (bytes, key) = match piece {
            Words(words) => (text_of(words), None),
            Item {
                name, placeholder, ..
            } => (text_of(&[*placeholder]), MediaKey::of(name)),
        };
        let on_block = |block: TextBlock| {
            blocks.push(TextBlock {
                end: at + block.end,
                ..block
            });
        };
        match key {
            None => chain.feed(&bytes, on_block),
            Some(key) => chain.feed_media(key, &bytes, on_block),
        }
        at += bytes.len();
    }
    blocks
}

/// The prompt's beginning that has so many tokens.
fn first_tokens(prompt: &[Piece], mut left: usize) -> Vec<Piece> {
    let mut head = Vec::new();
    for piece in prompt {
        let taken = match piece {
            Words(words) => Words(words[..left.min(words.len())].to_vec()),
            Item {
                name,
                placeholder,
                tokens,
            } => Item {
                name,
                placeholder: *placeholder,
                tokens: left.min(*tokens),
            },
        };
        let count = tokens_of(std::slice::from_ref(&taken)).0.len();
        if count > 0 {
            head.push(taken);
        }
        left -= count;
    }
    head
}

/// Engine tokens that lie before a place in the text.
fn tokens_before(prompt: &[Piece], end: usize) -> u32 {
    let (mut bytes, mut tokens) = (0, 0);
    for piece in prompt {
        let (lengths, count): (Vec<usize>, u32) = match piece {
            Words(words) => (words.iter().map(|n| text_of(&[*n]).len()).collect(), 1),
            Item {
                placeholder,
                tokens,
                ..
            } => (vec![text_of(&[*placeholder]).len()], *tokens as u32),
        };
        for length in lengths {
            bytes += length;
            if bytes > end {
                return tokens;
            }
            tokens += count;
        }
    }
    tokens
}

/// Stores of the first `blocks` blocks, cut into runs of at most `run` blocks.
fn stores(
    prompt: &[Piece],
    salt: Option<&str>,
    block: usize,
    blocks: usize,
    run: usize,
) -> Vec<Stored> {
    let (tokens, places) = tokens_of(prompt);
    (0..blocks)
        .step_by(run)
        .map(|from| {
            let to = (from + run).min(blocks);
            let of: Vec<u64> = (from..to).map(|n| n as u64 + 100).collect();
            let parent = (from > 0).then(|| from as u64 + 99);
            let mut keys: Vec<_> = (from..to)
                .map(|n| keys_of(&places, n * block, (n + 1) * block))
                .collect();
            if let (0, Some(salt)) = (from, salt) {
                keys[0]
                    .get_or_insert_default()
                    .push(ExtraKey::Text(salt.into()));
            }
            Stored {
                extra_keys: Some(keys),
                ..store(&of, parent, &tokens[from * block..to * block])
            }
        })
        .collect()
}

fn hashes_of(blocks: &[TextBlock]) -> Vec<BlockHash> {
    blocks.iter().map(|block| block.hash).collect()
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let item = (0_usize..3, 0_u32..2, prop_oneof![1_usize..4, 1_usize..60]).prop_map(
        |(name, placeholder, tokens)| Item {
            name: ["cat", "dog", "sea"][name],
            placeholder: 3000 + placeholder,
            tokens,
        },
    );
    // Half words, too, so that cuts fall into what has no spaces.
    let words = prop::collection::vec(prop_oneof![4 => 0_u32..1000, 1 => 2000_u32..3000], 1..40);
    let piece = prop_oneof![2 => item, 3 => words.prop_map(Words)];
    prop::collection::vec(piece, 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_match_goes_exactly_as_far_as_the_engine_holds(
        prompt in pieces(), block in prop_oneof![1_usize..5, 5_usize..40], part in 0.0..1.0_f64,
        run in 1_usize..6, salted in any::<bool>(), late in any::<bool>(), other in any::<prop::sample::Index>(),
    ) {
        let salt = salted.then_some("salt");
        let blocks = ((tokens_of(&prompt).0.len() / block) as f64 * part).ceil() as usize;
        let mut events = stores(&prompt, salt, block, blocks, run);
        if late {
            // Each run before the one that leads to it.
            events.reverse();
        }
        let mut fixture = Fixture::new(IndexConfig { token_ids: true, ..config() });
        for event in events {
            fixture.store(0, event);
        }
        let wanted = request(&prompt, salt);
        let held = request(&first_tokens(&prompt, blocks * block), salt);
        prop_assert_eq!(&wanted[..held.len()], &held[..]);
        let texts = hashes_of(&wanted);
        prop_assert_eq!(fixture.depth(0, &texts), (held.len(), held.len()));
        let credits = fixture.credits();
        for found in &held {
            let whole = tokens_before(&prompt, found.end);
            let less = if found.hard_cut { HARD_CUT_HOLDBACK_TOKENS } else { 0 };
            prop_assert_eq!(credits[&(found.hash, r(0))].1, whole.saturating_sub(less), "{:?}", found);
        }
        // Another item in one place: nothing at or after it.
        let items: Vec<usize> = (0..prompt.len()).filter(|at| matches!(prompt[*at], Item { .. })).collect();
        if !items.is_empty() {
            let at = *other.get(&items);
            let mut changed = prompt.clone();
            if let Item { name, .. } = &mut changed[at] {
                *name = "another";
            }
            let before = request(&prompt[..at], salt);
            let start: usize = prompt[..at].iter().map(|piece| match piece {
                Words(words) => text_of(words).len(),
                Item { placeholder, .. } => text_of(&[*placeholder]).len(),
            }).sum();
            let changed = request(&changed, salt);
            let same = changed.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
            prop_assert!(same >= before.len());
            prop_assert!(changed[..same].iter().all(|block| block.end <= start));
            prop_assert!(changed[same..].iter().all(|block| !texts.contains(&block.hash)));
            prop_assert_eq!(fixture.depth(0, &hashes_of(&changed)).1, same.min(held.len()));
        }
        // Prompts of ids match before the first item only.
        let (tokens, places) = tokens_of(&prompt);
        let ids = hash_ids(namespace_seed(Family::TokenIds, None, salt), &tokens, usize::MAX);
        let free = places.first().map_or(tokens.len(), |place| place.1) / block * block;
        prop_assert_eq!(fixture.depth(0, &ids).1, free.min(blocks * block) / 64);
        fixture.index.drop_replica(r(0));
        prop_assert_eq!(fixture.index.stats().nodes, 0);
    }
}

fn one_image() -> Vec<Piece> {
    let cat = Item {
        name: "cat",
        placeholder: 3000,
        tokens: 50,
    };
    vec![Words(words(10, 21)), cat, Words(words(40, 60))]
}

#[test]
fn a_snapshot_in_the_middle_of_an_item_loses_nothing() {
    let prompt = one_image();
    // Blocks of 8: the third is in the middle of the item.
    let events = stores(&prompt, None, 8, 16, 4);
    let mut fixture = Fixture::new(config());
    fixture.store(0, events[0].clone());
    let mut bytes = Vec::new();
    let name = |replica: ReplicaIndex| Some(replica.0.to_string());
    fixture.index.write_snapshot(&mut bytes, name).unwrap();
    let mut loaded = Fixture::new(config());
    let of_name = |name: &str| Some(r(name.parse().unwrap()));
    loaded.index.read_snapshot(&mut &*bytes, of_name).unwrap();
    for event in events.into_iter().skip(1) {
        loaded.store(0, event);
    }
    let held = request(&first_tokens(&prompt, 128), None);
    let wanted = hashes_of(&request(&prompt, None));
    assert!(held.len() > 6);
    assert_eq!(loaded.depth(0, &wanted).0, held.len());
}

#[test]
fn an_item_whose_place_is_not_told_claims_nothing_at_or_after_it() {
    // vLLM 0.17 and 0.18.
    let prompt = one_image();
    let mut fixture = Fixture::new(config());
    for mut event in stores(&prompt, None, 8, 16, 4) {
        for keys in event.extra_keys.as_mut().unwrap().iter_mut().flatten() {
            *keys = vec![ExtraKey::Text("cat".into())];
        }
        fixture.store(0, event);
    }
    let before = request(&prompt[..1], None).len();
    let wanted = hashes_of(&request(&prompt, None));
    let depth = fixture.depth(0, &wanted).0;
    // The item begins in the third block: what ends in the first two is known.
    assert_eq!(depth, text_hashes(&words(10, 16), None, None).len());
    assert!(depth <= before);
    assert_eq!(fixture.credits().len(), depth);
}

#[test]
fn a_bare_identifier_at_the_start_is_not_taken_for_a_salt_where_it_goes_on() {
    // vLLM 0.17 and 0.18, the prompt begins with the item: a salt is at the first block only.
    let tokens = [vec![3000; 16], words(0, 40)].concat();
    let of: Vec<u64> = (100..107).collect();
    let mut keys = vec![None; 7];
    keys[0] = Some(vec![ExtraKey::Text("cat".into())]);
    keys[1] = keys[0].clone();
    let mut fixture = Fixture::new(config());
    fixture.store(
        0,
        Stored {
            extra_keys: Some(keys),
            ..store(&of, None, &tokens)
        },
    );
    assert_eq!(fixture.credits(), Credits::new());
}

#[test]
fn an_item_with_other_tokens_between_claims_nothing_after_it() {
    // Pixtral breaks rows: the item goes on, but not with the same token.
    let (mut tokens, places) = tokens_of(&one_image());
    tokens[30] = 999;
    let keys = (0..16)
        .map(|n| keys_of(&places, n * 8, (n + 1) * 8))
        .collect();
    let of: Vec<u64> = (100..116).collect();
    let mut fixture = Fixture::new(config());
    let event = Stored {
        extra_keys: Some(keys),
        ..store(&of, None, &tokens[..128])
    };
    fixture.store(0, event);
    let before = request(&one_image()[..1], None).len();
    assert!(fixture.credits().len() <= before + 2);
    let wanted = hashes_of(&request(&one_image(), None));
    assert!(fixture.depth(0, &wanted).0 <= before);
    // From the first block that the item reaches with other tokens, nothing at all.
    let opaque = fixture.credits().values().all(|(_, tokens)| *tokens <= 40);
    assert!(opaque);
}
