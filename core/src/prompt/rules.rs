//! What vLLM does differently from version to version, as far as it changes a prompt's text.
//!
//! One switch for each behaviour instead of the version itself: an upgrade that changes no behaviour
//! then keeps the profile, and with it all block hashes.

use serde::{Deserialize, Serialize};

/// Switches that follow from the engine's `/version`. The default is the newest vLLM known (0.33).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {}

impl Rules {
    /// The switches of a version as `/version` names it, for example `0.32.0` or `0.24.1.dev3+gabc`.
    /// A version that cannot be read is taken for the newest.
    #[must_use]
    pub fn of_version(_version: &str) -> Self {
        Self::default()
    }
}
