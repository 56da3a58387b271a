//! The filter's polls of the control plane: are they answered now?
//!
//! Counters are totals since Envoy's start. How it is now is told by how old the table is, and by which counters
//! rise between two looks.

use serde_json::Value;

use super::filter::Found;
use super::stats::Stats;
use super::{Age, Pages, clusters};
use crate::doctor::addresses::are_apart;
use crate::doctor::item::{Item, Status};

/// Beyond this age nobody believes that the table is kept, in seconds.
const AGE_MAX_S: u64 = 5;
/// So long after its start an Envoy's polls are answered, in seconds.
const SETTLED_S: u64 = 5;
/// So long after its start it has polled at all: first it compiles the filter, which takes the longer the busier
/// the machine is.
const POLLS_WITHIN_S: u64 = 30;

const SYNC: &str = "gateway.sync";
const TABLE_AGE: &str = "gateway.table_age";
const TOKEN: &str = "gateway.token";
/// How polls that are refused are told.
pub(in crate::doctor) const REFUSED: &str = "polls are refused now";
const UNAUTHORIZED: &str = "unauthorized";
/// How polls end that are not answered, but for a wrong token; and what that means.
const FAILURES: [(&str, &str); 4] = [
    ("refused", "Envoy would not send them"),
    ("reset", "no answer came"),
    (
        "status",
        "another than 200, or Envoy's own 503 since nobody is there",
    ),
    ("bad_answer", "not the answer of a control plane"),
];

/// How polls end now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Now {
    /// Nothing can be said, and why.
    Unknown(String),
    /// With answers.
    Answered,
    /// With answers, and yet there is no table.
    NoTable,
    /// The token is not taken.
    Refused,
    /// Without an answer.
    Unanswered,
}

/// Two looks at them, or one.
pub(super) struct Polls<'a> {
    first: Stats<'a>,
    last: Stats<'a>,
    age: Age,
}

impl<'a> Polls<'a> {
    pub(super) fn of(pages: &'a Pages) -> Self {
        let first = Stats(&pages.stats);
        Self {
            first,
            last: pages.later.as_deref().map_or(first, Stats),
            age: Age::of(&pages.server_info),
        }
    }

    /// More ended so at the last look than at the first.
    fn rose(&self, result: &str) -> bool {
        self.last.polls(result) > self.first.polls(result)
    }

    /// Seconds since the control plane was heard.
    fn table_age(&self) -> Option<u64> {
        self.last.get("prefix_picker_filter_table_age_seconds")
    }

    fn are_answered(&self) -> bool {
        let is_fresh = self.table_age().is_none_or(|age| age <= AGE_MAX_S);
        self.last.polls("ok") > 0 && (is_fresh || self.rose("ok"))
    }

    /// Those of former times do not count, where others were answered since.
    fn are_refused(&self) -> bool {
        let refused = self.last.polls(UNAUTHORIZED) > 0;
        self.rose(UNAUTHORIZED) || refused && self.last.polls("ok") == 0
    }

    /// Another look may tell more.
    pub(super) fn is_unclear(&self) -> bool {
        unsettled(self.first.0, self.age).is_none()
            && !self.are_answered()
            && !self.rose(UNAUTHORIZED)
    }

    pub(super) fn now(&self, standalone: bool) -> Now {
        if standalone {
            return Now::Unknown("standalone: there is no table".to_owned());
        }
        if let Some(why) = unsettled(self.first.0, self.age) {
            return Now::Unknown(why);
        }
        match self.are_answered() {
            true if self.last.loads() == 0 => Now::NoTable,
            true => Now::Answered,
            false if self.are_refused() => Now::Refused,
            false => Now::Unanswered,
        }
    }

