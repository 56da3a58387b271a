//! A page: header, sorted anchors, where each body ends, bodies. Read in place.
//!
//! | at | bytes | |
//! |---|---|---|
//! | 0 | 4 | magic `PPPG` |
//! | 4 | 2 | format version, 1 |
//! | 6 | 2 | hash-domain version |
//! | 8 | 8 | epoch |
//! | 16 | 8 | sequence number: the page holds every change up to it |
//! | 24 | 4 | generation |
//! | 28 | 4 | page index |
//! | 32 | 4 | groups, n |
//! | 36 | 4 | bytes after the header |
//! | 40 | 8 | checksum over bytes 0..40 and everything after the header |
//! | 48 | 8 n | anchors, ascending |
//! | 48 + 8 n | 4 n | where each body ends, counted from the first body's start |
//! | 48 + 12 n | | bodies |
//!
//! Numbers are little-endian.

use super::wire::{read_u16, read_u32, read_u64};
use crate::blocks::HASH_DOMAIN_VERSION;
use crate::checksum::checksum;
use crate::ids::{BlockHash, Epoch};

const MAGIC: [u8; 4] = *b"PPPG";
const FORMAT_VERSION: u16 = 1;
const CHECKSUM_AT: usize = 40;

/// Bytes before the anchors.
pub const PAGE_HEADER_BYTES: usize = 48;

/// Bytes that a page spends on a group besides its body.
pub const PAGE_BYTES_PER_GROUP: usize = 12;

/// The page that a group with this anchor is in. Ascending anchors give ascending pages.
pub fn page_of(anchor: BlockHash, page_count: u32) -> u32 {
    (((anchor.0 >> 32) * u64::from(page_count)) >> 32) as u32
}

/// The lowest anchor of a page, or `None` past the last page.
pub(super) fn first_anchor(index: u32, page_count: u32) -> Option<u64> {
    // The least n with (n * page_count) >> 32 == index, as the anchor's upper half.
    let upper = (u64::from(index) << 32).div_ceil(u64::from(page_count.max(1)));
    (upper <= u64::from(u32::MAX)).then_some(upper << 32)
}

/// Why bytes are not a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PageError {
    /// Too short, or lengths that do not fit together.
    #[error("the page is cut short or its lengths disagree")]
    Length,
    /// Does not begin with the magic bytes.
    #[error("not a page")]
    Magic,
    /// Written by a version that this one cannot read.
    #[error("page format {format} with hash domain {hash_domain} is not supported")]
    Version {
        /// Format version found.
        format: u16,
        /// Hash-domain version found.
        hash_domain: u16,
    },
    /// At least one bit is not what was written.
    #[error("the page's checksum is wrong")]
    Checksum,
    /// Anchors out of order, or a body that ends before it starts.
    #[error("the page's directory is broken")]
    Directory,
}

/// Which page this is, and how new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHeader {
    /// The table's life.
    pub epoch: Epoch,
    /// The table's layout.
    pub generation: u32,
    /// The page's number.
    pub index: u32,
    /// The page holds every change up to this one.
    pub seq: u64,
}

/// A page's bytes, header and bounds checked.
#[derive(Clone, Copy, Debug)]
pub struct PageRef<'a> {
    header: PageHeader,
    anchors: &'a [[u8; 8]],
    ends: &'a [[u8; 4]],
    bodies: &'a [u8],
}

