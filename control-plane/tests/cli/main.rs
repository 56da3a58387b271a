//! What all commands keep to: help with examples that can be parsed, exit codes, JSON with a schema.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test

mod check;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/fed.rs"]
mod fed;

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use common::{Temp, model, program};
use serde_json::Value;

/// All commands, by clap's own list.
fn commands() -> Vec<clap::Command> {
    let all = prefix_picker::cli::command();
    all.get_subcommands().cloned().collect()
}

fn run(args: &[&str]) -> Output {
    program().args(args).stdin(Stdio::null()).output().unwrap()
}

fn code(args: &[&str]) -> i32 {
    let output = run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("{args:?} was killed: {said}"))
}

/// The examples of a help text, as lines.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().to_owned()).collect()
}

/// A shell's view of a simple line: words, up to where its output goes.
fn words(line: &str) -> Vec<String> {
    let line = line.split(['>', '|']).next().unwrap();
    let words = line.split_whitespace().map(str::to_owned);
    words
        .skip_while(|word| word.contains('=') && !word.starts_with("--"))
        .collect()
}

#[test]
fn every_command_has_examples_that_can_be_parsed_and_tells_its_exit_codes() {
    let names: Vec<String> = commands().iter().map(|c| c.get_name().to_owned()).collect();
    assert!(names.len() >= 10, "{names:?}");
    for name in std::iter::once(None).chain(names.iter().map(Some)) {
        let args: Vec<&str> = name
            .map(String::as_str)
            .into_iter()
            .chain(["--help"])
            .collect();
        let output = run(&args);
        assert_eq!(output.status.code(), Some(0), "{name:?}");
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Exit codes"), "{name:?}: {help}");
        let examples = examples(&help);
        let own = format!("prefix-picker {}", name.map_or("", String::as_str));
        assert!(
            examples.iter().any(|example| example.contains(&own)),
            "{name:?} has no examples: {help}"
        );
        for example in examples {
            let words = words(&example);
            assert_eq!(words[0], "prefix-picker", "{example}");
            let parsed = prefix_picker::cli::command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
    }
}

/// Every command that prints data has `--json`.
#[test]
fn every_command_that_prints_data_has_json() {
    for command in commands() {
        let name = command.get_name();
        if matches!(name, "serve" | "completions") {
            continue;
        }
        let has = command
            .get_arguments()
            .any(|arg| arg.get_long() == Some("json"));
        assert!(has, "{name} has no --json");
    }
}

#[test]
fn arguments_and_files_that_cannot_be_used_end_with_2() {
    let dir = Temp::new("cli-2");
    let token = dir.file("token", "a-token");
    let token = token.to_str().unwrap();
    let empty = dir.file("empty", "");
    let empty = empty.to_str().unwrap();
    let body = dir.file("body.json", "{");
    let body = body.to_str().unwrap();
    let path = "/v1/chat/completions";
    for name in commands().iter().map(clap::Command::get_name) {
        assert_eq!(code(&[name, "--no-such-option"]), 2, "{name}");
    }
    let cases: &[&[&str]] = &[
        &[],
        &["no-such-command"],
        &["check"],
        &["check", "/nowhere.yaml"],
        &["check", empty],
        &["check", "--config", "/nowhere.yaml"],
        &["check", empty, "--config", empty],
        &["serve", "--config", "/nowhere.yaml"],
        &["completions", "tcsh-2000"],
        &["decode-events", "/nowhere.jsonl"],
        &["drain", "a", "--token-file", "/nowhere"],
        &["drain", "a", "--token-file", empty],
        &["undrain", "a", "--token-file", token, "--url", "ftp://host"],
        &["report", "--token-file", token, "--since", "1x"],
        &["report", "--token-file", token, "--url", "nonsense"],
        &[
            "explain",
            "--token-file",
            token,
            "--path",
            path,
            "--request",
            "/nowhere",
        ],
        &[
            "explain",
            "--token-file",
            token,
            "--path",
            path,
            "--request",
            body,
        ],
        &[
            "render",
            "--model-dir",
            "/nowhere",
            "--path",
            path,
            "--request",
            body,
        ],
        &["top", "--url", "nonsense"],
        &["top", "--interval", "0"],
    ];
    for args in cases {
        assert_eq!(code(args), 2, "{args:?}");
    }
}

#[test]
fn what_fails_or_says_no_ends_with_1() {
    let dir = Temp::new("cli-1");
    let token = dir.file("token", "a-token");
    let token = token.to_str().unwrap();
    let body = dir.file(
        "body.json",
        r#"{"messages": [], "truncate_prompt_tokens": 3}"#,
    );
    let body = body.to_str().unwrap();
    let capture = dir.file("capture.jsonl", "{\"frames_b64\": [\"!\"]}\n");
    let capture = capture.to_str().unwrap();
    let path = "/v1/chat/completions";
    // Nobody listens on this port.
    let url = "http://127.0.0.1:9";
    let model = model();
    let cases: &[&[&str]] = &[
        &["decode-events", capture],
        &["drain", "a", "--token-file", token, "--url", url],
        &["undrain", "a", "--token-file", token, "--url", url],
        &["report", "--token-file", token, "--url", url],
        &[
            "explain",
            "--token-file",
            token,
            "--url",
            url,
            "--path",
            path,
            "--request",
            body,
        ],
        &[
            "render",
            "--model-dir",
            &model,
            "--path",
            path,
            "--request",
            body,
        ],
        &["top", "--url", url],
        &["top", "--url", "http://[::1]:9", "--json"],
    ];
    for args in cases {
        assert_eq!(code(args), 1, "{args:?}");
    }
}

/// What bash makes of the last of the words.
fn completed(words: &str) -> String {
    let script = String::from_utf8(run(&["completions", "bash"]).stdout).unwrap();
    let last = words.rsplit(' ').next().unwrap();
    let asks = format!(
        "{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n$(complete -p prefix-picker | sed 's/.*-F \\([^ ]*\\).*/\\1/') prefix-picker {last} x\n\
         echo \"${{COMPREPLY[@]}}\""
    );
    let output = std::process::Command::new("bash")
        .arg("-c")
        .arg(asks)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for command in commands() {
            assert!(
                script.contains(command.get_name()),
                "{shell}: {}",
                command.get_name()
            );
        }
    }
    // A reader that goes away is no failure.
    let mut child = program()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // What bash is given, bash can read and complete with.
    for (words, wanted) in [
        ("prefix-picker top --so", "--sort"),
        ("prefix-picker doctor --env", "--envoy-admin"),
        ("prefix-picker check --js", "--json"),
        ("prefix-picker comple", "completions"),
    ] {
        assert_eq!(completed(words), wanted, "{words}");
    }
    let script = run(&["completions", "bash"]).stdout;
    let mut bash = std::process::Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(&script).unwrap();
    assert!(bash.wait().unwrap().success());
}