    /// For people: how they end that are not answered.
    fn failures(&self) -> String {
        let rose = FAILURES.iter().any(|(result, _)| self.rose(result));
        let never = self.last.polls("ok") == 0;
        let count = |result: &str| match (rose, never) {
            (_, true) => self.last.polls(result),
            (true, false) => {
                let last = self.last.polls(result);
                last.saturating_sub(self.first.polls(result))
            }
            // Those counted are of former times.
            (false, false) => 0,
        };
        let told = FAILURES.iter().filter_map(|(result, meaning)| {
            let count = Some(count(result)).filter(|count| *count > 0)?;
            Some(format!("{count} times {result}: {meaning}"))
        });
        let told = told.collect::<Vec<_>>().join("; ");
        match (told.is_empty(), never) {
            (true, true) => "none was sent".to_owned(),
            (true, false) => "none has ended while doctor looked".to_owned(),
            _ => told,
        }
    }
}

/// Polls that were not answered, or refused.
fn failed(stats: Stats<'_>) -> u64 {
    let failed = FAILURES.iter().map(|(result, _)| stats.polls(result));
    failed.sum::<u64>() + stats.polls(UNAUTHORIZED)
}

/// Why polls say nothing yet, if Envoy has started so lately that they cannot.
pub(super) fn unsettled(stats: &str, age: Age) -> Option<String> {
    let stats = Stats(stats);
    let answered = stats.polls("ok");
    let failed = failed(stats);
    if answered == 0 && (!age.live || age.is_below(SETTLED_S)) {
        return Some("Envoy has just started: look again".to_owned());
    }
    let seconds = age.seconds.filter(|_| age.is_below(POLLS_WITHIN_S))?;
    if answered == 0 && failed == 0 {
        return Some(format!(
            "Envoy started {seconds} s ago, and the filter has not polled yet: look again"
        ));
    }
    (answered > 0 && stats.loads() == 0)
        .then(|| format!("Envoy started {seconds} s ago, and no table has come yet: look again"))
}

/// Where polls go, and whether that is elsewhere than where doctor finds the control planes.
pub(super) struct Place {
    told: String,
    elsewhere: bool,
}

