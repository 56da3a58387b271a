//! The exchange between a gateway's filter and a control plane, as bytes.
//!
//! `POST /v1/sync`: the gateway says what it has ([`Poll`], JSON), the control plane answers with
//! what is newer ([`Answer`], binary), at once or when something changes. docs/wire-format.md gives
//! every byte. What gateways tell each other goes by `POST /v1/news` ([`news`]),
//! what becomes of decisions by `POST /v1/decisions` ([`decisions`]). A major version that a reader does not know is refused; sections and trailing bytes
//! of a newer minor version are skipped.

mod answer;
pub mod cursor;
pub mod decisions;
mod head;
mod lora;
pub mod news;
mod poll;

pub use answer::{Answer, ProfileRecord, TableUpdate};
pub use head::{DP_RANK_MAX, Head, Pace, PoolHead, ReplicaHead, ReplicaState, replica_name};
pub use lora::LoraHead;
pub use poll::{Have, Loading, Poll, PoolFeedback};

/// Major version: a reader refuses any other.
pub const MAJOR: u16 = 1;
/// Minor version: additions that an older reader of the same major skips.
pub const MINOR: u16 = 3;
/// The largest answer a control plane sends, in bytes. Envoy takes up to 32 MiB, but a gateway must
/// not stall while it applies one.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why bytes of the exchange were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyncError {
    /// Fewer bytes than the format needs.
    #[error("the message ends too early")]
    Truncated,
    /// Not a message of this kind.
    #[error("the message does not begin with the expected magic bytes")]
    BadMagic,
    /// Another major version.
    #[error("wire format {theirs} is not supported (this build speaks {MAJOR})")]
    Version {
        /// The version found.
        theirs: u16,
    },
    /// Damaged.
    #[error("the checksum does not match")]
    Checksum,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A section that must be understood is not known.
    #[error("section {0} is not known and must be")]
    UnknownSection(u16),
    /// A value too long to encode.
    #[error("{0} is too long to encode")]
    TooLong(&'static str),
    /// Values that contradict each other.
    #[error("invalid message: {0}")]
    Invalid(&'static str),
}

#[cfg(test)]
mod tests;
