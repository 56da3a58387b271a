//! Models whose chats the engine renders by code instead of a template. One module each.

use super::compiled::Chat;
use super::profile::Profile;
use super::{Renderer, Skip};

/// The text of a chat; `None` where the template is to render it.
///
/// # Errors
/// As [`super::CompiledProfile::render`].
pub(super) fn render(
    profile: &Profile,
    _chat: &Chat,
    _now_unix_s: i64,
) -> Result<Option<String>, Skip> {
    match profile.renderer {
        Renderer::Template => Ok(None),
    }
}
