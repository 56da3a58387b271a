//! Blocks that grew by decoding: held back until judged. The stand-in for a tokenizer knows whole
//! words only, so that halves (tokens from 1000 on) are what it would not make.

use super::scenarios::prompt;
use super::*;
use crate::index::grown::GrownBlock;
use proptest::prelude::*;

fn checking() -> Fixture {
    Fixture::new(IndexConfig {
        check_grown: true,
        ..config()
    })
}

fn is_canonical(block: &GrownBlock) -> bool {
    block.tokens[block.context.min(block.until)..block.until]
        .iter()
        .all(|token| *token < 1000)
}

fn judge_all(fixture: &mut Fixture) -> usize {
    let blocks = fixture.index.take_grown(usize::MAX);
    for block in &blocks {
        fixture.index.judge_grown(block, is_canonical(block));
    }
    blocks.len()
}

/// Decodes: one block an event.
fn decode(fixture: &mut Fixture, first_hash: u64, parent: u64, tokens: &[u32]) {
    let mut parent = parent;
    for (hash, block) in (first_hash..).zip(tokens.chunks_exact(4)) {
        fixture.store(0, store(&[hash], Some(parent), block));
        parent = hash;
    }
}

#[test]
fn a_generated_block_claims_once_it_is_judged() {
    let mut fixture = checking();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens[..20]);
    let of_prompt = fixture.text_depth(0, &tokens).0;
    assert_eq!(of_prompt, text_hashes(&tokens[..20], None, None).len());
    decode(&mut fixture, 105, 104, &tokens[20..]);
    assert_eq!(fixture.text_depth(0, &tokens).0, of_prompt);
    assert_eq!(fixture.index.stats().grown_waiting, 5);
    assert_eq!(judge_all(&mut fixture), 5);
    let whole = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, whole);
    // The next turn goes on below it.
    let longer = words(10, 60);
    fixture.store(0, store(&[110, 111, 112], Some(109), &longer[40..52]));
    let wanted = text_hashes(&longer[..52], None, None).len();
    assert_eq!(fixture.text_depth(0, &longer).0, wanted);
}

#[test]
fn other_tokens_than_the_tokenizers_end_what_is_claimed() {
    let mut fixture = checking();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens[..20]);
    // Word 30 in two halves.
    let mut generated: Vec<u32> = tokens[20..].to_vec();
    generated.splice(0..1, [1030, 2030]);
    generated.pop();
    decode(&mut fixture, 105, 104, &generated);
    judge_all(&mut fixture);
    let of_prompt = text_hashes(&tokens[..20], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, of_prompt);
    assert!(fixture.index.stats().grown_spoilt >= 1);
    // Not even where a later prefill names it, which then has these tokens, too.
    let run = [tokens[..20].to_vec(), generated.clone()].concat();
    fixture.store_prompt(0, 100, &run);
    assert_eq!(fixture.text_depth(0, &tokens).0, of_prompt);
    // The next turn has the tokenizer's tokens, and is held as such.
    let of: Vec<u64> = (200..205).collect();
    fixture.store(0, store(&of, Some(104), &tokens[20..]));
    let whole = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, whole);
}

#[test]
fn a_prefill_that_names_a_held_block_is_witness_enough() {
    let mut fixture = checking();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens[..20]);
    decode(&mut fixture, 105, 104, &tokens[20..24]);
    // Another replica got the same tokens as a prompt.
    fixture.store_prompt(1, 100, &tokens);
    let whole = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.text_depth(1, &tokens).0, whole);
    judge_all(&mut fixture);
    assert_eq!(fixture.text_depth(1, &tokens).0, whole);
}

#[test]
fn a_judgement_that_comes_too_late_is_no_harm() {
    let mut fixture = checking();
    let tokens = prompt();
    let of = fixture.store_prompt(0, 100, &tokens[..20]);
    decode(&mut fixture, 105, 104, &tokens[20..24]);
    let blocks = fixture.index.take_grown(9);
    fixture.apply(0, vec![remove(&[105]), remove(&of)]);
    fixture.store_prompt(0, 300, &words(500, 40));
    for block in &blocks {
        fixture.index.judge_grown(block, false);
        fixture.index.judge_grown(block, true);
    }
    let whole = text_hashes(&words(500, 40), None, None).len();
    assert_eq!(fixture.text_depth(0, &words(500, 40)).0, whole);
    assert_eq!(fixture.index.stats().grown_spoilt, 0);
}

