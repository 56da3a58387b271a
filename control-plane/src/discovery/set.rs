//! What is listed against what is there.
//!
//! Pure; time comes in. A replica that is not listed any more is said to be leaving at once, so that it
//! gets no more requests, and goes after a grace: one that is listed again before (a resolver that
//! flaps) is as it was, with all that is known of it.

use std::collections::BTreeMap;

use super::found::Found;
use crate::config::ReplicaConfig;
use crate::engine::Standing;

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A replica is gone.
    Remove {
        /// Which.
        key: String,
        /// For the log.
        why: &'static str,
    },
    /// Something else is said of a replica.
    Stand {
        /// Which.
        key: String,
        /// What.
        standing: Standing,
    },
    /// A replica has come.
    Add(Found),
}

/// The replicas of one pool, as listed.
#[derive(Debug, Default)]
pub struct Set {
    grace_ms: u64,
    present: BTreeMap<String, Present>,
}

#[derive(Debug)]
struct Present {
    replica: ReplicaConfig,
    standing: Standing,
    /// Not listed since then.
    missing_since: Option<u64>,
}

impl Present {
    fn of(found: &Found) -> Self {
        Self {
            replica: found.replica.clone(),
            standing: found.standing,
            missing_since: None,
        }
    }
}

impl Set {
    /// An empty one. `grace_ms`: how long one stays that is not listed any more.
    #[must_use]
    pub fn new(grace_ms: u64) -> Self {
        Self {
            grace_ms,
            present: BTreeMap::new(),
        }
    }

    /// These are there already.
    pub fn restore(&mut self, found: &[Found]) {
        for found in found {
            self.present.insert(found.key.clone(), Present::of(found));
        }
    }

    /// Takes a new list at a time in milliseconds.
    pub fn take(&mut self, list: Vec<Found>, now_ms: u64) -> Vec<Command> {
        let list: BTreeMap<String, Found> = list
            .into_iter()
            .map(|found| (found.key.clone(), found))
            .collect();
        let mut commands = Vec::new();
        // Another port or address is another replica.
        self.present.retain(|key, present| {
            let same = list
                .get(key)
                .is_none_or(|found| found.replica == present.replica);
            if !same {
                let why = "it is listed in another way";
                commands.push(Command::Remove {
                    key: key.clone(),
                    why,
                });
            }
            same
        });
        for (key, present) in &mut self.present {
            let listed = list.get(key);
            present.missing_since = match listed {
                Some(_) => None,
                None => Some(present.missing_since.unwrap_or(now_ms)),
            };
            let standing = listed.map_or(Standing::Leaving, |found| found.standing);
            if std::mem::replace(&mut present.standing, standing) != standing {
                let key = key.clone();
                commands.push(Command::Stand { key, standing });
            }
        }
        let gone = self.tick(now_ms);
        // One that goes at once needs no other word.
        commands.retain(|command| {
            !matches!(command, Command::Stand { key, .. } if !self.present.contains_key(key))
        });
        commands.splice(0..0, gone);
        for (key, found) in list {
            if let std::collections::btree_map::Entry::Vacant(free) = self.present.entry(key) {
                free.insert(Present::of(&found));
                commands.push(Command::Add(found));
            }
        }
        commands
    }

    /// Lets those go whose grace is over.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Command> {
        let mut commands = Vec::new();
        let grace_ms = self.grace_ms;
        self.present.retain(|key, present| {
            let over = |since: u64| now_ms >= since.saturating_add(grace_ms);
            let goes = present.missing_since.is_some_and(over);
            if goes {
                let why = "it is not listed any more";
                commands.push(Command::Remove {
                    key: key.clone(),
                    why,
                });
            }
            !goes
        });
        commands
    }

    /// When [`Self::tick`] has something to do next.
    #[must_use]
    pub fn next_tick_ms(&self) -> Option<u64> {
        let missing = self
            .present
            .values()
            .filter_map(|present| present.missing_since);
        missing
            .min()
            .map(|since| since.saturating_add(self.grace_ms))
    }

    /// Those that are listed, for the next life.
    #[must_use]
    pub fn listed(&self) -> Vec<Found> {
        let listed = self
            .present
            .iter()
            .filter(|(_, present)| present.missing_since.is_none());
        listed
            .map(|(key, present)| Found {
                key: key.clone(),
                replica: present.replica.clone(),
                standing: present.standing,
            })
            .collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }
}

#[cfg(test)]
mod tests;
