//! Pages, splits and the store, case by case.

// Plain tests natively and under WASI; this where there is no test harness.
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::super::page::first_anchor;
use super::*;

fn body(n: u8) -> Vec<u8> {
    vec![n; 10 + usize::from(n)]
}

fn anchor(n: u64) -> BlockHash {
    next_hash(n, 3)
}

#[test]
fn pages_divide_the_anchors() {
    for count in [1, 2, 3, 16, 1000, 1 << 20] {
        assert_eq!(page_of(BlockHash(0), count), 0);
        assert_eq!(page_of(BlockHash(u64::MAX), count), count - 1);
        for index in [0, 1 % count, count / 3, count / 2, count - 1] {
            let first = first_anchor(index, count).expect("a page");
            assert_eq!(page_of(BlockHash(first), count), index);
            if index > 0 {
                assert_eq!(page_of(BlockHash(first - 1), count), index - 1);
            }
        }
        assert_eq!(first_anchor(count, count), None);
    }
}

#[test]
fn a_page_has_what_was_put_in() {
    let mut store = TableStore::with_pages(EPOCH, 1 << 20, 4);
    for n in 0..100u8 {
        assert!(store.upsert(anchor(n.into()), body(n)));
        assert!(!store.upsert(anchor(n.into()), body(n)), "nothing new");
    }
    assert!(store.remove(anchor(50)));
    assert!(!store.remove(anchor(50)));
    assert!(!store.remove(anchor(500)));
    assert_eq!((store.len(), store.seq(), store.generation()), (99, 101, 1));
    let pages: Vec<Vec<u8>> = (0..4).map(|index| store.page(index)).collect();
    assert_eq!(pages.iter().map(Vec::len).sum::<usize>(), store.bytes());
    for n in 0..100u8 {
        let index = page_of(anchor(n.into()), 4);
        let page = PageRef::verify(&pages[index as usize]).expect("a good page");
        assert_eq!(
            page.header(),
            PageHeader {
                epoch: EPOCH,
                generation: 1,
                index,
                seq: 101
            }
        );
        let expected = (n != 50).then(|| body(n));
        assert_eq!(page.find(anchor(n.into())), expected.as_deref());
        assert_eq!(store.get(anchor(n.into())), expected.as_deref());
    }
}

#[test]
fn the_table_grows_by_doubling_and_old_readers_reload() {
    let mut store = TableStore::new(EPOCH, 500);
    let mut generation = store.generation();
    for n in 0..1000u64 {
        let (pages, seq) = (store.page_count(), store.seq());
        store.upsert(anchor(n), body(100));
        if store.generation() != generation {
            generation = store.generation();
            assert_eq!(store.page_count(), 2 * pages);
            assert_eq!(store.changes_since(seq, 1 << 20), None);
        }
        assert!(store.bytes() <= 500 * store.page_count() as usize);
        assert!(store.changes_since(store.seq(), 0).is_some());
    }
    assert_eq!(store.page_count(), 512);
    assert_eq!(
        store.changes_since(store.seq() + 1, 1 << 20),
        None,
        "from another life"
    );
}

#[test]
fn forgotten_removals_mean_a_reload() {
    let mut store = TableStore::with_pages(EPOCH, 1 << 30, 1);
    for n in 0..10_000u64 {
        store.upsert(anchor(n), vec![1]);
    }
    let start = store.seq();
    for n in 0..10_000u64 {
        store.remove(anchor(n));
    }
    assert!(store.is_empty());
    assert_eq!(store.changes_since(start, 1 << 20), None);
    let recent = store
        .changes_since(store.seq() - 1000, 1 << 20)
        .expect("the newest are kept");
    assert!(!recent.more);
    // Set again, a removed group is one change.
    store.upsert(anchor(9_999), vec![2]);
    let changes = store
        .changes_since(store.seq() - 2, 1 << 20)
        .expect("recent");
    let PageContent::Delta(groups) = &changes.pages[0].content else {
        panic!("a delta")
    };
    assert_eq!(
        groups[0],
        GroupChange {
            anchor: anchor(9_999),
            body: Some(vec![2])
        }
    );
}

