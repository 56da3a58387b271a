//! Rows -> Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::grid::{Estimate, GOODPUT_MIN, Row, TTFT_MAX};
use crate::regime::Family;

/// Regimes that are told apart in the summary.
fn family(row: &Row) -> String {
    let r = &row.regime;
    match r.family {
        Family::Groups { .. } if r.reuse == 0.0 => "unique prompts".into(),
        Family::Groups { .. } => format!("groups, reuse {:.0} %", r.reuse * 100.0),
        Family::Sessions { .. } => format!("sessions, reuse {:.0} %", r.reuse * 100.0),
        Family::Mixed { .. } => "short groups and long prompts".into(),
    }
}

fn pm(e: Estimate) -> String {
    format!("{:.3} ± {:.3}", e.mean, e.half)
}

/// A line for each regime: ours against the better baseline, and each policy's own figures.
#[must_use]
pub fn rows(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let _ = writeln!(
            out,
            "{} {}\n    goodput {} of {}; p90 TTFT {} of {}",
            if row.holds() { " " } else { "!" },
            row.regime.name(),
            pm(row.goodput),
            row.goodput_best.name(),
            pm(row.ttft),
            row.ttft_best.name(),
        );
        for (policy, s) in &row.series {
            let mean = |values: &[f64]| Estimate::of(values).mean;
            let _ = writeln!(
                out,
                "    {:20} goodput {:9.3}  hit {:.3}  ttft p50 {:8.3} p90 {:8.3} p99 {:8.3}  e2e {:8.3} max/mean {:.2}",
                policy.name(),
                mean(&s.goodput),
                mean(&s.hit_rate),
                mean(&s.ttft_p50),
                mean(&s.ttft_p90),
                mean(&s.ttft_p99),
                mean(&s.latency),
                mean(&s.imbalance),
            );
        }
    }
    out
}

fn worst_by<'a>(rows: &[&'a Row], key: impl Fn(&Row) -> f64) -> Option<&'a Row> {
    rows.iter()
        .copied()
        .min_by(|a, b| key(a).total_cmp(&key(b)))
}

/// The table by family and load, and the worst cases.
#[must_use]
pub fn summary(rows: &[Row]) -> String {
    let mut out = String::new();
    let failing = rows.iter().filter(|r| !r.holds()).count();
    let seeds = rows
        .first()
        .and_then(|r| r.series.first())
        .map_or(0, |s| s.1.goodput.len());
    let geo = |values: &mut dyn Iterator<Item = f64>| {
        let logs: Vec<f64> = values.map(f64::ln).collect();
        (logs.iter().sum::<f64>() / logs.len() as f64).exp()
    };
    let below = rows.iter().filter(|r| r.below_saturation());
    let _ = writeln!(
        out,
        "Means over all regimes: goodput {:.3}, p90 TTFT {:.3}.\n",
        geo(&mut rows.iter().map(|r| r.goodput.mean)),
        geo(&mut below.map(|r| r.ttft.mean)),
    );
    let _ = writeln!(
        out,
        "{} regimes, {seeds} seeds each; outside a bound (goodput ≥ {GOODPUT_MIN}, p90 TTFT ≤ {TTFT_MAX} below saturation): {failing}.\n",
        rows.len()
    );
    let mut families: BTreeMap<(String, u32), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let load = (row.regime.load * 100.0).round() as u32;
        families.entry((family(row), load)).or_default().push(row);
    }
    let _ = writeln!(
        out,
        "| regimes | load | number | goodput: worst, mean | p90 TTFT: worst, mean |\n|---|---|---|---|---|"
    );
    for ((family, load), rows) in &families {
        let mean = |f: &dyn Fn(&Row) -> f64| {
            let logs = rows.iter().map(|r| f(r).ln()).sum::<f64>();
            (logs / rows.len() as f64).exp()
        };
        let goodput = worst_by(rows, |r| r.goodput.mean).map_or(f64::NAN, |r| r.goodput.mean);
        let ttft = worst_by(rows, |r| -r.ttft.mean).map_or(f64::NAN, |r| r.ttft.mean);
        let ttft = if *load < 100 {
            format!("{ttft:.3}, {:.3}", mean(&|r| r.ttft.mean))
        } else {
            "-".into()
        };
        let _ = writeln!(
            out,
            "| {family} | {:.1} | {} | {goodput:.3}, {:.3} | {ttft} |",
            f64::from(*load) / 100.0,
            rows.len(),
            mean(&|r| r.goodput.mean),
        );
    }
    out.push_str(&worst(rows));
    out
}

/// The ten worst by each measure.
fn worst(rows: &[Row]) -> String {
    let mut out = String::new();
    let mut by_goodput: Vec<&Row> = rows.iter().collect();
    by_goodput.sort_by(|a, b| a.goodput.mean.total_cmp(&b.goodput.mean));
    let _ = writeln!(
        out,
        "\n| worst by goodput | ours / better (95 %) | better |\n|---|---|---|"
    );
    for row in by_goodput.iter().take(10) {
        let (name, best) = (row.regime.name(), row.goodput_best.name());
        let _ = writeln!(out, "| {name} | {} | {best} |", pm(row.goodput));
    }
    let mut by_ttft: Vec<&Row> = rows.iter().filter(|r| r.below_saturation()).collect();
    by_ttft.sort_by(|a, b| b.ttft.mean.total_cmp(&a.ttft.mean));
    let _ = writeln!(
        out,
        "\n| worst by p90 TTFT | ours / better (95 %) | better |\n|---|---|---|"
    );
    for row in by_ttft.iter().take(10) {
        let (name, best) = (row.regime.name(), row.ttft_best.name());
        let _ = writeln!(out, "| {name} | {} | {best} |", pm(row.ttft));
    }
    out
}