/// `urls`: the control planes' addresses as doctor has them.
pub(super) fn place(found: &[Found<'_>], page: &Value, urls: &[String]) -> Place {
    let mut names: Vec<&String> = found.iter().flat_map(|one| &one.plugin.clusters).collect();
    names.sort_unstable();
    names.dedup();
    let mut places = Vec::new();
    let mut elsewhere = !urls.is_empty();
    for name in names {
        let hosts = clusters::hosts(name, page);
        let leads = clusters::told(&hosts.iter().collect::<Vec<_>>());
        places.push(if hosts.is_empty() {
            format!("cluster {name} has no address")
        } else {
            format!("cluster {name} leads to {leads}")
        });
        elsewhere &= !hosts.is_empty();
        let mut all = hosts.iter().map(|host| format!("http://{host}"));
        elsewhere &= all.all(|host| urls.iter().all(|url| are_apart(&host, url)));
    }
    elsewhere &= !places.is_empty();
    if elsewhere {
        places.push(format!(
            "doctor has the control plane at {}",
            urls.join(", ")
        ));
    }
    Place {
        told: places.join("; "),
        elsewhere,
    }
}

/// What leaves a gateway without answers.
pub(super) struct Causes {
    /// Its cluster for the control plane is missing.
    cluster: Option<&'static str>,
    /// Its token is none of the file's.
    token: Option<&'static str>,
    /// Its token is one of them.
    token_is_right: bool,
    /// The item that says that there is no control plane.
    absent: Option<&'static str>,
    place: Place,
}

impl Causes {
    /// `items`: the gateway's, before those about its polls.
    pub(super) fn of(items: &[Item], absent: Option<&'static str>, place: Place) -> Self {
        let failed = |id: &str| {
            let mut all = items.iter();
            let found = all.find(|item| item.status == Status::Fail && item.id == id);
            found.map(|item| item.id)
        };
        Self {
            cluster: failed("gateway.control_plane_cluster"),
            token: failed(TOKEN),
            token_is_right: items
                .iter()
                .any(|item| item.id == TOKEN && item.status == Status::Ok),
            absent,
            place,
        }
    }

    /// `gateway.sync` and `gateway.table_age`: what follows from a fault is not said as another.
    pub(super) fn judge(&self, subject: &str, polls: &Polls<'_>, now: &Now) -> [Item; 2] {
        let skipped = |id, why: String| Item::skipped(id, subject, why);
        let sync = match now {
            Now::Unknown(why) => {
                return [SYNC, TABLE_AGE].map(|id| skipped(id, why.clone()));
            }
            Now::Answered => {
                let ok = polls.last.polls("ok");
                let failed = failed(polls.last);
                let found = format!(
                    "polls are answered now; since the start {ok} were, and {failed} failed"
                );
                Item::ok(SYNC, subject, found)
            }
            Now::NoTable => Item::fail(
                SYNC,
                subject,
                "polls are answered, but no table has come",
                "the control plane is still starting, or the filter is of another version: see its /readyz and Envoy's log",
            ),
            Now::Refused => self.refused(subject, polls),
            Now::Unanswered => self.unanswered(subject, polls),
        };
        let cause = match now {
            Now::Refused => self.cluster.or(self.token),
            Now::Unanswered => self.cluster.or(self.absent),
            Now::NoTable => self.absent,
            Now::Answered | Now::Unknown(_) => None,
        };
        let age = match polls.table_age() {
            None => skipped(TABLE_AGE, "the filter tells no age".to_owned()),
            Some(age) if matches!(now, Now::Refused | Now::Unanswered) => skipped(
                TABLE_AGE,
                format!(
                    "the control plane was last heard {age} s ago: see {}",
                    cause.unwrap_or(SYNC)
                ),
            ),
            Some(age) => Item::ok(
                TABLE_AGE,
                subject,
                format!("the control plane was heard {age} s ago"),
            ),
        };
        let sync = match cause {
            None => sync,
            Some(id) if cause == self.absent => skipped(
                SYNC,
                format!("{}. No control plane serves it: see {id}", sync.found),
            ),
            Some(id) => skipped(SYNC, format!("{}: see {id}", sync.found)),
        };
        [sync, age]
    }

    fn refused(&self, subject: &str, polls: &Polls<'_>) -> Item {
        let count = polls.last.polls(UNAUTHORIZED);
        let place = if self.place.elsewhere {
            format!("; {}", self.place.told)
        } else {
            String::new()
        };
        let found = format!(
            "{REFUSED}: the control plane that runs does not take the filter's token ({count} times since Envoy's start)"
        );
        if !self.token_is_right {
            return Item::fail(
                SYNC,
                subject,
                format!("{found}{place}"),
                "let `control_plane.token` in the filter's configuration be one of the control plane's `tokens` or \
                 `token_files`",
            );
        }
        Item::fail(
            SYNC,
            subject,
            format!(
                "{found}, though this file has it: it runs with other tokens than this file{place}"
            ),
            "if the file that it was started with is the right one, give that to --config, and let `control_plane.token` in \
             the filter's configuration be one of its `tokens` or `token_files`. If this file is, restart the control plane \
             with it (docs/operations.md, \"Token rotation\")",
        )
    }

    fn unanswered(&self, subject: &str, polls: &Polls<'_>) -> Item {
        let since = match polls.table_age() {
            Some(age) if polls.last.polls("ok") > 0 => format!("for {age} s"),
            _ => "since Envoy's start".to_owned(),
        };
        let place = match self.place.told.as_str() {
            "" => String::new(),
            place => format!("; {place}"),
        };
        Item::fail(
            SYNC,
            subject,
            format!("no poll was answered {since} ({}){place}", polls.failures()),
            if self.place.elsewhere {
                "let the cluster of `control_plane.cluster` lead to the control plane: here it has another address than doctor's \
                 --url or `listen`"
            } else {
                "does the cluster of `control_plane.cluster` lead to the control plane, does it run, and can Envoy reach it?"
            },
        )
    }
}
