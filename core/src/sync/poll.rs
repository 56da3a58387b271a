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
    /// The filter's version; empty: it does not tell.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// How predictions compared with what engines reported, by pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feedback: Vec<PoolFeedback>,
}

/// Responses of one pool whose requests had a prediction and were served by the replica named.
///
/// Totals since the gateway's process started, over all its workers: a poll that is lost or sent
/// twice changes nothing. They go down only where the gateway starts anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolFeedback {
    /// The pool's name.
    pub pool: String,
    /// Prediction and figure within one block of each other.
    pub exact: u64,
    /// More than that was predicted.
    pub over: u64,
    /// Less than that was predicted.
    pub under: u64,
    /// Apart, but events of a sibling were under way when it was predicted.
    pub early: u64,
    /// The response had no figure.
    pub missing: u64,
    /// The figure is not of one prompt alone (several prompts or answers at once).
    pub apart: u64,
    /// Of the first four: there was a block at least to predict or to find.
    pub telling: u64,
    /// Tokens predicted, all responses.
    pub predicted_tokens: u64,
    /// The prompts' tokens, all responses.
    pub prompt_tokens: u64,
    /// Tokens that engines found cached, where they said so.
    pub cached_tokens: u64,
    /// Tokens predicted beyond those found, but for early ones.
    pub over_tokens: u64,
    /// Tokens found beyond those predicted, but for early ones.
    pub under_tokens: u64,
}

impl PoolFeedback {
    /// All responses.
    #[must_use]
    pub fn answered(&self) -> u64 {
        let parts = [self.exact, self.over, self.under, self.early];
        let parts = parts.into_iter().chain([self.missing, self.apart]);
        parts.fold(0, u64::saturating_add)
    }
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
