//! What a poll is answered.

use std::sync::atomic::Ordering;

use prefix_picker_core::sync::{ANSWER_BYTES_MAX, Answer, Poll, ProfileRecord, TableUpdate};
use prefix_picker_core::table::TableStore;

use super::{Engine, lock};

/// Bytes of an answer that are kept for its own headers.
const OVERHEAD_BYTES: usize = 16 << 10;
/// The table gets at least this much of an answer, however large head and profiles are.
const TABLE_BYTES_MIN: usize = 64 << 10;

impl Engine {
    /// What a poll is answered now.
    #[must_use]
    pub fn answer(&self, poll: &Poll) -> Answer {
        self.note_token_ids(poll);
        let fleet = lock(&self.fleet);
        let (head, version) = fleet.encoded();
        // After the head: whatever profile it names is there by now.
        let profiles = lock(&self.profiles).clone();
        // Before the fleet is let go: head and table are of one epoch.
        let table = lock(&self.table);
        drop(fleet);
        answer(poll, &table, &head, version, &profiles)
    }

    fn note_token_ids(&self, poll: &Poll) {
        let mut changed = false;
        for pool in self
            .pools
            .iter()
            .filter(|pool| pool.ids_on_report && poll.token_id_pools.contains(&pool.name))
        {
            if !pool.ids_on.swap(true, Ordering::AcqRel) {
                tracing::info!(pool = %pool.name, "token-id prompts are indexed from now on");
                lock(&pool.index).set_token_ids(true);
                changed = true;
            }
        }
        if changed {
            self.announce();
        }
    }
}

/// The answer to a poll: what the gateway lacks, at most [`ANSWER_BYTES_MAX`] bytes.
#[must_use]
pub fn answer(
    poll: &Poll,
    table: &TableStore,
    head: &[u8],
    head_version: u64,
    profiles: &[ProfileRecord],
) -> Answer {
    answer_within(
        ANSWER_BYTES_MAX - OVERHEAD_BYTES,
        poll,
        table,
        head,
        head_version,
        profiles,
    )
}

/// As [`answer`], for another number of bytes. A single profile, page or change goes in whatever its
/// size.
#[must_use]
pub(super) fn answer_within(
    bytes: usize,
    poll: &Poll,
    table: &TableStore,
    head: &[u8],
    head_version: u64,
    profiles: &[ProfileRecord],
) -> Answer {
    let table_bytes_min = TABLE_BYTES_MIN.min(bytes);
    let epoch = table.epoch().0;
    let of_this_life = poll.have.is_some_and(|have| have.epoch == epoch)
        || poll.loading.is_some_and(|l| l.epoch == epoch);
    let head = (!of_this_life || poll.head_version != head_version).then(|| head.to_vec());
    let mut budget = bytes.saturating_sub(head.as_ref().map_or(0, Vec::len));
    let mut lacking = Vec::new();
    for profile in profiles
        .iter()
        .filter(|profile| !poll.profiles.contains(&profile.hash))
    {
        // The first one goes in any case; the next poll gets the others.
        if lacking.is_empty() || profile.json.len() + table_bytes_min <= budget {
            budget = budget.saturating_sub(profile.json.len());
            lacking.push(profile.clone());
        }
    }
    Answer {
        epoch: table.epoch(),
        generation: table.generation(),
        page_count: table.page_count(),
        table: update(poll, table, budget.max(table_bytes_min)),
        head,
        profiles: lacking,
    }
}

fn update(poll: &Poll, table: &TableStore, budget: usize) -> TableUpdate {
    let current =
        |epoch: u64, generation: u32| epoch == table.epoch().0 && generation == table.generation();
    if let Some(have) = poll
        .have
        .filter(|have| current(have.epoch, have.generation))
    {
        match table.changes_since(have.seq, budget) {
            Some(changes) if changes.pages.is_empty() => return TableUpdate::None,
            Some(changes) => {
                let (to_seq, more) = (changes.to_seq, changes.more);
                return TableUpdate::Delta {
                    from_seq: have.seq,
                    to_seq,
                    more,
                    pages: changes.pages,
                };
            }
            // Too old: it must load the table again.
            None => {}
        }
    }
    let going_on = poll
        .loading
        .filter(|loading| current(loading.epoch, loading.generation));
    let (start_seq, from) = going_on.map_or((table.seq(), 0), |loading| {
        (loading.start_seq, loading.next_page)
    });
    let slice = table.load(from, budget);
    TableUpdate::Load {
        start_seq,
        next_page: slice.next,
        pages: slice.pages,
    }
}

/// Is there anything in it that the gateway lacks?
#[must_use]
pub fn has_news(answer: &Answer) -> bool {
    answer.head.is_some() || !answer.profiles.is_empty() || answer.table != TableUpdate::None
}
