//! What is said of one thing looked at.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::Serialize;

/// The form of `--json`. A field that is added keeps it; one that changes or goes does not.
pub const SCHEMA: &str = "prefix-picker.doctor/1";

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Requests are placed badly, or not at all, until this is changed.
    Fail,
    /// It works, but not as well as it could, or not for long.
    Warn,
    /// Not looked at, `found` says why.
    Skipped,
    /// As it should be.
    Ok,
}

impl Status {
    /// The word in the output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Warn => "warn",
            Self::Skipped => "skipped",
            Self::Ok => "ok",
        }
    }
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// What was looked at; never renamed. docs/doctor.md lists all.
    pub id: &'static str,
    /// Of whom: a replica, pool, gateway, file.
    pub subject: String,
    /// How it is.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to change; empty where nothing is to be.
    pub fix: String,
}

impl Item {
    /// As it should be.
    pub fn ok(id: &'static str, subject: &str, found: impl Into<String>) -> Self {
        Self::new(id, subject, Status::Ok, found, "")
    }

    /// Not looked at.
    pub fn skipped(id: &'static str, subject: &str, why: impl Into<String>) -> Self {
        Self::new(id, subject, Status::Skipped, why, "")
    }

    /// Could be better.
    pub fn warn(
        id: &'static str,
        subject: &str,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(id, subject, Status::Warn, found, fix)
    }

    /// Must be changed.
    pub fn fail(
        id: &'static str,
        subject: &str,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::new(id, subject, Status::Fail, found, fix)
    }

    fn new(
        id: &'static str,
        subject: &str,
        status: Status,
        found: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            id,
            subject: subject.to_owned(),
            status,
            found: found.into(),
            fix: fix.into(),
        }
    }
}

/// Why nothing could be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The configuration's field, like `pools[0].models`, or the argument; empty: the file as a whole.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// All that was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of looking.
    pub items: Vec<Item>,
    /// Why nothing could be looked at; else empty.
    pub errors: Vec<Problem>,
}

impl Report {
    /// Whether something must be changed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.items.iter().any(|item| item.status == Status::Fail)
    }

    /// How many items there are of each status.
    fn counts(&self) -> BTreeMap<&'static str, usize> {
        let all = [Status::Ok, Status::Warn, Status::Fail, Status::Skipped];
        let count = |status| {
            let of = self.items.iter().filter(|item| item.status == status);
            (Status::as_str(status), of.count())
        };
        all.into_iter().map(count).collect()
    }

    /// For programs; the form is described in docs/doctor.md.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "schema": SCHEMA, "items": self.items, "summary": self.counts(), "errors": self.errors,
        })
    }

    /// For people: what must be changed comes first, what is right last, one line each.
    #[must_use]
    pub fn text(&self, colour: bool) -> String {
        let mut sorted: Vec<&Item> = self.items.iter().collect();
        sorted.sort_by_key(|item| item.status);
        let width = |of: fn(&Item) -> &str| {
            let widths = self.items.iter().map(|item| of(item).chars().count());
            widths.max().unwrap_or(0).min(WIDTH_MAX)
        };
        let (ids, subjects) = (width(|item| item.id), width(|item| &item.subject));
        let mut out = String::new();
        for item in sorted {
            let word = Painted(item.status, colour);
            let (id, subject) = (item.id, one_line(&item.subject));
            let found = one_line(&item.found);
            let _ = writeln!(out, "{word}  {id:<ids$}  {subject:<subjects$}  {found}");
            if !item.fix.is_empty() {
                let _ = writeln!(out, "         -> {}", one_line(&item.fix));
            }
        }
        let counts = self.counts();
        let count = |status: Status| counts.get(status.as_str()).copied().unwrap_or(0);
        let _ = writeln!(
            out,
            "{} failed, {} to look at, {} ok, {} skipped",
            count(Status::Fail),
            count(Status::Warn),
            count(Status::Ok),
            count(Status::Skipped)
        );
        out
    }
}

/// Widest column: longer cells push the rest of their line on.
const WIDTH_MAX: usize = 34;

/// What engines and gateways say may hold anything: no line breaks, nothing that moves a cursor.
fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

struct Painted(Status, bool);

impl fmt::Display for Painted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.0.as_str();
        let colour = match self.0 {
            Status::Fail => 31,
            Status::Warn => 33,
            Status::Skipped => 90,
            Status::Ok => 32,
        };
        if self.1 {
            write!(f, "\x1b[{colour}m{word:<7}\x1b[0m")
        } else {
            write!(f, "{word:<7}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            items: vec![
                Item::ok("a.b", "x", "fine"),
                Item::fail("a.long_one", "y", "bad\x1b[2J\nnews", "do this"),
                Item::skipped("a.c", "[::1]:8000", "no time"),
            ],
            errors: Vec::new(),
        }
    }

    #[test]
    fn people_see_what_failed_first() {
        let expected = "\
fail     a.long_one  y           bad [2J news
         -> do this
skipped  a.c         [::1]:8000  no time
ok       a.b         x           fine
1 failed, 0 to look at, 1 ok, 1 skipped
";
        assert_eq!(report().text(false), expected);
        assert!(report().text(true).contains("\x1b[31mfail   \x1b[0m"));
        assert!(report().has_failed() && !Report::default().has_failed());
    }

    #[test]
    fn programs_see_everything() {
        let json = report().json();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["errors"], serde_json::json!([]));
        assert_eq!(json["summary"]["fail"], 1);
        assert_eq!(
            json["items"][0],
            serde_json::json!({"id": "a.b", "subject": "x", "status": "ok", "found": "fine", "fix": ""})
        );
    }
}
