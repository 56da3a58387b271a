//! What `top` shows, as lines. Pure.

use std::cmp::Reverse;

use serde_json::Value;

/// Columns below which lines are cut off.
const COLUMNS_MIN: usize = 40;
/// Alarms that are shown on a screen.
const ALARMS_MAX: usize = 3;
/// Columns of a replica's line but its name: state, running, waiting, KV %, cached, hit %, picks.
const FIGURES: usize = 52;

/// What replicas are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// Pool and name
    Name,
    /// Requests on the engine, most first
    Load,
    /// Cached tokens, most first
    Cached,
    /// Hit rate, lowest first
    Hit,
    /// Picks, most first
    Picks,
}

impl Sort {
    /// The next one, in turn.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::Load,
            Self::Load => Self::Cached,
            Self::Cached => Self::Hit,
            Self::Hit => Self::Picks,
            Self::Picks => Self::Name,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Load => "load",
            Self::Cached => "cached tokens",
            Self::Hit => "hit rate",
            Self::Picks => "picks",
        }
    }
}

/// How it is looked at.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) url: String,
    pub(super) columns: usize,
    /// `usize::MAX`: all are shown, and nothing of keys.
    pub(super) rows: usize,
    /// The first replica shown; corrected to one that is there.
    pub(super) first: usize,
    pub(super) sort: Sort,
    /// The control plane has not answered for so many seconds.
    pub(super) gone: Option<u64>,
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A text of the answer's, which must not be able to talk to the terminal.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or("-");
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect()
}

/// In percent, with one digit.
fn percent(value: &Value) -> String {
    value
        .as_f64()
        .map_or_else(|| "-".to_owned(), |share| format!("{:.1}", share * 100.0))
}

/// At most six columns: 9999, 12.3K, 123M.
fn short(value: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1_000_000_000_000, "T"),
        (1_000_000_000, "G"),
        (1_000_000, "M"),
        (1_000, "K"),
    ];
    let unit = UNITS
        .iter()
        .find(|(unit, _)| value >= 10_000 && value >= *unit);
    match unit {
        None => value.to_string(),
        Some((unit, letter)) if value / unit >= 100 => format!("{}{letter}", value / unit),
        Some((unit, letter)) => format!("{}.{}{letter}", value / unit, value % unit * 10 / unit),
    }
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// To so many columns; the middle goes, since names differ at their ends.
fn fit(name: &str, columns: usize) -> String {
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    let room = columns.saturating_sub(1);
    let start: String = name.chars().take(room / 2).collect();
    let end: String = name.chars().skip(length - (room - room / 2)).collect();
    format!("{start}…{end}")
}

