//! The terminal while `top` draws on it, and as it was again whatever ends us: a key, an error, a signal, a
//! panic.

use std::io;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::signal::unix::{SignalKind, signal};

/// The terminal is not as it was.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back when dropped.
pub(super) struct Screen;

impl Screen {
    /// # Errors
    /// If the terminal or the system refuses.
    pub(super) fn take() -> io::Result<Self> {
        give_back_before_panics();
        end_by_signals()?;
        TAKEN.store(true, Ordering::SeqCst);
        // From here on it is put back.
        let screen = Self;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back(&mut io::stdout());
    }
}

/// Once, whoever comes first.
fn give_back(out: &mut impl io::Write) {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Nobody is left to be told.
        let _ = execute!(out, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// What a panic says would be on the screen that goes away.
fn give_back_before_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Not standard output: the thread that panics may hold its lock.
            give_back(&mut io::stderr());
            before(info);
        }));
    });
}

/// Ends the process as asked, wherever it is: it may wait for an answer of the control plane.
fn end_by_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];
    let inside = runtime.enter();
    let [mut terminate, mut interrupt, mut hangup, mut quit] = {
        let [a, b, c, d] = kinds.map(signal);
        [a?, b?, c?, d?]
    };
    drop(inside);
    let wait = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
                _ = quit.recv() => {}
            }
        });
        // Whoever draws is kept from it, and ends with the process.
        let mut out = io::stdout().lock();
        give_back(&mut out);
        std::process::exit(0);
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const CHILD: &str = "PREFIX_PICKER_TEST_PANICS_ON_A_SCREEN";

    /// Does nothing unless [`a_panic_gives_the_terminal_back`] starts it, on a terminal.
    #[test]
    fn child_that_panics() {
        if std::env::var_os(CHILD).is_some() {
            let _screen = Screen::take().unwrap();
            panic!("as the test wants it");
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let this = std::env::current_exe().unwrap();
        let line = format!(
            "stty -g; {CHILD}=1 {} --exact --nocapture cli::top::screen::tests::child_that_panics; stty -g",
            this.display()
        );
        // Of util-linux: runs a command on a terminal of its own.
        let script = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .output();
        let Ok(output) = script else {
            println!("skipped: no `script`");
            return;
        };
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines.first(),
            lines.last(),
            "the terminal's modes: {said:?}"
        );
        let taken = said.find("\u{1b}[?1049h").expect(&said);
        let given = said.find("\u{1b}[?1049l").expect(&said);
        let told = said.find("as the test wants it").expect(&said);
        assert!(taken < given && given < told, "{said:?}");
    }
}
