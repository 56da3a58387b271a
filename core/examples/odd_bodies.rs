//! The longest that bodies of odd shapes take to read and to render: what a gateway's worker stands still.
//!
//! Of each shape the largest body is looked for that is still read, 6 MiB at most, and timed once it is
//! warm.
//!
//! `cargo run --release -p prefix-picker-core --example odd_bodies -- TEMPLATE.jinja...`

use std::time::{Duration, Instant};

use prefix_picker_core::prompt::{
    AddedToken, Api, Canonical, CanonicalStep, CompiledProfile, Profile, Skip, parse_request,
};

const BODY_MAX: usize = 6 << 20;
const RUNS: usize = 5;

struct Shape {
    name: &'static str,
    api: Api,
    before: &'static str,
    unit: String,
    between: &'static str,
    after: &'static str,
}

impl Shape {
    fn body(&self, units: usize) -> String {
        let mut body = String::with_capacity(units * (self.unit.len() + 1) + 200);
        body.push_str(self.before);
        for n in 0..units {
            if n > 0 {
                body.push_str(self.between);
            }
            body.push_str(&self.unit.replace('#', &n.to_string()));
        }
        body.push_str(self.after);
        body
    }

    /// The largest body that is not refused for its size or its number of values.
    fn largest(&self, accepted: impl Fn(&str) -> bool) -> String {
        let (mut least, mut most) = (1, BODY_MAX / (self.unit.len() + self.between.len()));
        while least < most {
            let middle = (least + most).div_ceil(2);
            let body = self.body(middle);
            if body.len() <= BODY_MAX && accepted(&body) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        self.body(least)
    }
}

fn shapes() -> Vec<Shape> {
    let chat = |name, unit: &str, before, after| Shape {
        name,
        api: Api::ChatCompletions,
        before,
        unit: unit.to_owned(),
        between: ",",
        after,
    };
    let messages = r#"{"messages":["#;
    let end = r#"],"model":"m"}"#;
    let text = |name, unit: &str| Shape {
        name,
        api: Api::Completions,
        before: r#"{"model":"m","prompt":""#,
        unit: unit.to_owned(),
        between: "",
        after: r#""}"#,
    };
    let one = r#"{"messages":[{"role":"user","content":["#;
    let calls = r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":["#;
    let tools = r#"{"messages":[{"role":"user","content":"q"}],"tools":["#;
    let call = r#"{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}"#;
    let tool = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}"#;
    let mut all = vec![
        chat(
            "messages",
            r#"{"role":"user","content":"x"}"#,
            messages,
            end,
        ),
        chat("parts", r#"{"type":"text","text":"x"}"#, one, "]}]}"),
        chat("tool calls", call, calls, "]}]}"),
        chat("tools", tool, tools, end),
        chat(
            "one tool with many fields",
            r#""a#":{"type":"string"}"#,
            r#"{"messages":[{"role":"user","content":"q"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"#,
            "}}}]}",
        ),
        chat(
            "a long message",
            "the \\n",
            r#"{"messages":[{"role":"user","content":""#,
            r#""}]}"#,
        ),
        chat(
            "keys",
            r#""a#":1"#,
            r#"{"messages":[{"role":"user","content":"x"}],"#,
            "}",
        ),
        chat(
            "template variables",
            r#""a#":1"#,
            r#"{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"#,
            "}}",
        ),
        text("plain text", "the router watches "),
        text("escapes", "\\n\\\"\\u00e9"),
        text("decomposed", "cafe\u{301} "),
        text("Chinese", "中文很好"),
        text("kana", "かなカナ"),
        text("Thai", "\u{e01}\u{e02}"),
        text("combining marks", "\u{301}\u{316}"),
        text("beginnings of tokens", "<"),
        text("longer beginnings", "<unused"),
        text("tokens", "<unused7>"),
        text("spaces", "\u{2581}"),
    ];
    for (name, unit) in [
        ("Chinese, at last decomposed", "中文很好"),
        ("kana, at last decomposed", "かなカナ"),
    ] {
        let mut shape = text(name, unit);
        shape.after = "e\u{301}\"}";
        all.push(shape);
    }
    for (name, unit) in [
        ("prompts", r#""x""#),
        ("prompts of ids", "[1,2]"),
        ("token ids", "1"),
        ("floats", "0.1234567890123456789"),
        ("large integers", "123456789012345678901234567890"),
        ("empty lists", "[]"),
        (
            "long prompts",
            r#""aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa""#,
        ),
    ] {
        let mut shape = text(name, unit);
        (shape.before, shape.between, shape.after) = (r#"{"model":"m","prompt":["#, ",", "]}");
        all.push(shape);
    }
    let mut shape = chat(
        "messages (Anthropic)",
        r#"{"role":"user","content":"x"}"#,
        messages,
        r#"],"model":"m","max_tokens":1}"#,
    );
    shape.api = Api::Messages;
    all.push(shape);
    let mut shape = chat(
        "input items",
        r#"{"role":"user","content":"x"}"#,
        r#"{"input":["#,
        end,
    );
    shape.api = Api::Responses;
    all.push(shape);
    all
}

fn profile(template: &str) -> Profile {
    let token = |content: String| AddedToken {
        content,
        ..AddedToken::default()
    };
    let mut added_tokens: Vec<_> = (0..6_000).map(|n| token(format!("<unused{n}>"))).collect();
    added_tokens.extend((2..32).map(|n| token("\u{2581}".repeat(n))));
    Profile {
        chat_template: Some(template.to_owned()),
        special_tokens: [("bos_token", "<s>"), ("eos_token", "</s>")]
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into(),
        canonical: Canonical {
            steps: vec![
                CanonicalStep::Nfc,
                // So that no text stays as it is.
                CanonicalStep::Replace {
                    from: " ".to_owned(),
                    to: "\u{2581}".to_owned(),
                },
            ],
            added_tokens,
            ..Canonical::default()
        },
        ..Profile::default()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for path in std::env::args().skip(1) {
        println!("{path}");
        let compiled = CompiledProfile::compile(&profile(&std::fs::read_to_string(&path)?))?;
        for shape in shapes() {
            let body = shape.largest(|body| {
                let request = parse_request(shape.api, body.as_bytes());
                let prompts = request.map(|request| compiled.render_all(&request, 0, 11));
                !matches!(prompts, Err(Skip::TooComplex))
                    && !prompts.is_ok_and(|all| all.contains(&Err(Skip::TooComplex)))
            });
            let run = || {
                let start = Instant::now();
                let request = parse_request(shape.api, body.as_bytes());
                let read = start.elapsed();
                let prompts = request.map(|request| compiled.render_all(&request, 0, 11));
                let made = start.elapsed() - read;
                let first = prompts.map(|all| all.into_iter().next().map(|p| p.map(drop)));
                (read + made, read, made, first)
            };
            let mut runs: Vec<_> = (0..RUNS).map(|_| run()).collect();
            runs.sort_by_key(|run| run.0);
            let (total, read, made, first) = runs.swap_remove(RUNS / 2);
            let mark = if total > Duration::from_millis(100) {
                "  !"
            } else {
                ""
            };
            println!(
                "  {:<28}{:>9} bytes: read {read:>10.1?}, make {made:>10.1?}  {first:?}{mark}",
                shape.name,
                body.len()
            );
        }
    }
    Ok(())
}
