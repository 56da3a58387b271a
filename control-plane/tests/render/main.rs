//! `prefix-picker render`, run as a program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a test

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/fed.rs"]
mod fed;
mod refusals;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;

use common::{Temp, model, program};
use fed::fed;
use serde_json::{Value, json};

/// The clock that the expected renders were pinned to.
const NOW: &str = "2026-11-29T18:00:00";

fn render(args: &[&str], input: &str) -> Output {
    fed(&[&["render"], args].concat(), input)
}

fn out(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", err(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const CHAT: &str = r#"{"model": "sim", "messages": [{"role": "user", "content": "hello\n"}]}"#;

/// The text of [`CHAT`] by the simulator's template.
fn chat_text() -> String {
    let body = ["--model-dir", &model(), "--path", "/v1/chat/completions"];
    let output = render(&[&body[..], &["--request", "-"]].concat(), CHAT);
    out(&output)
}

#[test]
fn a_request_is_printed_exactly() {
    let text = chat_text();
    assert!(text.contains("hello\n"), "{text:?}");
    let dir = Temp::new("exact");
    let file = dir.file("body.json", r#"{"prompt": "  as it is\n\n"}"#);
    let file = file.to_str().unwrap();
    let completions = ["--model-dir", &model(), "--path", "/v1/completions"];
    let plain = render(&[&completions[..], &["--request", file]].concat(), "");
    let text = out(&plain);
    assert!(text.ends_with("  as it is\n\n"), "{text:?}");
    let ids = render(
        &[&completions[..], &["--request", "-"]].concat(),
        r#"{"prompt": [1, 2, 3]}"#,
    );
    assert_eq!(out(&ids), "[1,2,3]");
}

#[test]
fn json_tells_all_of_it() {
    let dir = Temp::new("json");
    let long = "many words make a block, ".repeat(40);
    let body =
        json!({"model": "sim", "cache_salt": "s", "messages": [{"role": "user", "content": long}]});
    let body = body.to_string();
    let base = [
        "--model-dir",
        &model(),
        "--path",
        "/v1/chat/completions",
        "--request",
        "-",
        "--json",
    ];
    let report = |more: &[&str]| -> Value {
        serde_json::from_str(&out(&render(&[&base[..], more].concat(), &body))).unwrap()
    };
    let plain = report(&[]);
    assert_eq!(plain["schema"], "prefix-picker.render/1");
    assert_eq!(plain["api"], "chat_completions");
    assert_eq!(plain["why"], Value::Null);
    assert_eq!(plain["media"], json!([]));
    assert_eq!(plain["profile"]["hash"].as_str().unwrap().len(), 16);
    assert_eq!(plain["profile"]["renderer"], "template");
    assert_eq!(plain["profile"]["chat"]["exact"], true);
    let text = plain["text"].as_str().unwrap();
    assert_eq!(plain["exact_bytes"], text.len());
    let hashes = |report: &Value| report["blocks"]["hashes"].as_array().unwrap().clone();
    let blocks = &plain["blocks"];
    assert_eq!(blocks["secret"], "test");
    assert_eq!(blocks["pool"], "default");
    assert_eq!(blocks["cache_salt"], "s");
    assert!(hashes(&plain).len() >= 3);
    assert_eq!(
        hashes(&plain).len(),
        blocks["ends"].as_array().unwrap().len()
    );

    let secret = dir.file("secret", "0123456789abcdef\n");
    let secret = secret.to_str().unwrap();
    let others = [
        report(&["--pool", "other"]),
        report(&["--lora", "adapter"]),
        report(&["--secret-file", secret]),
    ];
    for other in &others {
        assert_eq!(other["text"], plain["text"]);
        assert_eq!(other["blocks"]["ends"], plain["blocks"]["ends"]);
        assert_ne!(hashes(other)[0], hashes(&plain)[0]);
    }
    assert_eq!(others[2]["blocks"]["secret"], "file");
    assert_eq!(report(&[]), plain);

    let short = dir.file("short", "0123");
    let output = render(
        &[&base[..], &["--secret-file", short.to_str().unwrap()]].concat(),
        &body,
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("shorter than 16 bytes"),
        "{}",
        err(&output)
    );
}

#[test]
fn why_there_is_no_exact_prompt() {
    let base = [
        "--model-dir",
        &model(),
        "--path",
        "/v1/chat/completions",
        "--request",
        "-",
    ];
    let body = r#"{"messages": [{"role": "user", "content": "What is a prefix cache?"}],
        "truncate_prompt_tokens": 5}"#;
    let plain = render(&base, body);
    assert_eq!(plain.status.code(), Some(1));
    assert_eq!(plain.stdout, b"");
    assert!(err(&plain).contains("truncated"), "{}", err(&plain));
    let json = render(&[&base[..], &["--json"]].concat(), body);
    let report: Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!(report["text"], Value::Null);
    assert_eq!(report["blocks"], Value::Null);
    assert_eq!(report["why"]["reason"], "truncated");
    assert!(
        report["why"]["text"]
            .as_str()
            .unwrap()
            .contains("end of the prompt")
    );
    assert_eq!(render(&base, "no JSON").status.code(), Some(1));
}

#[test]
fn a_profile_that_is_not_exact_says_why() {
    let dir = Temp::new("predicted");
    dir.file(
        "tokenizer.json",
        r#"{"normalizer": {"type": "Unheard"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
            "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#,
    );
    dir.file("chat_template.jinja", "x");
    let output = render(
        &[
            "--model-dir",
            dir.0.to_str().unwrap(),
            "--path",
            "/v1/chat/completions",
            "--request",
            "-",
            "--json",
        ],
        CHAT,
    );
    let report: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(report["why"]["reason"], "predicted_only");
    assert_eq!(report["why"]["text"], "the normaliser Unheard is not known");
    assert_eq!(report["profile"]["chat"]["exact"], false);
    assert_eq!(report["profile"]["token_ids"]["exact"], true);
}

#[test]
fn a_pool_of_the_configuration() {
    let dir = Temp::new("config");
    let config = format!(
        "
tokens: [a-token]
data_dir: {}
pools:
  - name: demo
    model_dir: {}
    models: [demo]
    clusters: [pool]
    replicas:
      - {{endpoint: '127.0.0.1:1', events: 'tcp://127.0.0.1:2'}}
",
        dir.0.display(),
        model(),
    );
    let config = dir.file("config.yaml", &config);
    let base = [
        "--config",
        config.to_str().unwrap(),
        "--path",
        "/v1/chat/completions",
        "--request",
        "-",
    ];
    assert_eq!(out(&render(&base, CHAT)), chat_text());
    let json = render(&[&base[..], &["--json", "--pool", "demo"]].concat(), CHAT);
    let report: Value = serde_json::from_str(&out(&json)).unwrap();
    assert_eq!(report["blocks"]["pool"], "demo");
    let wrong = render(&[&base[..], &["--pool", "none"]].concat(), CHAT);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        err(&wrong).contains("must be one of: demo"),
        "{}",
        err(&wrong)
    );
}

