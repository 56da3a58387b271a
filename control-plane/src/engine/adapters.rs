//! Which LoRA adapters a replica has loaded, and which of their blocks are no longer true.
//!
//! A block is true for an adapter's weights; the engine tells of the adapter's name only. Where the
//! same name comes to stand for other weights, what was known of it must go: the path it is loaded
//! from changed, or it was gone for a while. (Loaded again from the same path between two looks, or
//! in place, it cannot be told from before. vLLM then reuses the old weights' blocks as well.)

use std::collections::{BTreeMap, BTreeSet};

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::sync::LoraHead;

use crate::facts::models::ADAPTERS_MAX;

/// Adapters of one pool that gateways are told of.
const POOL_MAX: usize = 512;

/// One replica's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Adapters {
    /// Name and path, as last listed; `None` while it is not known what the engine has.
    listed: Option<BTreeMap<String, String>>,
    /// `listed` are those that were seen in use: the engine does not say which it has.
    guessed: bool,
    /// Where each adapter of which blocks may be known was loaded from.
    paths: BTreeMap<String, String>,
    /// Blocks may be known of adapters that are not among `paths`.
    unsure: bool,
}

/// What a new list means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Gateways should hear of it.
    pub(super) changed: bool,
    /// Adapters whose blocks are no longer true.
    pub(super) stale: Vec<String>,
}

impl Adapters {
    /// Takes a list of the engine's.
    pub(super) fn see(&mut self, now: BTreeMap<String, String>) -> Seen {
        let moved = self
            .paths
            .iter()
            .filter(|(name, path)| now.get(*name) != Some(path))
            .map(|(name, _)| name.clone());
        let unsure = self.unsure;
        let unproven = now
            .keys()
            .filter(|name| unsure && !self.paths.contains_key(*name))
            .cloned();
        let stale = moved.chain(unproven).collect();
        self.paths.clone_from(&now);
        let changed = self.listed.as_ref() != Some(&now);
        self.listed = Some(now);
        self.guessed = false;
        Seen { changed, stale }
    }

    /// Takes names of adapters that are in use, where the engine does not list what it has: those are there.
    /// True: gateways should hear of it.
    pub(super) fn see_in_use(&mut self, names: &BTreeSet<String>) -> bool {
        if self.listed.is_some() && !self.guessed {
            return false;
        }
        self.guessed = true;
        let listed = self.listed.get_or_insert_default();
        let before = listed.len();
        for name in names {
            if listed.len() < ADAPTERS_MAX && !listed.contains_key(name) {
                listed.insert(name.clone(), String::new());
            }
        }
        listed.len() > before
    }

    /// The engine may have others now: none of its adapters is counted on until it lists them again.
    pub(super) fn doubt(&mut self) -> bool {
        self.listed.take().is_some_and(|listed| !listed.is_empty())
    }

    /// Name and path of each adapter of which blocks may be known.
    pub(super) fn paths(&self) -> &BTreeMap<String, String> {
        &self.paths
    }

    /// What was known in an earlier life; `None`: blocks were, but not of which adapters.
    pub(super) fn remember(&mut self, paths: Option<BTreeMap<String, String>>) {
        self.unsure = paths.is_none();
        self.paths = paths.unwrap_or_default();
    }
}

