//! Nodes for content, and the blocks of ours that end in them.

use super::PoolIndex;
use super::arena::NIL;
use super::blocks::NewBlock;
use super::media::Item;
use super::nodes::{HELD, IDS, LORA, MAX_TOKENS, Node, OPAQUE, ROOT, SPOILT, TEXT};
use crate::events::Stored;
use prefix_picker_core::blocks::{
    Family, HARD_CUT_HOLDBACK_TOKENS, IdBlock, IdChain, Namespace, Seed, TextBlock, TextChain, seed,
};

/// Buffers that are used again.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) bytes: Vec<u8>,
    pub(super) text: Vec<TextBlock>,
    ids: Vec<IdBlock>,
}

/// One engine block's content.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    pub(super) tokens: &'a [u32],
    /// Hash of what beside the tokens tells the block apart; 0: nothing.
    pub(super) extra: u64,
    /// None of our blocks may end at or after it.
    pub(super) opaque: bool,
    /// Media items that overlap the block.
    pub(super) media: &'a [Item],
    /// It came alone, as decoded blocks do.
    pub(super) grown: bool,
    /// Tokens after the block that the engine also wants to see before it uses the block.
    pub(super) lookahead: u32,
}

impl PoolIndex {
    /// The root of the namespace that a store without parent begins in.
    pub(super) fn root_of(&mut self, event: &Stored) -> Option<u32> {
        let salt = event.identity(0).salt;
        // Numbers of adapters depend on the order of loading: no gateway can know them.
        let numbered = event
            .lora_id
            .filter(|_| event.lora_name.is_none())
            .map(|id| format!("{id}"));
        let lora = event.lora_name.as_deref().or(numbered.as_deref());
        let namespace = |family| Namespace {
            family,
            profile_hash: self.config.profile_hash,
            lora,
            salt,
        };
        let text = seed(&self.config.key, &namespace(Family::Text));
        let mut flags = ROOT | TEXT | if lora.is_some() { LORA } else { 0 };
        let mut key = text.0;
        if numbered.is_some() {
            flags |= OPAQUE;
            key = self.hasher.bytes(key, b"numbered adapter");
        }
        if self.config.untold_salts && event.extra_keys.is_none() && event.cache_salt.is_none() {
            flags |= OPAQUE;
            key = self.hasher.bytes(key, b"perhaps salted");
        }
        let found = self.nodes.find_root(key);
        let knows_ids = found.is_some_and(|root| self.nodes.get(root).is(IDS));
        let ids = (self.config.token_ids && !knows_ids)
            .then(|| seed(&self.config.key, &namespace(Family::TokenIds)));
        let root = match found {
            Some(root) => root,
            None => {
                let holding = self.holdings.empty();
                let mut node = Node::new(key, NIL, 0, flags, holding, self.clock);
                node.text = TextChain::new(text).to_bytes();
                let root = self.nodes.insert(node)?;
                if let Some(adapter) = self.adapter_of(event) {
                    self.adapters.set(root, adapter);
                }
                root
            }
        };
        if let Some(ids) = ids {
            self.set_id_chain(root, IdChain::new(ids));
        }
        Some(root)
    }

    pub(super) fn set_id_chain(&mut self, node: u32, chain: IdChain) {
        let slots = self.nodes.slots() as usize;
        if self.id_chains.len() < slots {
            self.id_chains.resize(slots, IdChain::new(Seed(0)));
        }
        if let Some(slot) = self.id_chains.get_mut(node as usize) {
            *slot = chain;
            self.nodes.get_mut(node).set(IDS);
        }
    }

    pub(super) fn id_chain(&self, node: u32) -> Option<IdChain> {
        self.nodes
            .get(node)
            .is(IDS)
            .then(|| self.id_chains.get(node as usize).copied())
            .flatten()
    }

