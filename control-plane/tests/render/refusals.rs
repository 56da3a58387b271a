//! What `prefix-picker render` refuses, and what it says then.

use crate::common::{Temp, model};
use crate::{CHAT, err, render};

const CHATS: [&str; 2] = ["--path", "/v1/chat/completions"];
const TOKENIZER: &str = r#"{"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;

/// Nothing on standard output, and this exit code; gives what is on standard error.
fn refused(args: &[&str], input: &str, code: i32) -> String {
    let output = render(args, input);
    let said = err(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert_eq!(output.stdout, b"", "{args:?}");
    said
}

/// With the shipped model and a request.
fn with_model(more: &[&str], input: &str, code: i32) -> String {
    let model = model();
    let base = ["--model-dir", &model, "--request", "-"];
    refused(&[&base[..], more].concat(), input, code)
}

/// With a folder of these files, and a request.
fn with_folder(name: &str, files: &[(&str, &str)], code: i32) -> String {
    let dir = Temp::new(name);
    for (file, text) in files {
        dir.file(file, text);
    }
    let folder = dir.0.to_str().unwrap();
    let args = [&["--model-dir", folder, "--request", "-"][..], &CHATS].concat();
    refused(&args, CHAT, code)
}

#[test]
fn wrong_arguments_say_what_to_do() {
    let cases: [(&[&str], i32, &str); 7] = [
        (&[], 2, "nothing to render"),
        (
            &["--path", "/v1/completions", "--request", "-"],
            2,
            "give --model-dir DIR",
        ),
        (
            &[
                "--model-dir",
                "/nonexistent",
                "--path",
                "/v1/completions",
                "--request",
                "-",
            ],
            2,
            "/nonexistent",
        ),
        (
            &[
                "--model-dir",
                "/nonexistent",
                "--path",
                "/v1/nothing",
                "--request",
                "-",
            ],
            2,
            "--path /v1/nothing",
        ),
        (&["--template", "x.jinja"], 2, "--conversations"),
        (
            &["--template", "/nonexistent", "--conversations", "-"],
            2,
            "cannot read /nonexistent",
        ),
        (&["--now", "today"], 2, "2026-11-29T18:00:00"),
    ];
    for (args, code, message) in cases {
        let output = render(args, CHAT);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            err(&output)
        );
        assert!(err(&output).contains(message), "{args:?}: {}", err(&output));
        assert_eq!(output.stdout, b"", "{args:?}");
    }
}

#[test]
fn a_version_is_one_of_vllms() {
    for wrong in ["", "newest", "0", "0.x", "v0", "0.11 2", "zero.eleven"] {
        let said = with_model(&[&CHATS[..], &["--vllm-version", wrong]].concat(), CHAT, 2);
        assert!(said.contains("0.11.2"), "{wrong:?}: {said}");
    }
    for fine in ["0.11.2", "0.32.0", "0.24.1.dev3+gabc", "0.9", "1.0.0"] {
        let model = model();
        let args = [
            "--model-dir",
            &model,
            "--request",
            "-",
            "--vllm-version",
            fine,
        ];
        let output = render(&[&args[..], &CHATS].concat(), CHAT);
        assert_eq!(output.status.code(), Some(0), "{fine}: {}", err(&output));
    }
}

#[test]
fn a_path_that_is_not_served_is_told_those_that_are() {
    let said = with_model(&["--path", "/nope"], CHAT, 2);
    for path in [
        "/nope",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/pooling",
        "/classify",
        "/tokenize",
    ] {
        assert!(said.contains(path), "{path}: {said}");
    }
}

