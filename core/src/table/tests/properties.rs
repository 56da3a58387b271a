//! Look-ups and encodings against naive models.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn all_pages(store: &TableStore) -> Vec<Vec<u8>> {
    (0..store.page_count())
        .map(|index| store.page(index))
        .collect()
}

/// A prompt that shares its first blocks with an earlier one.
#[derive(Clone, Debug)]
struct Prompt {
    parent: prop::sample::Index,
    shared: usize,
    more: usize,
}

/// Who holds how much of which prompt.
#[derive(Clone, Debug)]
struct Holding {
    prompt: prop::sample::Index,
    replica: u16,
    /// Thousandths of the prompt.
    gpu: usize,
    any: usize,
}

fn prompts() -> impl Strategy<Value = Vec<Vec<BlockHash>>> {
    let prompt = (any::<prop::sample::Index>(), 0usize..200, 0usize..150).prop_map(
        |(parent, shared, more)| Prompt {
            parent,
            shared,
            more,
        },
    );
    proptest::collection::vec(prompt, 1..25).prop_map(|prompts| {
        let mut chains: Vec<Vec<BlockHash>> = Vec::new();
        for (at, prompt) in prompts.iter().enumerate() {
            let none = Vec::new();
            let parent = if at == 0 {
                &none
            } else {
                prompt.parent.get(&chains[..])
            };
            chains.push(branch(parent, prompt.shared, at as u64 + 1, prompt.more));
        }
        chains
    })
}

fn holdings() -> impl Strategy<Value = Vec<Holding>> {
    let replica = prop_oneof![4 => 0u16..6, 1 => 0u16..300, 1 => Just(u16::MAX)];
    let part = || prop_oneof![Just(1000usize), 0usize..1000, Just(0)];
    let holding = (any::<prop::sample::Index>(), replica, part(), part()).prop_map(
        |(prompt, replica, gpu, any)| Holding {
            prompt,
            replica,
            gpu,
            any: any.max(gpu),
        },
    );
    proptest::collection::vec(holding, 0..40)
}

fn trie(prompts: &[Vec<BlockHash>], holdings: &[Holding]) -> Trie {
    let mut trie = Trie::default();
    for holding in holdings {
        let prompt = holding.prompt.get(prompts);
        let part = |thousandths: usize| prompt.len() * thousandths / 1000;
        let (gpu, any) = (part(holding.gpu), part(holding.any));
        trie.hold(
            prompt,
            &tokens_of(prompt),
            ReplicaIndex(holding.replica),
            gpu,
            any,
        );
    }
    trie
}

fn by_replica(matches: &Matches) -> BTreeMap<u16, trie::Truth> {
    let found: BTreeMap<u16, trie::Truth> = matches
        .replicas
        .iter()
        .map(|found| {
            let truth = trie::Truth {
                gpu_blocks: found.gpu_blocks,
                gpu_tokens: found.gpu_tokens,
                any_blocks: found.any_blocks,
                any_tokens: found.any_tokens,
            };
            (found.replica.0, truth)
        })
        .collect();
    assert_eq!(found.len(), matches.replicas.len(), "no replica twice");
    found
}

fn truths(trie: &Trie, holdings: &[Holding], prompt: &[BlockHash]) -> BTreeMap<u16, trie::Truth> {
    holdings
        .iter()
        .map(|holding| {
            (
                holding.replica,
                trie.truth(prompt, ReplicaIndex(holding.replica)),
            )
        })
        .filter(|(_, truth)| truth.any_blocks > 0)
        .collect()
}

