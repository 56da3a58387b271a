//! A gateway in memory.

use std::collections::BTreeMap;

use prefix_picker_core::blocks::{Family, Namespace, hash_text, seed};
use prefix_picker_core::ids::BlockHash;
use prefix_picker_core::prompt::Profile;
use prefix_picker_core::sync::{Answer, Have, Head, Loading, MAJOR, Poll, TableUpdate};
use prefix_picker_core::table::{
    LookupLimits, PageChange, PageMeta, PageRef, PageSource, TableShape, apply_change, lookup,
};

use crate::engine::{Engine, has_news};

/// What a gateway keeps.
#[derive(Default)]
pub(crate) struct Gateway {
    pub(super) have: Option<Have>,
    pub(super) loading: Option<Loading>,
    pages: BTreeMap<u32, Vec<u8>>,
    fresh: BTreeMap<u32, Vec<u8>>,
    pub(crate) head: Option<Head>,
    profiles: BTreeMap<u64, Profile>,
}

impl Gateway {
    pub(crate) fn poll(&self) -> Poll {
        Poll {
            protocol: MAJOR,
            gateway: "test".into(),
            have: self.have,
            loading: self.loading,
            head_version: self.head.as_ref().map_or(0, |head| head.version),
            profiles: self.profiles.keys().copied().collect(),
            wait_ms: 0,
            token_id_pools: vec![],
            version: String::new(),
            feedback: vec![],
        }
    }

    /// Applies an answer. True: there is more to ask for at once.
    pub(crate) fn take(&mut self, answer: &Answer) -> bool {
        // What is decoded is what was meant.
        let answer = Answer::decode(&answer.encode().unwrap()).unwrap();
        if let Some(head) = &answer.head {
            self.head = Some(Head::decode(head).unwrap());
        }
        self.profiles.extend(answer.profiles.iter().map(|record| {
            let profile = serde_json::from_slice(&record.json).unwrap();
            (record.hash, profile)
        }));
        let table = PageMeta {
            epoch: answer.epoch,
            generation: answer.generation,
            index: 0,
            to_seq: 0,
        };
        match answer.table {
            TableUpdate::None => false,
            TableUpdate::Delta {
                from_seq,
                to_seq,
                more,
                pages,
            } => {
                self.take_delta(table, from_seq, to_seq, &pages);
                more
            }
            TableUpdate::Load {
                start_seq,
                next_page,
                pages,
            } => {
                self.take_pages(table, start_seq, next_page, &pages);
                true
            }
        }
    }

    fn take_delta(&mut self, table: PageMeta, from_seq: u64, to_seq: u64, pages: &[PageChange]) {
        let have = self.have.unwrap();
        assert_eq!(
            (have.epoch, have.generation, have.seq),
            (table.epoch.0, table.generation, from_seq)
        );
        for page in pages {
            let index = page.index;
            let old = self.pages.get(&index).map(Vec::as_slice);
            let meta = PageMeta {
                index,
                to_seq,
                ..table
            };
            if let Some(new) = apply_change(old, meta, &page.content).unwrap() {
                self.pages.insert(index, new);
            }
        }
        self.have = Some(Have {
            seq: to_seq,
            ..have
        });
    }

    fn take_pages(
        &mut self,
        table: PageMeta,
        start_seq: u64,
        next: Option<u32>,
        pages: &[PageChange],
    ) {
        let (epoch, generation) = (table.epoch.0, table.generation);
        let going_on = self
            .loading
            .is_some_and(|l| (l.epoch, l.generation) == (epoch, generation));
        if !going_on {
            self.fresh.clear();
        }
        for page in pages {
            let index = page.index;
            let meta = PageMeta {
                index,
                to_seq: start_seq,
                ..table
            };
            if let Some(new) = apply_change(None, meta, &page.content).unwrap() {
                self.fresh.insert(index, new);
            }
        }
        self.loading = next.map(|next_page| Loading {
            epoch,
            generation,
            start_seq,
            next_page,
        });
        if next.is_none() {
            self.pages = std::mem::take(&mut self.fresh);
            self.have = Some(Have {
                epoch,
                generation,
                seq: start_seq,
            });
        }
    }

    pub(super) fn groups(&self) -> Vec<(BlockHash, Vec<u8>)> {
        let pages = self
            .pages
            .values()
            .map(|page| PageRef::verify(page).unwrap());
        pages
            .flat_map(|page| {
                page.groups()
                    .map(|(anchor, body)| (anchor, body.to_vec()))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    /// The profile that a pool's requests are rendered by.
    pub(crate) fn profile(&self, pool: usize) -> &Profile {
        &self.profiles[&self.head.as_ref().unwrap().pools[pool].profile_hash]
    }

    /// How many of a text's blocks each replica of the first pool holds, as a filter would find out.
    pub(crate) fn matches(&self, text: &str) -> Vec<(u16, u32)> {
        struct Pages<'a>(&'a BTreeMap<u32, Vec<u8>>);
        impl PageSource for Pages<'_> {
            fn page(&mut self, index: u32) -> Option<Vec<u8>> {
                self.0.get(&index).cloned()
            }
        }
        let head = self.head.as_ref().unwrap();
        let pool = &head.pools[0];
        let namespace = Namespace {
            family: Family::Text,
            profile_hash: self.profile(0).seed_hash(),
            lora: None,
            salt: None,
        };
        let hashes = hash_text(seed(&pool.key, &namespace), text.as_bytes(), 1000);
        let shape = TableShape {
            epoch: head.epoch,
            generation: head.generation,
            page_count: head.page_count,
        };
        let limits = LookupLimits {
            max_reads: 40,
            refine: 8,
        };
        let found = lookup(&shape, &hashes, &mut Pages(&self.pages), limits);
        let mut found: Vec<_> = found
            .replicas
            .iter()
            .map(|m| (m.replica.0, m.gpu_blocks))
            .collect();
        found.sort_unstable();
        found
    }

    /// Polls until there is nothing new.
    pub(crate) fn settle(&mut self, engine: &Engine) {
        for _ in 0..100 {
            let answer = engine.answer(&self.poll());
            if !has_news(&answer) {
                return;
            }
            self.take(&answer);
        }
        panic!("never settles");
    }
}