#[test]
fn a_held_block_stays_held_over_a_restart() {
    let mut fixture = checking();
    let tokens = prompt();
    fixture.store_prompt(0, 100, &tokens[..20]);
    decode(&mut fixture, 105, 104, &tokens[20..]);
    let mut bytes = Vec::new();
    let name = |replica: ReplicaIndex| Some(replica.0.to_string());
    fixture.index.write_snapshot(&mut bytes, name).unwrap();
    let of_name = |name: &str| Some(r(name.parse().unwrap()));
    fixture.index.read_snapshot(&mut &*bytes, of_name).unwrap();
    let of_prompt = text_hashes(&tokens[..20], None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, of_prompt);
    fixture.store_prompt(0, 100, &tokens);
    let whole = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.text_depth(0, &tokens).0, whole);
}

#[test]
fn endless_generation_stays_within_the_limits() {
    let mut fixture = checking();
    for stream in 0..3_000_u64 {
        let mut parent = stream << 32;
        fixture.store(
            0,
            store(
                &[parent + 1, parent + 2],
                None,
                &words((stream % 900) as u32, 8),
            ),
        );
        parent += 2;
        for block in 0..4_u32 {
            fixture.store(0, store(&[parent + 1], Some(parent), &[2000 + block; 4]));
            parent += 1;
        }
        if stream % 100 == 99 {
            fixture.index.drop_replica(r(0));
        }
    }
    let stats = fixture.index.stats();
    assert_eq!(stats.grown_waiting, 1 << 12);
    assert!(stats.grown_unchecked > 4_000);
    assert!(fixture.index.grown.memory_bytes() < 16 << 20);
}

/// Tokens of one text that both have from the start.
fn common(one: &[u32], other: &[u32]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// A conversation: each answer is generated with some words in halves, each next prompt has the
    /// tokenizer's tokens for all that was said. Never more is claimed than the engine would find.
    #[test]
    fn what_is_claimed_is_what_the_next_turn_finds(
        turns in prop::collection::vec((1_usize..30, 0_usize..30, prop::collection::vec(prop::bool::weighted(0.05), 30)), 1..6)
    ) {
        let mut fixture = checking();
        // All prefixes of engine blocks that are stored, by tokens.
        let mut held: BTreeMap<Vec<u32>, u64> = BTreeMap::new();
        let mut said: Vec<u32> = Vec::new();
        let mut next = 0_u32;
        for (asked, answered, halves) in turns {
            said.extend((0..asked).map(|n| (next + n as u32) % 1000));
            next += asked as u32;
            // What the filter finds before the request, and what the engine does.
            judge_all(&mut fixture);
            let hit = held.keys().map(|prefix| common(prefix, &said)).max().unwrap_or(0) / 4 * 4;
            let hashes = text_hashes(&said, None, None);
            let depth = fixture.depth(0, &hashes).0;
            let credits = fixture.credits();
            let claimed = depth.checked_sub(1).map_or(0, |at| credits[&(hashes[at], r(0))].1) as usize;
            prop_assert!(claimed / 4 * 4 <= hit, "{claimed} {hit}");
            // Nothing is held back but what the halves spoil and what one block of ours rounds off.
            prop_assert!(claimed + 16 > hit.saturating_sub(8), "{claimed} {hit}");
            // The prefill: what is not there yet, in one event.
            let mut run = said.clone();
            let first = (4..=run.len()).step_by(4).find(|end| !held.contains_key(&run[..*end])).unwrap_or(usize::MAX);
            let whole = run.len() / 4 * 4;
            if first <= whole {
                let of: Vec<u64> = (first..=whole).step_by(4).map(|end| {
                    let hash = held.len() as u64 + 1_000;
                    held.insert(run[..end].to_vec(), hash);
                    hash
                }).collect();
                let parent = (first > 4).then(|| held[&run[..first - 4]]);
                fixture.store(0, store(&of, parent, &run[first - 4..whole]));
            }
            // The answer.
            for (n, halved) in (0..).zip(halves.into_iter().take(answered)) {
                let word = (next + n) % 1000;
                said.push(word);
                if halved {
                    run.extend([1000 + word, 2000 + word]);
                } else {
                    run.push(word);
                }
            }
            next += answered as u32;
            for end in (whole + 4..=run.len()).step_by(4) {
                if !held.contains_key(&run[..end]) {
                    let hash = held.len() as u64 + 1_000;
                    held.insert(run[..end].to_vec(), hash);
                    let parent = (end > 4).then(|| held[&run[..end - 4]]);
                    fixture.store(0, store(&[hash], parent, &run[end - 4..end]));
                }
            }
        }
    }
}