    /// The node of a block below `parent`, made if need be. `None`: no room, or too long a prompt.
    pub(super) fn child(&mut self, parent: u32, content: Content<'_>) -> Option<u32> {
        let above = self.nodes.get(parent);
        let tokens = u32::try_from(content.tokens.len())
            .ok()?
            .checked_add(above.tokens())?;
        if tokens > MAX_TOKENS {
            return None;
        }
        let key = self.hasher.block(
            above.key,
            content.tokens,
            content.extra | u64::from(content.opaque) << 63,
        );
        let inherited = above.flags() & (OPAQUE | LORA);
        let child = match self.nodes.find_child(parent, key) {
            Some(child) => {
                let node = self.nodes.get_mut(child);
                node.used = self.clock;
                if !content.grown {
                    node.clear(HELD);
                }
                child
            }
            None => {
                let flags = inherited
                    | if content.opaque { OPAQUE } else { 0 }
                    | if content.grown { HELD } else { 0 };
                let holding = self.holdings.empty();
                self.nodes
                    .insert(Node::new(key, parent, tokens, flags, holding, self.clock))?
            }
        };
        let (node, above) = (self.nodes.get(child), self.nodes.get(parent));
        if !node.is(OPAQUE) {
            if self.config.text && above.is(TEXT) && !node.is(TEXT | HELD | SPOILT) {
                if content.media.is_empty() {
                    self.emit_text(parent, child, content);
                } else {
                    self.emit_media(parent, child, content);
                }
            }
            // Ids alone do not tell an item: prompts of ids have none.
            if self.config.token_ids
                && content.media.is_empty()
                && self.nodes.get(parent).is(IDS)
                && !self.nodes.get(child).is(IDS)
            {
                self.emit_ids(parent, child, content);
            }
        }
        Some(child)
    }

    /// Continues the text chain through a node.
    pub(super) fn emit_text(&mut self, parent: u32, node: u32, content: Content<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if self.speller.spell(content.tokens, &mut scratch.bytes) {
            let above = self.nodes.get(parent);
            let before = above.tokens();
            let mut chain = TextChain::from_bytes(&above.text);
            scratch.text.clear();
            chain.feed(&scratch.bytes, |block| scratch.text.push(block));
            let held = self.nodes.get_mut(node);
            held.text = chain.to_bytes();
            held.set(TEXT);
            for block in &scratch.text {
                let inside = self.speller.tokens_within(content.tokens, block.end);
                self.own_text(node, before, inside, content.lookahead, block);
            }
        }
        self.scratch = scratch;
    }

    /// Notes that a block of text ends in a node, after `inside` of its tokens.
    pub(super) fn own_text(
        &mut self,
        node: u32,
        before: u32,
        inside: usize,
        lookahead: u32,
        block: &TextBlock,
    ) {
        let held_back = lookahead
            + if block.hard_cut {
                HARD_CUT_HOLDBACK_TOKENS
            } else {
                0
            };
        let tokens = before
            .saturating_add(u32::try_from(inside).unwrap_or(0))
            .saturating_sub(held_back);
        self.own(
            node,
            NewBlock {
                hash: block.hash,
                tokens,
                ids: false,
            },
        );
    }

    /// Continues the chain of token ids through a node.
    fn emit_ids(&mut self, parent: u32, node: u32, content: Content<'_>) {
        let Some(mut chain) = self.id_chain(parent) else {
            return;
        };
        let before = self.nodes.get(parent).tokens();
        let mut blocks = std::mem::take(&mut self.scratch.ids);
        blocks.clear();
        chain.feed(content.tokens, |block| blocks.push(block));
        self.set_id_chain(node, chain);
        for block in &blocks {
            let inside = u32::try_from(block.end).unwrap_or(0);
            let tokens = before
                .saturating_add(inside)
                .saturating_sub(content.lookahead);
            self.own(
                node,
                NewBlock {
                    hash: block.hash,
                    tokens,
                    ids: true,
                },
            );
        }
        self.scratch.ids = blocks;
    }

    /// Notes that one of our blocks ends in a node.
    fn own(&mut self, node: u32, block: NewBlock) {
        let parent = self.last_block(node, block.ids);
        let owns = self.nodes.get(node).owns;
        match self.blocks.own(node, owns, parent, block) {
            Some((_, owns)) => self.nodes.get_mut(node).owns = owns,
            // Without this block those after it would hang in the wrong place.
            None => self.nodes.get_mut(node).set(OPAQUE),
        }
    }

    /// The last block of a chain that ends in a node or before it; [`NIL`]: none.
    pub(super) fn last_block(&self, node: u32, ids: bool) -> u32 {
        let mut at = node;
        while at != NIL {
            let held = self.nodes.get(at);
            let last = self
                .blocks
                .owned(held.owns)
                .find(|owner| self.blocks.tree.get(owner.block).is_ids() == ids);
            if let Some(owner) = last {
                return owner.block;
            }
            at = held.links.parent;
        }
        NIL
    }
}
