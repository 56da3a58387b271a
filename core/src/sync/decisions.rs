//! What was decided about requests and what became of them, for the control plane's report.
//!
//! `POST /v1/decisions`: each gateway tells now and then of the requests that have ended since
//! ([`Decisions`]). A message of its own and not part of the news between gateways: those are about
//! load and must not wait for, or fail with, what only a report is made of. docs/wire-format.md gives
//! every byte.

use super::cursor::{Reader, Writer};
use super::news::{framed, unframe};
use super::{MAJOR, SyncError};
use crate::ids::BlockHash;

const MAGIC: [u8; 4] = *b"PPDR";
/// Minor version of this message, apart from the exchange's.
const MINOR: u16 = 0;

/// Records of one message at most.
pub const RECORDS_MAX: usize = 256;
/// Marks of one record at most.
pub const MARKS_MAX: usize = 32;

const ENFORCED: u8 = 1;
const AGREED: u8 = 1 << 1;
const TOLD: u8 = 1 << 2;

/// A block that stands for the prompt up to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Its hash. Hashes are chained: two prompts with the same one are the same up to there.
    pub key: u64,
    /// Prompt tokens up to its end, in whole blocks of the engine's.
    pub tokens: u32,
}

/// What an engine said of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Its tokens.
    pub prompt_tokens: u32,
    /// Of those, found in the cache.
    pub cached_tokens: u32,
}

/// A request that was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The choice was named to Envoy; else it was in shadow.
    pub enforced: bool,
    /// The endpoint chosen is the one that served.
    pub agreed: bool,
    /// The replica chosen: [`place`](crate::recent::place) of its name.
    pub chosen: u64,
    /// The prompt's length in tokens, known or estimated.
    pub prompt_tokens: u32,
    /// Prompt tokens that the chosen replica held by the table.
    pub chosen_tokens: u32,
    /// Prompt tokens that the replica which served held by the table.
    pub served_tokens: u32,
    /// What the response said, if it did.
    pub told: Option<Told>,
    /// What stands for the prompt, see [`marks`].
    pub marks: Vec<Mark>,
}

/// What a gateway tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Requests since the last message that are not told of: there were too many.
    pub lost: u32,
    /// The others, in the order in which they ended.
    pub records: Vec<Decision>,
}

/// The blocks that stand for a prompt with these hashes: each `n`-th, `n` the least power of two that
/// makes them [`MARKS_MAX`] at most. So two prompts of any lengths that share a beginning have marks in
/// common, and the last of those is short of where they part by one part in 16 of the longer one at
/// most. `tokens` tells the tokens up to a block's end, by how many blocks that is.
#[must_use]
pub fn marks(hashes: &[BlockHash], tokens: impl Fn(u32) -> u32) -> Vec<Mark> {
    let step = hashes.len().div_ceil(MARKS_MAX).next_power_of_two();
    let ends = (1u32..).zip(hashes).skip(step - 1).step_by(step);
    let marks = ends.map(|(blocks, hash)| Mark {
        key: hash.0,
        tokens: tokens(blocks),
    });
    // Less than a block of the engine's is never found.
    marks.filter(|mark| mark.tokens > 0).collect()
}

impl Decision {
    fn encode(&self) -> Result<Vec<u8>, SyncError> {
        if self.marks.len() > MARKS_MAX {
            return Err(SyncError::TooLong("a decision's marks"));
        }
        let flag = |set, bit| if set { bit } else { 0 };
        let mut w = Writer::default();
        w.u8(flag(self.enforced, ENFORCED)
            | flag(self.agreed, AGREED)
            | flag(self.told.is_some(), TOLD));
        w.u64(self.chosen);
        let told = self.told.unwrap_or_default();
        for tokens in [
            self.prompt_tokens,
            self.chosen_tokens,
            self.served_tokens,
            told.prompt_tokens,
            told.cached_tokens,
        ] {
            w.u32(tokens);
        }
        w.list(&self.marks, |w, mark| {
            w.u64(mark.key);
            w.u32(mark.tokens);
            Ok(())
        })?;
        Ok(w.into_bytes())
    }

    /// Bytes behind the marks belong to a later version.
    fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = Reader::new(bytes);
        let flags = r.u8()?;
        let chosen = r.u64()?;
        let (prompt_tokens, chosen_tokens, served_tokens) = (r.u32()?, r.u32()?, r.u32()?);
        let told = Told {
            prompt_tokens: r.u32()?,
            cached_tokens: r.u32()?,
        };
        let marks = r.list(|r| {
            let (key, tokens) = (r.u64()?, r.u32()?);
            Ok(Mark { key, tokens })
        })?;
        if marks.len() > MARKS_MAX {
            return Err(SyncError::TooLong("a decision's marks"));
        }
        Ok(Self {
            enforced: flags & ENFORCED != 0,
            agreed: flags & AGREED != 0,
            chosen,
            prompt_tokens,
            chosen_tokens,
            served_tokens,
            told: (flags & TOLD != 0).then_some(told),
            marks,
        })
    }
}

impl Decisions {
    /// The message's bytes. Fails where there is too much of something.
    pub fn encode(&self) -> Result<Vec<u8>, SyncError> {
        if self.records.len() > RECORDS_MAX {
            return Err(SyncError::TooLong("decisions"));
        }
        let mut w = Writer::default();
        w.u32(self.lost);
        w.list(&self.records, |w, record| {
            let bytes = record.encode()?;
            w.u16(u16::try_from(bytes.len()).map_err(|_| SyncError::TooLong("a decision"))?);
            w.raw(&bytes);
            Ok(())
        })?;
        let mut preamble = Writer::default();
        preamble.raw(&MAGIC);
        preamble.u16(MAJOR);
        preamble.u16(MINOR);
        framed(preamble, &w.into_bytes())
    }

    /// Reads a message. Nothing in it is used before the checksum is seen to match.
    pub fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = unframe(MAGIC, bytes)?;
        let lost = r.u32()?;
        let records = r.list(|r| {
            let len = usize::from(r.u16()?);
            Decision::decode(r.take(len)?)
        })?;
        if records.len() > RECORDS_MAX {
            return Err(SyncError::TooLong("decisions"));
        }
        Ok(Self { lost, records })
    }
}

#[cfg(test)]
mod tests;