#[test]
fn a_budget_cuts_and_goes_on() {
    let mut store = TableStore::with_pages(EPOCH, 1 << 30, 8);
    for n in 0..200u64 {
        store.upsert(anchor(n), body(100));
    }
    for budget in [0, 1, 126, 127, 1000, 5000] {
        let (mut seq, mut answers, mut groups) = (0, 0, 0);
        loop {
            let changes = store.changes_since(seq, budget).expect("in the log");
            assert!(changes.to_seq > seq || !changes.more, "it always goes on");
            for page in &changes.pages {
                let PageContent::Delta(delta) = &page.content else {
                    panic!("a delta")
                };
                assert!(
                    delta
                        .iter()
                        .all(|change| page_of(change.anchor, 8) == page.index)
                );
                groups += delta.len();
            }
            (seq, answers) = (changes.to_seq, answers + 1);
            if !changes.more {
                break;
            }
        }
        assert_eq!((seq, groups), (store.seq(), 200));
        assert_eq!(
            answers,
            200usize.div_ceil((budget / 126).max(1)),
            "budget {budget}"
        );
    }
}

#[test]
fn changes_go_only_where_they_belong() {
    let mut store = TableStore::with_pages(EPOCH, 1 << 30, 1);
    store.upsert(anchor(1), body(1));
    let old = store.page(0);
    store.upsert(anchor(2), body(2));
    let new = store.page(0);
    let meta = PageMeta {
        epoch: EPOCH,
        generation: 1,
        index: 0,
        to_seq: 2,
    };
    let delta = PageContent::Delta(vec![GroupChange {
        anchor: anchor(2),
        body: Some(body(2)),
    }]);
    let whole = PageContent::Whole(new.clone());

    assert_eq!(
        apply_change(Some(&old), meta, &delta),
        Ok(Some(new.clone()))
    );
    assert_eq!(apply_change(Some(&new), meta, &delta), Ok(None));
    assert_eq!(apply_change(None, meta, &delta), Err(ApplyError::NoBase));
    assert_eq!(
        apply_change(Some(&[]), meta, &delta),
        Err(ApplyError::NoBase)
    );
    for meta in [
        PageMeta {
            epoch: Epoch(8),
            ..meta
        },
        PageMeta {
            generation: 2,
            ..meta
        },
        PageMeta { index: 1, ..meta },
    ] {
        assert_eq!(
            apply_change(Some(&old), meta, &delta),
            Err(ApplyError::NoBase)
        );
        assert_eq!(
            apply_change(Some(&old), meta, &whole),
            Err(ApplyError::OtherPage)
        );
    }
    assert_eq!(apply_change(None, meta, &whole), Ok(Some(new.clone())));
    assert_eq!(
        apply_change(Some(&old), meta, &whole),
        Ok(Some(new.clone()))
    );
    assert_eq!(apply_change(Some(&new), meta, &whole), Ok(None));
    assert_eq!(
        apply_change(Some(&new), meta, &PageContent::Whole(old.clone())),
        Ok(None)
    );
    // What is here is of another life, or damaged: the whole page replaces it.
    let mut damaged = new.clone();
    damaged[50] ^= 1;
    assert_eq!(
        apply_change(Some(&damaged), meta, &whole),
        Ok(Some(new.clone()))
    );
    assert_eq!(
        apply_change(None, meta, &PageContent::Whole(damaged)),
        Err(ApplyError::Damaged(PageError::Checksum))
    );
}

#[test]
fn many_removals_are_sent_as_the_page_that_is_left() {
    let mut store = TableStore::with_pages(EPOCH, 1 << 30, 1);
    for n in 0..100u64 {
        store.upsert(anchor(n), body(1));
    }
    let (old, seq) = (store.page(0), store.seq());
    for n in 1..100u64 {
        store.remove(anchor(n));
    }
    let changes = store.changes_since(seq, 1 << 20).expect("in the log");
    assert_eq!(changes.pages[0].content, PageContent::Whole(store.page(0)));
    let meta = PageMeta {
        epoch: EPOCH,
        generation: 1,
        index: 0,
        to_seq: changes.to_seq,
    };
    let new = apply_change(Some(&old), meta, &changes.pages[0].content);
    assert_eq!(new, Ok(Some(store.page(0))));
}