impl<'a> PageRef<'a> {
    /// Checks header and lengths; the cost does not depend on the page's size. The bodies are not
    /// looked at: reading a damaged one finds nothing or wrong holders, and never panics.
    ///
    /// # Errors
    /// [`PageError`] other than `Checksum` and `Directory`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PageError> {
        let (header, payload) = bytes
            .split_at_checked(PAGE_HEADER_BYTES)
            .ok_or(PageError::Length)?;
        if !header.starts_with(&MAGIC) {
            return Err(PageError::Magic);
        }
        let (format, hash_domain) = (read_u16(header, 4), read_u16(header, 6));
        if format != FORMAT_VERSION || hash_domain != HASH_DOMAIN_VERSION {
            return Err(PageError::Version {
                format,
                hash_domain,
            });
        }
        let groups = read_u32(header, 32) as usize;
        if read_u32(header, 36) as usize != payload.len() || groups > payload.len() / 12 {
            return Err(PageError::Length);
        }
        let (anchors, rest) = payload
            .split_at_checked(8 * groups)
            .ok_or(PageError::Length)?;
        let (ends, bodies) = rest.split_at_checked(4 * groups).ok_or(PageError::Length)?;
        let header = PageHeader {
            epoch: Epoch(read_u64(header, 8)),
            seq: read_u64(header, 16),
            generation: read_u32(header, 24),
            index: read_u32(header, 28),
        };
        Ok(Self {
            header,
            anchors: anchors.as_chunks().0,
            ends: ends.as_chunks().0,
            bodies,
        })
    }

    /// As [`parse`](Self::parse), and checks every bit and the directory. For bytes that come from
    /// elsewhere; what was checked once and kept in memory only needs `parse`.
    ///
    /// # Errors
    /// [`PageError`].
    pub fn verify(bytes: &'a [u8]) -> Result<Self, PageError> {
        let page = Self::parse(bytes)?;
        let (header, payload) = bytes
            .split_at_checked(PAGE_HEADER_BYTES)
            .ok_or(PageError::Length)?;
        let covered = header.get(..CHECKSUM_AT).unwrap_or_default();
        if checksum(&[covered, payload]) != read_u64(header, CHECKSUM_AT) {
            return Err(PageError::Checksum);
        }
        let anchors_ascend = page
            .anchors
            .is_sorted_by(|a, b| u64::from_le_bytes(*a) < u64::from_le_bytes(*b));
        let ends_ascend = page.ends.is_sorted_by_key(|end| u32::from_le_bytes(*end));
        let last = page
            .ends
            .last()
            .map_or(0, |end| u32::from_le_bytes(*end) as usize);
        if !anchors_ascend || !ends_ascend || last != page.bodies.len() {
            return Err(PageError::Directory);
        }
        Ok(page)
    }

    /// Which page this is, and how new.
    pub fn header(&self) -> PageHeader {
        self.header
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.anchors.len()
    }

    /// Whether it has no group.
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// The body of the group with this anchor.
    pub fn find(&self, anchor: BlockHash) -> Option<&'a [u8]> {
        let at = self
            .anchors
            .binary_search_by_key(&anchor.0, |held| u64::from_le_bytes(*held))
            .ok()?;
        self.body(at)
    }

    /// All groups: anchor and body, by ascending anchor.
    pub fn groups(&self) -> impl Iterator<Item = (BlockHash, &'a [u8])> + use<'a> {
        let page = *self;
        page.anchors.iter().enumerate().map(move |(at, anchor)| {
            (
                BlockHash(u64::from_le_bytes(*anchor)),
                page.body(at).unwrap_or_default(),
            )
        })
    }

    fn body(&self, at: usize) -> Option<&'a [u8]> {
        let end_of = |at: usize| {
            self.ends
                .get(at)
                .map(|end| u32::from_le_bytes(*end) as usize)
        };
        let start = at.checked_sub(1).map_or(Some(0), end_of)?;
        self.bodies.get(start..end_of(at)?)
    }
}

/// Writes a page. `groups` ascend by anchor.
pub(super) fn build_page(header: PageHeader, groups: &[(BlockHash, &[u8])]) -> Vec<u8> {
    debug_assert!(groups.is_sorted_by(|a, b| a.0 < b.0), "anchors ascend");
    let bodies: usize = groups.iter().map(|(_, body)| body.len()).sum();
    let payload = groups.len() * PAGE_BYTES_PER_GROUP + bodies;
    let mut out = Vec::with_capacity(PAGE_HEADER_BYTES + payload);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&HASH_DOMAIN_VERSION.to_le_bytes());
    out.extend_from_slice(&header.epoch.0.to_le_bytes());
    out.extend_from_slice(&header.seq.to_le_bytes());
    out.extend_from_slice(&header.generation.to_le_bytes());
    out.extend_from_slice(&header.index.to_le_bytes());
    out.extend_from_slice(&(groups.len() as u32).to_le_bytes());
    out.extend_from_slice(&(payload as u32).to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    for (anchor, _) in groups {
        out.extend_from_slice(&anchor.0.to_le_bytes());
    }
    let mut end = 0u32;
    for (_, body) in groups {
        end += body.len() as u32;
        out.extend_from_slice(&end.to_le_bytes());
    }
    for (_, body) in groups {
        out.extend_from_slice(body);
    }
    let sum = {
        let (header, payload) = out.split_at(PAGE_HEADER_BYTES);
        checksum(&[header.get(..CHECKSUM_AT).unwrap_or_default(), payload])
    };
    if let Some(field) = out.get_mut(CHECKSUM_AT..PAGE_HEADER_BYTES) {
        field.copy_from_slice(&sum.to_le_bytes());
    }
    out
}
