//! The fields of `BlockStored` and `BlockRemoved`: their places in arrays, their names in maps, and
//! how each is read. Nil stands for "absent" in every field.

use super::cursor::{Cursor, WireError};
use super::decode::{printable, remark};
use super::{EngineHash, ExtraKey, MAX_BLOCK_SIZE_TOKENS, Name, Removed, Stored};

/// Most values for which room is made before one is read.
const VALUES_AHEAD: usize = 1 << 16;

/// How deep a nested medium is searched for its name.
const MEDIUM_DEPTH: usize = 4;

/// Every field of `BlockStored` in any version, in the order of [`STORED_FIELDS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StoredField {
    BlockHashes,
    ParentBlockHash,
    TokenIds,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    GroupIdx,
    SpecKind,
    SlidingWindow,
    Locality,
    Ownership,
    SessionId,
    LookaheadTokenIds,
    CacheSalt,
}

/// In the order in which arrays hold them; those behind `ARRAY_FIELDS` came when events were maps.
const STORED_FIELDS: [(StoredField, &str); 16] = [
    (StoredField::BlockHashes, "block_hashes"),
    (StoredField::ParentBlockHash, "parent_block_hash"),
    (StoredField::TokenIds, "token_ids"),
    (StoredField::BlockSize, "block_size"),
    (StoredField::LoraId, "lora_id"),
    (StoredField::Medium, "medium"),
    (StoredField::LoraName, "lora_name"),
    (StoredField::ExtraKeys, "extra_keys"),
    (StoredField::GroupIdx, "group_idx"),
    (StoredField::SpecKind, "kv_cache_spec_kind"),
    (StoredField::SlidingWindow, "kv_cache_spec_sliding_window"),
    (StoredField::Locality, "locality"),
    (StoredField::Ownership, "ownership"),
    (StoredField::SessionId, "session_id"),
    (StoredField::LookaheadTokenIds, "lookahead_token_ids"),
    (StoredField::CacheSalt, "cache_salt"),
];
const ARRAY_FIELDS: usize = 11;

impl StoredField {
    pub(super) fn at(position: usize) -> Option<Self> {
        STORED_FIELDS
            .get(..ARRAY_FIELDS)?
            .get(position)
            .map(|(field, _)| *field)
    }

    /// The field of a name, which is most likely the one at place `next`: maps have them in order.
    pub(super) fn named(name: &[u8], next: usize) -> Option<Self> {
        let (before, rest) = STORED_FIELDS.split_at_checked(next)?;
        rest.iter()
            .chain(before)
            .find(|(_, known)| known.as_bytes() == name)
            .map(|(field, _)| *field)
    }

    pub(super) fn name(self) -> &'static str {
        STORED_FIELDS
            .iter()
            .find(|(field, _)| *field == self)
            .map_or("?", |(_, name)| name)
    }

    /// Reads this field's value into the event.
    pub(super) fn read(
        self,
        event: &mut Stored,
        cursor: &mut Cursor<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(), WireError> {
        if cursor.take_nil() {
            return Ok(());
        }
        match self {
            Self::BlockHashes => read_hashes(cursor, &mut event.hashes)?,
            Self::ParentBlockHash => event.parent = Some(cursor.hash()?),
            Self::TokenIds => {
                let count = cursor.array_within()?;
                event.tokens.reserve(count.min(VALUES_AHEAD));
                event.bigram = cursor.tokens(count, &mut event.tokens)?;
            }
            Self::BlockSize => {
                event.block_size = read_block_size(cursor)?;
                event.block_size_given = true;
            }
            Self::LoraId => event.lora_id = Some(cursor.fit("a LoRA number")?),
            Self::Medium => event.medium = Some(read_medium(cursor)?),
            Self::LoraName if cursor.at_map() => read_sglang_extras(event, cursor, notes)?,
            Self::LoraName => event.lora_name = Some(cursor.string()?.to_owned()),
            Self::ExtraKeys => event.extra_keys = Some(read_extra_keys(cursor)?),
            Self::GroupIdx => event.group = Some(cursor.fit("a group number")?),
            Self::SpecKind => event.kind = Some(name_of(cursor.string()?)),
            Self::SlidingWindow => event.sliding_window = Some(cursor.fit("a window size")?),
            Self::Locality => event.locality = Some(name_of(cursor.string()?)),
            Self::Ownership | Self::SessionId => cursor.skip()?,
            Self::LookaheadTokenIds => read_lookahead(event, cursor, notes)?,
            Self::CacheSalt => event.cache_salt = Some(cursor.string()?.to_owned()),
        }
        Ok(())
    }
}

