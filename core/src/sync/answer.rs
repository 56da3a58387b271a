//! What a control plane answers: sections under one checksum.

use super::SyncError;
use super::cursor::{Reader, Writer};
use crate::checksum::checksum;
use crate::ids::{BlockHash, Epoch};
use crate::table::{GroupChange, PageChange, PageContent};

const MAGIC: [u8; 4] = *b"PPSA";
/// Bytes before the payload.
const HEADER_BYTES: usize = 40;
/// Bytes of the header that the checksum covers.
const SUMMED_HEADER_BYTES: usize = 32;
/// Bit of a section's flags: a reader that does not know the section must refuse the answer.
const MUST_UNDERSTAND: u16 = 0x8000;
/// In place of a body length: the group is gone. In place of a page number: no page follows.
const NONE: u32 = u32::MAX;

const HEAD: u16 = 1;
const PROFILE: u16 = 2;
const DELTA: u16 = 3;
const LOAD: u16 = 4;
const PAGE_WHOLE: u16 = 5;
const PAGE_DELTA: u16 = 6;

const MORE: u16 = 1;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The control plane's epoch.
    pub epoch: Epoch,
    /// The table's page layout now.
    pub generation: u32,
    /// Number of pages of that layout.
    pub page_count: u32,
    /// News of the table.
    pub table: TableUpdate,
    /// An encoded [`super::Head`], where the gateway's is older.
    pub head: Option<Vec<u8>>,
    /// Profiles that the gateway lacks.
    pub profiles: Vec<ProfileRecord>,
}

/// News of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableUpdate {
    /// Nothing is newer.
    None,
    /// Changes to a complete table.
    Delta {
        /// Where the changes begin: what the gateway said it has.
        from_seq: u64,
        /// With them applied, all changes up to here are in the table.
        to_seq: u64,
        /// More is waiting: poll again at once.
        more: bool,
        /// The changes, at most one entry a page.
        pages: Vec<PageChange>,
    },
    /// Whole pages of a table to be loaded beside the one in use.
    Load {
        /// The table's sequence number when this load began.
        start_seq: u64,
        /// The first page that comes next; `None`: the table is complete.
        next_page: Option<u32>,
        /// The pages, whole, in order.
        pages: Vec<PageChange>,
    },
}

/// A prompt profile as the control plane made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileRecord {
    /// Hash of the profile, as in [`super::PoolHead::profile_hash`].
    pub hash: u64,
    /// The profile in JSON, see [`crate::prompt::Profile`].
    pub json: Vec<u8>,
}

