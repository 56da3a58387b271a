//! Media items in a text chain: what they are is mixed in where they stand.
//!
//! The engine's tokens have an item as its placeholder token, repeated as often as the item has
//! tokens, and the same for all items; the request's text has one placeholder. Both sides feed one
//! placeholder through [`TextChain::feed_media_while`], which first mixes in what the engine calls
//! the item. Blocks that end before the item do not know of it; every later one does.

use core::ops::ControlFlow;

use sha2::{Digest, Sha256};

use super::text::{TextBlock, TextChain};

/// Longest identifier that is looked at, in bytes. Engines make 64 hex digits; clients name what
/// they like.
pub const MAX_IDENTIFIER_BYTES: usize = 1 << 10;

/// Stands for an item's identifier, whatever its length: half of its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct MediaKey(pub [u8; 16]);

impl MediaKey {
    /// The key of what the engine calls an item in its events (`extra_keys`): the client's `uuid`,
    /// or a hash of the item. `None`: longer than [`MAX_IDENTIFIER_BYTES`].
    #[must_use]
    pub fn of(identifier: &str) -> Option<Self> {
        if identifier.len() > MAX_IDENTIFIER_BYTES {
            return None;
        }
        let digest: [u8; 32] = Sha256::new()
            .chain_update(b"prefix-picker media identifier")
            .chain_update(identifier.as_bytes())
            .finalize()
            .into();
        digest.first_chunk().copied().map(Self)
    }
}

impl TextChain {
    /// Takes a media item: first its key, then its placeholder's bytes, which may finish blocks as any
    /// bytes may. A block that ends right before the item is finished without it.
    ///
    /// The new accumulator is a SHA-256 over a tag, the whole state and the key: a function of its
    /// own, that no text leads through, and whose inputs differ wherever the text before, the place
    /// in the block or the item do.
    pub fn feed_media_while(
        &mut self,
        key: MediaKey,
        placeholder: &[u8],
        mut on_block: impl FnMut(TextBlock) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let cut = self.cut_before(placeholder.first().copied());
        if let Some(block) = cut {
            on_block(block)?;
        }
        let digest: [u8; 32] = Sha256::new()
            .chain_update(b"prefix-picker media item")
            .chain_update(self.to_bytes())
            .chain_update(key.0)
            .finalize()
            .into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        self.replace_accumulator(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
        self.feed_while(placeholder, on_block)
    }

    /// As [`feed_media_while`](Self::feed_media_while), to the placeholder's end.
    pub fn feed_media(
        &mut self,
        key: MediaKey,
        placeholder: &[u8],
        mut on_block: impl FnMut(TextBlock),
    ) {
        // The closure never breaks.
        let _ = self.feed_media_while(key, placeholder, |block| {
            on_block(block);
            ControlFlow::Continue(())
        });
    }
}
