//! Who may poll.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use sha2::{Digest, Sha256};

use crate::config::is_token;

/// The bearer tokens that are valid now. Only their hashes are kept.
#[derive(Debug)]
pub struct Tokens {
    inline: Vec<[u8; 32]>,
    files: Vec<PathBuf>,
    from_files: RwLock<Vec<[u8; 32]>>,
}

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("token file {}: {why}", path.display())]
pub struct TokenFileError {
    path: PathBuf,
    why: String,
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl Tokens {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// If one cannot be used.
    pub fn open(inline: &[String], files: &[PathBuf]) -> Result<Self, TokenFileError> {
        let tokens = Self {
            inline: inline.iter().map(|token| hash(token.as_bytes())).collect(),
            files: files.to_vec(),
            from_files: RwLock::default(),
        };
        tokens.reload()?;
        Ok(tokens)
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// If one cannot be used; the tokens stay as they were.
    pub fn reload(&self) -> Result<(), TokenFileError> {
        let read = |path: &PathBuf| {
            let fail = |why: String| TokenFileError {
                path: path.clone(),
                why,
            };
            let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
            let token = text.trim();
            if is_token(token) {
                Ok(hash(token.as_bytes()))
            } else {
                Err(fail(
                    "not a token: expected one line of printable ASCII without spaces".into(),
                ))
            }
        };
        let fresh = self.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        *self
            .from_files
            .write()
            .unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Is nobody allowed?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inline.is_empty() && self.files.is_empty()
    }

    /// Are there files to read again?
    #[must_use]
    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Is this `authorization` header one of a valid token? Takes equally long for any token that is
    /// not: hashes are compared, all of them, all bytes.
    #[must_use]
    pub fn allow(&self, header: Option<&[u8]>) -> bool {
        let Some(token) = header.and_then(bearer) else {
            return false;
        };
        let given = hash(token);
        let from_files = self
            .from_files
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let mut allowed = false;
        for valid in self.inline.iter().chain(from_files.iter()) {
            let differing = valid
                .iter()
                .zip(&given)
                .fold(0u8, |acc, (a, b)| acc | (a ^ b));
            allowed |= std::hint::black_box(differing) == 0;
        }
        allowed
    }
}

fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_tokens_are_allowed() {
        let dir = std::env::temp_dir().join(format!("prefix-picker-tokens-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("token");
        std::fs::write(&file, "third\n").unwrap();
        let tokens = Tokens::open(
            &["first".into(), "second".into()],
            std::slice::from_ref(&file),
        )
        .unwrap();
        let allow = |header: &str| tokens.allow(Some(header.as_bytes()));
        assert!(allow("Bearer first") && allow("bearer second") && allow("BEARER third "));
        for header in [
            "",
            "Bearer",
            "Bearer ",
            "first",
            "Basic first",
            "Bearer firs",
            "Bearer firstt",
            "Bearer fourth",
        ] {
            assert!(!allow(header), "{header}");
        }
        assert!(!tokens.allow(None));

        std::fs::write(&file, "fourth").unwrap();
        tokens.reload().unwrap();
        assert!(allow("Bearer fourth") && !allow("Bearer third"));
        std::fs::write(&file, "two words").unwrap();
        assert!(tokens.reload().is_err());
        assert!(allow("Bearer fourth"), "a broken file changes nothing");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
