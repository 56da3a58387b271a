//! What beside its tokens tells a block apart, and text chains through media items.
//!
//! An engine repeats an item's placeholder token as often as the item has tokens; a request's text
//! has one placeholder. So the run of the token that stands at an item's start counts as one, whatever
//! its length, and may go on through later blocks: as long as these name an item that began before
//! them. A node remembers the token of the run that it ends in.
//!
//! Where tokens are not like that (row breaks within an item, a placeholder of several tokens) the
//! chain goes through them as they are, or ends; no request's text has such bytes.

use super::PoolIndex;
use super::emit::Content;
use super::nodes::{OPAQUE, TEXT};
use crate::events::{ExtraKey, Stored};
use prefix_picker_core::blocks::{MediaKey, TextBlock, TextChain};
use std::fmt::Write as _;

/// A media item that overlaps a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Item {
    /// Its first token, counted from the block's first; below 0: it began in a block before.
    pub(super) offset: i32,
    pub(super) key: MediaKey,
}

/// What beside its tokens tells a block apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extra {
    /// Hash of it; 0: nothing.
    pub(super) hash: u64,
    /// Nothing can be claimed of such a block.
    pub(super) opaque: bool,
    pub(super) media: Vec<Item>,
}

/// The tokens of a block, as a request's text has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Tokens `from..to` as they are.
    Text { from: usize, to: usize },
    /// An item whose placeholder is the token at this place.
    Item { at: usize, key: MediaKey },
}

/// The block's parts, and the token of the run that it ends in. `run`: that of the block before.
/// `None`: an item goes on whose tokens are not alike.
fn parts(tokens: &[u32], run: Option<u32>, media: &[Item]) -> Option<(Vec<Part>, Option<u32>)> {
    let goes_on = media.first().is_some_and(|item| item.offset < 0);
    let mut run = if goes_on { Some(run?) } else { None };
    let starts = media
        .iter()
        .filter_map(|item| Some((usize::try_from(item.offset).ok()?, Some(item.key))));
    let (mut parts, mut at) = (Vec::new(), 0);
    for (next, key) in starts.chain([(tokens.len(), None)]) {
        let until = tokens.get(at..next)?;
        let repeats = run.map_or(0, |run| until.iter().take_while(|id| **id == run).count());
        if repeats < until.len() {
            let from = at + repeats;
            parts.push(Part::Text { from, to: next });
            run = None;
        }
        at = next;
        if let Some(key) = key {
            run = Some(*tokens.get(at)?);
            parts.push(Part::Item { at, key });
            at += 1;
        }
    }
    Some((parts, run))
}

/// Items in order, each inside the block but for one that began before it; else `None`.
fn items(media: &[(&str, i64)], block_size: u32) -> Option<Vec<Item>> {
    let mut items: Vec<Item> = Vec::with_capacity(media.len());
    for (identifier, offset) in media {
        let offset = i32::try_from(*offset).ok()?;
        let after_last = items
            .last()
            .is_none_or(|last| offset >= 0 && offset > last.offset);
        if !after_last || i64::from(offset) >= i64::from(block_size) {
            return None;
        }
        let key = MediaKey::of(identifier)?;
        items.push(Item { offset, key });
    }
    Some(items)
}

