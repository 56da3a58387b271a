//! What a store means: new copies, links to known blocks, or orphans.

use super::PoolIndex;
use super::arena::NIL;
use super::emit::Content;
use super::held::Tier;
use super::kv_groups::Verdict;
use super::media::Extra;
use super::nodes::LORA;
use super::pending::Run;
use super::replica::Replica;
use super::stats::ApplyStats;
use crate::events::Stored;
use prefix_picker_core::ids::ReplicaIndex;

/// Marks a block whose event says LoRA and whose parent says none, or the other way round.
const OTHER_ADAPTER: u64 = 0x6c6f_7261;

impl PoolIndex {
    pub(super) fn stored(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        event: &Stored,
        stats: &mut ApplyStats,
    ) {
        let count = event.hashes.len() as u64;
        match of.groups.judge_store(event) {
            Verdict::Main => {}
            Verdict::Other => {
                stats.other_group += count;
                return;
            }
            Verdict::States => {
                self.states_stored(replica, of, event);
                stats.other_group += count;
                return;
            }
            Verdict::Sparse => {
                stats.sparse += 1;
                return;
            }
            Verdict::Demoted => {
                stats.demoted += 1;
                let groups = of.groups.clone();
                let position = of.position;
                self.forget_all(replica, of);
                (of.groups, of.position) = (groups, position);
                return;
            }
        }
        if event.hashes.is_empty() {
            stats.malformed += 1;
            return;
        }
        let tier = if event.tokens.is_empty() {
            Tier::Lower
        } else {
            Tier::of_medium(event.medium.as_deref())
        };
        // Lower tiers leave the extra keys out, so that such tokens may be a salted prompt's.
        if tier == Tier::Lower && (event.tokens.is_empty() || event.extra_keys.is_none()) {
            self.learn_chunk(replica, of, event);
            self.link(replica, of, event, stats);
            return;
        }
        let is_report = self.config.full_reports
            && event.parent.is_none()
            && event.hashes.iter().all(|hash| {
                of.held
                    .get(hash.low)
                    .is_some_and(|(_, copies)| copies.of(tier) > 0)
            });
        if is_report {
            stats.reported += count;
            return;
        }
        let parent = match &event.parent {
            None => self.root_of(event),
            Some(parent) => match of.held.node(parent.low) {
                Some(node) => Some(node),
                None => {
                    stats.orphans += count;
                    self.store_orphans(replica, of, self.run_of(event, parent.low), tier, stats);
                    return;
                }
            },
        };
        match parent {
            Some(parent) => self.store_below(replica, of, parent, event, tier, stats),
            None => stats.refused += count,
        }
    }

    /// Blocks below an unknown parent. One that was known before is one copy more.
    fn store_orphans(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        run: Run,
        tier: Tier,
        stats: &mut ApplyStats,
    ) {
        let known: Vec<u64> = run
            .hashes
            .iter()
            .copied()
            .filter(|hash| of.held.node(*hash).is_some())
            .collect();
        stats.orphans_dropped += of.pending.add_run(run, tier, |hash| known.contains(&hash)) as u64;
        for hash in known {
            if let Some((node, old)) = of.held.get(hash) {
                let mut new = old;
                new.add(tier);
                self.set_copies(replica, of, hash, node, old, new);
            }
        }
    }

    /// Hashes without content, or without identity: they say where a known block is also held.
    fn link(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        event: &Stored,
        stats: &mut ApplyStats,
    ) {
        stats.links += event.hashes.len() as u64;
        for hash in &event.hashes {
            match of.held.get(hash.low) {
                Some((node, old)) => {
                    let mut new = old;
                    new.add(Tier::Lower);
                    self.set_copies(replica, of, hash.low, node, old, new);
                }
                None => {
                    stats.orphans_dropped +=
                        of.pending.add_placeholder(hash.low, Tier::Lower) as u64
                }
            }
        }
    }

