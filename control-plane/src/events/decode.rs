//! From a payload to a batch: the outer array, the two forms of an event, and what happens to one
//! that cannot be read.

use super::cursor::{Cursor, WireError};
use super::stored::{RemovedField, StoredField};
use super::{KvEvent, KvEventBatch, MAX_REMARKS, Removed, Stored};

/// The payload is not a batch of events at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a batch of KV events: {what}")]
pub struct DecodeError {
    what: String,
}

/// Most events for which room is made before one is read.
const EVENTS_AHEAD: usize = 256;

/// Decodes one payload: `[ts, events, data_parallel_rank]`.
///
/// Memory: at most 64 bytes per byte of payload, whatever the payload claims.
///
/// # Errors
/// Only where the payload is not such an array. A bad event is left out of the batch and named in
/// its `problems`; a payload that is cut short yields the events before the cut.
pub fn decode_batch(payload: &[u8]) -> Result<KvEventBatch, DecodeError> {
    let mut cursor = Cursor::new(payload);
    let elements = cursor.array().map_err(|error| DecodeError {
        what: error.to_string(),
    })?;
    if elements < 2 {
        return Err(DecodeError {
            what: format!("an array of {elements}, not of 3"),
        });
    }
    let mut batch = KvEventBatch::default();
    if !cursor.take_nil() {
        batch.ts = cursor.seconds().map_err(|error| DecodeError {
            what: format!("its time: {error}"),
        })?;
    }
    let whole = if cursor.take_nil() {
        true
    } else {
        let count = cursor.array().map_err(|error| DecodeError {
            what: format!("its events: {error}"),
        })?;
        read_events(&mut cursor, count, &mut batch)
    };
    if whole && elements > 2 {
        read_tail(&mut cursor, elements, &mut batch);
    }
    Ok(batch)
}

/// Reads the events. False where the payload ends among them.
fn read_events(cursor: &mut Cursor<'_>, count: usize, batch: &mut KvEventBatch) -> bool {
    batch.events.reserve(count.min(EVENTS_AHEAD));
    for number in 0..count {
        let start = *cursor;
        match read_event(cursor, &mut batch.notes) {
            Ok(Some(event)) => batch.events.push(event),
            Ok(None) => {}
            Err(problem) => {
                batch.bad_events = batch.bad_events.saturating_add(1);
                batch.lost_removals |= !problem.is_of_a_store();
                remark(&mut batch.problems, || format!("event {number}: {problem}"));
                *cursor = start;
                if cursor.skip().is_err() {
                    let lost = u32::try_from(count - number - 1).unwrap_or(u32::MAX);
                    batch.bad_events = batch.bad_events.saturating_add(lost);
                    batch.lost_removals |= lost > 0;
                    remark(&mut batch.problems, || {
                        format!("the payload ends inside event {number} of {count}")
                    });
                    return false;
                }
            }
        }
    }
    true
}

/// Reads the rank, and passes over what newer versions may add.
fn read_tail(cursor: &mut Cursor<'_>, elements: usize, batch: &mut KvEventBatch) {
    if !cursor.take_nil() {
        match cursor.fit("a rank") {
            Ok(rank) => batch.rank = Some(rank),
            Err(error) => {
                batch.bad_events = batch.bad_events.saturating_add(1);
                return remark(&mut batch.problems, || {
                    format!("the batch's data_parallel_rank: {error}")
                });
            }
        }
    }
    if elements > 3 {
        remark(&mut batch.notes, || {
            format!("{} unknown elements at the batch's end", elements - 3)
        });
    }
}

/// What is wrong with an event.
#[derive(Debug, thiserror::Error)]
pub(super) enum EventProblem {
    #[error("{0}")]
    Event(WireError),
    #[error("{tag}.{field}: {error}")]
    Field {
        tag: &'static str,
        field: &'static str,
        error: WireError,
    },
    #[error("{tag} has a field of another kind than string for a name: {error}")]
    Key { tag: &'static str, error: WireError },
}

impl EventProblem {
    /// Whether the event is known to have been a store, without which less is claimed, not more.
    fn is_of_a_store(&self) -> bool {
        let stored = Tag::Stored.name();
        match self {
            Self::Event(_) => false,
            Self::Field { tag, .. } | Self::Key { tag, .. } => *tag == stored,
        }
    }
}

/// The three events that engines send.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    Stored,
    Removed,
    Cleared,
}

