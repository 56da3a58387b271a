//! A replica's cache as it would be, had it got the requests that we chose it for.
//!
//! Least recently used, by the marks that stand for a prompt. Of one prompt the end goes before the
//! beginning, as in engines, so that what is there is always a prefix.
//!
//! An entry stands for the tokens behind the mark before it. Marks of a longer prompt are further
//! apart, and tokens of a shared beginning must not count twice: so with each request the deepest marks
//! take over what lies behind them, and those in between stand for nothing any more.

use std::collections::{BTreeMap, HashMap};

use prefix_picker_core::sync::decisions::Mark;

/// Entries of one cache at most: those of 256 prompts, or more if they share something. One that would
/// have had room for more tokens is said to be cut short.
pub const ENTRIES_MAX: usize = 8_192;

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Where it ends, and how many tokens before that it stands for.
    end: u64,
    tokens: u64,
    used: u64,
}

/// See the module.
#[derive(Debug)]
pub struct VirtualCache {
    entries_max: usize,
    entries: HashMap<u64, Entry>,
    /// By when they were last used.
    order: BTreeMap<u64, u64>,
    uses: u64,
    tokens: u64,
    cut_short: bool,
}

impl VirtualCache {
    /// An empty one, of so many entries at most, and [`ENTRIES_MAX`].
    #[must_use]
    pub fn new(entries_max: usize) -> Self {
        Self {
            entries_max: entries_max.min(ENTRIES_MAX),
            entries: HashMap::new(),
            order: BTreeMap::new(),
            uses: 0,
            tokens: 0,
            cut_short: false,
        }
    }

    /// May have so many entries from now on.
    pub fn set_entries_max(&mut self, entries_max: usize) {
        self.entries_max = entries_max.min(ENTRIES_MAX);
        self.keep_within_entries();
    }

    fn keep_within_entries(&mut self) {
        while self.entries.len() > self.entries_max {
            self.cut_short = true;
            self.drop_oldest();
        }
    }

    /// A request comes: how many of its prompt's tokens are there, and from now on all of them that
    /// marks stand for, as far as `capacity` tokens go.
    pub fn request(&mut self, marks: &[Mark], capacity: u64) -> u64 {
        let there = marks.iter().rev();
        let mut there = there.filter(|mark| self.entries.contains_key(&mark.key));
        let hit = there.next().map_or(0, |mark| u64::from(mark.tokens));
        // Behind this all is stood for by deeper marks.
        let mut open = u64::MAX;
        for (at, mark) in marks.iter().enumerate().rev() {
            let before = at.checked_sub(1).and_then(|at| marks.get(at));
            let before = before.map_or(0, |mark| u64::from(mark.tokens));
            open = self.use_mark(*mark, before, open);
        }
        while self.tokens > capacity {
            self.drop_oldest();
        }
        self.keep_within_entries();
        hit
    }

    /// Returns from where on all is stood for now.
    fn use_mark(&mut self, mark: Mark, before: u64, open: u64) -> u64 {
        self.uses += 1;
        let old = self.entries.get(&mark.key).copied();
        let end = old.map_or(mark.tokens.into(), |old| old.end);
        let start = match old {
            Some(old) if old.tokens > 0 => before.min(end - old.tokens),
            _ => before.min(end),
        };
        let entry = Entry {
            end,
            tokens: end.min(open).saturating_sub(start),
            used: self.uses,
        };
        if let Some(old) = self.entries.insert(mark.key, entry) {
            self.order.remove(&old.used);
            self.tokens -= old.tokens;
        }
        self.order.insert(entry.used, mark.key);
        self.tokens += entry.tokens;
        open.min(start)
    }

    fn drop_oldest(&mut self) {
        // There is none only if there is nothing at all.
        let oldest = self.order.pop_first();
        let gone = oldest.and_then(|(_, key)| self.entries.remove(&key));
        match gone {
            Some(gone) => self.tokens -= gone.tokens,
            None => self.tokens = 0,
        }
    }

    /// Tokens that it holds.
    #[must_use]
    pub fn held_tokens(&self) -> u64 {
        self.tokens
    }

    /// Has it dropped something for want of entries, and not of tokens?
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.cut_short
    }
}
