//! What vLLM does differently from version to version, as far as it changes a prompt's text.
//!
//! One switch for each behaviour instead of the version itself: an upgrade that changes no behaviour
//! then keeps the profile, and with it all block hashes.

use serde::{Deserialize, Serialize};

/// Switches that follow from the engine's `/version`. The default is the newest vLLM known (0.33).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// transformers (from about 5.21 on, which no released vLLM takes) rebuilds messages: `thinking`
    /// beside `reasoning`, and nothing that is null.
    pub transformers_normalises: bool,
    /// `kv_transfer_params.prompt_token_ids` stands for the messages (0.27).
    pub forwarded_token_ids: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            transformers_normalises: false,
            forwarded_token_ids: true,
        }
    }
}

impl Rules {
    /// The switches of a version as `/version` names it, for example `0.32.0` or `0.24.1.dev3+gabc`.
    /// A version that cannot be read is taken for the newest.
    #[must_use]
    pub fn of_version(version: &str) -> Self {
        let mut parts = version.trim_start_matches('v').split('.');
        let number = |part: Option<&str>| part?.parse::<u32>().ok();
        let (Some(major), Some(minor)) = (number(parts.next()), number(parts.next())) else {
            return Self::default();
        };
        let at_least = |minimum: u32| (major, minor) >= (0, minimum);
        Self {
            transformers_normalises: false,
            forwarded_token_ids: at_least(27),
        }
    }
}
