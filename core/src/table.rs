//! Which replica holds which prefix: pages that the control plane writes and the filter reads.
//!
//! Blocks are grouped by their place in the chain: a [`GroupSpec`] covers up to [`GROUP_DEPTH`]
//! consecutive blocks and everything that branches off within them, and is found by the hash of its
//! first block, its *anchor*. A page holds the groups whose anchors fall into it. So a stored or
//! evicted prefix of 100K tokens changes about 50 groups, and one page answers 32 depths.
//!
//! - [`group`]: a group's bytes, written and read;
//! - [`page`]: a page's bytes: header, sorted anchors, bodies; readable without decoding;
//! - [`store`]: the control plane's side, with a change log ([`TableStore`]);
//! - [`apply`]: changes to a page that a gateway has already ([`apply_change`]);
//! - [`mod@lookup`]: a request's hashes -> how far each replica holds them ([`lookup()`]).
//!
//! `docs/wire-format.md` ("Pages") has the layout byte by byte.
//!
//! Invariant: a page says of a replica only what that replica held when the page was written. A
//! look-up credits what it saw in some page and nothing else, so pages of different age can make a
//! match shorter than it is, or as long as it was a moment ago, never longer than both.

pub mod apply;
pub mod group;
pub mod lookup;
pub mod page;
pub mod store;
mod wire;

#[cfg(test)]
mod tests;

pub use apply::{ApplyError, PageMeta, apply_change};
pub use group::{GroupError, GroupSpec, Holder, RunSpec, choose_split, decode_group, encode_group};
pub use lookup::{LookupLimits, Matches, PageSource, ReplicaMatch, TableShape, lookup};
pub use page::{PageError, PageHeader, PageRef, page_of};
pub use store::{Changes, GroupChange, LoadSlice, PageChange, PageContent, TableStore};

/// Blocks from one regular anchor to the next.
pub const GROUP_DEPTH: u32 = 32;

/// A sensible limit for an encoded group: cut a larger one by [`choose_split`].
pub const GROUP_TARGET_BYTES: usize = 1024;

/// A sensible mean page size. A larger page costs more to copy out of the shared data, a smaller
/// one more keys.
pub const PAGE_TARGET_BYTES: usize = 4096;
