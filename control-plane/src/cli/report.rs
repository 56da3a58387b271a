//! `prefix-picker report`: what decisions brought, or would have.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::Value;

use super::BAD_ARGUMENTS;
use super::remote::{self, Remote};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker report --token-file token --since 24h
  prefix-picker report --token-file token --since 30m --json

The token is any of the control plane's. It keeps figures of a week, in memory: a restart begins anew, and
the report says how far back it goes. Where several control planes run, each knows its own gateways'.

Exit codes: 0 answered; 1 the control plane does not answer or refuses; 2 the arguments cannot be used.")]
pub struct Args {
    #[command(flatten)]
    remote: remote::Where,
    /// How far back: a number and s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = seconds)]
    since: u64,
    /// Print the control plane's answer (`prefix-picker.report/1`)
    #[arg(long)]
    json: bool,
}

/// Seconds of a text like `90s`, `30m`, `24h` or `7d`.
fn seconds(text: &str) -> Result<u64, String> {
    let form = || "expected a number above 0 and s, m, h or d, like 24h".to_owned();
    let unit = text.chars().last().ok_or_else(form)?;
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(form()),
    };
    let number: u64 = text
        .strip_suffix(unit)
        .unwrap_or_default()
        .parse()
        .map_err(|_| form())?;
    let all = number.checked_mul(each).ok_or("that is too long ago")?;
    if all == 0 { Err(form()) } else { Ok(all) }
}

/// Asks and prints.
///
/// # Errors
/// If the control plane does not answer or refuses.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let remote = Remote::new(&args.remote)?;
    let answer = remote.get(&["v1", "report"], &format!("since_s={}", args.since))?;
    if answer.status == 400 {
        eprintln!("prefix-picker report: {}", answer.body.trim());
        return Ok(ExitCode::from(BAD_ARGUMENTS));
    }
    if answer.status == 404 {
        anyhow::bail!(
            "the control plane at {} is of a version without reports: update it",
            args.remote.place.url
        );
    }
    answer.show(&args.remote.place.url, args.json, table)
}

