//! A plain trie of blocks with the replicas at each: the model that look-ups are compared with, and
//! the groups that a table made from it has.

use std::collections::HashMap;

use super::{BlockHash, GroupSpec, Holder, ReplicaIndex, RunSpec, choose_split, encode_group};

/// What a replica holds of a prompt in truth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) gpu_blocks: u32,
    pub(crate) gpu_tokens: u32,
    pub(crate) any_blocks: u32,
    pub(crate) any_tokens: u32,
}

#[derive(Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
    by_hash: HashMap<BlockHash, usize>,
    roots: Vec<usize>,
}

struct Node {
    hash: BlockHash,
    tokens: u32,
    depth: u32,
    children: Vec<usize>,
    /// Ascending.
    gpu: Vec<u16>,
    any: Vec<u16>,
}

impl Trie {
    /// `replica` holds the first `gpu` blocks in GPU memory and the first `any` in some tier.
    /// `tokens[i]`: tokens up to the end of block `i`.
    pub(crate) fn hold(
        &mut self,
        hashes: &[BlockHash],
        tokens: &[u32],
        replica: ReplicaIndex,
        gpu: usize,
        any: usize,
    ) {
        self.hold_from(0, hashes, tokens, replica, gpu, any);
    }

    /// As `hold`, where it is known that the replica holds the first `from` blocks.
    pub(crate) fn hold_from(
        &mut self,
        from: usize,
        hashes: &[BlockHash],
        tokens: &[u32],
        replica: ReplicaIndex,
        gpu: usize,
        any: usize,
    ) {
        let mut parent = from.checked_sub(1).map(|last| self.by_hash[&hashes[last]]);
        for (at, hash) in hashes.iter().take(gpu.max(any)).enumerate().skip(from) {
            let node = match self.by_hash.get(hash) {
                Some(node) => *node,
                None => {
                    let node = self.nodes.len();
                    self.nodes.push(Node {
                        hash: *hash,
                        tokens: tokens[at],
                        depth: at as u32,
                        children: Vec::new(),
                        gpu: Vec::new(),
                        any: Vec::new(),
                    });
                    self.by_hash.insert(*hash, node);
                    match parent {
                        None => self.roots.push(node),
                        Some(parent) => {
                            let parent: &mut Node = &mut self.nodes[parent];
                            parent.children.push(node);
                        }
                    }
                    node
                }
            };
            if at < gpu {
                insert(&mut self.nodes[node].gpu, replica.0);
            }
            insert(&mut self.nodes[node].any, replica.0);
            parent = Some(node);
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.nodes.len()
    }

    /// Walks the prompt block by block.
    pub(crate) fn truth(&self, hashes: &[BlockHash], replica: ReplicaIndex) -> Truth {
        let mut truth = Truth::default();
        for (at, hash) in hashes.iter().enumerate() {
            let Some(node) = self.by_hash.get(hash).map(|node| &self.nodes[*node]) else {
                break;
            };
            if truth.any_blocks as usize == at && node.any.binary_search(&replica.0).is_ok() {
                (truth.any_blocks, truth.any_tokens) = (at as u32 + 1, node.tokens);
            }
            if truth.gpu_blocks as usize == at && node.gpu.binary_search(&replica.0).is_ok() {
                (truth.gpu_blocks, truth.gpu_tokens) = (at as u32 + 1, node.tokens);
            }
        }
        truth
    }

    /// All groups, each at most about `limit` bytes where a split can make it so.
    pub(crate) fn groups(&self, limit: usize, mut emit: impl FnMut(BlockHash, Vec<u8>)) {
        // Anchor and the tokens before it.
        let mut anchors: Vec<(usize, u32)> = self.roots.iter().map(|root| (*root, 0)).collect();
        while let Some((anchor, base_tokens)) = anchors.pop() {
            let whole = 32 - self.nodes[anchor].depth % 32;
            let mut cut = whole;
            let mut spec = self.group(anchor, base_tokens, cut, None);
            let mut body = encode_group(&spec).expect("a group of the trie");
            if body.len() > limit {
                let mut weights = [0u32; 32];
                for run in &spec.runs {
                    weights[usize::from(run.start)] += 6 + 2 * run.holders.len() as u32;
                    for at in 0..run.hashes.len() {
                        weights[usize::from(run.start) + at] += 5;
                    }
                }
                if let Some(split) = choose_split(&weights, limit as u32) {
                    cut = u32::from(split);
                    spec = self.group(anchor, base_tokens, cut, Some(split));
                    body = encode_group(&spec).expect("a split group of the trie");
                }
            }
            emit(self.nodes[anchor].hash, body);
            for run in &spec.runs {
                let last = self.by_hash[run.hashes.last().expect("a block")];
                if u32::from(run.start) + run.hashes.len() as u32 == cut {
                    let tokens = self.nodes[last].tokens;
                    anchors.extend(
                        self.nodes[last]
                            .children
                            .iter()
                            .map(|child| (*child, tokens)),
                    );
                }
            }
        }
    }

    /// The group at `anchor`, `cut` blocks deep.
    fn group(&self, anchor: usize, base_tokens: u32, cut: u32, split: Option<u8>) -> GroupSpec {
        let mut runs = Vec::new();
        let mut starts = vec![(anchor, 0u32)];
        while let Some((first, start)) = starts.pop() {
            let mut run = vec![first];
            let mut last = &self.nodes[first];
            while let [only] = last.children[..]
                && start + (run.len() as u32) < cut
            {
                run.push(only);
                last = &self.nodes[only];
            }
            let end = start + run.len() as u32;
            if end < cut {
                starts.extend(last.children.iter().map(|child| (*child, end)));
            }
            runs.push(self.run(&run, start));
        }
        GroupSpec {
            base_tokens,
            split,
            runs,
        }
    }

    fn run(&self, nodes: &[usize], start: u32) -> RunSpec {
        let mut holders: Vec<Holder> = self.nodes[nodes[0]]
            .any
            .iter()
            .map(|replica| Holder {
                replica: ReplicaIndex(*replica),
                gpu: 0,
                any: 0,
            })
            .collect();
        for node in nodes.iter().map(|node| &self.nodes[*node]) {
            for holder in &mut holders {
                holder.gpu += u8::from(node.gpu.binary_search(&holder.replica.0).is_ok());
                holder.any += u8::from(node.any.binary_search(&holder.replica.0).is_ok());
            }
        }
        RunSpec {
            start: start as u8,
            hashes: nodes.iter().map(|node| self.nodes[*node].hash).collect(),
            tokens: nodes.iter().map(|node| self.nodes[*node].tokens).collect(),
            holders,
        }
    }
}

fn insert(set: &mut Vec<u16>, replica: u16) {
    if let Err(at) = set.binary_search(&replica) {
        set.insert(at, replica);
    }
}
