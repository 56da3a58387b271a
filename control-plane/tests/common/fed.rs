//! The program with something on its standard input.

use std::io::Write as _;
use std::process::{Output, Stdio};

use super::common::program;

/// Runs it to its end.
pub(crate) fn fed(args: &[&str], input: &str) -> Output {
    let mut child = program()
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One that takes no input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}
