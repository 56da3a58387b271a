//! Notices that live batches pass by: the connection stands, the engine publishes, and nothing is heard.
//! So it is with a `topic` that the engine does not use.

/// Connections in a row that brought nothing of what a replay then did. A single one may be dead on the
/// way, or have been heeded a moment too late.
const MISSES_MIN: u32 = 2;

/// Whether what is published is heard.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    misses: u32,
}

impl Hearing {
    /// A batch was heard. True: for the first time since they passed by.
    pub(super) fn heard(&mut self) -> bool {
        std::mem::take(&mut self.misses) >= MISSES_MIN
    }

    /// A connection brought nothing, and a replay did. True: from now on batches count as passing by.
    pub(super) fn missed(&mut self) -> bool {
        self.misses = self.misses.saturating_add(1);
        self.misses == MISSES_MIN
    }
}
