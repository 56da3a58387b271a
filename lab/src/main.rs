//! Simulates the grid and prints its table as Markdown.

use std::collections::HashMap;

use prefix_picker_lab::gateway::Knowledge;
use prefix_picker_lab::grid::{self, BASELINES, Effort};
use prefix_picker_lab::policy::Policy;
use prefix_picker_lab::report;

const HELP: &str = "lab [--seeds N] [--threads N] [--filter TEXT] [--peers] [--rows] [--event-delay S] [--scrape S]";

fn main() {
    let mut args = std::env::args().skip(1);
    let mut given: HashMap<String, String> = HashMap::new();
    while let Some(arg) = args.next() {
        let value = match arg.as_str() {
            "--peers" | "--rows" => Some(String::new()),
            "--seeds" | "--threads" | "--filter" | "--event-delay" | "--scrape" => args.next(),
            _ => None,
        };
        let Some(value) = value else {
            eprintln!("{HELP}");
            std::process::exit(2);
        };
        given.insert(arg, value);
    }
    let number = |name: &str, otherwise: f64| -> f64 {
        let value = given.get(name).and_then(|v| v.parse().ok());
        value.unwrap_or(otherwise)
    };
    let standard = Knowledge::default();
    let knowledge = Knowledge {
        event_delay: number("--event-delay", standard.event_delay),
        scrape_every: number("--scrape", standard.scrape_every),
        ..standard
    };
    let mut bases = grid::bases();
    if let Some(filter) = given.get("--filter") {
        bases.retain(|base| base.name().contains(filter.as_str()));
    }
    let policies: Vec<Policy> = if given.contains_key("--peers") {
        Policy::ALL.to_vec()
    } else {
        std::iter::once(Policy::Ours).chain(BASELINES).collect()
    };
    let effort = Effort {
        seeds: number("--seeds", 5.0) as u64,
        threads: number("--threads", 1.0) as usize,
        ..Effort::default()
    };
    let rows = grid::run(&bases, &grid::LOADS, &policies, effort, knowledge);
    if given.contains_key("--rows") {
        print!("{}", report::rows(&rows));
    }
    print!("{}", report::summary(&rows));
}
