//! One answer of the control plane, applied to shared data slice by slice.

use prefix_picker_core::ids::Epoch;
use prefix_picker_core::sync::{Answer, Head, ProfileRecord, TableUpdate};
use prefix_picker_core::table::{PageChange, PageMeta, apply_change};

use super::state::{Partial, State};
use crate::host::Host;
use crate::metrics::Metrics;
use crate::pools::{self, Slot};
use crate::profiles;

/// Key of a head whose table is not complete yet.
pub const NEXT_HEAD_KEY: &str = "pp/head-next";
/// A slice ends after this long, in microseconds.
pub const SLICE_US: u64 = 700;
/// Tries to write one page against another writer.
const WRITE_TRIES: u32 = 3;

/// An answer on its way into shared data.
#[derive(Debug)]
pub struct Apply {
    pages: std::vec::IntoIter<PageChange>,
    slot: Slot,
    meta: PageMeta,
    end: End,
    head: Option<Vec<u8>>,
    profiles: Vec<ProfileRecord>,
    failed: bool,
}

/// What holds once all pages are written.
#[derive(Debug)]
enum End {
    Nothing,
    /// The table has all changes up to here.
    UpTo(u64),
    /// The load got to here, or is complete.
    Loaded(Partial),
}

impl Apply {
    /// Checks an answer against what was asked for. The error says what does not fit.
    pub fn new(answer: Answer, state: &mut State) -> Result<Self, &'static str> {
        if let Some(head) = &answer.head {
            let head = Head::decode(head).map_err(|_| "the head cannot be read")?;
            if head.epoch != answer.epoch {
                return Err("the head is of another epoch");
            }
        }
        let (epoch, generation, page_count) = (answer.epoch, answer.generation, answer.page_count);
        let mut meta = PageMeta {
            epoch,
            generation,
            index: 0,
            to_seq: 0,
        };
        let (pages, slot, end) = match answer.table {
            TableUpdate::None => (Vec::new(), Slot::A, End::Nothing),
            TableUpdate::Delta {
                from_seq,
                to_seq,
                pages,
                ..
            } => {
                let table = state.table.filter(|_| !state.reload);
                let table = table.ok_or("changes, but there is no table")?;
                if (table.epoch, table.generation) != (epoch.0, generation) {
                    return Err("changes to another table");
                }
                if from_seq > table.seq || to_seq < table.seq {
                    return Err("changes that do not follow on the table");
                }
                state.loading = None;
                meta.to_seq = to_seq;
                (pages, table.slot, End::UpTo(to_seq))
            }
            TableUpdate::Load {
                start_seq,
                next_page,
                pages,
            } => {
                let slot = state.loading_slot();
                let begun = Partial {
                    slot,
                    epoch: epoch.0,
                    generation,
                    page_count,
                    start_seq,
                    next_page: 0,
                };
                let mut at = state
                    .loading
                    .filter(|l| Partial { next_page: 0, ..*l } == begun)
                    .unwrap_or(begun);
                state.loading = Some(at);
                if let Some(filled) = state.filled.get_mut(slot.index()) {
                    *filled = (*filled).max(page_count);
                }
                for page in &pages {
                    if page.index != at.next_page {
                        state.loading = None;
                        return Err("pages out of order");
                    }
                    at.next_page += 1;
                }
                if at.next_page != next_page.unwrap_or(page_count) {
                    state.loading = None;
                    return Err("pages are missing");
                }
                meta.to_seq = start_seq;
                (pages, slot, End::Loaded(at))
            }
        };
        let pages = pages.into_iter();
        let (head, profiles) = (answer.head, answer.profiles);
        Ok(Self {
            pages,
            slot,
            meta,
            end,
            head,
            profiles,
            failed: false,
        })
    }

    /// Is there anything in it?
    #[must_use]
    pub fn is_news(&self) -> bool {
        !matches!(self.end, End::Nothing) || self.head.is_some() || !self.profiles.is_empty()
    }

    /// Writes pages until the slice's time is over; true once all are written.
    pub fn slice(&mut self, host: &impl Host, metrics: &Metrics, start_us: u64) -> bool {
        let mut written = 0;
        let done = loop {
            let Some(page) = self.pages.next() else {
                break true;
            };
            match write_page(host, self.slot, self.meta, &page) {
                Ok(()) => written += 1,
                Err(error) => {
                    log::warn!(
                        "page {}: {error}; the table will be loaded anew",
                        page.index
                    );
                    host.add(metrics.sync_page_errors, 1);
                    self.failed = true;
                    break true;
                }
            }
            if host.monotonic_us().saturating_sub(start_us) >= SLICE_US {
                break self.pages.len() == 0;
            }
        };
        host.add(metrics.sync_pages, written);
        host.record(metrics.slice, host.monotonic_us().saturating_sub(start_us));
        done
    }

    /// After the last page: profiles, then the state, the head last of all. False where a page
    /// could not be applied.
    pub fn finish(self, host: &impl Host, metrics: &Metrics, state: &mut State) -> bool {
        let head = self.head.as_deref();
        let known = head.map(<[u8]>::to_vec).or_else(|| installed_head(host));
        for profile in &self.profiles {
            store_profile(host, profile, known.as_deref());
        }
        if self.failed {
            match self.end {
                End::Loaded(_) => state.loading = None,
                End::UpTo(_) | End::Nothing => state.reload = true,
            }
        } else {
            match self.end {
                End::Nothing => {}
                End::UpTo(seq) => {
                    if let Some(table) = &mut state.table {
                        table.seq = table.seq.max(seq);
                    }
                }
                End::Loaded(at) => state.loading = Some(at),
            }
        }
        if let Some(head) = head {
            take_head(host, state, self.meta.epoch, head);
        }
        if let Some(loaded) = state.loading.filter(|l| l.next_page >= l.page_count) {
            switch(host, metrics, state, &loaded);
        }
        !self.failed
    }
}