fn at_most(found: &trie::Truth, truth: Option<&trie::Truth>) -> bool {
    truth.is_some_and(|truth| {
        found.gpu_blocks <= truth.gpu_blocks
            && found.gpu_tokens <= truth.gpu_tokens
            && found.any_blocks <= truth.any_blocks
            && found.any_tokens <= truth.any_tokens
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_look_up_finds_the_truth(
        prompts in prompts(),
        holdings in holdings(),
        limit in prop_oneof![Just(60usize), Just(200), Just(1024)],
        page_bytes in prop_oneof![Just(300usize), Just(4096)],
    ) {
        let trie = trie(&prompts, &holdings);
        let store = filled(&trie, limit, TableStore::new(EPOCH, page_bytes));
        let pages = all_pages(&store);
        let look_up = |asked: &[BlockHash], limits| {
            lookup(&shape(&store), asked, &mut |index: u32| pages.get(index as usize).cloned(), limits)
        };
        for prompt in &prompts {
            // Also prompts that end early, and that go where nobody was.
            for cut in [prompt.len(), prompt.len() / 2, 33.min(prompt.len())] {
                for asked in [prompt[..cut].to_vec(), branch(prompt, cut, 999, 70)] {
                    let truth = truths(&trie, &holdings, &asked);
                    let all = by_replica(&look_up(&asked, UNLIMITED));
                    prop_assert_eq!(&all, &truth);

                    let few = look_up(&asked, LookupLimits::default());
                    prop_assert!(few.reads <= 40);
                    let found = by_replica(&few);
                    prop_assert_eq!(found.len(), truth.len());
                    for (replica, found) in &found {
                        prop_assert!(at_most(found, truth.get(replica)));
                    }
                    if few.reads < 40 {
                        let deepest = |all: &BTreeMap<u16, trie::Truth>| {
                            all.values().map(|t| t.any_blocks).max()
                        };
                        prop_assert_eq!(deepest(&found), deepest(&truth));
                    }
                    for max_reads in [0, 1, 2, 5] {
                        let limits = LookupLimits { max_reads, refine: 2 };
                        let few = look_up(&asked, limits);
                        prop_assert!(few.reads <= max_reads);
                        for (replica, found) in &by_replica(&few) {
                            prop_assert!(at_most(found, truth.get(replica)));
                        }
                    }
                }
            }
        }
    }

    /// Pages of an older and a newer table at once: no more than either says.
    #[test]
    fn mixed_pages_never_credit_more_than_either_table(
        prompts in prompts(),
        before in holdings(),
        after in holdings(),
        keep in 0usize..40,
        limits in (prop_oneof![Just(60usize), Just(1024)], prop_oneof![Just(60usize), Just(1024)]),
        which in any::<u64>(),
    ) {
        // Some holdings stay, others go, new ones come.
        let after = [&before[..keep.min(before.len())], &after[..]].concat();
        let (old, new) = (trie(&prompts, &before), trie(&prompts, &after));
        let empty = || TableStore::with_pages(EPOCH, 1 << 20, 64);
        let (old_store, new_store) =
            (filled(&old, limits.0, empty()), filled(&new, limits.1, empty()));
        let (old_pages, new_pages) = (all_pages(&old_store), all_pages(&new_store));
        for prompt in &prompts {
            let mut pages = |index: u32| {
                let pages = if which >> (index % 64) & 1 == 0 { &old_pages } else { &new_pages };
                pages.get(index as usize).cloned()
            };
            let found = lookup(&shape(&old_store), prompt, &mut pages, UNLIMITED);
            let (old, new) = (truths(&old, &before, prompt), truths(&new, &after, prompt));
            for (replica, found) in by_replica(&found) {
                let none = trie::Truth::default();
                let (old, new) = (
                    old.get(&replica).copied().unwrap_or(none),
                    new.get(&replica).copied().unwrap_or(none),
                );
                let either = trie::Truth {
                    gpu_blocks: old.gpu_blocks.max(new.gpu_blocks),
                    gpu_tokens: old.gpu_tokens.max(new.gpu_tokens),
                    any_blocks: old.any_blocks.max(new.any_blocks),
                    any_tokens: old.any_tokens.max(new.any_tokens),
                };
                prop_assert!(at_most(&found, Some(&either)), "{found:?} {either:?}");
            }
        }
    }
}

/// Any group that can be: runs where earlier ones end, any counts, any holders.
fn groups() -> impl Strategy<Value = GroupSpec> {
    let tokens = prop_oneof![4 => 0u32..250, 2 => 0u32..70_000, 1 => any::<u32>()];
    let run = (
        any::<prop::sample::Index>(),
        proptest::collection::vec((any::<u64>(), tokens), 1..=32),
        proptest::collection::btree_map(
            prop_oneof![0u16..10, 0u16..300, any::<u16>()],
            (0u8..=32, 1u8..=32),
            0..60,
        ),
    );
    let split = proptest::option::of(1u8..32);
    (
        prop_oneof![0u32..100_000, any::<u32>()],
        split,
        proptest::collection::vec(run, 1..12),
    )
        .prop_map(|(base_tokens, split, runs)| {
            let limit = usize::from(split.unwrap_or(32));
            let mut ends = vec![0usize];
            let mut spec = GroupSpec {
                base_tokens,
                split,
                runs: Vec::new(),
            };
            for (at, (below, blocks, holders)) in runs.into_iter().enumerate() {
                let start = if at == 0 { 0 } else { *below.get(&ends[1..]) };
                let len = blocks.len().min(limit - start);
                if len == 0 {
                    continue;
                }
                ends.push(start + len);
                let mut total = base_tokens;
                let holders = holders
                    .into_iter()
                    .map(|(replica, (gpu, any))| {
                        let any = any.min(len as u8);
                        Holder {
                            replica: ReplicaIndex(replica),
                            gpu: gpu.min(any),
                            any,
                        }
                    })
                    .collect();
                spec.runs.push(RunSpec {
                    start: start as u8,
                    hashes: blocks
                        .iter()
                        .take(len)
                        .map(|block| BlockHash(block.0))
                        .collect(),
                    tokens: blocks
                        .iter()
                        .take(len)
                        .map(|block| {
                            total = total.wrapping_add(block.1);
                            total
                        })
                        .collect(),
                    holders,
                });
            }
            spec
        })
}

/// What a reader can see of a group: low halves, in written order.
fn readable(spec: &GroupSpec) -> GroupSpec {
    let mut spec = spec.clone();
    let anchor = spec.runs[0].hashes[0];
    for hash in spec.runs.iter_mut().flat_map(|run| &mut run.hashes) {
        hash.0 &= 0xffff_ffff;
    }
    spec.runs[0].hashes[0] = anchor;
    let first = spec.runs.remove(0);
    spec.runs.sort_by_key(|run| (run.start, run.hashes[0]));
    spec.runs.insert(0, first);
    spec
}

proptest! {
    #[test]
    fn decoding_undoes_encoding(spec in groups()) {
        let body = encode_group(&spec).expect("a group that can be");
        let decoded = decode_group(spec.runs[0].hashes[0], &body);
        prop_assert_eq!(decoded.as_ref(), Ok(&readable(&spec)));
        // The written order is the canonical one.
        prop_assert_eq!(encode_group(&decoded.expect("just compared")), Ok(body));
    }

    #[test]
    fn any_bytes_are_harmless(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode_group(BlockHash(1), &bytes);
        let _ = PageRef::verify(&bytes);
        let chain = branch(&[], 0, 1, 40);
        let mut store = TableStore::with_pages(EPOCH, 1 << 20, 1);
        store.upsert(chain[0], bytes);
        look_up(&store, &chain, UNLIMITED);
    }

    #[test]
    fn any_damage_to_a_page_is_refused(
        bodies in proptest::collection::btree_map(any::<u64>(), proptest::collection::vec(any::<u8>(), 0..40), 0..20),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 1u8..=255), 1..4),
    ) {
        let mut store = TableStore::with_pages(EPOCH, 1 << 20, 1);
        for (anchor, body) in bodies {
            store.upsert(BlockHash(anchor), body);
        }
        let page = store.page(0);
        prop_assert!(PageRef::verify(&page).is_ok());
        let mut damaged = page.clone();
        for (at, flip) in damage {
            let at = at.index(page.len());
            damaged[at] ^= flip;
        }
        prop_assume!(damaged != page);
        prop_assert!(PageRef::verify(&damaged).is_err());
    }
}