#[test]
fn a_model_of_the_hugging_face_cache() {
    let dir = Temp::new("hub");
    let snapshot = dir.0.join("hub/models--org--sim/snapshots/abc");
    std::fs::create_dir_all(&snapshot).unwrap();
    for file in std::fs::read_dir(model()).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), snapshot.join(file.file_name())).unwrap();
        }
    }
    dir.file("hub/models--org--sim/refs/main", "abc");
    let program = |model: &str, config: &str| {
        program()
            .env_remove("HF_HUB_CACHE")
            .env("HF_HOME", &dir.0)
            .env("HF_HUB_OFFLINE", "1")
            .args(["render", model, config, "--path", "/v1/chat/completions"])
            .arg("--request")
            .arg(dir.file("body.json", CHAT))
            .output()
            .unwrap()
    };
    assert_eq!(out(&program("--model", "org/sim")), chat_text());
    let missing = program("--model", "org/other");
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        err(&missing).contains("hf download org/other"),
        "{}",
        err(&missing)
    );
    let pool = |fields: &str| {
        let config = format!(
            "{{tokens: [a-token], data_dir: {}, pools: [{{name: demo, {fields}, models: [demo], clusters: [pool], \
             replicas: [{{endpoint: '127.0.0.1:1', events: 'tcp://127.0.0.1:2'}}]}}]}}",
            dir.0.display(),
        );
        let config = dir.file("config.yaml", &config);
        program("--config", config.to_str().unwrap())
    };
    assert_eq!(out(&pool("model: org/sim, revision: abc")), chat_text());
    for (fields, message) in [
        ("model: org/sim, model_dir: x", "both this and model_dir"),
        ("model_dir: x, revision: y", "without model"),
    ] {
        let refused = pool(fields);
        assert_eq!(refused.status.code(), Some(2));
        assert!(err(&refused).contains(message), "{}", err(&refused));
    }
    assert!(err(&pool("model: org/sim, revision: nope")).contains("pool demo: model"));
}

