//! Changes to a page that a gateway holds already.

use super::page::{PageError, PageHeader, PageRef, build_page};
use super::store::PageContent;
use crate::ids::{BlockHash, Epoch};

/// What a change is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageMeta {
    /// The table's life.
    pub epoch: Epoch,
    /// The table's layout.
    pub generation: u32,
    /// The page's number, below the page count.
    pub index: u32,
    /// What the page holds after a delta: every change up to here. A whole page brings its own.
    pub to_seq: u64,
}

/// Why a change cannot be applied. All of them mean: load the page whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ApplyError {
    /// A delta, but no page of this epoch, generation and index to apply it to.
    #[error("no page of this table to apply the delta to")]
    NoBase,
    /// The whole page that came is another one than announced.
    #[error("the page belongs to another epoch, generation or index")]
    OtherPage,
    /// The page that came, or the one that is here, is damaged.
    #[error(transparent)]
    Damaged(#[from] PageError),
}

/// The page after `content` is applied to `old`, or `None` if `old` is already as new.
///
/// A delta must follow on what `old` holds: its changes start at or before `old`'s sequence number,
/// or nothing changed in between. Deltas repeat what `old` holds already without harm.
///
/// # Errors
/// [`ApplyError`]; `old` stays as it is and the caller asks for the whole page.
pub fn apply_change(
    old: Option<&[u8]>,
    meta: PageMeta,
    content: &PageContent,
) -> Result<Option<Vec<u8>>, ApplyError> {
    // A page of another life, layout or place, or a damaged one, is no base and no rival.
    let old = old
        .and_then(|bytes| PageRef::verify(bytes).ok())
        .filter(|page| is_page(&page.header(), &meta));
    match content {
        PageContent::Whole(bytes) => {
            let new = PageRef::verify(bytes)?.header();
            if !is_page(&new, &meta) {
                return Err(ApplyError::OtherPage);
            }
            let newer = old.is_none_or(|old| old.header().seq < new.seq);
            Ok(newer.then(|| bytes.clone()))
        }
        PageContent::Delta(changes) => {
            let old = old.ok_or(ApplyError::NoBase)?;
            if old.header().seq >= meta.to_seq {
                return Ok(None);
            }
            let mut changes: Vec<(BlockHash, Option<&[u8]>)> = changes
                .iter()
                .map(|change| (change.anchor, change.body.as_deref()))
                .collect();
            // Stable, and the last of several changes to one anchor wins.
            changes.sort_by_key(|(anchor, _)| *anchor);
            let merged = merge(old, &changes);
            let header = PageHeader {
                seq: meta.to_seq,
                ..old.header()
            };
            Ok(Some(build_page(header, &merged)))
        }
    }
}

fn is_page(header: &PageHeader, meta: &PageMeta) -> bool {
    header.epoch == meta.epoch && header.generation == meta.generation && header.index == meta.index
}

/// `old`'s groups with `changes` (sorted by anchor) put over them.
fn merge<'a>(
    old: PageRef<'a>,
    changes: &[(BlockHash, Option<&'a [u8]>)],
) -> Vec<(BlockHash, &'a [u8])> {
    let mut merged = Vec::with_capacity(old.len() + changes.len());
    let mut groups = old.groups().peekable();
    for (at, (anchor, body)) in changes.iter().enumerate() {
        if changes.get(at + 1).is_some_and(|(next, _)| next == anchor) {
            continue;
        }
        while let Some(group) = groups.next_if(|(held, _)| held < anchor) {
            merged.push(group);
        }
        let _replaced = groups.next_if(|(held, _)| held == anchor);
        if let Some(body) = body {
            merged.push((*anchor, *body));
        }
    }
    merged.extend(groups);
    merged
}
