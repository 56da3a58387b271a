//! What was seen of the engines themselves: their faults are not the control plane's.

use std::collections::BTreeSet;

use crate::doctor::item::{Item, Status};

/// Replicas whose engines have a fault of their own.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    /// Those that are dead, hang or are not well.
    gone: BTreeSet<String>,
    /// Those whose events are not had.
    unheard: BTreeSet<String>,
}

impl Engines {
    /// By the engines' items.
    #[must_use]
    pub fn of(items: &[Item]) -> Self {
        let failed = |id: &str| {
            let of = items
                .iter()
                .filter(|item| item.id == id && item.status == Status::Fail);
            of.map(|item| item.subject.clone()).collect()
        };
        Self {
            gone: failed("engine.reachable"),
            unheard: failed("engine.events"),
        }
    }

    pub(super) fn is_gone(&self, replica: &str) -> bool {
        self.gone.contains(replica)
    }

    /// Why nothing can be known of what a replica holds, if that is its engine's fault.
    pub(super) fn why_unknown(&self, replica: &str) -> Option<&'static str> {
        if self.is_gone(replica) {
            return Some("its engine does not answer as it should: see engine.reachable");
        }
        let unheard = self.unheard.contains(replica);
        unheard.then_some("no events: see engine.events")
    }
}