/// A control plane with two replicas that are not there.
struct Running {
    child: Child,
    url: String,
    dir: Temp,
}

impl Running {
    fn start(name: &str) -> Self {
        let dir = Temp::new(name);
        let port = held_ports::Held::new(1).unwrap().keep()[0];
        let config = Self::config(&dir, port);
        let mut command = program();
        command
            .args(["serve", "--config"])
            .arg(config)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let running = Self {
            child: command.spawn().unwrap(),
            url: format!("http://127.0.0.1:{port}"),
            dir,
        };
        let begin = Instant::now();
        while code(&["top", "--json", "--url", &running.url]) != 0 {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "it does not answer"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        running
    }

    fn config(dir: &Temp, port: u16) -> PathBuf {
        let text = format!(
            "
listen: 127.0.0.1:{port}
tokens: [a-token]
admin_tokens: [an-operators-token]
data_dir: {}
startup_grace_ms: 0
pools:
  - name: demo
    model_dir: {}
    models: [demo]
    clusters: [pool]
    replicas:
      - {{name: a, endpoint: '127.0.0.1:1', events: 'tcp://127.0.0.1:2'}}
      - {{name: b, endpoint: '[::1]:3', events: 'tcp://[::1]:4'}}
",
            dir.0.join("state").display(),
            model(),
        );
        dir.file("config.yaml", &text)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn json(args: &[&str]) -> Value {
    let output = run(args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
}

#[test]
fn json_has_a_schema_with_a_version() {
    let running = Running::start("cli-json");
    let url = running.url.as_str();
    let file = |name: &str, text: &str| running.dir.file(name, text).to_str().unwrap().to_owned();
    let token = file("token", "a-token");
    let admin = file("admin", "an-operators-token");
    let body = file(
        "body.json",
        r#"{"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}"#,
    );
    let config = running.dir.0.join("config.yaml");
    let config = config.to_str().unwrap();
    let path = "/v1/chat/completions";
    let model = model();
    let cases: &[(&[&str], &str)] = &[
        (&["check", config, "--json"], "prefix-picker.check/1"),
        (
            &["check", "--config", config, "--json"],
            "prefix-picker.check/1",
        ),
        (
            &["drain", "a", "--token-file", &admin, "--url", url, "--json"],
            "prefix-picker.drain/1",
        ),
        (
            &[
                "undrain",
                "a",
                "--token-file",
                &admin,
                "--url",
                url,
                "--json",
            ],
            "prefix-picker.drain/1",
        ),
        (
            &["report", "--token-file", &token, "--url", url, "--json"],
            "prefix-picker.report/1",
        ),
        (
            &[
                "explain",
                "--token-file",
                &token,
                "--url",
                url,
                "--path",
                path,
                "--request",
                &body,
                "--json",
            ],
            "prefix-picker.explain/1",
        ),
        (
            &[
                "render",
                "--model-dir",
                &model,
                "--path",
                path,
                "--request",
                &body,
                "--json",
            ],
            "prefix-picker.render/1",
        ),
        (&["top", "--url", url, "--json"], "prefix-picker.status/1"),
    ];
    for (args, schema) in cases {
        assert_eq!(json(args)["schema"], *schema, "{args:?}");
    }
    // All errors of a configuration, each with its place.
    let broken = file("broken.yaml", "lisen: 1\npools: []\n");
    let output = run(&["check", &broken, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["ok"], false);
    assert!(told["errors"].as_array().unwrap().len() >= 2, "{told}");
    assert!(
        told["errors"]
            .as_array()
            .unwrap()
            .iter()
            .any(|error| error["path"] == "lisen")
    );

    // Nobody is left to serve the pool.
    let output = run(&["drain", "b", "--token-file", &admin, "--url", url]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("warning: no other replica of pool demo may get requests"),
        "{said}"
    );
    // Not on a terminal it is printed once. What it is made of may be half a second old.
    let begin = Instant::now();
    loop {
        let output = run(&["top", "--url", url]);
        let shown = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert!(shown.contains("by reason:"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
        if shown.contains("draining") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{shown}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A program on a terminal of its own (util-linux's `script`), which is stopped by a signal. Nothing where there
/// is no `script`.
fn on_a_terminal(signal: &str, url: &str) -> Option<String> {
    let top = env!("CARGO_BIN_EXE_prefix-picker");
    // `exec`: what has the shell's number is the program then, in the foreground.
    let line =
        format!("stty -g; sh -c 'echo pid=$$; exec {top} top --url {url}'; echo code=$?; stty -g");
    let mut script = std::process::Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        // Not at its end, which `script` would pass on as Ctrl-D: that is a key that ends the program.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let (_open, mut out) = (script.stdin.take(), script.stdout.take().unwrap());
    let (send, parts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(len @ 1..) = out.read(&mut part) {
            let _ = send.send(part[..len].to_vec());
        }
    });
    // Once it draws it has long been ready for signals, however long it takes to get there.
    let (mut said, mut kill) = (Vec::new(), Some(signal));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match parts.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(part) => said.extend(part),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = script.kill();
                panic!("{signal}: {}", String::from_utf8_lossy(&said));
            }
        }
        let text = String::from_utf8_lossy(&said);
        if text.contains("\u{1b}[?1049h")
            && let Some(signal) = kill.take()
        {
            let mut lines = text.lines();
            let pid = lines.find_map(|line| line.strip_prefix("pid=")).unwrap();
            let mut command = std::process::Command::new("kill");
            let sent = command.args([&format!("-{signal}"), pid.trim_end()]);
            assert!(sent.status().unwrap().success(), "{signal}: {text}");
        }
    }
    script.wait().unwrap();
    Some(String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn top_fits_eighty_columns_and_gives_the_terminal_back() {
    let running = Running::start("cli-top");
    for (columns, widest) in [
        (None, 80),
        (Some("120"), 120),
        (Some("60"), 60),
        (Some("x"), 80),
    ] {
        let mut command = program();
        command.args(["top", "--once", "--url", &running.url]);
        match columns {
            Some(columns) => command.env("COLUMNS", columns),
            None => command.env_remove("COLUMNS"),
        };
        let output = command.stdin(Stdio::null()).output().unwrap();
        let shown = String::from_utf8(output.stdout).unwrap();
        let width = shown.lines().map(|line| line.chars().count()).max();
        assert!(
            width.is_some_and(|width| width <= widest),
            "{columns:?}: {width:?}\n{shown}"
        );
    }
    for signal in ["TERM", "INT", "HUP", "QUIT"] {
        let Some(said) = on_a_terminal(signal, &running.url) else {
            println!("skipped: no `script`");
            return;
        };
        let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
        assert_eq!(
            lines.first(),
            lines.last(),
            "{signal}: the terminal's modes: {said:?}"
        );
        assert!(said.contains("\u{1b}[?1049h"), "{signal}: {said:?}");
        assert!(
            said.contains("\u{1b}[?1049l") && said.contains("\u{1b}[?25h"),
            "{signal}: {said:?}"
        );
        assert!(said.contains("code=0"), "{signal}: {said:?}");
    }
}

/// What fails is told with its cause, each once, and without the layers of the client in between.
#[test]
fn nothing_is_said_twice() {
    let dir = Temp::new("cli-once");
    let token = dir.file("token", "a-token");
    let token = token.to_str().unwrap();
    let said = |args: &[&str]| String::from_utf8(run(args).stderr).unwrap();
    let refused = said(&[
        "report",
        "--token-file",
        token,
        "--url",
        "http://127.0.0.1:9",
    ]);
    assert_eq!(
        refused,
        "prefix-picker: the control plane at http://127.0.0.1:9/ does not answer: Connection refused (os error 111)\n"
    );
    let yaml = format!(
        "tokens: [t]\ntoken_files: [{0}/no-token]\nadmin_token_files: [{0}/empty]\nfleet_secret_file: {0}/no-secret\n\
         data_dir: {0}/token/state\npools:\n- name: a\n  model_dir: {0}\n  models: [m]\n  clusters: [c]\n  replicas: \
         [{{endpoint: '1.1.1.1:1', events: 'tcp://1.1.1.1:2'}}]\n",
        dir.0.display()
    );
    dir.file("empty", "");
    let config = dir.file("config.yaml", &yaml);
    let config = config.to_str().unwrap();
    let output = run(&["check", config, "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = told["errors"].as_array().unwrap();
    let paths: Vec<&str> = errors.iter().map(|e| e["path"].as_str().unwrap()).collect();
    let wanted = [
        "token_files[0]",
        "admin_token_files[0]",
        "fleet_secret_file",
        "data_dir",
        "pools[0]",
    ];
    assert_eq!(paths, wanted, "{told}");
    for error in errors {
        let message = error["message"].as_str().unwrap();
        let parts: Vec<&str> = message.split(": ").collect();
        for (at, part) in parts.iter().enumerate() {
            assert!(!parts[..at].contains(part), "{part:?} twice: {message}");
        }
    }
    let tokenizer = errors[4]["message"].as_str().unwrap();
    let place = dir.0.display().to_string();
    assert_eq!(tokenizer.matches(&place).count(), 1, "{tokenizer}");
    // A folder that cannot be used is a configuration that cannot.
    let served = run(&["serve", "--config", config]);
    assert_eq!(served.status.code(), Some(2));
    let served = String::from_utf8(served.stderr).unwrap();
    assert!(
        served.contains("data_dir: ") && served.contains("/token is no folder"),
        "{served}"
    );
}