#[test]
fn conversations_one_line_each() {
    let dir = Temp::new("conversations");
    let template = dir.file(
        "t.jinja",
        "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ raise_exception('no') if m.content == 'bad' }}{% endfor %}\
         {{ eos_token }}{{ pad_token }}{{ unk_token }} {{ documents }} {{ tools }} {{ strftime_now('%H:%M') }} {{ extra }}",
    );
    let lines = concat!(
        r#"{"messages": [{"role": "user", "content": "é\n"}], "tools": null, "kwargs": {"extra": true}}"#,
        "\n",
        r#"{"messages": [{"role": "user", "content": "bad"}]}"#,
        "\nnot JSON\n",
    );
    let base = [
        "--template",
        template.to_str().unwrap(),
        "--conversations",
        "-",
        "--now",
        NOW,
    ];
    let output = render(&base, lines);
    let text = "\"<s>é\\n</s><pad><unk> None None 18:00 True\"";
    assert_eq!(out(&output), format!("{text}\nerror\nerror\n"));
    assert!(err(&output).contains("line 2: "), "{}", err(&output));
    let output = render(&[&base[..], &["--sha256"]].concat(), lines);
    // printf '<s>é\n</s><pad><unk> None None 18:00 True' | sha256sum | cut -c-32
    assert_eq!(
        out(&output),
        "0879b0df93516be3a55ba9ab8bdece9b\nerror\nerror\n"
    );
    let broken = dir.file("broken.jinja", "{% if %}");
    let output = render(
        &[
            "--template",
            broken.to_str().unwrap(),
            "--conversations",
            "-",
        ],
        lines,
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("broken.jinja"), "{}", err(&output));
}

/// Every shared template on every shared conversation, wherever Python renders it.
#[test]
fn every_shared_template_prints_what_python_does() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/chat-templates");
    let Ok(templates) = std::fs::read_dir(data.join("templates")) else {
        eprintln!("skipped: ../shared/data/chat-templates is not here");
        return;
    };
    let queue: Vec<PathBuf> = templates.map(|entry| entry.unwrap().path()).collect();
    let count = queue.len();
    assert!(count >= 98);
    let conversations = data.join("conversations.jsonl");
    let (queue, wrong) = (Mutex::new(queue), Mutex::new(Vec::new()));
    let check = |template: &Path| {
        let name = template.file_stem().unwrap().to_str().unwrap();
        let expected = std::fs::read_to_string(data.join(format!("expected/{name}.txt"))).unwrap();
        let printed = out(&render(
            &[
                "--template",
                template.to_str().unwrap(),
                "--conversations",
                conversations.to_str().unwrap(),
                "--sha256",
                "--now",
                NOW,
            ],
            "",
        ));
        assert_eq!(printed.lines().count(), expected.lines().count(), "{name}");
        for (number, (ours, theirs)) in printed.lines().zip(expected.lines()).enumerate() {
            if theirs != "error" && ours != theirs {
                wrong
                    .lock()
                    .unwrap()
                    .push(format!("{name}, conversation {}", number + 1));
            }
        }
    };
    let next = || queue.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(template) = next() {
                    check(&template);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{count} templates: {wrong:?}");
    println!("{count} templates");
}