impl PoolIndex {
    /// Continues the text chain through a node in which media items begin or go on.
    pub(super) fn emit_media(&mut self, parent: u32, node: u32, content: Content<'_>) {
        let above = self.nodes.get(parent);
        let (before, mut chain) = (above.tokens(), TextChain::from_bytes(&above.text));
        let Some((parts, run)) = parts(content.tokens, above.run(), content.media) else {
            self.nodes.get_mut(node).set(OPAQUE);
            return;
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.text.clear();
        // How many bytes there are up to each token's end; repeats have none of their own.
        let mut ends: Vec<usize> = Vec::with_capacity(content.tokens.len());
        let (mut bytes, mut known) = (0, true);
        for part in parts {
            let (from, to, key) = match part {
                Part::Text { from, to } => (from, to, None),
                Part::Item { at, key } => (at, at + 1, Some(key)),
            };
            ends.resize(from, bytes);
            let tokens = content.tokens.get(from..to).unwrap_or_default();
            known &= self.speller.spell(tokens, &mut scratch.bytes);
            let on_block = |block: TextBlock| {
                scratch.text.push(TextBlock {
                    end: bytes + block.end,
                    ..block
                });
            };
            match key {
                None => chain.feed(&scratch.bytes, on_block),
                Some(key) => chain.feed_media(key, &scratch.bytes, on_block),
            }
            for token in tokens {
                bytes += self.speller.length(*token).unwrap_or(0);
                ends.push(bytes);
            }
        }
        ends.resize(content.tokens.len(), bytes);
        if known {
            let held = self.nodes.get_mut(node);
            held.text = chain.to_bytes();
            held.set_run(run);
            held.set(TEXT);
            for block in &scratch.text {
                let inside = ends.iter().take_while(|end| **end <= block.end).count();
                self.own_text(node, before, inside, content.lookahead, block);
            }
        }
        self.scratch = scratch;
    }

    /// What beside its tokens tells a stored block apart.
    pub(super) fn extra_of(&self, event: &Stored, block: usize) -> Extra {
        match &event.extra_keys {
            None => return Extra::default(),
            // No keys, which is nearly every block.
            Some(entries)
                if entries.len() == event.hashes.len()
                    && matches!(entries.get(block), Some(None)) =>
            {
                return Extra::default();
            }
            Some(_) => {}
        }
        let identity = event.identity(block);
        let clear = !identity.unclear && identity.embeddings.is_none();
        if clear && identity.media.is_empty() {
            return Extra::default();
        }
        let keys = event
            .extra_keys
            .as_ref()
            .and_then(|entries| entries.get(block))
            .and_then(Option::as_ref);
        let hash = keys
            .into_iter()
            .flatten()
            .fold(1, |hash, key| self.hash_key(hash, key));
        let media = clear
            .then(|| items(&identity.media, event.block_size))
            .flatten();
        Extra {
            hash: hash >> 1 | 1,
            opaque: media.is_none(),
            media: media.unwrap_or_default(),
        }
    }

    fn hash_key(&self, hash: u64, key: &ExtraKey) -> u64 {
        let hasher = self.hasher;
        match key {
            ExtraKey::Text(text) => hasher.bytes(hash ^ 1, text.as_bytes()),
            ExtraKey::Salt(text) => hasher.bytes(hash ^ 2, text.as_bytes()),
            ExtraKey::Lora { name } => hasher.bytes(hash ^ 3, name.as_bytes()),
            ExtraKey::Bytes(bytes) => hasher.bytes(hash ^ 4, bytes),
            ExtraKey::Media { identifier, offset } => {
                let mut text = String::new();
                let _ = write!(text, "{offset}:{identifier}");
                hasher.bytes(hash ^ 5, text.as_bytes())
            }
            ExtraKey::Unknown => hasher.bytes(hash ^ 6, b""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(offset: i32, name: &str) -> Item {
        Item {
            offset,
            key: MediaKey::of(name).unwrap(),
        }
    }

    fn begins(at: usize, name: &str) -> Part {
        let key = MediaKey::of(name).unwrap();
        Part::Item { at, key }
    }

    #[test]
    fn a_run_is_one_placeholder_and_goes_on_where_the_next_block_says_so() {
        let text = |from, to| Part::Text { from, to };
        let cat = [item(2, "cat")];
        let begun = parts(&[1, 2, 9, 9], None, &cat).unwrap();
        assert_eq!(begun, (vec![text(0, 2), begins(2, "cat")], Some(9)));
        let goes_on = [item(-2, "cat")];
        assert_eq!(
            parts(&[9, 9, 9, 9], Some(9), &goes_on),
            Some((vec![], Some(9)))
        );
        assert_eq!(
            parts(&[9, 9, 3, 9], Some(9), &goes_on),
            Some((vec![text(2, 4)], None))
        );
        // The item ended with the block before: this is text that looks like it.
        assert_eq!(
            parts(&[9, 9, 3, 9], Some(9), &[item(3, "cat")]),
            Some((vec![text(0, 3), begins(3, "cat")], Some(9)))
        );
        // It goes on, but not with the same tokens.
        assert_eq!(parts(&[9, 9, 3, 9], None, &goes_on), None);
    }

    #[test]
    fn items_in_a_row_are_told_apart_by_where_they_begin() {
        let media = [item(-3, "a"), item(1, "b"), item(3, "c")];
        assert_eq!(
            parts(&[9, 9, 9, 9], Some(9), &media),
            Some((vec![begins(1, "b"), begins(3, "c")], Some(9)))
        );
    }

    #[test]
    fn items_that_make_no_sense_are_refused() {
        let long = "x".repeat(2000);
        for media in [
            vec![("a", 16)],
            vec![("a", 3), ("b", 3)],
            vec![("a", 3), ("b", 2)],
            vec![("a", -3), ("b", -2)],
            vec![("a", i64::MAX)],
            vec![(long.as_str(), 0)],
        ] {
            assert_eq!(items(&media, 16), None, "{media:?}");
        }
        assert_eq!(
            items(&[("a", -3), ("b", 0), ("c", 15)], 16).unwrap().len(),
            3
        );
    }
}
