//! A short string that is kept as it passes.

/// Longer names are not kept.
pub(super) const NAME_MAX: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// None has been read, and none is being read.
    None,
    /// One is being read, and is good so far.
    Reading,
    /// The first good one, for ever.
    Whole,
}

/// The first name that was given without escapes and is neither empty nor too long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name {
    bytes: [u8; NAME_MAX],
    len: usize,
    state: State,
}

impl Default for Name {
    fn default() -> Self {
        Self {
            bytes: [0; NAME_MAX],
            len: 0,
            state: State::None,
        }
    }
}

impl Name {
    /// A string begins that is a name, or that is none.
    pub(super) fn begin(&mut self, is_name: bool) {
        if self.state != State::Whole {
            self.len = 0;
            self.state = if is_name { State::Reading } else { State::None };
        }
    }

    /// A piece of it.
    pub(super) fn push(&mut self, piece: Option<&[u8]>) {
        if self.state != State::Reading {
            return;
        }
        let piece = piece.unwrap_or_default();
        let end = self.len.saturating_add(piece.len());
        match self.bytes.get_mut(self.len..end) {
            Some(place) => {
                place.copy_from_slice(piece);
                self.len = end;
            }
            None => self.state = State::None,
        }
    }

    /// It has an escape, as no name has.
    pub(super) fn escape(&mut self) {
        if self.state == State::Reading {
            self.state = State::None;
        }
    }

    /// The string ends.
    pub(super) fn end(&mut self) {
        if self.state == State::Reading {
            let whole = self.len > 0;
            self.state = if whole { State::Whole } else { State::None };
        }
    }

    pub(super) fn get(&self) -> Option<&[u8]> {
        let whole = self.state == State::Whole;
        whole.then(|| self.bytes.get(..self.len).unwrap_or_default())
    }
}
