//! Blocks that grew by decoding.
//!
//! A claim rests on this: equal text has equal tokens. It holds for prompts, which are tokenised, not
//! for what a model generates, token by token: a next turn's prompt, tokenised anew, may have other
//! tokens for the same text, and the engine's hit ends there. So a block that comes alone, as decoded
//! ones do (a prefill's last one may, too), makes no claim before somebody has looked at its tokens
//! ([`crate::canonicity`]): [`PoolIndex::take_grown`], [`PoolIndex::judge_grown`]. Blocks that come as
//! part of a longer prefill are a prompt's, and so is a held one that such a prefill names again.
//!
//! What is looked at begins where any tokenizer begins anew (before a space after a word, after a line
//! break) and ends at the last such place: what follows may still change what the last tokens should
//! have been. It is looked at with the next block. Texts without such places are looked at in pieces
//! whose first and last tokens do not count.

use super::PoolIndex;
use super::emit::Content;
use super::nodes::{HELD, OPAQUE, SPOILT, TEXT};
use hashbrown::HashMap;
use std::collections::VecDeque;

/// Most blocks that wait for a judgement; the oldest are dropped, and stay without a claim.
const BLOCKS_MAX: usize = 1 << 12;
/// Most prompts' ends that are remembered. At most 1 KB each.
const TAILS_MAX: usize = 1 << 13;
/// Tokens kept of a text without a place to begin at.
const TAIL_TOKENS_MAX: usize = 128;
/// Of these, how many are kept, and how many at their start do not count.
const CUT_TAIL_TOKENS: usize = 64;
const CUT_CONTEXT: usize = 8;
/// Tokens at the end that do not count where there is no place to end at.
const MARGIN: usize = 4;

/// The end of a prompt: what the next block's first tokens depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    tokens: Vec<u32>,
    /// Tokens at the start that do not count.
    context: usize,
}

/// A block whose tokens are to be judged, with those before it as far as they matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrownBlock {
    node: u32,
    key: u64,
    lookahead: u32,
    /// How many of the tokens are the block's own: the last ones.
    own: usize,
    /// Tokens to look at.
    pub tokens: Vec<u32>,
    /// The first ones do not count: they may be the rest of something.
    pub context: usize,
    /// Nor do those from here on: they may be the beginning of something.
    pub until: usize,
}

/// Whether every tokenizer begins anew between these two tokens.
fn begins_anew(before: &[u8], after: &[u8]) -> bool {
    match (before.last(), after.first()) {
        (Some(last), Some(b' ')) => last.is_ascii_graphic() && *last != b'>',
        (Some(b'\n'), Some(next)) => !next.is_ascii_whitespace() && next.is_ascii(),
        _ => false,
    }
}

impl Tail {
    /// Goes on by a block. What is to be looked at: tokens, how many at the start do not count, and
    /// where to stop. `bytes`: those of a token.
    pub fn extend<'v>(
        &mut self,
        block: &[u32],
        bytes: impl Fn(u32) -> Option<&'v [u8]>,
    ) -> (Vec<u32>, usize, usize) {
        let mut tokens = std::mem::take(&mut self.tokens);
        let context = self.context;
        let start = tokens.len();
        tokens.extend_from_slice(block);
        let of = |at: usize| tokens.get(at).and_then(|id| bytes(*id)).unwrap_or_default();
        let last = (start.max(1)..tokens.len())
            .rev()
            .find(|at| begins_anew(of(at - 1), of(*at)));
        let until = last.unwrap_or_else(|| tokens.len().saturating_sub(MARGIN));
        (self.tokens, self.context) = match last {
            Some(at) => (tokens.get(at..).unwrap_or_default().to_vec(), 0),
            None => (tokens.clone(), context),
        };
        if self.tokens.len() > TAIL_TOKENS_MAX {
            self.tokens.drain(..self.tokens.len() - CUT_TAIL_TOKENS);
            self.context = CUT_CONTEXT;
        }
        (tokens, context, until)
    }
}

/// Ends of prompts, and blocks that wait for a judgement.
#[derive(Debug, Default)]
pub(super) struct Grown {
    waiting: VecDeque<GrownBlock>,
    /// By the node at the end, with its key: numbers are used again.
    tails: HashMap<u32, (u64, Tail)>,
    order: VecDeque<u32>,
    /// Blocks judged to be what a tokenizer makes, not to be, and never judged.
    pub(super) canonical: u64,
    pub(super) spoilt: u64,
    pub(super) dropped: u64,
}

