//! Tests of the cutter and the hash. All run natively and as wasm, but for the property tests.

#[cfg(not(target_arch = "wasm32"))]
mod properties;
mod vectors;

// Plain tests natively and under WASI; this where there is no test harness.
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// A block as a test sees it: end in the whole prompt, hard or not, hash.
type Seen = (usize, bool, BlockHash);

const SEED: Seed = Seed(0x0123_4567_89ab_cdef);

/// Fed in slices of `size` bytes.
fn blocks_in_slices(prompt: &[u8], size: usize) -> Vec<Seen> {
    let mut chain = TextChain::new(SEED);
    let mut seen = Vec::new();
    for (at, slice) in prompt.chunks(size).enumerate() {
        chain.feed(slice, |block| {
            assert!(
                block.end < slice.len(),
                "the byte after the block is in the slice"
            );
            seen.push((at * size + block.end, block.hard_cut, block.hash));
        });
    }
    seen
}

fn blocks(prompt: &[u8]) -> Vec<Seen> {
    blocks_in_slices(prompt, prompt.len().max(1))
}

fn cuts(prompt: &[u8]) -> Vec<(usize, bool)> {
    blocks(prompt)
        .iter()
        .map(|(end, hard, _)| (*end, *hard))
        .collect()
}

/// `len` bytes of English-like text.
pub(crate) fn prose(len: usize) -> Vec<u8> {
    let words = [
        "The", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog,", "twice.",
    ];
    let mut text = Vec::with_capacity(len + 8);
    let mut n = 1u64;
    while text.len() < len {
        n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.extend_from_slice(words[(n >> 33) as usize % words.len()].as_bytes());
        text.push(b' ');
    }
    text.truncate(len);
    text
}

#[test]
fn cuts_before_a_space_once_the_target_is_reached() {
    let mut prompt = vec![b'a'; 700];
    prompt[255] = b' '; // one byte early
    prompt[260] = b' ';
    prompt[260 + 255] = b' '; // again early, counted from the cut
    prompt[260 + 256] = b' ';
    // the byte before is a space: not there; so hard at 320
    assert_eq!(cuts(&prompt), [(260, false), (260 + 320, true)]);
    prompt[260 + 255] = b'a';
    assert_eq!(cuts(&prompt), [(260, false), (516, false)]);
}

#[test]
fn a_space_cuts_only_after_a_visible_ascii_byte_other_than_gt() {
    for last in 0..=255u8 {
        let mut prompt = vec![b'a'; 300];
        prompt[270] = last;
        prompt[271] = b' ';
        let safe = last.is_ascii() && !last.is_ascii_whitespace() && !last.is_ascii_control();
        let expected: &[_] = match last {
            b'>' => &[],
            _ if safe => &[(271, false)],
            // A space there is itself where the block ends.
            b' ' => &[(270, false)],
            _ => &[],
        };
        assert_eq!(cuts(&prompt), expected, "after byte {last:#x}");
    }
}

#[test]
fn a_hard_cut_waits_for_a_character_but_not_for_long() {
    // Three-byte characters: 320 is inside one.
    let prompt = "あ".repeat(300).into_bytes();
    assert_eq!(cuts(&prompt), [(321, true), (642, true)]);
    let invalid = vec![0x80u8; 1000];
    assert_eq!(cuts(&invalid), [(324, true), (648, true), (972, true)]);
    // A space where the hard cut would be is the better reason.
    let mut prompt = vec![b'a'; 400];
    prompt[320] = b' ';
    assert_eq!(cuts(&prompt), [(320, false)]);
}

#[test]
fn a_block_needs_the_byte_after_it() {
    let prompt = vec![b'a'; 320];
    assert_eq!(cuts(&prompt), []);
    let mut chain = TextChain::new(SEED);
    chain.feed(&prompt, |_| panic!("not finished"));
    assert_eq!(chain.pending_bytes(), 320);
    let mut seen = Vec::new();
    chain.feed(b"a", |block| seen.push((block.end, block.hard_cut)));
    assert_eq!(seen, [(0, true)]);
    assert_eq!(chain.pending_bytes(), 1);
    for prompt in [&b""[..], b" ", b"short"] {
        assert_eq!(cuts(prompt), []);
    }
}

#[test]
fn a_hard_cut_is_another_hash_than_a_soft_one_of_the_same_bytes() {
    let mut soft = vec![b'a'; 400];
    let hard = soft.clone();
    soft[320] = b' ';
    let (soft, hard) = (blocks(&soft), blocks(&hard));
    assert_eq!((soft[0].0, hard[0].0), (320, 320));
    assert_ne!(soft[0].2, hard[0].2);
}