/// What is cut off is seen to be.
fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let mut cut: String = line.chars().take(columns.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// At spaces, the further lines indented. A word that is longer than a line stays whole.
fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The lines, `view.rows` at most.
pub(super) fn frame(status: &Value, view: &mut View) -> Vec<String> {
    let columns = view.columns.max(COLUMNS_MIN);
    let mut lines = head(status, view);
    let mut replicas: Vec<(&Value, &Value)> = list(&status["pools"])
        .iter()
        .flat_map(|pool| {
            list(&pool["replicas"])
                .iter()
                .map(move |replica| (pool, replica))
        })
        .collect();
    sort(&mut replicas, view.sort);
    let pools = list(&status["pools"]).len();
    let reasons = reasons(status, columns);
    let keys = view.rows != usize::MAX;
    let below = reasons.len() + 1 + usize::from(keys);
    let room = view.rows.saturating_sub(lines.len() + 2 + below).max(1);
    view.first = view.first.min(replicas.len().saturating_sub(room));
    lines.push(String::new());
    lines.push(heading(columns));
    let shown = replicas.iter().skip(view.first).take(room);
    lines.extend(shown.map(|(pool, replica)| line(pool, replica, pools > 1, columns)));
    lines.push(String::new());
    lines.extend(reasons);
    if keys {
        let last = (view.first + room).min(replicas.len());
        lines.push(format!(
            "q quit  s sort ({})  arrows scroll ({}-{last} of {})",
            view.sort.word(),
            (view.first + 1).min(replicas.len()),
            replicas.len()
        ));
    }
    lines.truncate(view.rows);
    lines.iter().map(|line| cut(line, columns)).collect()
}

fn head(status: &Value, view: &View) -> Vec<String> {
    let fleet = &status["fleet"];
    let minutes = number(&status["window_s"]) / 60;
    let mut lines = vec![
        format!(
            "prefix-picker {}  up {}  {}/{} replicas may serve  {} gateway(s)  {}",
            text(&status["version"]),
            time(number(&status["uptime_s"])),
            number(&fleet["pickable"]),
            number(&fleet["replicas"]),
            number(&status["gateways"]["count"]),
            view.url,
        ),
        format!(
            "{minutes} min: hit {} % (engines {} %)  saved {} of {} tokens  {} picks",
            percent(&fleet["recent"]["hit_rate"]),
            percent(&fleet["engines"]["hit_rate"]),
            short(number(&fleet["recent"]["saved_tokens"])),
            short(number(&fleet["recent"]["prompt_tokens"])),
            short(number(&fleet["recent"]["requests"])),
        ),
    ];
    if let Some(seconds) = view.gone {
        lines.push(format!(
            "THE CONTROL PLANE DOES NOT ANSWER; this is as of {} ago",
            time(seconds)
        ));
    }
    let alarms = list(&status["alarms"]);
    // A screen has no lines to spare.
    let is_whole = view.rows == usize::MAX;
    let most = if is_whole { alarms.len() } else { ALARMS_MAX };
    for alarm in alarms.iter().take(most) {
        let pool = alarm["pool"]
            .as_str()
            .map(|_| format!("{}: ", text(&alarm["pool"])));
        let line = format!(
            "! {} {}{}",
            text(&alarm["severity"]),
            pool.unwrap_or_default(),
            text(&alarm["text"])
        );
        if is_whole {
            lines.extend(wrap(&line, view.columns.max(COLUMNS_MIN)));
        } else {
            lines.push(line);
        }
    }
    if alarms.len() > most {
        lines.push(format!("! and {} alarm(s) more", alarms.len() - most));
    }
    lines
}

fn sort(replicas: &mut [(&Value, &Value)], by: Sort) {
    let load = |r: &Value| number(&r["running"]) + number(&r["waiting"]);
    let hit = |r: &Value| r["recent"]["hit_rate"].as_f64();
    match by {
        Sort::Name => {}
        Sort::Load => replicas.sort_by_key(|(_, r)| Reverse(load(r))),
        Sort::Cached => replicas.sort_by_key(|(_, r)| Reverse(number(&r["cached_tokens"]))),
        // Those of which nothing is known last.
        Sort::Hit => replicas.sort_by(|(_, a), (_, b)| {
            let (a, b) = (hit(a).unwrap_or(2.0), hit(b).unwrap_or(2.0));
            a.total_cmp(&b)
        }),
        Sort::Picks => replicas.sort_by_key(|(_, r)| Reverse(number(&r["recent"]["requests"]))),
    }
}

fn row(
    name: &str,
    columns: usize,
    [state, run, wait, kv, cached, hit, picks]: [&str; 7],
) -> String {
    let width = columns.saturating_sub(FIGURES).max(8);
    format!(
        "{:<width$} {state:<8} {run:>5} {wait:>5} {kv:>6} {cached:>7} {hit:>6} {picks:>7}",
        fit(name, width)
    )
}

fn heading(columns: usize) -> String {
    row(
        "REPLICA",
        columns,
        ["STATE", "RUN", "WAIT", "KV %", "CACHED", "HIT %", "PICKS"],
    )
}

fn line(pool: &Value, replica: &Value, several: bool, columns: usize) -> String {
    let name = text(&replica["replica"]);
    let name = if several {
        format!("{}/{name}", text(&pool["pool"]))
    } else {
        name
    };
    let count = |value: &Value| short(number(value));
    row(
        &name,
        columns,
        [
            &text(&replica["state"]),
            &count(&replica["running"]),
            &count(&replica["waiting"]),
            &percent(&replica["kv_usage"]),
            &count(&replica["cached_tokens"]),
            &percent(&replica["recent"]["hit_rate"]),
            &count(&replica["recent"]["requests"]),
        ],
    )
}

/// Requests by reason, in as many lines as it takes.
fn reasons(status: &Value, columns: usize) -> Vec<String> {
    let all = list(&status["reasons"]);
    let sum: u64 = all.iter().map(|reason| number(&reason["recent"])).sum();
    let mut lines = vec!["by reason:".to_owned()];
    for reason in all {
        let recent = number(&reason["recent"]);
        if recent == 0 {
            continue;
        }
        let share = recent.saturating_mul(1_000) / sum.max(1);
        // Of a gateway that is newer than the control plane.
        let name = reason["reason"].as_str().unwrap_or("other");
        let word = format!(
            "  {name} {} ({}.{} %)",
            short(recent),
            share / 10,
            share % 10
        );
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() <= columns => {
                line.push_str(&word)
            }
            _ => lines.push(word),
        }
    }
    if sum == 0 {
        lines = vec!["by reason: no gateway has told of a request lately".to_owned()];
    }
    lines
}

#[cfg(test)]
mod tests;
