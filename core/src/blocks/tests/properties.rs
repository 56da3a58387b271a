//! The cutter and the hash against a naive model, over random prompts and slices.

use proptest::prelude::*;

use super::*;

/// The cut rule once more, as plainly as it can be said.
fn naive_cuts(prompt: &[u8]) -> Vec<(usize, bool)> {
    let mut cuts = Vec::new();
    let mut start = 0;
    for at in 1..prompt.len() {
        let (last, next, len) = (prompt[at - 1], prompt[at], at - start);
        let soft =
            len >= TARGET_BYTES && next == b' ' && (0x21..0x7f).contains(&last) && last != b'>';
        let hard = len >= HARD_CAP_BYTES && (next & 0xc0 != 0x80 || len == MAX_BLOCK_BYTES);
        if soft || hard {
            cuts.push((at, !soft));
            start = at;
        }
    }
    cuts
}

/// Prompts with all that the cut rule looks at: words, `>`, long runs, wide characters, any bytes.
fn prompts() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[a-z]{1,9} ".prop_map(String::into_bytes),
        1 => "[a-z>]{1,9}> ".prop_map(String::into_bytes),
        1 => "[a-zA-Z0-9+/]{50,400}".prop_map(String::into_bytes),
        1 => "[あ-ん🦀é]{1,150}".prop_map(String::into_bytes),
        1 => " {1,300}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 1..100),
        1 => proptest::collection::vec(0x80u8..0xc0, 1..400),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn slices() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![1usize..20, 1usize..400], 1..50)
}

proptest! {
    #[test]
    fn cuts_are_the_naive_ones(prompt in prompts()) {
        prop_assert_eq!(cuts(&prompt), naive_cuts(&prompt));
    }

    /// Also through stored states, as the index does it.
    #[test]
    fn any_split_gives_the_same_blocks(prompt in prompts(), sizes in slices()) {
        let mut chain = TextChain::new(SEED);
        let mut seen = Vec::new();
        let mut start = 0;
        for size in sizes.iter().cycle() {
            let end = (start + size).min(prompt.len());
            chain.feed(&prompt[start..end], |b| seen.push((start + b.end, b.hard_cut, b.hash)));
            let stored = chain.to_bytes();
            prop_assert_eq!(TextChain::from_bytes(&stored), chain);
            chain = TextChain::from_bytes(&stored);
            start = end;
            if start == prompt.len() {
                break;
            }
        }
        prop_assert_eq!(seen, blocks(&prompt));
    }

    /// Equal hashes up to the first block that covers a change, other ones from there on.
    #[test]
    fn covered_bytes_matter_and_no_others(
        prompt in prompts(), at in any::<prop::sample::Index>(), flip in 1u8..=255
    ) {
        prop_assume!(!prompt.is_empty());
        let at = at.index(prompt.len());
        let mut other = prompt.clone();
        other[at] ^= flip;
        let (was, seen) = (blocks(&prompt), blocks(&other));
        // The byte after a block decides where it ends.
        let untouched = was.iter().take_while(|block| block.0 < at).count();
        prop_assert_eq!(&was[..untouched], &seen[..untouched]);
        let covered = was.iter().take_while(|block| block.0 <= at).count();
        for block in was.iter().skip(covered) {
            prop_assert!(seen.iter().all(|other| other.2 != block.2));
        }
    }

    #[test]
    fn order_matters(words in proptest::collection::vec(any::<u64>(), 33), a in 0usize..32, b in 0usize..32) {
        prop_assume!(words[a] != words[b]);
        let bytes = |words: &[u64]| -> Vec<u8> {
            let mut bytes: Vec<u8> =
                words.iter().flat_map(|w| format!("{w:016x}").into_bytes()).collect();
            bytes.truncate(256);
            bytes.push(b' ');
            bytes
        };
        let mut swapped = words.clone();
        swapped.swap(a, b);
        let (one, other) = (bytes(&words), bytes(&swapped));
        prop_assume!(one != other);
        prop_assert_ne!(hash_text(SEED, &one, 1), hash_text(SEED, &other, 1));
    }

    /// A common prefix of blocks has common hashes, whatever follows; another seed has none.
    #[test]
    fn a_shared_prefix_shares_hashes(prompt in prompts(), more in prompts(), other_seed in any::<u64>()) {
        prop_assume!(other_seed != SEED.0);
        let longer = [prompt.clone(), more].concat();
        let (was, seen) = (blocks(&prompt), blocks(&longer));
        prop_assert_eq!(&was[..], &seen[..was.len()]);
        let elsewhere = hash_text(Seed(other_seed), &prompt, usize::MAX);
        prop_assert!(elsewhere.iter().zip(&was).all(|(a, b)| *a != b.2));
    }

    #[test]
    fn ids_match_a_naive_model(ids in proptest::collection::vec(any::<u32>(), 0..400), cut in 0usize..400) {
        let cut = cut.min(ids.len());
        let mut chain = IdChain::new(SEED);
        let mut seen = Vec::new();
        chain.feed(&ids[..cut], |block| seen.push((block.end, block.hash)));
        chain = IdChain::from_bytes(&chain.to_bytes());
        chain.feed(&ids[cut..], |block| seen.push((cut + block.end, block.hash)));
        let expected: Vec<usize> = (1..=ids.len() / IDS_PER_BLOCK).map(|n| n * IDS_PER_BLOCK).collect();
        prop_assert_eq!(seen.iter().map(|s| s.0).collect::<Vec<_>>(), expected);
        let hashes: Vec<BlockHash> = seen.iter().map(|s| s.1).collect();
        prop_assert_eq!(hash_ids(SEED, &ids, usize::MAX), hashes);
    }
}