/// A pool's adapters for the head, by name. `everywhere`: a replica loads on demand what any has.
pub(super) fn of_pool<'a>(
    replicas: impl Iterator<Item = (ReplicaIndex, &'a Adapters)> + Clone,
    everywhere: bool,
) -> (Vec<LoraHead>, usize) {
    let mut all: Vec<ReplicaIndex> = replicas.clone().map(|(index, _)| index).collect();
    all.sort_unstable();
    let mut by_name: BTreeMap<&str, Vec<ReplicaIndex>> = BTreeMap::new();
    for (index, adapters) in replicas {
        for name in adapters.listed.iter().flat_map(BTreeMap::keys) {
            by_name.entry(name).or_default().push(index);
        }
    }
    let left_out = by_name.len().saturating_sub(POOL_MAX);
    let heads = by_name
        .into_iter()
        .take(POOL_MAX)
        .map(|(name, mut replicas)| {
            replicas.sort_unstable_by_key(|replica| replica.0);
            LoraHead {
                name: name.to_owned(),
                replicas: if everywhere { all.clone() } else { replicas },
            }
        });
    (heads.collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(adapters: &[(&str, &str)]) -> BTreeMap<String, String> {
        adapters
            .iter()
            .map(|(name, path)| ((*name).to_owned(), (*path).to_owned()))
            .collect()
    }

    #[test]
    fn another_path_and_an_absence_make_blocks_stale() {
        let mut adapters = Adapters::default();
        type List = &'static [(&'static str, &'static str)];
        let steps: [(List, bool, &[&str]); 6] = [
            (&[("a", "1"), ("b", "1")], true, &[]),
            (&[("a", "1"), ("b", "1")], false, &[]),
            (&[("a", "2"), ("b", "1")], true, &["a"]),
            (&[("a", "2")], true, &["b"]),
            (&[("a", "2"), ("b", "1")], true, &[]),
            (&[], true, &["a", "b"]),
        ];
        for (now, changed, stale) in steps {
            let seen = adapters.see(list(now));
            assert_eq!(
                (seen.changed, seen.stale),
                (changed, stale.iter().map(|s| (*s).to_owned()).collect()),
                "{now:?}"
            );
        }
    }

    #[test]
    fn after_a_doubt_what_is_listed_as_before_is_as_before() {
        let mut adapters = Adapters::default();
        assert!(!adapters.doubt());
        adapters.see(list(&[("a", "1")]));
        assert!(adapters.doubt());
        assert!(!adapters.doubt());
        assert_eq!(
            of_pool([(ReplicaIndex(3), &adapters)].into_iter(), false).0,
            []
        );
        let seen = adapters.see(list(&[("a", "1")]));
        assert_eq!(
            seen,
            Seen {
                changed: true,
                stale: vec![]
            }
        );
    }

    #[test]
    fn what_is_in_use_is_there_until_the_engine_lists_what_it_has() {
        let mut adapters = Adapters::default();
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert!(adapters.see_in_use(&names(&["a"])));
        assert!(!adapters.see_in_use(&names(&["a"])));
        // Not in use any more is not gone.
        assert!(adapters.see_in_use(&names(&["b"])));
        let told = |adapters: &Adapters| -> Vec<String> {
            let (heads, _) = of_pool([(ReplicaIndex(3), adapters)].into_iter(), false);
            heads.into_iter().map(|head| head.name).collect()
        };
        assert_eq!(told(&adapters), ["a", "b"]);
        let seen = adapters.see(list(&[("a", "1")]));
        assert_eq!((seen.changed, seen.stale.len()), (true, 0));
        assert!(!adapters.see_in_use(&names(&["c"])));
        assert_eq!(told(&adapters), ["a"]);
        // It may have begun anew.
        adapters.doubt();
        assert!(adapters.see_in_use(&names(&["c"])));
        assert_eq!(told(&adapters), ["c"]);
    }

    #[test]
    fn what_an_earlier_life_does_not_prove_is_stale() {
        let mut adapters = Adapters::default();
        adapters.remember(Some(list(&[("a", "1"), ("b", "1")])));
        assert_eq!(
            adapters
                .see(list(&[("a", "1"), ("b", "2"), ("c", "1")]))
                .stale,
            ["b"]
        );
        let mut adapters = Adapters::default();
        adapters.remember(None);
        assert_eq!(adapters.see(list(&[("a", "1")])).stale, ["a"]);
        assert!(adapters.see(list(&[("a", "1")])).stale.is_empty());
    }

    #[test]
    fn a_pools_adapters_are_told_by_name_with_their_replicas() {
        let mut one = Adapters::default();
        let mut two = Adapters::default();
        one.see(list(&[("b", "1"), ("a", "1")]));
        two.see(list(&[("b", "2")]));
        let none = Adapters::default();
        let replicas = [
            (ReplicaIndex(4), &one),
            (ReplicaIndex(5), &none),
            (ReplicaIndex(6), &two),
        ];
        let told = |everywhere| -> Vec<(String, Vec<u16>)> {
            let (heads, left_out) = of_pool(replicas.into_iter(), everywhere);
            assert_eq!(left_out, 0);
            heads
                .into_iter()
                .map(|l| (l.name, l.replicas.iter().map(|r| r.0).collect()))
                .collect()
        };
        assert_eq!(
            told(false),
            [("a".into(), vec![4]), ("b".into(), vec![4, 6])]
        );
        assert_eq!(
            told(true),
            [("a".into(), vec![4, 5, 6]), ("b".into(), vec![4, 5, 6])]
        );
        let many = (0..POOL_MAX + 2)
            .map(|n| (n.to_string(), String::new()))
            .collect();
        one.see(many);
        let (heads, left_out) = of_pool([(ReplicaIndex(0), &one)].into_iter(), false);
        assert_eq!((heads.len(), left_out), (POOL_MAX, 2));
    }
}
