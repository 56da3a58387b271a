//! What was seen of the engines themselves: their faults are not the control plane's.

use std::collections::BTreeMap;

use crate::doctor::item::{Item, Status};

/// Faults of an engine from which others follow, each with what follows, in the order of cause and
/// consequence.
const CAUSES: [(&str, &str); 5] = [
    (REACHABLE, "its engine does not answer as it should"),
    (
        "engine.prefix_caching",
        "no events, since the engine caches no prefixes",
    ),
    ("engine.events", "no events"),
    (TOPIC, "its live events pass by"),
    (REPLAY, "what was missed of its events cannot be had again"),
];
const REACHABLE: &str = "engine.reachable";
const TOPIC: &str = "engine.topic";
const REPLAY: &str = "engine.replay";

/// Faults of replicas' engines.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    /// By pool and replica.
    faults: BTreeMap<(String, String), Vec<&'static str>>,
}

impl Engines {
    /// Takes a replica's items.
    pub fn note(&mut self, pool: &str, replica: &str, items: &[Item]) {
        let failed = |id: &str| {
            let mut of = items.iter().filter(|item| item.id == id);
            of.any(|item| item.status == Status::Fail)
        };
        let faults = CAUSES.map(|(id, _)| id).into_iter();
        let faults: Vec<&'static str> = faults.filter(|id| failed(id)).collect();
        if !faults.is_empty() {
            let key = (pool.to_owned(), replica.to_owned());
            self.faults.insert(key, faults);
        }
    }

    fn faults(&self, pool: &str, replica: &str) -> &[&'static str] {
        let key = (pool.to_owned(), replica.to_owned());
        self.faults.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Dead, hangs or is not well.
    pub(super) fn is_gone(&self, pool: &str, replica: &str) -> bool {
        self.faults(pool, replica).contains(&REACHABLE)
    }

    /// Why what is known of a replica comes late, if that is its engine's fault.
    pub(super) fn why_late(&self, pool: &str, replica: &str) -> Option<String> {
        let is_it = self.faults(pool, replica).contains(&TOPIC);
        is_it.then(|| told(TOPIC))
    }

    /// Why nothing can be known of what a replica holds, if that is its engine's fault. `connected`: to its
    /// events.
    pub(super) fn why_unknown(&self, pool: &str, replica: &str, connected: bool) -> Option<String> {
        let mut faults = self.faults(pool, replica).iter();
        let fault = faults.find(|id| **id != REPLAY || connected);
        fault.map(|id| told(id))
    }

    /// The item with a fault of a replica of that name, in whatever pool.
    pub(super) fn fault_of(&self, replica: &str) -> Option<&'static str> {
        let mut of = self.faults.iter().filter(|((_, name), _)| name == replica);
        of.find_map(|(_, faults)| faults.first().copied())
    }
}

fn told(id: &str) -> String {
    let what = CAUSES.iter().find(|(cause, _)| *cause == id);
    let what = what.map_or("its engine has a fault", |(_, what)| *what);
    format!("{what}: see {id}")
}