/// What the lines say; the second part is what they are a share of.
type Line = (&'static str, fn(&Value) -> (u64, u64));

const LINES: [Line; 5] = [
    ("Envoy took the endpoint that we chose", |kind| {
        (number(&kind["agreed"]), number(&kind["requests"]))
    }),
    (
        "measured: cached where they went, by responses that told",
        |kind| {
            let measured = &kind["measured"];
            (
                number(&measured["cached_tokens"]),
                number(&measured["prompt_tokens"]),
            )
        },
    ),
    (
        "predicted against today's caches: where they went",
        |kind| {
            let hit = number(&kind["predicted_today"]["served_hit_tokens"]);
            (hit, number(&kind["prompt_tokens"]))
        },
    ),
    ("predicted against today's caches: where we chose", |kind| {
        let hit = number(&kind["predicted_today"]["chosen_hit_tokens"]);
        (hit, number(&kind["prompt_tokens"]))
    }),
    (
        "counterfactual: virtual caches fed by our decisions",
        |kind| {
            let counterfactual = &kind["counterfactual"];
            (
                number(&counterfactual["hit_tokens"]),
                number(&counterfactual["prompt_tokens"]),
            )
        },
    ),
];

const MEANING: &str = "\
Shares below the first are of prompt tokens. Today's caches were filled by where requests went: in shadow
by Envoy's choices, and would hold more in one place if ours were followed. The virtual caches have each
replica's real capacity and only what we would have sent there; our choices themselves were made by what
today's caches hold, and load is as it was.
";

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn time(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

fn share((part, of): (u64, u64)) -> String {
    match part.saturating_mul(1_000).checked_div(of) {
        Some(permille) => format!("{}.{} %", permille / 10, permille % 10),
        None => "-".to_owned(),
    }
}

/// The answer for people.
fn table(told: &Value) -> String {
    let mut out = String::new();
    let (since, covered) = (number(&told["since_s"]), number(&told["covered_s"]));
    let _ = write!(out, "the last {}", time(since));
    if covered < since {
        let _ = write!(
            out,
            ", of which the control plane knows the last {}",
            time(covered)
        );
    }
    out.push('\n');
    for (number, pool) in list(&told["pools"]).enumerate() {
        if number > 0 {
            out.push('\n');
        }
        pool_table(&mut out, pool);
    }
    out.push('\n');
    out.push_str(MEANING);
    let (lost, unknown) = (number(&told["lost"]), number(&told["unknown_replica"]));
    if lost > 0 {
        let _ = writeln!(
            out,
            "{lost} request(s) since the start are missing: gateways had too many at once to tell of."
        );
    }
    if unknown > 0 {
        let _ = writeln!(
            out,
            "{unknown} request(s) since the start were for replicas that are not in this configuration."
        );
    }
    out
}

fn pool_table(out: &mut String, pool: &Value) {
    let width = LINES
        .iter()
        .map(|(label, _)| label.len())
        .max()
        .unwrap_or(0);
    let kinds = [&pool["shadow"], &pool["enforced"]];
    let mut line = |label: &str, [shadow, enforced]: [String; 2]| {
        let _ = writeln!(out, "{label:<width$}  {shadow:>12}  {enforced:>12}");
    };
    let name = pool["pool"].as_str().unwrap_or("-");
    line(
        &format!("pool {name}"),
        ["shadow".to_owned(), "enforced".to_owned()],
    );
    line(
        "requests that were looked up and answered",
        kinds.map(|kind| number(&kind["requests"]).to_string()),
    );
    line(
        "their prompt tokens",
        kinds.map(|kind| number(&kind["prompt_tokens"]).to_string()),
    );
    for (label, figures) in LINES {
        line(label, kinds.map(|kind| share(figures(kind))));
    }
    let caches = || list(&pool["virtual_caches"]);
    let names = |wanted: fn(&&Value) -> bool| {
        let names = caches()
            .filter(wanted)
            .filter_map(|cache| cache["replica"].as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let without = names(|cache| cache["capacity_tokens"].is_null());
    if !without.is_empty() {
        let _ = writeln!(
            out,
            "no virtual cache, since the engine does not tell its capacity: {without}"
        );
    }
    let cut_short = names(|cache| cache["cut_short"] == true);
    if !cut_short.is_empty() {
        let _ = writeln!(
            out,
            "virtual caches smaller than the real ones, for want of memory here: {cut_short}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_says_which_figures_are_what() {
        let kind = |requests: u64| {
            json!({
                "requests": requests, "agreed": requests / 4, "prompt_tokens": requests * 1_000,
                "measured": {"requests": requests, "prompt_tokens": requests * 990, "cached_tokens": requests * 495},
                "predicted_today": {"chosen_hit_tokens": requests * 901, "served_hit_tokens": requests * 512},
                "counterfactual": {"requests": requests, "prompt_tokens": requests * 1_000, "hit_tokens": requests * 944},
            })
        };
        let cache = |replica: &str, tokens: Option<u64>| json!({"replica": replica, "capacity_tokens": tokens, "held_tokens": tokens, "cut_short": tokens == Some(9)});
        let told = json!({
            "schema": "prefix-picker.report/1", "since_s": 86_400, "covered_s": 300, "lost": 2, "unknown_replica": 0,
            "pools": [{
                "pool": "demo", "shadow": kind(20), "enforced": kind(0),
                "virtual_caches": [cache("a", Some(9)), cache("b", None), cache("c", Some(1_000))],
            }],
        });
        let expected = "\
the last 24 h, of which the control plane knows the last 5 min
pool demo                                                       shadow      enforced
requests that were looked up and answered                           20             0
their prompt tokens                                              20000             0
Envoy took the endpoint that we chose                           25.0 %             -
measured: cached where they went, by responses that told        50.0 %             -
predicted against today's caches: where they went               51.2 %             -
predicted against today's caches: where we chose                90.1 %             -
counterfactual: virtual caches fed by our decisions             94.4 %             -
no virtual cache, since the engine does not tell its capacity: b
virtual caches smaller than the real ones, for want of memory here: a
";
        let got = table(&told);
        let lines = got.lines().map(|line| line.trim_end().to_owned() + "\n");
        let got: String = lines.collect();
        let rest = got
            .strip_prefix(expected)
            .unwrap_or_else(|| panic!("{got}"));
        assert_eq!(
            rest,
            format!(
                "\n{MEANING}2 request(s) since the start are missing: gateways had too many at once to tell of.\n"
            )
        );
        // Whatever comes, it is printed.
        assert!(table(&json!(null)).contains("the last 0 s"));
    }

    #[test]
    fn times_have_a_unit() {
        for (text, expected) in [
            ("90s", 90),
            ("30m", 1_800),
            ("24h", 86_400),
            ("7d", 604_800),
        ] {
            assert_eq!(seconds(text), Ok(expected));
        }
        for text in [
            "",
            "h",
            "24",
            "24 h",
            "-1h",
            "1.5h",
            "0h",
            "24hh",
            "99999999999999999d",
            "3ü",
        ] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