/// Every field of `BlockRemoved` in any version, in the order of [`REMOVED_FIELDS`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovedField {
    BlockHashes,
    Medium,
    GroupIdx,
    Locality,
    Ownership,
}

const REMOVED_FIELDS: [(RemovedField, &str); 5] = [
    (RemovedField::BlockHashes, "block_hashes"),
    (RemovedField::Medium, "medium"),
    (RemovedField::GroupIdx, "group_idx"),
    (RemovedField::Locality, "locality"),
    (RemovedField::Ownership, "ownership"),
];
const REMOVED_ARRAY_FIELDS: usize = 3;

impl RemovedField {
    pub(super) fn at(position: usize) -> Option<Self> {
        REMOVED_FIELDS
            .get(..REMOVED_ARRAY_FIELDS)?
            .get(position)
            .map(|(field, _)| *field)
    }

    /// The field of a name, which is most likely the one at place `next`: maps have them in order.
    pub(super) fn named(name: &[u8], next: usize) -> Option<Self> {
        let (before, rest) = REMOVED_FIELDS.split_at_checked(next)?;
        rest.iter()
            .chain(before)
            .find(|(_, known)| known.as_bytes() == name)
            .map(|(field, _)| *field)
    }

    pub(super) fn name(self) -> &'static str {
        REMOVED_FIELDS
            .iter()
            .find(|(field, _)| *field == self)
            .map_or("?", |(_, name)| name)
    }

    /// Reads this field's value into the event.
    pub(super) fn read(
        self,
        event: &mut Removed,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), WireError> {
        if cursor.take_nil() {
            return Ok(());
        }
        match self {
            Self::BlockHashes => read_hashes(cursor, &mut event.hashes)?,
            Self::Medium => event.medium = Some(read_medium(cursor)?),
            Self::GroupIdx => event.group = Some(cursor.fit("a group number")?),
            Self::Locality | Self::Ownership => cursor.skip()?,
        }
        Ok(())
    }
}

fn read_hashes(cursor: &mut Cursor<'_>, hashes: &mut Vec<EngineHash>) -> Result<(), WireError> {
    let count = cursor.array_within()?;
    hashes.reserve_exact(count.min(VALUES_AHEAD));
    for _ in 0..count {
        hashes.push(cursor.hash()?);
    }
    Ok(())
}

fn read_block_size(cursor: &mut Cursor<'_>) -> Result<u32, WireError> {
    const WANTED: &str = "a block size";
    let value = cursor.integer(WANTED)?;
    u32::try_from(value)
        .ok()
        .filter(|size| *size <= MAX_BLOCK_SIZE_TOKENS)
        .ok_or(WireError::Range {
            wanted: WANTED,
            value,
        })
}

/// A tier's name, also where it is wrapped in an array or a map: the first string value inside.
fn read_medium(cursor: &mut Cursor<'_>) -> Result<Name, WireError> {
    if cursor.at_string() {
        return cursor.string().map(name_of);
    }
    let mut inner = *cursor;
    cursor.skip()?;
    for _ in 0..MEDIUM_DEPTH {
        if inner.at_map() {
            if inner.map_within()? == 0 {
                return Err(WireError::Missing);
            }
            inner.skip()?;
        } else if inner
            .array_within()
            .map_err(|error| wanted(error, "a medium"))?
            == 0
        {
            return Err(WireError::Missing);
        }
        if inner.at_string() {
            return inner.string().map(name_of);
        }
    }
    Err(WireError::Missing)
}

fn wanted(error: WireError, wanted: &'static str) -> WireError {
    match error {
        WireError::Kind { marker, .. } => WireError::Kind { wanted, marker },
        error => error,
    }
}

/// What SGLang 0.5.19 sends where vLLM has the LoRA name: `{"cache_salt": ...}`.
fn read_sglang_extras(
    event: &mut Stored,
    cursor: &mut Cursor<'_>,
    notes: &mut Vec<String>,
) -> Result<(), WireError> {
    for _ in 0..cursor.map_within()? {
        let key = cursor.string_bytes()?;
        if cursor.take_nil() {
            continue;
        }
        match key {
            b"cache_salt" => event.cache_salt = Some(cursor.string()?.to_owned()),
            b"lora_name" => event.lora_name = Some(cursor.string()?.to_owned()),
            b"session_id" => cursor.skip()?,
            key => {
                remark(notes, || {
                    format!("BlockStored: unknown field {} in element 7", printable(key))
                });
                cursor.skip()?;
            }
        }
    }
    Ok(())
}