/// A template alone has no model, no request and no blocks.
#[test]
fn what_a_template_alone_has_no_use_for_is_refused() {
    let dir = Temp::new("alone");
    let template = dir.file("t.jinja", "x");
    let base = [
        "--template",
        template.to_str().unwrap(),
        "--conversations",
        "-",
    ];
    for more in [
        &["--json"][..],
        &["--lora", "a"],
        &["--secret-file", "a"],
        &["--pool", "a"],
        &["--model", "a/b"],
        &["--tokenizer-mode", "hf"],
        &["--vllm-version", "0.32.0"],
    ] {
        let said = refused(&[&base[..], more].concat(), "", 2);
        assert!(
            said.contains(more[0]) && said.contains("--template"),
            "{said}"
        );
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

#[test]
fn the_system_and_parsers_are_quoted_once() {
    let once = |said: &str, what: &str| {
        assert_eq!(said.matches(what).count(), 1, "{what}: {said}");
    };
    let said = refused(
        &[
            &["--model-dir", "/nonexistent", "--request", "-"][..],
            &CHATS,
        ]
        .concat(),
        CHAT,
        2,
    );
    once(&said, "No such file or directory");
    let said = with_folder(
        "broken-config",
        &[("tokenizer.json", TOKENIZER), ("config.json", "{,}")],
        2,
    );
    once(&said, "line 1 column 2");
    assert!(said.contains("config.json"), "{said}");
    let said = with_folder("broken-tokenizer", &[("tokenizer.json", "{,}")], 2);
    once(&said, "line 1 column 2");
    let tekken = with_folder("broken-tekken", &[("tekken.json", "{,}")], 2);
    once(&tekken, "line 1 column 2");
    let template = Temp::new("broken-bare");
    let template = template.file("t.jinja", "{% if %}");
    let template = template.to_str().unwrap();
    let said = refused(&["--template", template, "--conversations", "-"], "", 2);
    once(&said, "syntax error");
    once(&said, "t.jinja");
}

#[test]
fn a_broken_template_is_named_by_its_file() {
    let broken = "line one\n{% if %}";
    for (file, text) in [
        ("chat_template.jinja", "line one\n{% if %}"),
        (
            "tokenizer_config.json",
            r#"{"chat_template": "line one\n{% if %}"}"#,
        ),
        (
            "chat_template.json",
            r#"{"chat_template": "line one\n{% if %}"}"#,
        ),
        ("additional_chat_templates/tool_use.jinja", broken),
    ] {
        let files = [
            ("chat_template.jinja", "x"),
            ("tokenizer.json", TOKENIZER),
            (file, text),
        ];
        let files = &files[usize::from(!file.starts_with("additional"))..];
        let said = with_folder("broken-template", files, 2);
        assert!(said.contains(file), "{file}: {said}");
        assert_eq!(said.matches("syntax error").count(), 1, "{said}");
        assert!(said.contains(":2)"), "which line: {said}");
    }
}

#[test]
fn what_a_template_says_when_it_fails_is_shown() {
    let failing = |template: &str| {
        let files = [
            ("chat_template.jinja", template),
            ("tokenizer.json", TOKENIZER),
        ];
        with_folder("failing-template", &files, 1)
    };
    let said = failing("one\n{{ raise_exception('ask nicely') }}");
    assert!(
        said.contains("ask nicely (line 2 of the template)"),
        "{said}"
    );
    let said = failing("{{ messages|sorted_by_mood }}");
    assert!(said.contains("sorted_by_mood"), "{said}");
}

#[test]
fn a_request_that_cannot_be_read_is_told_where() {
    let args = &CHATS;
    let said = with_model(args, "{\n  \"messages\": [,]}", 1);
    assert!(said.contains("line 2 column 16"), "{said}");
    assert!(said.contains("standard input"), "{said}");
    let dir = Temp::new("unreadable-request");
    let file = dir.file("body.json", "no JSON");
    let file = file.to_str().unwrap();
    let model = model();
    let args = ["--model-dir", &model, "--request", file];
    let said = refused(&[&args[..], &CHATS].concat(), "", 1);
    assert!(
        said.contains("body.json") && said.contains("line 1 column"),
        "{said}"
    );
}

#[test]
fn a_conversation_that_fails_is_told_where_and_why() {
    let dir = Temp::new("where");
    let template = dir.file(
        "t.jinja",
        "{% for m in messages %}{{ raise_exception('no ' ~ m.role) if m.content == 'bad' }}{% endfor %}",
    );
    let lines = [
        r#"{"messages": [{"role": "user", "content": "good"}]}"#,
        "",
        r#"{"messages": [,]}"#,
        r#"{"tools": []}"#,
        r#"{"messages": 5}"#,
        "[1]",
        r#"{"messages": [{"role": "user", "content": "bad"}]}"#,
    ];
    let file = dir.file("c.jsonl", &lines.join("\n"));
    let output = render(
        &[
            "--template",
            template.to_str().unwrap(),
            "--conversations",
            file.to_str().unwrap(),
        ],
        "",
    );
    assert_eq!(output.status.code(), Some(0));
    let said = err(&output);
    let said: Vec<&str> = said.lines().collect();
    let expected = [
        ("line 3", "column 15: expected value"),
        ("line 4", "`messages` is missing"),
        ("line 5", "`messages`: expected a list"),
        ("line 6", "expected an object"),
        ("line 7", "no user (line 1 of the template)"),
    ];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    for (said, (line, what)) in said.iter().zip(expected) {
        assert!(said.contains("c.jsonl") && said.contains(line), "{said}");
        assert!(said.contains(what), "{what}: {said}");
    }
}
