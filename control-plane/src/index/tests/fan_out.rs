//! One prompt with very many continuations, and very many prompts.

use super::*;
use prefix_picker_core::ids::Epoch;
use prefix_picker_core::table::{
    LookupLimits, PAGE_TARGET_BYTES, PageSource, TableShape, TableStore, encode_group, lookup,
};

/// The shared prompt, then a tail that is one of many.
fn continued(shared: u32, tail: u32) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..shared).map(|n| n * 7 % 1000).collect();
    tokens.extend([tail % 1000, tail / 1000 % 1000, tail / 1_000_000, 1]);
    tokens.extend((0..20).map(|n| (n * 3 + tail) % 1000));
    tokens
}

fn store_continued(fixture: &mut Fixture, replica: u16, shared: u32, tail: u32) {
    let tokens = continued(shared, tail);
    let blocks = u64::from(shared) / 4;
    let parent = (blocks > 0).then_some(blocks);
    if fixture.index.held_blocks(r(replica)) == 0 && blocks > 0 {
        let of: Vec<u64> = (1..=blocks).collect();
        fixture.store(replica, store(&of, None, &tokens[..shared as usize]));
    }
    let first = 1_000_000 + u64::from(tail) * 10;
    let of: Vec<u64> = (first..first + 6).collect();
    fixture.store(replica, store(&of, parent, &tokens[shared as usize..]));
}

struct Pages<'a>(&'a TableStore);

impl PageSource for Pages<'_> {
    fn page(&mut self, index: u32) -> Option<Vec<u8>> {
        Some(self.0.page(index))
    }
}

/// Puts the fixture's table into pages and looks prompts up there.
fn assert_lookups(fixture: &mut Fixture, prompts: impl Iterator<Item = Vec<u32>>, replicas: u16) {
    fixture.drain();
    let mut table = TableStore::new(Epoch(5), PAGE_TARGET_BYTES);
    for (anchor, spec) in &fixture.table {
        table.upsert(*anchor, encode_group(spec).unwrap());
    }
    let shape = TableShape {
        epoch: Epoch(5),
        generation: table.generation(),
        page_count: table.page_count(),
    };
    let credits = fixture.credits();
    for tokens in prompts {
        let hashes = text_hashes(&tokens, None, None);
        let limits = LookupLimits {
            max_reads: 40,
            refine: usize::from(replicas),
        };
        let found = lookup(&shape, &hashes, &mut Pages(&table), limits);
        for replica in 0..replicas {
            let any = hashes
                .iter()
                .take_while(|hash| credits.contains_key(&(**hash, r(replica))))
                .count();
            let matched = found
                .replicas
                .iter()
                .find(|found| found.replica == r(replica));
            assert_eq!(
                matched.map_or(0, |found| found.any_blocks as usize),
                any,
                "replica {replica}"
            );
            let tokens = if any == 0 {
                0
            } else {
                credits[&(hashes[any - 1], r(replica))].1
            };
            assert_eq!(matched.map_or(0, |found| found.any_tokens), tokens);
        }
    }
}

fn assert_groups_are_small(fixture: &Fixture) {
    for spec in fixture.table.values() {
        let blocks: usize = spec.runs.iter().map(|run| run.hashes.len()).sum();
        assert!(blocks <= groups::GROUP_BLOCKS_MAX as usize, "{blocks}");
    }
}

#[test]
fn a_popular_prompt_stays_cheap() {
    let mut fixture = Fixture::new(config());
    for tail in 0..5_000 {
        store_continued(&mut fixture, u16::try_from(tail % 3).unwrap(), 400, tail);
        let written = fixture.drain();
        // The first stores bring the prompt itself, and the cut of its last group.
        assert!(
            tail < 200 || written <= 4,
            "a store of two of our blocks wrote {written} groups"
        );
    }
    assert_groups_are_small(&fixture);
    assert_lookups(
        &mut fixture,
        (0..5_000).step_by(37).map(|tail| continued(400, tail)),
        3,
    );
    for replica in 0..2 {
        fixture.index.drop_replica(r(replica));
    }
    assert_lookups(
        &mut fixture,
        (0..5_000).step_by(37).map(|tail| continued(400, tail)),
        3,
    );
    fixture.index.drop_replica(r(2));
    fixture.drain();
    assert_eq!(fixture.table.len(), 0);
}

#[test]
fn distinct_first_blocks_have_groups_of_their_own() {
    let mut fixture = Fixture::new(config());
    for tail in 0..3_000 {
        store_continued(&mut fixture, 0, 0, tail);
        assert!(fixture.drain() <= 2);
    }
    assert_groups_are_small(&fixture);
    assert_lookups(
        &mut fixture,
        (0..3_000).step_by(29).map(|tail| continued(0, tail)),
        1,
    );
}

#[test]
fn a_group_that_has_shrunk_takes_its_parts_back() {
    let mut fixture = Fixture::new(config());
    // The fan-out comes within the first group.
    for tail in 0..400 {
        store_continued(&mut fixture, 0, 40, tail);
    }
    fixture.drain();
    let split = |fixture: &Fixture| {
        fixture
            .table
            .values()
            .filter(|spec| spec.split.is_some())
            .count()
    };
    assert!(split(&fixture) > 0);
    assert_groups_are_small(&fixture);
    let gone: Vec<u64> = (1..400_u64)
        .flat_map(|tail| (0..6).map(move |n| 1_000_000 + tail * 10 + n))
        .collect();
    fixture.apply(0, gone.iter().rev().map(|hash| remove(&[*hash])).collect());
    fixture.drain();
    assert_eq!((split(&fixture), fixture.table.len()), (0, 1));
    assert_lookups(&mut fixture, (0..3).map(|tail| continued(40, tail)), 1);
}

#[test]
fn a_long_prompt_is_fifty_groups() {
    let mut fixture = Fixture::new(config());
    let tokens: Vec<u32> = (0..12_000).map(|n| n * 31 % 997).collect();
    fixture.store_prompt(0, 1, &tokens);
    let blocks = text_hashes(&tokens, None, None).len();
    assert_eq!(fixture.drain(), blocks.div_ceil(32));
    fixture.store_prompt(1, 1, &tokens);
    assert_eq!(fixture.drain(), blocks.div_ceil(32));
    assert_lookups(&mut fixture, std::iter::once(tokens), 2);
}
