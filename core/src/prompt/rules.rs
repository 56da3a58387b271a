//! What vLLM does differently from version to version, as far as it changes a prompt's text.
//!
//! One switch for each behaviour instead of the version itself: an upgrade that changes no behaviour
//! then keeps the profile, and with it all block hashes.

use serde::{Deserialize, Serialize};

/// Switches that follow from the engine's `/version`. The default is the newest vLLM known (0.33).
///
/// Read in vLLM 0.22, 0.26, 0.32 and 0.33. Where a behaviour changed between two of them, the older
/// one is not reproduced but skipped, or refused by the engine anyway.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// transformers (from about 5.21 on, which no released vLLM takes) rebuilds messages: `thinking`
    /// beside `reasoning`, and nothing that is null.
    pub transformers_normalises: bool,
    /// `kv_transfer_params.prompt_token_ids` stands for the messages (0.27).
    pub forwarded_token_ids: bool,
    /// System text loses its billing header in all chats (0.32), not only in `/v1/messages`.
    pub chat_drops_billing_header: bool,
    /// Keys of a content part that vLLM does not know go to the template (0.23).
    pub parts_keep_unknown_keys: bool,
    /// Keys of a tool that vLLM does not know do not (0.27).
    pub tools_drop_unknown_keys: bool,
    /// `strict` is a key of a function that vLLM knows (0.23).
    pub tools_know_strict: bool,
    /// `developer` becomes `system` where the template does not know it (0.23).
    pub developer_becomes_system: bool,
    /// A `reasoning_effort` sets `enable_thinking` (0.22).
    pub effort_sets_thinking: bool,
    /// `--reasoning-effort-map` applies (0.33).
    pub effort_map: bool,
    /// Arguments of a tool call that are JSON, but not an object, become an empty one; and tools of
    /// responses look as those of chats do (0.32).
    pub lenient_arguments: bool,
    /// `/v1/messages` has `thinking`, inline system messages and tools that come and go (0.32).
    pub messages_have_thinking: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self::since(u32::MAX)
    }
}

impl Rules {
    /// The switches of a version as `/version` names it, for example `0.32.0` or `0.24.1.dev3+gabc`.
    /// A version that cannot be read is taken for the newest.
    #[must_use]
    pub fn of_version(version: &str) -> Self {
        let mut parts = version.trim_start_matches('v').split('.');
        let number = |part: Option<&str>| part?.parse::<u32>().ok();
        match (number(parts.next()), number(parts.next())) {
            (Some(0), Some(minor)) => Self::since(minor),
            _ => Self::default(),
        }
    }

    /// The switches of vLLM 0.`minor`.
    fn since(minor: u32) -> Self {
        Self {
            transformers_normalises: false,
            forwarded_token_ids: minor >= 27,
            chat_drops_billing_header: minor >= 32,
            parts_keep_unknown_keys: minor >= 23,
            tools_drop_unknown_keys: minor >= 27,
            tools_know_strict: minor >= 23,
            developer_becomes_system: minor >= 23,
            effort_sets_thinking: minor >= 22,
            effort_map: minor >= 33,
            lenient_arguments: minor >= 32,
            messages_have_thinking: minor >= 32,
        }
    }
}
