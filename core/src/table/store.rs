//! The control plane's side of the table: groups by anchor, a change log, pages on demand.
//!
//! Anchors ascend through the pages, so a page is a range of the sorted groups, and laying the
//! table out anew with twice the pages moves nothing.

use std::collections::{BTreeMap, btree_map::Entry};

use super::page::{
    PAGE_BYTES_PER_GROUP, PAGE_HEADER_BYTES, PageHeader, build_page, first_anchor, page_of,
};
use crate::ids::{BlockHash, Epoch};

/// Pages of a new table.
const INITIAL_PAGES: u32 = 16;

/// Never more pages than this, however large they grow.
const MAX_PAGES: u32 = 1 << 20;

/// Removals that the change log keeps at least; beyond, as many as an eighth of the groups.
const MIN_TOMBSTONES: usize = 4096;

/// What a change costs in an answer besides its body.
const CHANGE_BYTES: usize = 16;

/// The table of one epoch.
#[derive(Debug)]
pub struct TableStore {
    epoch: Epoch,
    page_target_bytes: usize,
    generation: u32,
    page_count: u32,
    seq: u64,
    /// The change log reaches back to here: whoever is older must reload.
    floor: u64,
    groups: BTreeMap<BlockHash, Slot>,
    /// Newest change of each anchor, by sequence number.
    log: BTreeMap<u64, BlockHash>,
    tombstones: usize,
    live_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    seq: u64,
    /// `None`: removed, kept for the change log.
    body: Option<Box<[u8]>>,
}

/// What changed since some sequence number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Who applies them is here.
    pub to_seq: u64,
    /// Whether the budget left some out: ask again from `to_seq`.
    pub more: bool,
    /// At most one for each page, by ascending index.
    pub pages: Vec<PageChange>,
}

/// What changed in one page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageChange {
    /// The page's number.
    pub index: u32,
    /// The new content.
    pub content: PageContent,
}

/// A page's new content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageContent {
    /// All of it; its header says how new it is.
    Whole(Vec<u8>),
    /// Groups to set and to remove.
    Delta(Vec<GroupChange>),
}

/// One group's newest state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupChange {
    /// Which group.
    pub anchor: BlockHash,
    /// Its bytes, or `None`: removed.
    pub body: Option<Vec<u8>>,
}

/// A part of a reload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadSlice {
    /// Whole pages, by ascending index.
    pub pages: Vec<PageChange>,
    /// Where to go on; `None`: that was the last page.
    pub next: Option<u32>,
}

impl TableStore {
    /// An empty table. `page_target_bytes`: the mean page stays at or under it (see
    /// [`PAGE_TARGET_BYTES`](super::PAGE_TARGET_BYTES)).
    pub fn new(epoch: Epoch, page_target_bytes: usize) -> Self {
        Self::with_pages(epoch, page_target_bytes, INITIAL_PAGES)
    }

    /// As [`new`](Self::new), laid out for a known size: each doubling of the pages makes every
    /// gateway reload.
    pub fn with_pages(epoch: Epoch, page_target_bytes: usize, page_count: u32) -> Self {
        Self {
            epoch,
            page_target_bytes: page_target_bytes.max(PAGE_HEADER_BYTES + 1),
            generation: 1,
            page_count: page_count.clamp(1, MAX_PAGES),
            seq: 0,
            floor: 0,
            groups: BTreeMap::new(),
            log: BTreeMap::new(),
            tombstones: 0,
            live_bytes: 0,
        }
    }

    /// Sets a group's bytes (from [`encode_group`](super::encode_group)). `false`: they were the
    /// same already.
    pub fn upsert(&mut self, anchor: BlockHash, body: Vec<u8>) -> bool {
        let seq = self.seq + 1;
        self.live_bytes += body.len() + PAGE_BYTES_PER_GROUP;
        let body = body.into_boxed_slice();
        match self.groups.entry(anchor) {
            Entry::Vacant(entry) => {
                entry.insert(Slot {
                    seq,
                    body: Some(body),
                });
            }
            Entry::Occupied(mut entry) => {
                let slot = entry.get_mut();
                match &slot.body {
                    Some(old) => self.live_bytes -= old.len() + PAGE_BYTES_PER_GROUP,
                    None => self.tombstones -= 1,
                }
                if slot.body.as_ref() == Some(&body) {
                    return false;
                }
                self.log.remove(&slot.seq);
                *slot = Slot {
                    seq,
                    body: Some(body),
                };
            }
        }
        self.log.insert(seq, anchor);
        self.seq = seq;
        self.grow();
        true
    }

    /// Removes a group. `false`: there was none.
    pub fn remove(&mut self, anchor: BlockHash) -> bool {
        let Some(slot) = self.groups.get_mut(&anchor) else {
            return false;
        };
        let Some(old) = slot.body.take() else {
            return false;
        };
        self.live_bytes -= old.len() + PAGE_BYTES_PER_GROUP;
        self.seq += 1;
        self.log.remove(&slot.seq);
        slot.seq = self.seq;
        self.log.insert(self.seq, anchor);
        self.tombstones += 1;
        self.forget_old_removals();
        true
    }

    /// A group's bytes.
    pub fn get(&self, anchor: BlockHash) -> Option<&[u8]> {
        self.groups.get(&anchor)?.body.as_deref()
    }

    /// The table's life.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Number of the newest change; 0: none yet.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The layout's number. Another one: every page is another page, reload.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Pages of this generation.
    pub fn page_count(&self) -> u32 {
        self.page_count
    }

