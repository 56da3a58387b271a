//! News between gateways: what each has in flight and has just placed, by way of the control plane.
//!
//! `POST /v1/news`: a gateway reports ([`Report`]), the control plane answers with the others' news
//! ([`OthersNews`]), at once or, where the report says so, when there is some. Times are relative, so
//! that no two clocks have to agree. docs/wire-format.md gives every byte.

use super::SyncError;
use super::cursor::{Reader, Writer};
use crate::checksum::checksum;

const REPORT: [u8; 4] = *b"PPNR";
const ANSWER: [u8; 4] = *b"PPNA";
/// Bytes of the header that the checksum covers; 8 for the checksum follow.
const SUMMED_HEADER_BYTES: usize = 16;

/// Endpoints of one message at most.
pub const WORK_MAX: usize = 4_096;
/// Claims of one report at most.
pub const REPORTED_MAX: usize = 1_024;
/// Claims of one answer at most.
pub const ANSWERED_MAX: usize = 2_048;
/// Marks of one claim at most.
pub const MARKS_MAX: usize = 32;
/// Bytes of a gateway's name at most.
pub const NAME_BYTES_MAX: usize = 128;
/// The longest that a claim lasts, in milliseconds; a longer one is cut.
pub const LIFE_MAX_MS: u32 = 10_000;

/// Work in flight at one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceWork {
    /// The endpoint: first 8 bytes of SHA-256, see docs/wire-format.md.
    pub place: u64,
    /// Requests.
    pub requests: u32,
    /// What is to be computed of requests whose prefill has not ended, in tokens of
    /// [`prefill_work`](crate::pick::cost::prefill_work).
    pub tokens: u64,
    /// Prompt tokens of all requests.
    pub context: u64,
}

/// A request for a prefix was sent somewhere, and no event bears it out yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// What: a block hash.
    pub key: u64,
    /// Where: an endpoint, as in [`PlaceWork::place`].
    pub place: u64,
    /// How long ago, in milliseconds.
    pub age_ms: u32,
    /// How much longer it counts, in milliseconds.
    pub life_ms: u32,
    /// Blocks from this one to the last mark; means nothing to the control plane.
    pub span: u16,
    /// What follows in the prompt; means nothing to the control plane.
    pub marks: Vec<u16>,
}

/// What a gateway says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Who: the name of one Envoy process, as in [`super::Poll::gateway`].
    pub gateway: String,
    /// Grows with each report: of two that overtook each other the later one counts.
    pub seq: u64,
    /// The control plane's life that `cursor` and `seen` are of.
    pub instance: u64,
    /// Claims up to here are known.
    pub cursor: u64,
    /// Totals up to here are known.
    pub seen: u64,
    /// How long the answer may wait for news, in milliseconds.
    pub wait_ms: u32,
    /// All that it has in flight: absolute totals. What is not there is zero.
    pub work: Vec<PlaceWork>,
    /// What it sent since its last report.
    pub sent: Vec<Sent>,
}

/// What a gateway is answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OthersNews {
    /// The control plane's life.
    pub instance: u64,
    /// With `sent`, all claims up to here are known.
    pub cursor: u64,
    /// With `work`, all totals up to here are known.
    pub seen: u64,
    /// There are more claims: ask again at once.
    pub more: bool,
    /// Other gateways heard of lately.
    pub gateways: u16,
    /// Their totals, summed by endpoint.
    pub work: Vec<PlaceWork>,
    /// What they sent.
    pub sent: Vec<Sent>,
}

impl PlaceWork {
    /// Adds another's to it.
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.context = self.context.saturating_add(other.context);
    }

    /// Writes it, 28 bytes.
    pub fn encode(&self, w: &mut Writer) {
        w.u64(self.place);
        w.u32(self.requests);
        w.u64(self.tokens);
        w.u64(self.context);
    }

    /// Reads what [`PlaceWork::encode`] wrote. Fails where bytes are missing.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        Ok(Self {
            place: r.u64()?,
            requests: r.u32()?,
            tokens: r.u64()?,
            context: r.u64()?,
        })
    }
}