impl Answer {
    /// The answer's bytes.
    pub fn encode(&self) -> Result<Vec<u8>, SyncError> {
        let mut payload = Writer::default();
        let mut sections = 0u32;
        let mut section = |kind: u16, flags: u16, body: &[u8]| -> Result<(), SyncError> {
            payload.u16(kind);
            payload.u16(flags);
            payload.u32(u32::try_from(body.len()).map_err(|_| SyncError::TooLong("section"))?);
            payload.raw(body);
            sections += 1;
            Ok(())
        };
        if let Some(head) = &self.head {
            section(HEAD, MUST_UNDERSTAND, head)?;
        }
        for p in &self.profiles {
            let mut w = Writer::default();
            w.u64(p.hash);
            w.raw(&p.json);
            section(PROFILE, 0, &w.into_bytes())?;
        }
        if let Some((kind, flags, body)) = self.table.announcement() {
            section(kind, flags | MUST_UNDERSTAND, &body)?;
        }
        for page in self.table.pages() {
            let (kind, body) = encode_page(page)?;
            section(kind, MUST_UNDERSTAND, &body)?;
        }
        let payload = payload.into_bytes();
        let mut w = Writer::default();
        w.preamble(MAGIC);
        w.u64(self.epoch.0);
        w.u32(self.generation);
        w.u32(self.page_count);
        w.u32(sections);
        w.u32(u32::try_from(payload.len()).map_err(|_| SyncError::TooLong("answer"))?);
        let mut bytes = w.into_bytes();
        let sum = checksum(&[&bytes, &payload]);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&payload);
        Ok(bytes)
    }

    /// Reads an answer. Nothing in it is used before the checksum is seen to match.
    pub fn decode(bytes: &[u8]) -> Result<Self, SyncError> {
        let mut r = Reader::new(bytes);
        r.preamble(MAGIC)?;
        let epoch = Epoch(r.u64()?);
        let generation = r.u32()?;
        let page_count = r.u32()?;
        let sections = r.u32()?;
        let payload_len = r.u32()?;
        let sum = r.u64()?;
        if r.rest().len() as u64 != u64::from(payload_len) {
            return Err(SyncError::Truncated);
        }
        let (header, _) = bytes
            .split_at_checked(SUMMED_HEADER_BYTES)
            .ok_or(SyncError::Truncated)?;
        if checksum(&[header, r.rest()]) != sum {
            return Err(SyncError::Checksum);
        }
        debug_assert_eq!(bytes.len(), HEADER_BYTES + r.rest().len());
        let mut answer = Self {
            epoch,
            generation,
            page_count,
            table: TableUpdate::None,
            head: None,
            profiles: Vec::new(),
        };
        for _ in 0..sections {
            let (kind, flags, len) = (r.u16()?, r.u16()?, r.u32()?);
            let body = r.take(usize::try_from(len).map_err(|_| SyncError::Truncated)?)?;
            answer.take_section(kind, flags, body)?;
        }
        if page_count == 0 {
            return Err(SyncError::Invalid("no pages"));
        }
        Ok(answer)
    }

    fn take_section(&mut self, kind: u16, flags: u16, body: &[u8]) -> Result<(), SyncError> {
        let mut r = Reader::new(body);
        match kind {
            HEAD => self.head = Some(body.to_vec()),
            PROFILE => {
                let hash = r.u64()?;
                self.profiles.push(ProfileRecord {
                    hash,
                    json: r.rest().to_vec(),
                });
            }
            DELTA => {
                self.table = TableUpdate::Delta {
                    from_seq: r.u64()?,
                    to_seq: r.u64()?,
                    more: flags & MORE != 0,
                    pages: Vec::new(),
                };
            }
            LOAD => {
                let start_seq = r.u64()?;
                let next = r.u32()?;
                let next_page = (next != NONE).then_some(next);
                self.table = TableUpdate::Load {
                    start_seq,
                    next_page,
                    pages: Vec::new(),
                };
            }
            PAGE_WHOLE => {
                let index = r.u32()?;
                self.push_page(PageChange {
                    index,
                    content: PageContent::Whole(r.rest().to_vec()),
                })?;
            }
            PAGE_DELTA => {
                let page = decode_page_delta(&mut r)?;
                self.push_page(page)?;
            }
            other if flags & MUST_UNDERSTAND != 0 => return Err(SyncError::UnknownSection(other)),
            _ => {}
        }
        Ok(())
    }

    fn push_page(&mut self, page: PageChange) -> Result<(), SyncError> {
        if page.index >= self.page_count {
            return Err(SyncError::Invalid("a page beyond the last"));
        }
        match &mut self.table {
            TableUpdate::None => Err(SyncError::Invalid("a page outside a delta or load")),
            TableUpdate::Delta { pages, .. } | TableUpdate::Load { pages, .. } => {
                pages.push(page);
                Ok(())
            }
        }
    }
}

impl TableUpdate {
    fn announcement(&self) -> Option<(u16, u16, Vec<u8>)> {
        let mut w = Writer::default();
        match self {
            Self::None => None,
            Self::Delta {
                from_seq,
                to_seq,
                more,
                ..
            } => {
                w.u64(*from_seq);
                w.u64(*to_seq);
                Some((DELTA, if *more { MORE } else { 0 }, w.into_bytes()))
            }
            Self::Load {
                start_seq,
                next_page,
                ..
            } => {
                w.u64(*start_seq);
                w.u32(next_page.unwrap_or(NONE));
                Some((LOAD, 0, w.into_bytes()))
            }
        }
    }

    fn pages(&self) -> &[PageChange] {
        match self {
            Self::None => &[],
            Self::Delta { pages, .. } | Self::Load { pages, .. } => pages,
        }
    }
}

fn encode_page(page: &PageChange) -> Result<(u16, Vec<u8>), SyncError> {
    let mut w = Writer::default();
    w.u32(page.index);
    match &page.content {
        PageContent::Whole(bytes) => {
            w.raw(bytes);
            Ok((PAGE_WHOLE, w.into_bytes()))
        }
        PageContent::Delta(groups) => {
            w.u32(u32::try_from(groups.len()).map_err(|_| SyncError::TooLong("page delta"))?);
            for g in groups {
                w.u64(g.anchor.0);
                match &g.body {
                    None => w.u32(NONE),
                    Some(body) => {
                        let len = u32::try_from(body.len()).ok().filter(|&len| len != NONE);
                        w.u32(len.ok_or(SyncError::TooLong("group"))?);
                        w.raw(body);
                    }
                }
            }
            Ok((PAGE_DELTA, w.into_bytes()))
        }
    }
}

fn decode_page_delta(r: &mut Reader<'_>) -> Result<PageChange, SyncError> {
    let index = r.u32()?;
    let count = r.u32()?;
    let mut groups = Vec::new();
    for _ in 0..count {
        let anchor = BlockHash(r.u64()?);
        let len = r.u32()?;
        let body = if len == NONE {
            None
        } else {
            Some(
                r.take(usize::try_from(len).map_err(|_| SyncError::Truncated)?)?
                    .to_vec(),
            )
        };
        groups.push(GroupChange { anchor, body });
    }
    Ok(PageChange {
        index,
        content: PageContent::Delta(groups),
    })
}