    fn store_below(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        parent: u32,
        event: &Stored,
        tier: Tier,
        stats: &mut ApplyStats,
    ) {
        self.nodes.get_mut(parent).used = self.clock;
        let lookahead = self.lookahead_of(event);
        let other_adapter = has_lora(event) != self.nodes.get(parent).is(LORA);
        let check_grown = self.config.check_grown && self.config.text && tier == Tier::Gpu;
        let grown = check_grown && event.hashes.len() == 1;
        let mut at = parent;
        let blocks = event.tokens.chunks_exact(event.block_size.max(1) as usize);
        for (number, (hash, tokens)) in event.hashes.iter().zip(blocks).enumerate() {
            let extra = self.extra_of(event, number);
            let grown = grown && extra.hash == 0;
            let content = Content {
                grown,
                ..below(other_adapter, content_of(tokens, &extra, lookahead))
            };
            let Some(node) = self.child(at, content) else {
                stats.refused += (event.hashes.len() - number) as u64;
                break;
            };
            if grown {
                stats.grown += 1;
                self.note_grown(at, node, &content);
            } else if check_grown && number + 1 == event.hashes.len() {
                self.note_prefill(node, tokens);
            }
            stats.conflicts += u64::from(self.add_copy(replica, of, hash.low, node, tier));
            stats.stored += 1;
            at = node;
        }
        if of.pending.len() > 0 {
            let hashes: Vec<u64> = event.hashes.iter().map(|hash| hash.low).collect();
            self.attach(replica, of, hashes, stats);
        }
        if at == parent {
            self.loose.push(parent);
        }
    }

    /// Gives the runs that waited for any of these blocks their place, and those that waited for them.
    fn attach(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        mut found: Vec<u64>,
        stats: &mut ApplyStats,
    ) {
        while let Some(hash) = found.pop() {
            let Some(node) = of.held.node(hash) else {
                continue;
            };
            for run in of.pending.take_runs(hash) {
                self.attach_run(replica, of, node, &run, &mut found, stats);
            }
        }
    }

    fn attach_run(
        &mut self,
        replica: ReplicaIndex,
        of: &mut Replica,
        parent: u32,
        run: &Run,
        found: &mut Vec<u64>,
        stats: &mut ApplyStats,
    ) {
        let other_adapter = run.adapter.is_some() != self.nodes.get(parent).is(LORA);
        let (nothing, mut at) = (Extra::default(), parent);
        for (number, (hash, tokens)) in run
            .hashes
            .iter()
            .zip(run.tokens.chunks_exact(run.block_size))
            .enumerate()
        {
            let extra = run.extras.get(number).unwrap_or(&nothing);
            let content = below(other_adapter, content_of(tokens, extra, run.lookahead));
            let Some(node) = self.child(at, content) else {
                stats.refused += (run.hashes.len() - number) as u64;
                break;
            };
            // A block that was removed meanwhile still leads to those after it.
            if let Some(copies) = of.pending.take(*hash) {
                if of.held.node(*hash).is_none() {
                    self.set_copies(
                        replica,
                        of,
                        *hash,
                        node,
                        super::held::Copies::default(),
                        copies,
                    );
                    stats.stored += 1;
                }
                found.push(*hash);
            }
            at = node;
        }
        if at != NIL {
            self.loose.push(at);
        }
    }

    /// Tokens after a block that must match, too, before the engine uses the block.
    fn lookahead_of(&self, event: &Stored) -> u32 {
        match event.lookahead.max(u32::from(event.bigram)) {
            // The last block that matches is dropped: as if the next one were looked at.
            0 if self.config.eagle_drops_block => event.block_size,
            told => told,
        }
    }

    fn run_of(&self, event: &Stored, parent: u64) -> Run {
        let extras: Vec<Extra> = match event.extra_keys {
            Some(_) => (0..event.hashes.len())
                .map(|number| self.extra_of(event, number))
                .collect(),
            None => Vec::new(),
        };
        Run {
            parent,
            hashes: event.hashes.iter().map(|hash| hash.low).collect(),
            tokens: event.tokens.clone(),
            extras: if extras.iter().any(|extra| extra.hash != 0) {
                extras
            } else {
                Vec::new()
            },
            block_size: event.block_size.max(1) as usize,
            adapter: self.adapter_of(event),
            lookahead: self.lookahead_of(event),
        }
    }
}

const fn has_lora(event: &Stored) -> bool {
    event.lora_name.is_some() || event.lora_id.is_some()
}

fn content_of<'a>(tokens: &'a [u32], extra: &'a Extra, lookahead: u32) -> Content<'a> {
    Content {
        tokens,
        extra: extra.hash,
        opaque: extra.opaque,
        media: &extra.media,
        grown: false,
        lookahead,
    }
}

/// A block's content, seen from its parent.
const fn below(other_adapter: bool, content: Content<'_>) -> Content<'_> {
    if other_adapter {
        return Content {
            extra: content.extra ^ OTHER_ADAPTER,
            opaque: true,
            ..content
        };
    }
    content
}
