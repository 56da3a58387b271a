//! Why a request went where it went: one per request, a metric label and an access-log field.

use prefix_picker_core::prompt::Skip;
use prefix_picker_core::{pick, reasons};

/// The outcome of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The prompt was looked up and placed.
    Picked(pick::Reason),
    /// Placed where the same prefix was sent a moment ago; no event says so yet.
    Recent,
    /// Placed where requests that began alike were sent before; nobody tells what replicas hold.
    Predicted,
    /// It builds on an answer that one replica keeps: sent there.
    Pinned,
    /// The prompt could not be told; placed by load.
    Skipped(Skip),
    /// The filter is switched off here.
    Off,
    /// Not a POST.
    Method,
    /// Not a path with prompts.
    Path,
    /// Not JSON by its content type.
    ContentType,
    /// The body is compressed.
    ContentEncoding,
    /// No body at all.
    NoBody,
    /// Longer than is held, by its content-length; placed by load.
    BodyTooLarge,
    /// Of unknown length, and grew longer than is waited on; placed by load.
    ChunkedTooLarge,
    /// The control plane has not been heard yet.
    NoHead,
    /// No pool serves this model on this cluster.
    UnknownModel,
    /// The table is not there yet; placed by load.
    NoTable,
    /// The control plane has been silent for too long; placed by load.
    StaleTable,
    /// The pool's prompt profile is not there yet; placed by load.
    ProfileMissing,
    /// The pool's prompt profile cannot be used; placed by load.
    ProfileBroken,
    /// The stream ended before its body did. Counted, but too late for the access log.
    Aborted,
}

const OWN: [Reason; 18] = [
    Reason::Off,
    Reason::Recent,
    Reason::Predicted,
    Reason::Pinned,
    Reason::Method,
    Reason::Path,
    Reason::ContentType,
    Reason::ContentEncoding,
    Reason::NoBody,
    Reason::BodyTooLarge,
    Reason::ChunkedTooLarge,
    Reason::NoHead,
    Reason::UnknownModel,
    Reason::NoTable,
    Reason::StaleTable,
    Reason::ProfileMissing,
    Reason::ProfileBroken,
    Reason::Aborted,
];

impl Reason {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let picked = pick::Reason::ALL.into_iter().map(Self::Picked);
        picked
            .chain(Skip::ALL.into_iter().map(Self::Skipped))
            .chain(OWN)
    }

    /// The byte that stands for it in what the control plane is told.
    #[must_use]
    pub fn code(self) -> u8 {
        reasons::code(self.as_str())
    }

    /// Its name in metrics, logs and docs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Picked(reason) => reason.as_str(),
            Self::Recent => "recent",
            Self::Predicted => "predicted",
            Self::Pinned => "pinned",
            Self::Skipped(skip) => skip.as_str(),
            Self::Off => "off",
            Self::Method => "method",
            Self::Path => "path",
            Self::ContentType => "content_type",
            Self::ContentEncoding => "content_encoding",
            Self::NoBody => "no_body",
            Self::BodyTooLarge => "body_too_large",
            Self::ChunkedTooLarge => "chunked_too_large",
            Self::NoHead => "no_head",
            Self::UnknownModel => "unknown_model",
            Self::NoTable => "no_table",
            Self::StaleTable => "stale_table",
            Self::ProfileMissing => "profile_missing",
            Self::ProfileBroken => "profile_broken",
            Self::Aborted => "aborted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_differ() {
        let mut names: Vec<_> = Reason::all().map(Reason::as_str).collect();
        let count = names.len();
        assert!(
            names
                .iter()
                .all(|n| n.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn each_has_a_code_and_there_are_no_others() {
        let mut codes: Vec<u8> = Reason::all().map(Reason::code).collect();
        codes.sort_unstable();
        let all: Vec<u8> = (1..).take(reasons::NAMES.len() - 1).collect();
        assert_eq!(codes, all);
    }

    /// The README's table names every reason, and no other.
    #[test]
    fn the_readme_lists_them_all() {
        let readme = include_str!("../../README.md");
        let table = readme
            .split("## Reasons")
            .nth(1)
            .and_then(|s| s.split("\n## ").next());
        let rows = table
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| `"));
        let mut listed: Vec<&str> = rows
            .flat_map(|row| {
                row.split('|')
                    .nth(1)
                    .unwrap_or_default()
                    .split('`')
                    .skip(1)
                    .step_by(2)
            })
            .collect();
        let mut names: Vec<_> = Reason::all().map(Reason::as_str).collect();
        listed.sort_unstable();
        names.sort_unstable();
        assert_eq!(listed, names);
    }
}
