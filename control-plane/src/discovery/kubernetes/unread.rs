//! Pods that cannot be read.

use std::collections::BTreeMap;

use super::object::Unread;
use super::{Failure, Kind};

/// What they are called, and what is said of each. Those without a readable name are one.
#[derive(Default)]
pub(super) struct Unreadable(BTreeMap<String, String>);

impl Unreadable {
    pub(super) fn insert(&mut self, unread: Unread) {
        self.0.insert(unread.name.unwrap_or_default(), unread.text);
    }

    /// It can be read, or is gone.
    pub(super) fn remove(&mut self, name: &str) {
        self.0.remove(name);
        // It may have been this one, and another list tells.
        self.0.remove("");
    }

    /// What is to be told of them.
    pub(super) fn failure(&self) -> Option<Failure> {
        let (_, first) = self.0.first_key_value()?;
        let more = match self.0.len() {
            1 => String::new(),
            len => format!("; and {} more", len - 1),
        };
        Some(Failure {
            kind: Kind::Server,
            text: format!("pod {first}; it is left out, or as it was before{more}"),
        })
    }
}
