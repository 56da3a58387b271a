//! Which KV cache group of a replica makes prefixes.
//!
//! Hybrid models publish one stream of events per group, and only a group of full attention keeps
//! whole prefixes. Newer engines name each group's kind in stores (never in removes); where they do
//! not, a group counts until one of its stores turns out to be sparse.

use crate::events::Stored;

/// What an event's group means for the index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// The replica's main group.
    Main,
    /// Another group, or a kind that keeps no whole prefixes.
    Other,
    /// A group that keeps states, not every token's keys and values.
    States,
    /// Not every hash has its own tokens.
    Sparse,
    /// What was taken for the main group keeps no whole prefixes: nothing it said counts.
    Demoted,
}

/// Most groups that are remembered; engines have a handful.
const GROUPS_MAX: usize = 64;

/// What is known of one replica's groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct KvGroups {
    /// The group that makes prefixes. The inner option is the wire's: older engines name no group.
    pub(super) main: Option<Option<u32>>,
    /// Groups seen, and whether they keep whole prefixes.
    pub(super) seen: Vec<(Option<u32>, bool)>,
}

fn is_full_attention(kind: &str) -> bool {
    matches!(
        kind,
        "full_attention" | "mla_attention" | "sink_full_attention"
    )
}

impl KvGroups {
    fn learn(&mut self, group: Option<u32>, dense: bool) {
        if let Some((_, known)) = self.seen.iter_mut().find(|(seen, _)| *seen == group) {
            *known = dense;
        } else if self.seen.len() < GROUPS_MAX {
            self.seen.push((group, dense));
        }
    }

    fn is_known_sparse(&self, group: Option<u32>) -> bool {
        self.seen
            .iter()
            .any(|(seen, dense)| *seen == group && !dense)
    }

    /// Learns from a store.
    pub(super) fn judge_store(&mut self, event: &Stored) -> Verdict {
        let group = event.group;
        if let Some(kind) = event.kind.as_deref() {
            self.learn(group, is_full_attention(kind));
        }
        if event.kind.as_deref() == Some("mamba") {
            return self.demote(group, Verdict::States);
        }
        if self.is_known_sparse(group) && event.kind.is_some() {
            return self.demote(group, Verdict::Other);
        }
        if event.tokens.is_empty() {
            return self.judge_link(group);
        }
        if !event.is_dense() {
            if event.kind.is_none() && group.is_some() {
                self.learn(group, false);
                return self.demote(group, Verdict::Sparse);
            }
            return Verdict::Sparse;
        }
        if self.is_known_sparse(group) {
            return Verdict::Other;
        }
        if event.kind.is_none() {
            self.learn(group, true);
        }
        if *self.main.get_or_insert(group) == group {
            Verdict::Main
        } else {
            Verdict::Other
        }
    }

    /// A store that only names hashes. Connectors leave the group out: then it counts only where
    /// there is but one group.
    fn judge_link(&self, group: Option<u32>) -> Verdict {
        match self.main {
            Some(main) if main == group => Verdict::Main,
            Some(_) if group.is_none() && self.seen.len() <= 1 => Verdict::Main,
            None if self.seen.is_empty() => Verdict::Main,
            _ => Verdict::Other,
        }
    }

    fn demote(&mut self, group: Option<u32>, verdict: Verdict) -> Verdict {
        if self.main == Some(group) {
            self.main = None;
            return Verdict::Demoted;
        }
        verdict
    }

    /// Whether a remove concerns the main group; where it does not say, it does.
    pub(super) fn judges_remove(&self, group: Option<u32>) -> bool {
        match (self.main, group) {
            (Some(Some(main)), Some(group)) => main == group,
            (None, Some(_)) => !self.is_known_sparse(group),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EngineHash;

    fn store(
        group: Option<u32>,
        kind: Option<&'static str>,
        hashes: usize,
        tokens: usize,
    ) -> Stored {
        Stored {
            hashes: vec![EngineHash::from_u64(1); hashes],
            tokens: vec![0; tokens],
            block_size: 16,
            group,
            kind: kind.map(Into::into),
            ..Stored::default()
        }
    }

    #[test]
    fn only_full_attention_counts_and_the_main_group_need_not_be_the_first() {
        let mut groups = KvGroups::default();
        assert_eq!(
            groups.judge_store(&store(Some(0), Some("sliding_window"), 2, 32)),
            Verdict::Other
        );
        assert_eq!(
            groups.judge_store(&store(Some(1), Some("full_attention"), 2, 32)),
            Verdict::Main
        );
        assert!(!groups.judges_remove(Some(0)));
        assert!(groups.judges_remove(Some(1)));
        assert!(groups.judges_remove(None));
    }

    #[test]
    fn without_kinds_a_sparse_store_ends_a_groups_credit() {
        let mut groups = KvGroups::default();
        assert_eq!(
            groups.judge_store(&store(Some(0), None, 2, 32)),
            Verdict::Main
        );
        assert_eq!(
            groups.judge_store(&store(Some(0), None, 1, 64)),
            Verdict::Demoted
        );
        assert_eq!(
            groups.judge_store(&store(Some(1), None, 2, 32)),
            Verdict::Main
        );
        assert_eq!(
            groups.judge_store(&store(Some(0), None, 2, 32)),
            Verdict::Other
        );
    }

    #[test]
    fn a_sparse_event_of_an_engine_without_groups_is_only_left_out() {
        let mut groups = KvGroups::default();
        assert_eq!(groups.judge_store(&store(None, None, 2, 32)), Verdict::Main);
        assert_eq!(
            groups.judge_store(&store(None, None, 1, 64)),
            Verdict::Sparse
        );
        assert_eq!(groups.judge_store(&store(None, None, 1, 16)), Verdict::Main);
    }

    #[test]
    fn a_link_without_group_is_not_credited_where_there_are_several() {
        let mut groups = KvGroups::default();
        assert_eq!(groups.judge_store(&store(None, None, 1, 0)), Verdict::Main);
        groups.judge_store(&store(Some(1), Some("full_attention"), 2, 32));
        assert_eq!(groups.judge_store(&store(None, None, 1, 0)), Verdict::Main);
        groups.judge_store(&store(Some(0), Some("mamba"), 2, 32));
        assert_eq!(groups.judge_store(&store(None, None, 1, 0)), Verdict::Other);
    }
}