impl Sent {
    fn encode(&self, w: &mut Writer) -> Result<(), SyncError> {
        w.u64(self.key);
        w.u64(self.place);
        w.u32(self.age_ms);
        w.u32(self.life_ms);
        w.u16(self.span);
        let marks = u8::try_from(self.marks.len()).ok();
        let marks = marks.filter(|&n| usize::from(n) <= MARKS_MAX);
        w.u8(marks.ok_or(SyncError::TooLong("a claim's marks"))?);
        for mark in &self.marks {
            w.u16(*mark);
        }
        Ok(())
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, SyncError> {
        let (key, place) = (r.u64()?, r.u64()?);
        let (age_ms, life_ms, span) = (r.u32()?, r.u32()?, r.u16()?);
        let count = r.u8()?;
        if usize::from(count) > MARKS_MAX {
            return Err(SyncError::TooLong("a claim's marks"));
        }
        let marks: Result<Vec<u16>, SyncError> = (0..count).map(|_| r.u16()).collect();
        Ok(Self {
            key,
            place,
            age_ms,
            life_ms: life_ms.min(LIFE_MAX_MS),
            span,
            marks: marks?,
        })
    }
}

impl Report {
    /// The report's bytes. Fails where something is too long.
    pub fn encode(&self) -> Result<Vec<u8>, SyncError> {
        let mut w = Writer::default();
        if self.gateway.len() > NAME_BYTES_MAX {
            return Err(SyncError::TooLong("gateway"));
        }
        w.string(&self.gateway)?;
        for number in [self.seq, self.instance, self.cursor, self.seen] {
            w.u64(number);
        }
        w.u32(self.wait_ms);
        write_lists(&mut w, &self.work, &self.sent, REPORTED_MAX)?;
        frame(REPORT, &w.into_bytes())
    }

    /// Reads a report. Nothing in it is used before the checksum is seen to match.
    pub fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = unframe(REPORT, bytes)?;
        let gateway = r.string()?;
        if gateway.is_empty() || gateway.len() > NAME_BYTES_MAX {
            return Err(SyncError::Invalid("the gateway's name"));
        }
        let (seq, instance, cursor, seen) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let wait_ms = r.u32()?;
        let (work, sent) = read_lists(&mut r, REPORTED_MAX)?;
        Ok(Self {
            gateway,
            seq,
            instance,
            cursor,
            seen,
            wait_ms,
            work,
            sent,
        })
    }
}

impl OthersNews {
    /// The answer's bytes. Fails where something is too long.
    pub fn encode(&self) -> Result<Vec<u8>, SyncError> {
        let mut w = Writer::default();
        for number in [self.instance, self.cursor, self.seen] {
            w.u64(number);
        }
        w.u8(u8::from(self.more));
        w.u16(self.gateways);
        write_lists(&mut w, &self.work, &self.sent, ANSWERED_MAX)?;
        frame(ANSWER, &w.into_bytes())
    }

    /// Reads an answer. Nothing in it is used before the checksum is seen to match.
    pub fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = unframe(ANSWER, bytes)?;
        let (instance, cursor, seen) = (r.u64()?, r.u64()?, r.u64()?);
        let (flags, gateways) = (r.u8()?, r.u16()?);
        let (work, sent) = read_lists(&mut r, ANSWERED_MAX)?;
        Ok(Self {
            instance,
            cursor,
            seen,
            more: flags & 1 != 0,
            gateways,
            work,
            sent,
        })
    }
}

fn write_lists(
    w: &mut Writer,
    work: &[PlaceWork],
    sent: &[Sent],
    sent_max: usize,
) -> Result<(), SyncError> {
    if work.len() > WORK_MAX || sent.len() > sent_max {
        return Err(SyncError::TooLong("news"));
    }
    w.list(work, |w, work| {
        work.encode(w);
        Ok(())
    })?;
    w.list(sent, |w, sent| sent.encode(w))
}

fn read_lists(
    r: &mut Reader<'_>,
    sent_max: usize,
) -> Result<(Vec<PlaceWork>, Vec<Sent>), SyncError> {
    let work = r.list(PlaceWork::decode)?;
    let sent = r.list(Sent::decode)?;
    if work.len() > WORK_MAX || sent.len() > sent_max {
        return Err(SyncError::TooLong("news"));
    }
    Ok((work, sent))
}

/// Header, checksum, payload.
fn frame(magic: [u8; 4], payload: &[u8]) -> Result<Vec<u8>, SyncError> {
    let mut preamble = Writer::default();
    preamble.preamble(magic);
    framed(preamble, payload)
}

/// The same, behind magic bytes and versions of the caller's.
pub(super) fn framed(preamble: Writer, payload: &[u8]) -> Result<Vec<u8>, SyncError> {
    let mut w = preamble;
    w.u32(u32::try_from(payload.len()).map_err(|_| SyncError::TooLong("news"))?);
    w.u32(0);
    let mut bytes = w.into_bytes();
    let sum = checksum(&[&bytes, payload]);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

/// The payload, once the checksum was seen to match.
pub(super) fn unframe(magic: [u8; 4], bytes: &[u8]) -> Result<Reader<'_>, SyncError> {
    let mut r = Reader::new(bytes);
    r.preamble(magic)?;
    let len = r.u32()?;
    r.take(4)?;
    let sum = r.u64()?;
    if r.rest().len() as u64 != u64::from(len) {
        return Err(SyncError::Truncated);
    }
    let header = bytes.get(..SUMMED_HEADER_BYTES);
    if checksum(&[header.ok_or(SyncError::Truncated)?, r.rest()]) != sum {
        return Err(SyncError::Checksum);
    }
    Ok(r)
}

#[cfg(test)]
mod tests;
