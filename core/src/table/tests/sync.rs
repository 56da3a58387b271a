//! A gateway that follows a store, whatever happens in between.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u8),
    Remove(u8),
    /// Apply changes, with this budget.
    Poll(usize),
    /// Go on loading, with this budget.
    Load(usize),
    /// Forget everything.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any::<u8>(), any::<u8>()).prop_map(|(anchor, body)| Step::Set(anchor, body)),
        4 => any::<u8>().prop_map(Step::Remove),
        2 => (0usize..600).prop_map(Step::Poll),
        2 => (0usize..2000).prop_map(Step::Load),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 0..300)
}

/// What a filter does, without the filter.
#[derive(Default)]
struct Gateway {
    generation: u32,
    pages: BTreeMap<u32, Vec<u8>>,
    /// All changes up to here are in the pages, once loaded.
    seq: u64,
    next_load: Option<u32>,
}

impl Gateway {
    fn restart(store: &TableStore) -> Self {
        let (generation, seq) = (store.generation(), store.seq());
        Self {
            generation,
            pages: BTreeMap::new(),
            seq,
            next_load: Some(0),
        }
    }

    fn put(&mut self, store: &TableStore, change: &PageChange, to_seq: u64) {
        let meta = PageMeta {
            epoch: EPOCH,
            generation: store.generation(),
            index: change.index,
            to_seq,
        };
        let old = self.pages.get(&change.index).map(Vec::as_slice);
        if let Some(page) = apply_change(old, meta, &change.content).expect("it applies") {
            self.pages.insert(change.index, page);
        }
    }

    fn load(&mut self, store: &TableStore, budget: usize) {
        if self.generation != store.generation() {
            *self = Self::restart(store);
        }
        if let Some(index) = self.next_load {
            let slice = store.load(index, budget);
            for page in &slice.pages {
                self.put(store, page, 0);
            }
            self.next_load = slice.next;
        }
    }

    /// `false`: nothing more to come.
    fn poll(&mut self, store: &TableStore, budget: usize) -> bool {
        if self.generation != store.generation() {
            *self = Self::restart(store);
        }
        if self.next_load.is_some() {
            self.load(store, budget);
            return true;
        }
        let Some(changes) = store.changes_since(self.seq, budget) else {
            *self = Self::restart(store);
            return true;
        };
        for page in &changes.pages {
            self.put(store, page, changes.to_seq);
            let PageContent::Delta(_) = page.content else {
                continue;
            };
            // With all changes in, a changed page is the store's own, bit by bit.
            if !changes.more {
                assert_eq!(self.pages[&page.index], store.page(page.index));
            }
        }
        self.seq = changes.to_seq;
        changes.more
    }
}

fn anchor(n: u8) -> BlockHash {
    next_hash(n.into(), 5)
}

proptest! {
    #[test]
    fn a_gateway_converges(steps in steps(), page_bytes in prop_oneof![Just(400usize), Just(100_000)]) {
        let mut store = TableStore::new(EPOCH, page_bytes);
        let mut model: BTreeMap<BlockHash, Vec<u8>> = BTreeMap::new();
        let mut gateway = Gateway::restart(&store);
        for step in steps {
            match step {
                Step::Set(n, fill) => {
                    let body = vec![fill; usize::from(fill)];
                    let new = model.insert(anchor(n), body.clone());
                    prop_assert_eq!(store.upsert(anchor(n), body.clone()), new != Some(body));
                }
                Step::Remove(n) => {
                    prop_assert_eq!(store.remove(anchor(n)), model.remove(&anchor(n)).is_some());
                }
                Step::Poll(budget) => {
                    gateway.poll(&store, budget);
                }
                Step::Load(budget) => gateway.load(&store, budget),
                Step::Restart => gateway = Gateway::restart(&store),
            }
        }
        prop_assert_eq!(store.len(), model.len());
        let mut answers = 0;
        while gateway.poll(&store, 700) {
            answers += 1;
            prop_assert!(answers < 10_000, "it comes to an end");
        }
        prop_assert_eq!(gateway.pages.len(), store.page_count() as usize);
        let mut bytes = 0;
        let mut groups = BTreeMap::new();
        for (index, page) in &gateway.pages {
            let page = PageRef::verify(page).expect("a good page");
            prop_assert_eq!(page.header().index, *index);
            for (anchor, body) in page.groups() {
                prop_assert_eq!(page_of(anchor, store.page_count()), *index);
                groups.insert(anchor, body.to_vec());
            }
            bytes += store.page(*index).len();
        }
        prop_assert_eq!(groups, model);
        prop_assert_eq!(bytes, store.bytes());
    }
}