    /// Groups in the table.
    pub fn len(&self) -> usize {
        self.groups.len() - self.tombstones
    }

    /// Whether the table has no group.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all pages together.
    pub fn bytes(&self) -> usize {
        self.live_bytes + PAGE_HEADER_BYTES * self.page_count as usize
    }

    /// A page as it is now. Past the last page: an empty one.
    pub fn page(&self, index: u32) -> Vec<u8> {
        let header = PageHeader {
            epoch: self.epoch,
            generation: self.generation,
            index,
            seq: self.seq,
        };
        let groups: Vec<(BlockHash, &[u8])> = self.groups_of(index).collect();
        build_page(header, &groups)
    }

    /// Changes after `seq`, oldest first, until their bytes reach `budget_bytes` (at least one).
    /// `None`: the log does not reach back that far, or `seq` is not of this table; reload.
    ///
    /// The caller compares epoch and generation; this cannot.
    pub fn changes_since(&self, seq: u64, budget_bytes: usize) -> Option<Changes> {
        if seq < self.floor || seq > self.seq {
            return None;
        }
        let mut changes = Changes {
            to_seq: self.seq,
            more: false,
            pages: Vec::new(),
        };
        let mut pages: BTreeMap<u32, Vec<GroupChange>> = BTreeMap::new();
        let mut bytes = 0;
        let mut last = seq;
        for (&at, &anchor) in self.log.range(seq + 1..) {
            let Some(slot) = self.groups.get(&anchor) else {
                continue;
            };
            let cost = CHANGE_BYTES + slot.body.as_ref().map_or(0, |body| body.len());
            if bytes > 0 && bytes + cost > budget_bytes {
                changes.to_seq = last;
                changes.more = true;
                break;
            }
            bytes += cost;
            last = at;
            let change = GroupChange {
                anchor,
                body: slot.body.as_deref().map(<[u8]>::to_vec),
            };
            pages
                .entry(page_of(anchor, self.page_count))
                .or_default()
                .push(change);
        }
        changes.pages = pages
            .into_iter()
            .map(|(index, mut groups)| {
                groups.sort_unstable_by_key(|change| change.anchor);
                PageChange {
                    index,
                    content: self.delta_or_whole(index, groups),
                }
            })
            .collect();
        Some(changes)
    }

    /// Whole pages from `index` on, until their bytes reach `budget_bytes` (at least one page).
    ///
    /// A gateway that reloads notes [`seq`](Self::seq) before its first slice and asks for the
    /// changes since then after its last one: pages that are newer already ignore them.
    pub fn load(&self, index: u32, budget_bytes: usize) -> LoadSlice {
        let mut slice = LoadSlice {
            pages: Vec::new(),
            next: None,
        };
        let mut bytes = 0;
        for index in index..self.page_count {
            let page = self.page(index);
            if bytes > 0 && bytes + page.len() > budget_bytes {
                slice.next = Some(index);
                break;
            }
            bytes += page.len();
            slice.pages.push(PageChange {
                index,
                content: PageContent::Whole(page),
            });
        }
        slice
    }

    fn groups_of(&self, index: u32) -> impl Iterator<Item = (BlockHash, &[u8])> {
        let first = first_anchor(index, self.page_count).unwrap_or(u64::MAX);
        self.groups
            .range(BlockHash(first)..)
            .take_while(move |(anchor, _)| page_of(**anchor, self.page_count) == index)
            .filter_map(|(anchor, slot)| Some((*anchor, slot.body.as_deref()?)))
    }

    /// Many removals can outweigh what is left.
    fn delta_or_whole(&self, index: u32, groups: Vec<GroupChange>) -> PageContent {
        if groups.iter().all(|change| change.body.is_some()) {
            return PageContent::Delta(groups);
        }
        let delta: usize = groups
            .iter()
            .map(|change| CHANGE_BYTES + change.body.as_ref().map_or(0, Vec::len))
            .sum();
        let whole: usize = PAGE_HEADER_BYTES
            + self
                .groups_of(index)
                .map(|(_, body)| PAGE_BYTES_PER_GROUP + body.len())
                .sum::<usize>();
        if whole <= delta {
            PageContent::Whole(self.page(index))
        } else {
            PageContent::Delta(groups)
        }
    }

    /// Twice the pages once the mean page is over the target.
    fn grow(&mut self) {
        let mut grown = false;
        while self.bytes()
            > self
                .page_target_bytes
                .saturating_mul(self.page_count as usize)
            && self.page_count <= MAX_PAGES / 2
        {
            self.page_count *= 2;
            grown = true;
        }
        if grown {
            self.generation += 1;
            self.floor = self.seq;
        }
    }

    /// Keeps the number of remembered removals in bounds, dropping the oldest half at once.
    fn forget_old_removals(&mut self) {
        let limit = MIN_TOMBSTONES.max(self.groups.len() / 8);
        if self.tombstones <= limit {
            return;
        }
        let removed = |anchor| {
            self.groups
                .get(anchor)
                .is_some_and(|slot| slot.body.is_none())
        };
        let forget: Vec<(u64, BlockHash)> = self
            .log
            .iter()
            .filter(|(_, anchor)| removed(*anchor))
            .map(|(seq, anchor)| (*seq, *anchor))
            .take(self.tombstones / 2)
            .collect();
        for (seq, anchor) in forget {
            self.log.remove(&seq);
            self.groups.remove(&anchor);
            self.tombstones -= 1;
            self.floor = self.floor.max(seq);
        }
    }
}
