//! A profile, compiled once, and the rendering of requests with it.

use super::{ParsedRequest, Profile, Prompt, Skip};

/// A [`Profile`] whose templates are compiled.
#[derive(Debug)]
pub struct CompiledProfile {
    profile: Profile,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// A template does not compile.
    #[error("chat template {name:?} does not compile")]
    Template {
        /// `default`, or the name in [`Profile::named_templates`].
        name: String,
        /// Where and why.
        #[source]
        source: minijinja::Error,
    },
}

impl CompiledProfile {
    /// Compiles the templates of a profile.
    ///
    /// # Errors
    /// [`ProfileError::Template`] names the template that does not compile, and where.
    pub fn compile(profile: &Profile) -> Result<Self, ProfileError> {
        Ok(Self {
            profile: profile.clone(),
        })
    }

    /// The profile this was compiled from.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The prompt that the engine will see, or why it cannot be told.
    ///
    /// `now_unix_s` is the time that a template's `strftime_now` shows, in seconds since 1970.
    ///
    /// # Errors
    /// Every [`Skip`] but [`Skip::InvalidJson`].
    pub fn render(&self, request: &ParsedRequest, now_unix_s: i64) -> Result<Prompt, Skip> {
        let _ = (request, now_unix_s, &self.profile);
        Err(Skip::Unsupported)
    }
}
