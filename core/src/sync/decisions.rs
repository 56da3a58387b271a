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
/// 1: a record's reason and first blocks; requests that were not looked up; counts by reason.
const MINOR: u16 = 1;

/// Records of one message at most.
pub const RECORDS_MAX: usize = 256;
/// Requests of one message at most that were not looked up, or not answered.
pub const OTHERS_MAX: usize = 32;
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
    /// Why: a code of [`reasons`](crate::reasons); 0: not told.
    pub reason: u8,
    /// Hash of the prompt's first block, as the table has it; 0: not told, or there is none.
    pub first: u64,
    /// Hash of the second block's bytes alone, whatever stands before them
    /// ([`Blocks::second`](crate::blocks::prompt::Blocks::second)); 0: not told, or there is none.
    pub second: u64,
}

/// A request that was not looked up, or was not answered with status 200. Samples: nothing is counted
/// by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// The choice was named to Envoy; else it was in shadow.
    pub enforced: bool,
    /// Why: a code of [`reasons`](crate::reasons).
    pub reason: u8,
    /// The replica chosen: [`place`](crate::recent::place) of its name; 0: none.
    pub chosen: u64,
    /// The prompt's length in tokens, known or estimated; 0: not known.
    pub prompt_tokens: u32,
    /// The response's status; 0: none came, or it was not looked at.
    pub status: u16,
}

/// What a gateway tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Requests since the last message that are not told of: there were too many.
    pub lost: u32,
    /// The others, in the order in which they ended.
    pub records: Vec<Decision>,
    /// Of all other requests the first [`OTHERS_MAX`].
    pub others: Vec<Other>,
    /// How many requests had which reason, by its code: all of them, when they were decided.
    pub counts: Vec<(u8, u32)>,
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
        w.u8(self.reason);
        w.u64(self.first);
        w.u64(self.second);
        Ok(w.into_bytes())
    }

    /// A gateway of 1.0 tells nothing behind the marks; bytes behind `second` belong to a later version.
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
        let (reason, first, second) = if r.rest().is_empty() {
            (0, 0, 0)
        } else {
            (r.u8()?, r.u64()?, r.u64()?)
        };
        Ok(Self {
            enforced: flags & ENFORCED != 0,
            agreed: flags & AGREED != 0,
            chosen,
            prompt_tokens,
            chosen_tokens,
            served_tokens,
            told: (flags & TOLD != 0).then_some(told),
            marks,
            reason,
            first,
            second,
        })
    }
}

impl Other {
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(if self.enforced { ENFORCED } else { 0 });
        w.u8(self.reason);
        w.u64(self.chosen);
        w.u32(self.prompt_tokens);
        w.u16(self.status);
        w.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = Reader::new(bytes);
        Ok(Self {
            enforced: r.u8()? & ENFORCED != 0,
            reason: r.u8()?,
            chosen: r.u64()?,
            prompt_tokens: r.u32()?,
            status: r.u16()?,
        })
    }
}

impl Decisions {
    /// Counts requests with a reason.
    pub fn count(&mut self, reason: u8, requests: u32) {
        match self.counts.iter_mut().find(|(code, _)| *code == reason) {
            Some((_, count)) => *count = count.saturating_add(requests),
            None => self.counts.push((reason, requests)),
        }
    }

    /// The message's bytes. Fails where there is too much of something.
    pub fn encode(&self) -> Result<Vec<u8>, SyncError> {
        if self.records.len() > RECORDS_MAX || self.others.len() > OTHERS_MAX {
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
        w.list(&self.others, |w, other| {
            let bytes = other.encode();
            w.u16(u16::try_from(bytes.len()).map_err(|_| SyncError::TooLong("a request"))?);
            w.raw(&bytes);
            Ok(())
        })?;
        w.list(&self.counts, |w, &(reason, count)| {
            w.u8(reason);
            w.u32(count);
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
        let mut decisions = Self {
            lost,
            records,
            ..Self::default()
        };
        // A gateway of 1.0 ends here.
        if r.rest().is_empty() {
            return Ok(decisions);
        }
        decisions.others = r.list(|r| {
            let len = usize::from(r.u16()?);
            Other::decode(r.take(len)?)
        })?;
        if decisions.others.len() > OTHERS_MAX {
            return Err(SyncError::TooLong("requests"));
        }
        for (reason, count) in r.list(|r| Ok((r.u8()?, r.u32()?)))? {
            decisions.count(reason, count);
        }
        Ok(decisions)
    }
}

#[cfg(test)]
mod tests;
