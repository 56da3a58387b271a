//! What a poller must know to continue another's work: `pp/sync`.

use prefix_picker_core::ids::Epoch;
use prefix_picker_core::sync::{Have, Loading};
use prefix_picker_core::table::TableShape;
use serde::{Deserialize, Serialize};

use crate::host::{CasMismatch, Host};
use crate::pools::{self, Slot, Table};

/// The state's key.
pub const KEY: &str = "pp/sync";
const VERSION: u16 = 1;

/// See the module. JSON, a few hundred bytes, touched by the poller alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    version: u16,
    /// The table in use.
    pub table: Option<Complete>,
    /// It has a page that changes cannot be applied to: load it anew.
    pub reload: bool,
    /// The table being loaded into the other slot.
    pub loading: Option<Partial>,
    /// Pages that may hold something, by slot: those below this number.
    pub filled: [u32; 2],
}

/// A complete table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Complete {
    /// Where its pages are.
    pub slot: Slot,
    /// Its epoch.
    pub epoch: u64,
    /// Its generation.
    pub generation: u32,
    /// Its number of pages.
    pub page_count: u32,
    /// All changes up to this sequence number are in it.
    pub seq: u64,
}

/// A table of which the pages before `next_page` are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// Where its pages go.
    pub slot: Slot,
    /// Its epoch.
    pub epoch: u64,
    /// Its generation.
    pub generation: u32,
    /// Its number of pages.
    pub page_count: u32,
    /// Once complete, all changes up to this sequence number are in it.
    pub start_seq: u64,
    /// The first page that is not there yet.
    pub next_page: u32,
}

impl Complete {
    /// As requests see it.
    #[must_use]
    pub fn table(&self) -> Table {
        let shape = TableShape {
            epoch: Epoch(self.epoch),
            generation: self.generation,
            page_count: self.page_count,
        };
        Table {
            slot: self.slot,
            shape,
        }
    }
}

impl Partial {
    /// What it is once its last page is there.
    #[must_use]
    pub fn complete(&self) -> Complete {
        Complete {
            slot: self.slot,
            epoch: self.epoch,
            generation: self.generation,
            page_count: self.page_count,
            seq: self.start_seq,
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            version: VERSION,
            table: None,
            reload: false,
            loading: None,
            filled: [0, 0],
        }
    }
}

impl State {
    /// Reads the state and makes it agree with the head that requests use: the two are written one
    /// after the other, and a poller can end in between.
    #[must_use]
    pub fn read(host: &impl Host) -> (Self, u32) {
        let stored = host.shared(KEY);
        let state: Option<Self> = serde_json::from_slice(&stored.bytes).ok();
        let mut state = state.filter(|s| s.version == VERSION).unwrap_or_default();
        let head = host.shared(pools::KEY).bytes;
        let used = pools::decode(&head).ok().and_then(|(table, _)| table);
        if used != state.table.map(|t| t.table()) {
            state.adopt(used);
        }
        (state, stored.cas)
    }

    fn adopt(&mut self, used: Option<Table>) {
        let loaded = self.loading.take().map(|l| l.complete());
        let Some(used) = used else {
            (self.table, self.reload) = (None, false);
            return;
        };
        self.reload = loaded.map(|l| l.table()) != Some(used);
        self.table = loaded.filter(|_| !self.reload).or(Some(Complete {
            slot: used.slot,
            epoch: used.shape.epoch.0,
            generation: used.shape.generation,
            page_count: used.shape.page_count,
            seq: 0,
        }));
        if let Some(filled) = self.filled.get_mut(used.slot.index()) {
            *filled = (*filled).max(used.shape.page_count);
        }
    }

    /// Writes the state, if nobody else did since.
    pub fn write(&self, host: &impl Host, cas: u32) -> Result<u32, CasMismatch> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        host.set_shared(KEY, &json, cas)?;
        Ok(host.shared(KEY).cas)
    }

    /// The slot that a load goes into: never the one in use.
    #[must_use]
    pub fn loading_slot(&self) -> Slot {
        self.table.map_or(Slot::A, |t| t.slot.other())
    }

    /// What a poll says of the complete table.
    #[must_use]
    pub fn have(&self) -> Option<Have> {
        let table = self.table.filter(|_| !self.reload)?;
        Some(Have {
            epoch: table.epoch,
            generation: table.generation,
            seq: table.seq,
        })
    }

    /// What a poll says of the table being loaded.
    #[must_use]
    pub fn loading(&self) -> Option<Loading> {
        self.loading.map(|l| Loading {
            epoch: l.epoch,
            generation: l.generation,
            start_seq: l.start_seq,
            next_page: l.next_page,
        })
    }

    /// A page that is left over from a table no longer in use: the last of its slot.
    #[must_use]
    pub fn left_over(&self) -> Option<(Slot, u32)> {
        [Slot::A, Slot::B].into_iter().find_map(|slot| {
            let used = self.table.filter(|t| t.slot == slot).map(|t| t.page_count);
            let loading = self
                .loading
                .filter(|l| l.slot == slot)
                .map(|l| l.page_count);
            let keep = used.or(loading).unwrap_or(0);
            let filled = self.filled.get(slot.index()).copied().unwrap_or(0);
            (filled > keep).then(|| (slot, filled - 1))
        })
    }
}
