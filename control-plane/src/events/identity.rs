//! What beside its tokens tells a stored block from another: salt, LoRA adapter, media, embeddings.

use super::{ExtraKey, Stored};

/// What a block's extra keys say, sorted out.
///
/// vLLM's events list them without tags, in the order LoRA name, media items, salt, embeddings; the
/// salt appears at a prompt's first block only. Where strings could mean two things, `unclear` is
/// set, and nothing should be claimed of the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockIdentity<'a> {
    /// The request's salt; at a prompt's first block only.
    pub salt: Option<&'a str>,
    /// Media items that overlap the block: identifier and first token counted from the block's first.
    pub media: Vec<(&'a str, i64)>,
    /// Digest of prompt embeddings, if any: text says nothing about such a block.
    pub embeddings: Option<&'a [u8]>,
    /// The keys hold something that cannot be told apart or is not known.
    pub unclear: bool,
}

impl Stored {
    /// What the extra keys of the `block`-th hash say. Allocates only where there are media.
    #[must_use]
    pub fn identity(&self, block: usize) -> BlockIdentity<'_> {
        let is_first = block == 0 && self.parent.is_none();
        let mut identity = BlockIdentity::default();
        if is_first {
            identity.salt = self.cache_salt.as_deref();
        }
        let keys = match &self.extra_keys {
            None => return identity,
            Some(entries) if entries.len() != self.hashes.len() => {
                identity.unclear = true;
                return identity;
            }
            Some(entries) => entries.get(block).and_then(Option::as_ref),
        };
        // Engines that do not tell where items are (vLLM 0.17 and 0.18) name them as they name a salt,
        // but in every block that an item overlaps.
        let goes_on = |text: &str| {
            let names = |key: &ExtraKey| matches!(key, ExtraKey::Text(other) if other == text);
            let next = self
                .extra_keys
                .as_ref()
                .and_then(|keys| keys.get(block + 1));
            next.and_then(Option::as_ref)
                .is_some_and(|keys| keys.iter().any(names))
        };
        let mut lora = self.lora_name.as_deref();
        for key in keys.into_iter().flatten() {
            match key {
                ExtraKey::Text(text) if lora == Some(text) => lora = None,
                ExtraKey::Lora { name } if lora == Some(name) => lora = None,
                ExtraKey::Text(item)
                    if is_first && self.lora_name.as_ref() != Some(item) && goes_on(item) =>
                {
                    identity.unclear = true;
                }
                ExtraKey::Text(salt) | ExtraKey::Salt(salt)
                    if is_first && identity.salt.is_none() =>
                {
                    identity.salt = Some(salt);
                }
                ExtraKey::Media { identifier, offset } => {
                    identity.media.push((identifier, *offset))
                }
                ExtraKey::Bytes(digest) if identity.embeddings.is_none() => {
                    identity.embeddings = Some(digest)
                }
                _ => identity.unclear = true,
            }
        }
        // An adapter that the keys do not name: the strings were taken for something else.
        identity.unclear |= lora.is_some() && keys.is_some_and(|keys| !keys.is_empty());
        identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::EngineHash;

    fn stored(lora: Option<&str>, root: bool, keys: Vec<ExtraKey>) -> Stored {
        Stored {
            hashes: vec![EngineHash::from_u64(1)],
            parent: (!root).then(|| EngineHash::from_u64(2)),
            lora_name: lora.map(str::to_owned),
            extra_keys: Some(vec![Some(keys)]),
            ..Stored::default()
        }
    }

    fn text(text: &str) -> ExtraKey {
        ExtraKey::Text(text.into())
    }

    #[test]
    fn a_bare_string_at_the_first_block_is_the_salt() {
        let event = stored(None, true, vec![text("tenant-a")]);
        assert_eq!(
            event.identity(0),
            BlockIdentity {
                salt: Some("tenant-a"),
                ..Default::default()
            }
        );
    }

    #[test]
    fn a_lora_name_is_not_taken_for_a_salt() {
        assert_eq!(
            stored(Some("sql"), true, vec![text("sql")]).identity(0),
            BlockIdentity::default()
        );
        let both = stored(Some("sql"), true, vec![text("sql"), text("sql")]);
        assert_eq!(both.identity(0).salt, Some("sql"));
        assert!(
            stored(Some("sql"), true, vec![text("other")])
                .identity(0)
                .unclear
        );
    }

    #[test]
    fn media_and_salt_are_told_apart() {
        let image = ExtraKey::Media {
            identifier: "img".into(),
            offset: -3,
        };
        let event = stored(None, true, vec![image, text("s")]);
        assert_eq!(
            event.identity(0),
            BlockIdentity {
                salt: Some("s"),
                media: vec![("img", -3)],
                ..Default::default()
            }
        );
    }

    #[test]
    fn strings_that_could_mean_two_things_are_unclear() {
        assert!(
            stored(None, true, vec![text("image id"), text("salt")])
                .identity(0)
                .unclear
        );
        assert!(
            stored(None, false, vec![text("image id")])
                .identity(0)
                .unclear
        );
        assert!(
            stored(None, true, vec![ExtraKey::Unknown])
                .identity(0)
                .unclear
        );
    }

    #[test]
    fn entries_that_do_not_pair_with_hashes_are_unclear() {
        let mut event = stored(None, true, vec![]);
        event.hashes.push(EngineHash::from_u64(3));
        assert!(event.identity(0).unclear);
    }
}