#[test]
fn splits_are_as_deep_as_the_limit_allows() {
    assert_eq!(choose_split(&[1, 1, 1], 3), None);
    assert_eq!(choose_split(&[1, 1, 1], 2), Some(2));
    assert_eq!(choose_split(&[1, 1, 1], 0), Some(1));
    assert_eq!(choose_split(&[5], 3), None, "one block cannot be split");
    assert_eq!(choose_split(&[5, 1], 3), Some(1));
    assert_eq!(choose_split(&[1, 1, 1, 1, 1, 1, 1_000_000], 100), Some(6));
    assert_eq!(
        choose_split(&[1; 100], 31),
        Some(31),
        "what is past 32 does not count"
    );
    assert_eq!(choose_split(&[], 0), None);
}

#[test]
fn a_group_that_cannot_be_is_refused() {
    let hash = |n: u64| BlockHash(n);
    let holder = |gpu, any| Holder {
        replica: ReplicaIndex(1),
        gpu,
        any,
    };
    let run = RunSpec {
        start: 0,
        hashes: vec![hash(1), hash(2)],
        tokens: vec![64, 128],
        holders: vec![holder(1, 2)],
    };
    let child = RunSpec {
        start: 2,
        hashes: vec![hash(3)],
        tokens: vec![192],
        holders: vec![],
    };
    let good = GroupSpec {
        base_tokens: 0,
        split: None,
        runs: vec![run.clone(), child.clone()],
    };
    assert!(encode_group(&good).is_ok());
    let check = |change: &dyn Fn(&mut GroupSpec), error| {
        let mut spec = good.clone();
        change(&mut spec);
        assert_eq!(encode_group(&spec), Err(error));
    };
    check(&|spec| spec.runs.clear(), GroupError::Empty);
    check(&|spec| spec.runs[1].hashes.clear(), GroupError::Empty);
    check(
        &|spec| spec.runs[1].tokens.push(1),
        GroupError::TokenCount(1),
    );
    check(&|spec| spec.runs[0].start = 1, GroupError::Place(0));
    check(&|spec| spec.runs[1].start = 0, GroupError::Place(1));
    check(&|spec| spec.runs[1].start = 3, GroupError::Place(1));
    check(&|spec| spec.runs[1].start = 32, GroupError::Place(1));
    check(&|spec| spec.split = Some(2), GroupError::Place(1));
    check(&|spec| spec.split = Some(0), GroupError::Split);
    check(&|spec| spec.split = Some(32), GroupError::Split);
    check(
        &|spec| spec.runs[0].holders[0] = holder(2, 1),
        GroupError::Holder(0),
    );
    check(
        &|spec| spec.runs[0].holders[0] = holder(0, 0),
        GroupError::Holder(0),
    );
    check(
        &|spec| spec.runs[0].holders[0] = holder(1, 3),
        GroupError::Holder(0),
    );
    check(
        &|spec| spec.runs[0].holders.push(holder(1, 1)),
        GroupError::Holder(0),
    );
}

#[test]
fn token_counts_of_any_size_survive() {
    for tokens in [
        vec![64, 128, 192],
        vec![0, 0, 0],
        vec![1000, 996, 1247],
        vec![1000, 996, 1248],
        vec![70_000, 70_001],
        vec![5, 65_536, 131_067],
        vec![5, 65_536, 131_068],
        vec![5, 4, 3, 0],
        vec![u32::MAX, 0, u32::MAX],
    ] {
        for base_tokens in [0, 5, 100, u32::MAX] {
            let hashes: Vec<BlockHash> = (1..=tokens.len() as u64).map(BlockHash).collect();
            let run = RunSpec {
                start: 0,
                hashes,
                tokens: tokens.clone(),
                holders: vec![],
            };
            let spec = GroupSpec {
                base_tokens,
                split: None,
                runs: vec![run],
            };
            let body = encode_group(&spec).expect("a good group");
            assert_eq!(
                decode_group(BlockHash(1), &body),
                Ok(spec),
                "{tokens:?} {base_tokens}"
            );
        }
    }
}
