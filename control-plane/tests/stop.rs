//! The program itself: a bad configuration, and a stop by signal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test

mod common;

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Temp, model, program};

fn write_config(dir: &Temp, port: u16) -> PathBuf {
    let text = format!(
        "
listen: 127.0.0.1:{port}
tokens: [a-token]
data_dir: {}
scrape_interval_ms: 20
pools:
  - name: demo
    model_dir: {}
    models: [demo]
    clusters: [pool]
    replicas:
      - {{name: a, endpoint: '127.0.0.1:1', events: 'tcp://127.0.0.1:2', replay: 'tcp://127.0.0.1:3'}}
",
        dir.0.join("state").display(),
        model(),
    );
    dir.file("config.yaml", &text)
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn sigterm_writes_the_snapshot_and_ends_with_0() {
    let dir = Temp::new("stop");
    let held = held_ports::Held::new(1).unwrap();
    let port = held.at(0);
    let config = write_config(&dir, port);
    let mut child = program()
        .arg("serve")
        .arg("--config")
        .arg(&config)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "it does not listen"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let killed = Command::new("kill")
        .arg("-TERM")
        .arg(child.id().to_string())
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(wait(&mut child).code(), Some(0));
    let mut log = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut log).unwrap();
    assert!(log.contains("listening"), "{log}");
    assert!(!log.contains('\u{1b}'), "colours in a file: {log}");
    assert!(dir.0.join("state/pool-demo.snapshot").exists());
    assert!(dir.0.join("state/fleet-secret").exists());
}

#[test]
fn check_names_all_errors_and_ends_with_2() {
    let dir = Temp::new("check");
    let config = write_config(&dir, 9400);
    let good = program()
        .arg("check")
        .arg("--config")
        .arg(&config)
        .output()
        .unwrap();
    assert!(good.status.success());
    assert!(
        String::from_utf8(good.stdout)
            .unwrap()
            .contains("1 pool(s), 1 replica(s)")
    );

    let before = std::fs::read_to_string(&config).unwrap();
    let files = "admin_token_files: [/nowhere/admin]\nfleet_secret_file: /nowhere/secret\n";
    std::fs::write(&config, format!("{files}{before}")).unwrap();
    let no_files = program().arg("check").arg("--config").arg(&config).output();
    let no_files = no_files.unwrap();
    assert_eq!(no_files.status.code(), Some(2));
    let errors = String::from_utf8(no_files.stderr).unwrap();
    for file in ["/nowhere/admin", "/nowhere/secret"] {
        assert!(errors.contains(file), "{errors}");
    }
    std::fs::write(&config, before).unwrap();

    let text = std::fs::read_to_string(&config)
        .unwrap()
        .replace("listen:", "lisen:")
        .replace("models: [demo]", "models: []");
    std::fs::write(&config, text).unwrap();
    for command in ["check", "serve"] {
        let bad = program()
            .arg(command)
            .arg("--config")
            .arg(&config)
            .output()
            .unwrap();
        assert_eq!(bad.status.code(), Some(2), "{command}");
        let errors = String::from_utf8(bad.stderr).unwrap();
        assert!(
            errors.contains("lisen: unknown field; did you mean `listen`?"),
            "{errors}"
        );
        assert!(errors.contains("pools[0].models: empty"), "{errors}");
    }
    let missing = program()
        .args(["check", "--config", "/nowhere/at/all.yaml"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
}
