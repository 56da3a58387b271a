//! How long a 430 KB chat body takes to parse and to render (about 100,000 tokens, 95 messages).
//!
//! `cargo run --release -p prefix-picker-core --example prompt_speed -- TEMPLATE.jinja...`
//! (`TEXT=escaped` for one of the texts only)

use std::time::{Duration, Instant};

use prefix_picker_core::prompt::{
    Api, Canonical, CanonicalStep, CompiledProfile, Profile, Prompt, parse_request,
};

/// An agent's conversation.
const LONG: (usize, usize) = (95, 4500);
/// A question.
const SHORT: (usize, usize) = (3, 450);
const RUNS: usize = 400;

/// So many messages of so many bytes.
fn body(words: &[&str], (count, bytes): (usize, usize)) -> Vec<u8> {
    let (mut seed, mut messages) = (7_u64, Vec::new());
    for n in 0..count {
        let mut content = String::new();
        while content.len() < bytes {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let word = usize::try_from(seed >> 33).unwrap_or_default() % words.len();
            content.push_str(words.get(word).copied().unwrap_or_default());
            content.push(if seed >> 60 == 0 { '\n' } else { ' ' });
        }
        let role = match n {
            0 => "system",
            n if n % 2 == 1 => "user",
            _ => "assistant",
        };
        messages.push(serde_json::json!({"role": role, "content": content}));
    }
    serde_json::json!({"model": "m", "messages": messages, "stream": true})
        .to_string()
        .into_bytes()
}

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times.get(RUNS / 2).copied().unwrap_or_default()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let english = [
        "the", "router", "watches", "which", "engine", "holds", "block", "of", "a", "prefix",
        "and", "why",
    ];
    let mixed = [
        "the",
        "naïve",
        "Größe",
        "天气",
        "🚀",
        "router",
        "привет",
        "ẳ",
        "kéo",
        "tokens",
    ];
    // As dense in quotes and line ends as code or JSON in a prompt.
    let escaped = [
        "prefix",
        "cache",
        "the",
        "of \"quoted\"",
        "engine",
        "and\n",
        "router",
        "a",
        "measure",
        "it",
    ];
    let decomposed = ["cafe\u{301}", "a", "nai\u{308}ve"];
    for (text, words, size) in [
        ("short", &english[..], SHORT),
        ("english", &english[..], LONG),
        ("escaped", &escaped[..], LONG),
        ("mixed", &mixed[..], LONG),
        ("decomposed", &decomposed[..], LONG),
    ] {
        if std::env::var("TEXT").is_ok_and(|only| only != text) {
            continue;
        }
        let body = body(words, size);
        let api = Api::ChatCompletions;
        let parse = median(|| drop(std::hint::black_box(parse_request(api, &body))));
        println!("{text}: body {} KB, parse {parse:?}", body.len() / 1000);
        let request = parse_request(api, &body)?;
        for path in std::env::args().skip(1) {
            let profile = Profile {
                chat_template: Some(std::fs::read_to_string(&path)?),
                special_tokens: [("bos_token", "<s>"), ("eos_token", "</s>")]
                    .map(|(name, text)| (name.to_owned(), text.to_owned()))
                    .into(),
                canonical: Canonical {
                    steps: vec![CanonicalStep::Nfc],
                    ..Canonical::default()
                },
                ..Profile::default()
            };
            let start = Instant::now();
            let compiled = CompiledProfile::compile(&profile)?;
            let compile = start.elapsed();
            let prompt = match compiled.render(&request, 0) {
                Ok(Prompt::Text(prompt)) => prompt.text,
                other => {
                    println!("  {path}: {other:?}");
                    continue;
                }
            };
            let render = median(|| drop(std::hint::black_box(compiled.render(&request, 0))));
            println!(
                "  {path}: compile {compile:?}, render {render:?} ({} KB)",
                prompt.len() / 1000
            );
        }
    }
    Ok(())
}
