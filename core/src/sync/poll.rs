//! What a gateway says in a poll.

use serde::{Deserialize, Serialize};

/// One poll. JSON, so that it can be read and sent by hand; unknown fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    /// Wire format the gateway reads: [`super::MAJOR`].
    pub protocol: u16,
    /// Who asks; stable for one Envoy process. For logs and metrics only.
    #[serde(default)]
    pub gateway: String,
    /// The complete table it has, if any.
    #[serde(default)]
    pub have: Option<Have>,
    /// The table it is loading into the other key set, if any.
    #[serde(default)]
    pub loading: Option<Loading>,
    /// Version of the head it has, 0 for none. Means nothing in another epoch than `have`'s or
    /// `loading`'s.
    #[serde(default)]
    pub head_version: u64,
    /// Hashes of the profiles it has.
    #[serde(default)]
    pub profiles: Vec<u64>,
    /// How long the answer may wait for news, in milliseconds. 0: answer at once.
    #[serde(default)]
    pub wait_ms: u32,
    /// Names of pools that got token-id prompts since the gateway started.
    #[serde(default)]
    pub token_id_pools: Vec<String>,
}

/// A complete table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Have {
    /// Its epoch.
    pub epoch: u64,
    /// Its generation.
    pub generation: u32,
    /// All changes up to this sequence number are in it.
    pub seq: u64,
}

/// A table of which the pages before `next_page` are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loading {
    /// Its epoch.
    pub epoch: u64,
    /// Its generation.
    pub generation: u32,
    /// The table's sequence number when the load began: once the last page is there, the table has
    /// all changes up to it.
    pub start_seq: u64,
    /// The first page that is not there yet.
    pub next_page: u32,
}