impl Grown {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Several continuations may come of one end.
    fn tail(&self, node: u32, key: u64) -> Option<Tail> {
        let (of, tail) = self.tails.get(&node)?;
        (*of == key).then(|| tail.clone())
    }

    fn put_tail(&mut self, node: u32, key: u64, tail: Tail) {
        self.tails.insert(node, (key, tail));
        self.order.push_back(node);
        if self.order.len() > 2 * TAILS_MAX {
            let tails = &self.tails;
            let mut seen = hashbrown::HashSet::new();
            // The newest place of each is what counts.
            let mut order: VecDeque<u32> = VecDeque::new();
            for node in self.order.iter().rev() {
                if tails.contains_key(node) && seen.insert(*node) {
                    order.push_front(*node);
                }
            }
            self.order = order;
        }
        while self.tails.len() > TAILS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.tails.remove(&oldest);
        }
    }

    fn push(&mut self, block: GrownBlock) {
        if self.waiting.len() >= BLOCKS_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
        self.waiting.push_back(block);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let tokens: usize = self.waiting.iter().map(|block| block.tokens.len()).sum();
        self.waiting.capacity() * size_of::<GrownBlock>()
            + tokens * size_of::<u32>()
            + self.tails.allocation_size()
            + self.tails.len() * TAIL_TOKENS_MAX * size_of::<u32>()
            + self.order.capacity() * size_of::<u32>()
    }
}

impl PoolIndex {
    /// Blocks that grew by decoding make no claim until they are judged, or claim like all others.
    pub fn set_check_grown(&mut self, check: bool) {
        self.config.check_grown = check;
    }

    /// A block came alone: remembers it for a judgement if it is held.
    pub(super) fn note_grown(&mut self, parent: u32, node: u32, content: &Content<'_>) {
        let above = self.nodes.get(parent);
        // Without a tail the block's first tokens may be the rest of something.
        let mut tail = match self.grown.tail(parent, above.key) {
            Some(tail) => tail,
            None if above.tokens() == 0 => Tail::default(),
            None => Tail {
                tokens: Vec::new(),
                context: CUT_CONTEXT,
            },
        };
        let speller = self.speller.clone();
        let (tokens, context, until) = tail.extend(content.tokens, |id| speller.bytes(id));
        let held = self.nodes.get(node);
        let key = held.key;
        if held.is(HELD) {
            self.grown.push(GrownBlock {
                node,
                key,
                lookahead: content.lookahead,
                own: content.tokens.len(),
                tokens,
                context,
                until,
            });
        }
        self.grown.put_tail(node, key, tail);
    }

    /// A prefill ends in this node, whose last block has these tokens.
    pub(super) fn note_prefill(&mut self, node: u32, tokens: &[u32]) {
        let mut tail = Tail {
            tokens: Vec::new(),
            context: CUT_CONTEXT,
        };
        let speller = self.speller.clone();
        tail.extend(tokens, |id| speller.bytes(id));
        let key = self.nodes.get(node).key;
        self.grown.put_tail(node, key, tail);
    }

    /// Whether blocks wait to be judged.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        self.grown.waiting() > 0
    }

    /// Takes blocks to be judged, oldest first.
    pub fn take_grown(&mut self, most: usize) -> Vec<GrownBlock> {
        let most = most.min(self.grown.waiting.len());
        self.grown.waiting.drain(..most).collect()
    }

    /// What was found of a block: whether a tokenizer makes these tokens of their text.
    pub fn judge_grown(&mut self, block: &GrownBlock, canonical: bool) {
        if !self.nodes.is_live(block.node) {
            return;
        }
        let node = self.nodes.get_mut(block.node);
        if node.key != block.key || !node.is(HELD) {
            return;
        }
        node.clear(HELD);
        if !canonical {
            node.set(SPOILT);
            self.grown.spoilt += 1;
            return;
        }
        self.grown.canonical += 1;
        let parent = node.links.parent;
        let can_go_on = !node.is(TEXT | OPAQUE) && self.nodes.get(parent).is(TEXT);
        if self.config.text && can_go_on {
            let from = block.tokens.len().saturating_sub(block.own);
            let content = Content {
                tokens: block.tokens.get(from..).unwrap_or_default(),
                extra: 0,
                opaque: false,
                media: &[],
                lookahead: block.lookahead,
                grown: true,
            };
            self.emit_text(parent, block.node, content);
        }
    }
}