impl Tag {
    const fn name(self) -> &'static str {
        match self {
            Self::Stored => "BlockStored",
            Self::Removed => "BlockRemoved",
            Self::Cleared => "AllBlocksCleared",
        }
    }

    fn of(name: &[u8]) -> Option<Self> {
        [Self::Removed, Self::Stored, Self::Cleared]
            .into_iter()
            .find(|tag| tag.name().as_bytes() == name)
    }
}

/// Reads one event; `None` where its tag is unknown.
fn read_event(
    cursor: &mut Cursor<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<KvEvent>, EventProblem> {
    if cursor.at_array() {
        read_array_event(cursor, notes)
    } else {
        read_map_event(cursor, notes)
    }
}

/// `["BlockStored", hashes, parent, ...]`: vLLM up to 0.23, SGLang up to 0.5.19.
fn read_array_event(
    cursor: &mut Cursor<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<KvEvent>, EventProblem> {
    let start = *cursor;
    let elements = cursor.array_within().map_err(EventProblem::Event)?;
    let tag = if elements == 0 {
        Err(WireError::Missing)
    } else {
        cursor.string_bytes()
    };
    let tag_name = tag.map_err(|error| EventProblem::Field {
        tag: "event",
        field: "tag",
        error,
    })?;
    let Some(tag) = Tag::of(tag_name) else {
        return unknown_tag(cursor, start, tag_name, notes);
    };
    let mut building = Building::new(tag);
    for position in 0..elements - 1 {
        let known = building.field_at(position, cursor, notes)?;
        if !known {
            remark(notes, || {
                format!("{}: unknown element {}", tag.name(), position + 1)
            });
            skip_field(tag, "unknown element", cursor)?;
        }
    }
    building.finish().map(Some)
}

/// `{"type": "BlockStored", "block_hashes": hashes, ...}`: vLLM from 0.24, SGLang from 0.5.23.
fn read_map_event(
    cursor: &mut Cursor<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<KvEvent>, EventProblem> {
    let start = *cursor;
    let entries = cursor.map_within().map_err(|error| match error {
        WireError::Kind { marker, .. } => EventProblem::Event(WireError::Kind {
            wanted: "an array or a map",
            marker,
        }),
        error => EventProblem::Event(error),
    })?;
    let tag_name = type_of(*cursor, entries)?;
    let Some(tag) = Tag::of(tag_name) else {
        return unknown_tag(cursor, start, tag_name, notes);
    };
    let mut building = Building::new(tag);
    for _ in 0..entries {
        let key = cursor.string_bytes().map_err(|error| EventProblem::Key {
            tag: tag.name(),
            error,
        })?;
        if key == b"type" {
            skip_field(tag, "type", cursor)?;
        } else if !building.field_named(key, cursor, notes)? {
            remark(notes, || {
                format!("{}: unknown field {}", tag.name(), printable(key))
            });
            skip_field(tag, "unknown field", cursor)?;
        }
    }
    building.finish().map(Some)
}

/// The value of `type` among a map's entries: the first in every version seen, but no promise.
fn type_of<'a>(mut cursor: Cursor<'a>, entries: usize) -> Result<&'a [u8], EventProblem> {
    let problem = |error| EventProblem::Field {
        tag: "event",
        field: "type",
        error,
    };
    for _ in 0..entries {
        let is_type = cursor.at_string() && cursor.string_bytes().map_err(problem)? == b"type";
        if is_type {
            return cursor.string_bytes().map_err(problem);
        }
        cursor.skip().map_err(problem)?;
    }
    Err(problem(WireError::Missing))
}

fn unknown_tag(
    cursor: &mut Cursor<'_>,
    start: Cursor<'_>,
    tag: &[u8],
    notes: &mut Vec<String>,
) -> Result<Option<KvEvent>, EventProblem> {
    let mut whole = start;
    whole.skip().map_err(EventProblem::Event)?;
    cursor.advance_to(whole.remaining());
    remark(notes, || format!("unknown event {}", printable(tag)));
    Ok(None)
}

fn skip_field(tag: Tag, field: &'static str, cursor: &mut Cursor<'_>) -> Result<(), EventProblem> {
    cursor.skip().map_err(|error| EventProblem::Field {
        tag: tag.name(),
        field,
        error,
    })
}

/// An event while its fields come in.
struct Building {
    event: KvEvent,
    hashes_given: bool,
    /// The place of the field that most likely comes next.
    next: usize,
}

impl Building {
    fn new(tag: Tag) -> Self {
        let event = match tag {
            Tag::Stored => KvEvent::Stored(Stored::default()),
            Tag::Removed => KvEvent::Removed(Removed::default()),
            Tag::Cleared => KvEvent::Cleared,
        };
        Self {
            event,
            hashes_given: tag == Tag::Cleared,
            next: 0,
        }
    }

    /// Reads the field at a place after the tag. False where no version has one there.
    fn field_at(
        &mut self,
        position: usize,
        cursor: &mut Cursor<'_>,
        notes: &mut Vec<String>,
    ) -> Result<bool, EventProblem> {
        match &mut self.event {
            KvEvent::Stored(event) => match StoredField::at(position) {
                Some(field) => read_stored(field, event, cursor, notes)?,
                None => return Ok(false),
            },
            KvEvent::Removed(event) => match RemovedField::at(position) {
                Some(field) => read_removed(field, event, cursor)?,
                None => return Ok(false),
            },
            KvEvent::Cleared => return Ok(false),
        }
        self.hashes_given |= position == 0;
        Ok(true)
    }

    /// Reads the field of a name. False where no version has it.
    fn field_named(
        &mut self,
        name: &[u8],
        cursor: &mut Cursor<'_>,
        notes: &mut Vec<String>,
    ) -> Result<bool, EventProblem> {
        let place = match &mut self.event {
            KvEvent::Stored(event) => match StoredField::named(name, self.next) {
                Some(field) => {
                    read_stored(field, event, cursor, notes)?;
                    field as usize
                }
                None => return Ok(false),
            },
            KvEvent::Removed(event) => match RemovedField::named(name, self.next) {
                Some(field) => {
                    read_removed(field, event, cursor)?;
                    field as usize
                }
                None => return Ok(false),
            },
            KvEvent::Cleared => return Ok(false),
        };
        self.hashes_given |= place == 0;
        self.next = place + 1;
        Ok(true)
    }

    /// The event, unless it lacks what makes it one.
    fn finish(self) -> Result<KvEvent, EventProblem> {
        if self.hashes_given {
            return Ok(self.event);
        }
        let tag = if matches!(self.event, KvEvent::Stored(_)) {
            Tag::Stored
        } else {
            Tag::Removed
        };
        Err(EventProblem::Field {
            tag: tag.name(),
            field: "block_hashes",
            error: WireError::Missing,
        })
    }
}

fn read_stored(
    field: StoredField,
    event: &mut Stored,
    cursor: &mut Cursor<'_>,
    notes: &mut Vec<String>,
) -> Result<(), EventProblem> {
    field
        .read(event, cursor, notes)
        .map_err(|error| EventProblem::Field {
            tag: Tag::Stored.name(),
            field: field.name(),
            error,
        })
}

fn read_removed(
    field: RemovedField,
    event: &mut Removed,
    cursor: &mut Cursor<'_>,
) -> Result<(), EventProblem> {
    field
        .read(event, cursor)
        .map_err(|error| EventProblem::Field {
            tag: Tag::Removed.name(),
            field: field.name(),
            error,
        })
}

/// Adds a text once, while there is room.
pub(super) fn remark(texts: &mut Vec<String>, text: impl FnOnce() -> String) {
    if texts.len() < MAX_REMARKS {
        let text = text();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
}

/// A name from the wire, short and safe to print.
pub(super) fn printable(name: &[u8]) -> String {
    const MOST: usize = 64;
    let text = String::from_utf8_lossy(name.get(..MOST).unwrap_or(name));
    format!("{text:?}")
}
