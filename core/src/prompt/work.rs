//! What one request may cost, so that no body holds up a gateway's worker or fills its memory.
//!
//! While the filter reads a body and makes a prompt of it, all other requests of the worker wait, and
//! running out of memory is a trap. What it takes depends little on the bytes: 32 MiB of `{},{},...`
//! become more than the 1 GiB that a VM may have. So values, a template's instructions and characters
//! that are not taken as they are have limits of their own, one for the whole request, whatever number
//! of prompts it has. What goes beyond is picked by load.

use core::cell::{Cell, RefCell};

use super::Skip;

/// Longest body that is read, in bytes: about 1.5 M tokens of English, more than nearly any engine takes.
pub(super) const BODY_BYTES_MAX: usize = 6 << 20;

/// What all values of a body may cost: as many token ids, or some ten thousand messages.
pub(super) const VALUES_MAX: u32 = 1 << 18;
/// A list or map, with what the making of a prompt costs later: a message, a part, a tool.
pub(super) const CONTAINER: u32 = 16;
/// A string or a key.
pub(super) const STRING: u32 = 2;
/// A number, `true`, `false` or `null`.
pub(super) const WORD: u32 = 1;
/// A number that is no short integer, on top: to read it and to write it takes over 1 us.
pub(super) const FRACTION: u32 = 7;

/// Work that any template may do: instructions, and 64-byte pieces of text that it makes. A chat of
/// 400 KB needs some ten thousand.
pub(super) const BASE_FUEL: u64 = 300_000;
/// Work allowed on top for each byte of the request: some templates loop over content that is a
/// string, so character by character. Memory is bounded too, since text costs fuel.
const FUEL_PER_BODY_BYTE: u64 = 8;
/// No request gets more than this: in V8 about 15 ns each.
const FUEL_MAX: u64 = 3_000_000;

/// Bytes of text that a normaliser takes character by character: up to 40 ns each in V8.
const CHARACTERS_MAX: usize = 1 << 20;

/// What making prompts of one request may still cost.
#[derive(Debug)]
pub(super) struct Work {
    values: Cell<u32>,
    fuel: Cell<u64>,
    characters: Cell<usize>,
    /// What a template failed with, for people.
    failure: RefCell<Option<minijinja::Error>>,
}

impl Work {
    /// For a body of a size in bytes, of whose [`VALUES_MAX`] reading it left `values`.
    pub(super) fn new(body_bytes: usize, values: u32) -> Self {
        let body_bytes = u64::try_from(body_bytes).unwrap_or(u64::MAX);
        let fuel = body_bytes.saturating_mul(FUEL_PER_BODY_BYTE);
        Self {
            values: Cell::new(values),
            fuel: Cell::new(fuel.saturating_add(BASE_FUEL).min(FUEL_MAX)),
            characters: Cell::new(CHARACTERS_MAX),
            failure: RefCell::default(),
        }
    }

    /// No limits but a template's.
    pub(super) fn unlimited() -> Self {
        Self {
            values: Cell::new(u32::MAX),
            fuel: Cell::new(FUEL_MAX),
            characters: Cell::new(usize::MAX),
            failure: RefCell::default(),
        }
    }

    /// Reads JSON text, such as a string in the body.
    ///
    /// # Errors
    /// [`Skip::InvalidJson`], [`Skip::TooComplex`].
    pub(super) fn read_json(&self, text: &[u8]) -> Result<minijinja::Value, Skip> {
        let mut values = self.values.get();
        let value = super::json::read(text, &mut values);
        self.values.set(values);
        value
    }

    /// Fuel for a template.
    pub(super) fn fuel(&self) -> u64 {
        self.fuel.get()
    }

    /// What a template left of it.
    pub(super) fn set_fuel(&self, left: u64) {
        self.fuel.set(left);
    }

    /// Keeps what a template failed with.
    pub(super) fn note_failure(&self, error: minijinja::Error) {
        *self.failure.borrow_mut() = Some(error);
    }

    /// What a template failed with: its message, and the line in its source.
    pub(super) fn failure(&self) -> Option<String> {
        let failure = self.failure.borrow();
        let error = failure.as_ref()?;
        let said = match error.detail() {
            Some(detail) => detail.to_owned(),
            None => error.kind().to_string(),
        };
        Some(match error.line() {
            Some(line) => format!("{said} (line {line} of the template)"),
            None => said,
        })
    }

    /// Takes text to be gone through character by character.
    ///
    /// # Errors
    /// [`Skip::TooComplex`] if that is too much.
    pub(super) fn spend_characters(&self, bytes: usize) -> Result<(), Skip> {
        let left = self.characters.get().checked_sub(bytes);
        self.characters.set(left.unwrap_or(0));
        left.map(drop).ok_or(Skip::TooComplex)
    }
}