fn write_page(
    host: &impl Host,
    slot: Slot,
    meta: PageMeta,
    page: &PageChange,
) -> Result<(), String> {
    let key = slot.page_key(page.index);
    let meta = PageMeta {
        index: page.index,
        ..meta
    };
    for _ in 0..WRITE_TRIES {
        let old = host.shared(&key);
        let base = (!old.bytes.is_empty()).then_some(old.bytes.as_slice());
        match apply_change(base, meta, &page.content) {
            Ok(None) => return Ok(()),
            Ok(Some(new)) => {
                if host.set_shared(&key, &new, old.cas).is_ok() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Err("another writer".to_owned())
}

fn installed_head(host: &impl Host) -> Option<Vec<u8>> {
    let bytes = host.shared(pools::KEY).bytes;
    pools::decode(&bytes).ok().map(|(_, head)| head.to_vec())
}

/// Under the names of the pools that use it.
fn store_profile(host: &impl Host, profile: &ProfileRecord, head: Option<&[u8]>) {
    let Some(head) = head.and_then(|head| Head::decode(head).ok()) else {
        return;
    };
    for pool in head.pools.iter().filter(|p| p.profile_hash == profile.hash) {
        let value = profiles::encode(profile.hash, &profile.json);
        let _ = host.set_shared(&profiles::key(&pool.name), &value, 0);
    }
}

/// A head fits the table in use, or waits for its own. Never an older one over a newer.
fn take_head(host: &impl Host, state: &State, epoch: Epoch, head: &[u8]) {
    let used = state.table.map(|t| t.table());
    if used.is_some_and(|t| t.shape.epoch != epoch) {
        let _ = host.set_shared(NEXT_HEAD_KEY, head, 0);
        return;
    }
    let installed = host.shared(pools::KEY);
    let version = |head: &[u8]| Head::version_of(head).ok();
    let there = pools::decode(&installed.bytes)
        .ok()
        .and_then(|(_, head)| version(head));
    let newer = match (there, version(head)) {
        (Some((of, there)), Some((_, new))) => of != epoch || there < new,
        _ => true,
    };
    if newer {
        let envelope = pools::encode(used.as_ref(), head);
        let _ = host.set_shared(pools::KEY, &envelope, installed.cas);
    }
}

/// Requests use the loaded table from here on. Waits for a head of its epoch.
fn switch(host: &impl Host, metrics: &Metrics, state: &mut State, loaded: &Partial) {
    let of_epoch =
        |head: &Vec<u8>| Head::version_of(head).is_ok_and(|(epoch, _)| epoch.0 == loaded.epoch);
    let waiting = Some(host.shared(NEXT_HEAD_KEY).bytes).filter(of_epoch);
    let Some(head) = installed_head(host).filter(of_epoch).or(waiting) else {
        return;
    };
    let complete = loaded.complete();
    let _ = host.set_shared(
        pools::KEY,
        &pools::encode(Some(&complete.table()), &head),
        0,
    );
    let _ = host.set_shared(NEXT_HEAD_KEY, &[], 0);
    state.table = Some(complete);
    (state.loading, state.reload) = (None, false);
    host.add(metrics.sync_loads, 1);
    log::info!(
        "table loaded: epoch {:016x}, generation {}, {} pages, sequence {}",
        complete.epoch,
        complete.generation,
        complete.page_count,
        complete.seq
    );
}