fn read_extra_keys(cursor: &mut Cursor<'_>) -> Result<Vec<Option<Vec<ExtraKey>>>, WireError> {
    let blocks = cursor.array_within()?;
    let mut entries = Vec::with_capacity(blocks.min(VALUES_AHEAD));
    for _ in 0..blocks {
        entries.push(if cursor.take_nil() {
            None
        } else {
            Some(read_block_keys(cursor)?)
        });
    }
    Ok(entries)
}

fn read_block_keys(cursor: &mut Cursor<'_>) -> Result<Vec<ExtraKey>, WireError> {
    let count = cursor.array_within()?;
    let mut keys = Vec::with_capacity(count.min(8));
    for _ in 0..count {
        keys.push(read_extra_key(cursor)?);
    }
    Ok(keys)
}

fn read_extra_key(cursor: &mut Cursor<'_>) -> Result<ExtraKey, WireError> {
    match cursor.peek()? {
        _ if cursor.at_string() => Ok(ExtraKey::Text(cursor.string()?.to_owned())),
        0xc4..=0xc6 => Ok(ExtraKey::Bytes(cursor.bytes()?.to_vec())),
        _ if cursor.at_array() => {
            let inner = *cursor;
            cursor.skip()?;
            Ok(read_tuple_key(inner).unwrap_or(ExtraKey::Unknown))
        }
        _ => cursor.skip().map(|()| ExtraKey::Unknown),
    }
}

/// A key that is a tuple: `[identifier, offset]` as events have it, or tagged as the hash has it.
fn read_tuple_key(mut cursor: Cursor<'_>) -> Option<ExtraKey> {
    let length = cursor.array_within().ok()?;
    let first = cursor.string().ok()?;
    match (first, length) {
        ("cache_salt", 2) if cursor.at_string() => {
            Some(ExtraKey::Salt(cursor.string().ok()?.to_owned()))
        }
        ("lora", 3) if cursor.at_string() => Some(ExtraKey::Lora {
            name: cursor.string().ok()?.to_owned(),
        }),
        ("mm", 3) if cursor.at_string() => {
            let identifier = cursor.string().ok()?.to_owned();
            Some(ExtraKey::Media {
                identifier,
                offset: cursor.fit("an offset").ok()?,
            })
        }
        ("prompt_embeds", 2) => Some(ExtraKey::Bytes(cursor.bytes().ok()?.to_vec())),
        (identifier, 2) => Some(ExtraKey::Media {
            identifier: identifier.to_owned(),
            offset: cursor.fit("an offset").ok()?,
        }),
        _ => None,
    }
}

/// One list of tokens per hash, all of one length.
fn read_lookahead(
    event: &mut Stored,
    cursor: &mut Cursor<'_>,
    notes: &mut Vec<String>,
) -> Result<(), WireError> {
    let lists = cursor.array_within()?;
    let mut length = None;
    let mut even = true;
    for _ in 0..lists {
        let count = if cursor.take_nil() {
            0
        } else {
            cursor.array_within()?
        };
        even &= *length.get_or_insert(count) == count;
        cursor.tokens(count, &mut event.lookahead_tokens)?;
    }
    event.lookahead = u32::try_from(length.unwrap_or(0)).unwrap_or(u32::MAX);
    if !even {
        remark(notes, || {
            "BlockStored: lookahead_token_ids of different lengths are ignored".to_owned()
        });
        event.lookahead = 0;
        event.lookahead_tokens.clear();
    }
    Ok(())
}

/// Borrows the names that engines are known to send.
fn name_of(name: &str) -> Name {
    const KNOWN: [&str; 19] = [
        "GPU",
        "CPU",
        "full_attention",
        "STORAGE",
        "cpu",
        "CPU_PINNED",
        "DISK",
        "EXTERNAL",
        "FS",
        "OBJ",
        "LOCAL",
        "REMOTE",
        "mla_attention",
        "sink_full_attention",
        "sliding_window",
        "sliding_window_mla",
        "chunked_local_attention",
        "mamba",
        "unknown",
    ];
    KNOWN.iter().find(|known| **known == name).map_or_else(
        || Name::Owned(name.to_owned()),
        |known| Name::Borrowed(known),
    )
}