#[test]
fn slices_of_any_size_give_the_same_blocks() {
    let mut prompt = prose(4000);
    prompt.extend("日本語テキスト、空白なし。".repeat(60).into_bytes());
    prompt.extend(prose(1000));
    let expected = blocks(&prompt);
    assert!(expected.len() > 20);
    for size in 1..700 {
        assert_eq!(
            blocks_in_slices(&prompt, size),
            expected,
            "slices of {size}"
        );
    }
}

#[test]
fn every_covered_bit_matters() {
    let prompt = prose(700);
    let expected = blocks(&prompt);
    let end = expected[1].0;
    for at in 0..end {
        for bit in 0..8 {
            let mut other = prompt.clone();
            other[at] ^= 1 << bit;
            let seen = blocks(&other);
            let first = usize::from(at >= expected[0].0);
            for (block, was) in seen.iter().zip(&expected).skip(first) {
                assert_ne!(block.2, was.2, "byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn the_top_bit_of_a_word_is_not_undone_by_the_next_word() {
    // A multiplication alone lets a flipped top bit through as it is, for every seed; a chain of
    // such steps could then be collided by flipping known bits of the next word.
    let mut prompt = vec![b'a'; 400];
    prompt[320] = b' ';
    let was = hash_text(SEED, &prompt, 1);
    prompt[7] ^= 0x80;
    for first in 0..64 {
        for second in first..64 {
            let mut other = prompt.clone();
            other[8 + first / 8] ^= 1 << (first % 8);
            other[8 + second / 8] ^= 1 << (second % 8);
            assert_ne!(hash_text(SEED, &other, 1), was, "bits {first} {second}");
        }
    }
}

#[test]
fn max_blocks_is_kept() {
    let prompt = prose(5000);
    let all: Vec<BlockHash> = blocks(&prompt).iter().map(|block| block.2).collect();
    for max in [0, 1, all.len() - 1, all.len(), all.len() + 1, usize::MAX] {
        assert_eq!(hash_text(SEED, &prompt, max), all[..max.min(all.len())]);
    }
    let ids: Vec<u32> = (0..1000).collect();
    for max in [0, 1, 14, 15, 16, usize::MAX] {
        assert_eq!(hash_ids(SEED, &ids, max).len(), max.min(15));
    }
}

#[test]
fn ids_in_slices_of_any_size_give_the_same_blocks() {
    let ids: Vec<u32> = (0..500u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    let expected = hash_ids(SEED, &ids, usize::MAX);
    assert_eq!(expected.len(), 7);
    for size in 1..200 {
        let mut chain = IdChain::new(SEED);
        let mut seen = Vec::new();
        for (at, slice) in ids.chunks(size).enumerate() {
            chain.feed(slice, |block| {
                assert_eq!((at * size + block.end) % IDS_PER_BLOCK, 0);
                seen.push(block.hash);
            });
            chain = IdChain::from_bytes(&chain.to_bytes());
        }
        assert_eq!(seen, expected, "slices of {size}");
    }
    for at in 0..IDS_PER_BLOCK {
        let mut other = ids.clone();
        other[at] ^= 1;
        let seen = hash_ids(SEED, &other, usize::MAX);
        assert!(seen.iter().zip(&expected).all(|(a, b)| a != b), "id {at}");
    }
}

#[test]
fn every_field_of_a_namespace_matters() {
    let key = PoolKey::derive(b"secret", "pool");
    let text = Namespace {
        family: Family::Text,
        profile_hash: 1,
        lora: None,
        salt: None,
    };
    let seeds = [
        seed(&key, &text),
        seed(&PoolKey::derive(b"secret2", "pool"), &text),
        seed(&PoolKey::derive(b"secret", "pool2"), &text),
        // Where one value ends and the next begins matters too.
        seed(&PoolKey::derive(b"secretp", "ool"), &text),
        seed(
            &key,
            &Namespace {
                family: Family::TokenIds,
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                family: Family::Predicted,
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                profile_hash: 2,
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                lora: Some(""),
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                salt: Some(""),
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                lora: Some("a"),
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                salt: Some("a"),
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                lora: Some("a"),
                salt: Some("b"),
                ..text
            },
        ),
        seed(
            &key,
            &Namespace {
                lora: Some("ab"),
                salt: Some(""),
                ..text
            },
        ),
    ];
    for (at, one) in seeds.iter().enumerate() {
        assert!(!seeds[..at].contains(one), "seed {at}");
    }
    assert_eq!(format!("{key:?}"), "PoolKey(..)", "a key is not for logs");
}

/// A prompt of one item after so many bytes of prose.
fn with_item(before: usize, name: &str) -> Vec<Seen> {
    let (head, tail) = (prose(before), prose(900));
    let mut chain = TextChain::new(SEED);
    let mut seen = Vec::new();
    let mut at = 0;
    chain.feed(&head, |b| seen.push((b.end, b.hard_cut, b.hash)));
    at += head.len();
    let key = MediaKey::of(name).unwrap();
    chain.feed_media(key, b"<image>", |b| {
        seen.push((at + b.end, b.hard_cut, b.hash))
    });
    at += 7;
    chain.feed(&tail, |b| seen.push((at + b.end, b.hard_cut, b.hash)));
    seen
}

#[test]
fn an_item_changes_every_block_that_does_not_end_before_it_and_no_cut() {
    for before in 0..700 {
        let plain = blocks(&[prose(before), b"<image>".to_vec(), prose(900)].concat());
        let (cat, dog) = (with_item(before, "cat"), with_item(before, "dog"));
        for ((plain, cat), dog) in plain.iter().zip(&cat).zip(&dog) {
            assert_eq!((plain.0, plain.1), (cat.0, cat.1));
            if plain.0 <= before {
                assert_eq!((plain, plain), (cat, dog), "{before}");
            } else {
                assert_ne!(plain.2, cat.2);
                assert_ne!(plain.2, dog.2);
                assert_ne!(cat.2, dog.2);
            }
        }
        assert_eq!(plain.len(), cat.len());
    }
}

#[test]
fn neither_text_nor_another_order_or_place_leads_to_the_same_state() {
    let key = |name| MediaKey::of(name).unwrap();
    let mut states = Vec::new();
    // Items without a placeholder's bytes: all states differ in the accumulator alone.
    for items in [
        &[][..],
        &["a"],
        &["b"],
        &["ab"],
        &["a", "b"],
        &["b", "a"],
        &["a", "a"],
        &[""],
    ] {
        for at in [0, 1, 7, 8, 9] {
            let text = b"aaaaaaaaaaaa";
            let mut chain = TextChain::new(SEED);
            chain.feed(&text[..at], |_| ());
            for item in items {
                chain.feed_media(key(item), b"", |_| ());
            }
            chain.feed(&text[at..], |_| ());
            assert!(
                items.is_empty() || !states.contains(&chain),
                "{items:?} {at}"
            );
            states.push(chain);
        }
    }
    assert_eq!(MediaKey::of(&"x".repeat(1025)), None);
    // What is kept beside a state does not touch it.
    let mut noted = states[3].to_bytes();
    noted[18..].fill(0xff);
    assert_eq!(TextChain::from_bytes(&noted), states[3]);
}

#[test]
fn adapters_salts_and_items_of_one_name_are_worlds_of_their_own() {
    let key = PoolKey::derive(b"secret", "pool");
    let names = [None, Some(""), Some("x"), Some("\u{1}x"), Some("xx")];
    let mut seeds = Vec::new();
    for family in [Family::Text, Family::TokenIds, Family::Predicted] {
        for profile_hash in [0, 1, 1 << 56] {
            for lora in names {
                for salt in names {
                    let namespace = Namespace {
                        family,
                        profile_hash,
                        lora,
                        salt,
                    };
                    seeds.push(seed(&key, &namespace).0);
                }
            }
        }
    }
    // A prompt that begins with an item of that name is none of them either.
    for name in names.into_iter().flatten() {
        let mut chain = TextChain::new(Seed(seeds[0]));
        chain.feed_media(MediaKey::of(name).unwrap(), b"", |_| ());
        seeds.push(u64::from_le_bytes(*chain.to_bytes().first_chunk().unwrap()));
    }
    let count = seeds.len();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), count);
}

#[test]
fn any_bytes_are_a_usable_state() {
    for fill in [0u8, 1, 0x7f, 0x80, 0xff] {
        let mut chain = TextChain::from_bytes(&[fill; 24]);
        chain.feed(&prose(2000), |_| ());
        let mut chain = IdChain::from_bytes(&[fill; 24]);
        chain.feed(&[7; 2000], |_| ());
    }
}
