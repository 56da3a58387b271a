//! The command itself: what it prints, and its exit codes.

use std::process::{Command, Output};

use serde_json::Value;

use super::fleet::{Fleet, Temp};

fn run(args: &[&str]) -> (Output, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_prefix-picker"));
    let output = command.arg("doctor").args(args).output().unwrap();
    let told = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, told)
}

#[test]
fn its_form_is_named_as_those_of_other_commands() {
    let fleet = Fleet::start("form", |_| {});
    let file = fleet.state.0.join("config.yaml");
    std::fs::write(&file, fleet.yaml()).unwrap();
    // There is no control plane.
    let (output, told) = run(&["--config", file.to_str().unwrap(), "--no-probe", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(told["schema"], "prefix-picker.doctor/1");
    assert_eq!(told["errors"], serde_json::json!([]));
    assert!(told["summary"]["ok"].as_u64().unwrap() > 5, "{told}");
    let item = &told["items"][0];
    for name in ["id", "subject", "status", "found", "fix"] {
        assert!(item[name].is_string(), "{item}");
    }
    assert!(told.get("version").is_none());
}

/// Each argument's example is of its own kind.
#[test]
fn addresses_that_are_none() {
    let fleet = Fleet::start("addresses", |_| {});
    let file = fleet.state.0.join("config.yaml");
    std::fs::write(&file, fleet.yaml()).unwrap();
    let file = file.to_str().unwrap();
    for (argument, port) in [("--url", "9400"), ("--envoy-admin", "9901")] {
        let (output, _) = run(&["--config", file, argument, "foo"]);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        let told = format!("{argument}: foo: expected an address like http://127.0.0.1:{port}\n");
        assert!(text.contains(&told), "{text}");
    }
}

/// Whoever asks for JSON gets JSON, also where nothing can be looked at.
#[test]
fn what_cannot_be_used_is_told_in_json() {
    let dir = Temp::new("errors");
    let file = dir.0.join("broken.yaml");
    std::fs::write(&file, "lisen: 1\npools: []\n").unwrap();
    let file = file.to_str().unwrap();
    let bad = ["--url", "nonsense", "--dashboards", "/nowhere/at-all"];
    let args = [&["--config", file, "--json"][..], &bad[..]].concat();
    let (output, told) = run(&args);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(told["schema"], "prefix-picker.doctor/1");
    assert_eq!(told["items"], serde_json::json!([]));
    assert_eq!(told["summary"]["fail"], 0);
    let errors = told["errors"].as_array().unwrap();
    let paths: Vec<_> = errors.iter().map(|error| error["path"].as_str()).collect();
    assert!(paths.contains(&Some("lisen")), "{told}");
    assert!(paths.contains(&Some("--url")) && paths.contains(&Some("--dashboards")));
    assert!(errors.iter().all(|error| error["message"] != ""), "{told}");
    // For people: each in a line, with its place.
    let (output, _) = run(&["--config", file]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(&format!("{file}: lisen: ")), "{text}");
    assert!(output.stdout.is_empty());
    let (output, told) = run(&["--config", "/nowhere/a.yaml", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let message = told["errors"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("cannot be read: "), "{told}");
}
