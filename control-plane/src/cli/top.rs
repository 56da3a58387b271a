//! `prefix-picker top`: the fleet in the terminal, as it is now.
//!
//! Made of `GET /v1/status`, as the page is. On a terminal it is drawn again and again until `q`; elsewhere
//! it is printed once.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossterm::cursor::MoveTo;
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{queue, terminal};
use serde_json::Value;

use super::remote::{self, Remote};

mod frame;
mod screen;

use frame::{Sort, View, frame};
use screen::Screen;

/// Columns where there is neither a terminal to ask nor `COLUMNS`.
const COLUMNS: usize = 80;

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  prefix-picker top
  prefix-picker top --url http://prefix-picker.llm:9400 --interval 5
  prefix-picker top --once --sort load
  prefix-picker top --json

Hit rate: share of prompt tokens found cached, by the responses of the last ten minutes. Picks: requests of
that time that were looked up and answered. No token is needed.

Keys: q or Ctrl-C ends it, s sorts by another column, arrows, Page Up and Page Down scroll. Where it is not
drawn on a terminal it is as wide as COLUMNS says, or 80 columns.

Exit codes: 0 shown; 1 the control plane does not answer; 2 the arguments cannot be used.")]
pub struct Args {
    #[command(flatten)]
    place: remote::Place,
    /// Print it once, and end
    #[arg(long)]
    once: bool,
    /// Print the control plane's answer (`prefix-picker.status/1`) once, and end
    #[arg(long)]
    json: bool,
    /// Time between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,
    /// What replicas are sorted by
    #[arg(long, value_enum, default_value = "name")]
    sort: Sort,
}

/// Shows.
///
/// # Errors
/// If the control plane does not answer at first, or the terminal fails.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let remote = Remote::without_token(&args.place)?;
    let url = &args.place.url;
    let ask = || remote.get(&["v1", "status"], "")?.json(url);
    let first = ask()?;
    if args.json {
        super::print(format!("{first}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut view = View {
        url: url.clone(),
        columns: columns(),
        rows: usize::MAX,
        first: 0,
        sort: args.sort,
        gone: None,
    };
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        super::print(frame(&first, &mut view).join("\n"))?;
        super::print("\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    live(
        first,
        &mut view,
        Duration::from_secs(args.interval.into()),
        ask,
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The terminal's, else `COLUMNS` of the environment, as shells have it.
fn columns() -> usize {
    if io::stdout().is_terminal()
        && let Ok((columns, _)) = terminal::size()
    {
        return columns.into();
    }
    let told = std::env::var("COLUMNS").ok();
    let told = told.and_then(|text| text.trim().parse().ok());
    told.filter(|&columns| columns > 0).unwrap_or(COLUMNS)
}

fn live(
    first: Value,
    view: &mut View,
    interval: Duration,
    ask: impl Fn() -> anyhow::Result<Value>,
) -> anyhow::Result<()> {
    let _screen = Screen::take()?;
    let mut status = first;
    let mut told = Instant::now();
    let mut asked = Instant::now();
    loop {
        draw(&status, view)?;
        let rest = interval.saturating_sub(asked.elapsed());
        if event::poll(rest)? {
            if let Event::Key(key) = event::read()?
                && key.kind != KeyEventKind::Release
                && !heed(key, view)
            {
                return Ok(());
            }
            continue;
        }
        asked = Instant::now();
        match ask() {
            Ok(fresh) => {
                (status, told, view.gone) = (fresh, Instant::now(), None);
            }
            // It may be back soon.
            Err(_) => view.gone = Some(told.elapsed().as_secs()),
        }
    }
}

/// False: end.
fn heed(key: KeyEvent, view: &mut View) -> bool {
    let page = view.rows.saturating_sub(8).max(1);
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Char('s') => view.sort = view.sort.next(),
        KeyCode::Down | KeyCode::Char('j') => view.first = view.first.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => view.first = view.first.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => view.first = view.first.saturating_add(page),
        KeyCode::PageUp => view.first = view.first.saturating_sub(page),
        KeyCode::Home => view.first = 0,
        KeyCode::End => view.first = usize::MAX,
        _ => {}
    }
    true
}

fn draw(status: &Value, view: &mut View) -> anyhow::Result<()> {
    let (columns, rows) = terminal::size()?;
    (view.columns, view.rows) = (columns.into(), rows.into());
    let mut out = io::stdout().lock();
    for (at, line) in (0..rows).zip(frame(status, view)) {
        queue!(out, MoveTo(0, at))?;
        write!(out, "{line}")?;
        queue!(out, Clear(ClearType::UntilNewLine))?;
    }
    queue!(out, Clear(ClearType::FromCursorDown))?;
    out.flush()?;
    Ok(())
}
