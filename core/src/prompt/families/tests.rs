//! Bodies and what vLLM's own code makes of them: `tests/vectors/prompt-families`.

use serde_json::Value as Json;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use crate::prompt::compiled::Chat;
use crate::prompt::work::Work;
use crate::prompt::{Api, CompiledProfile, Profile, Prompt, Skip, parse_request};

/// Renders every body of a file; gives how many texts were equal. A few may be passed over as
/// unsupported; no text may differ.
fn check(name: &str, lines: &str) -> usize {
    let mut lines = lines.lines();
    let head: Json = serde_json::from_str(lines.next().unwrap()).unwrap();
    let (mut equal, mut refused, mut passed_over) = (0, 0, 0);
    for (n, line) in lines.enumerate() {
        let case: Json = serde_json::from_str(line).unwrap();
        let mut profile: Json = head["profile"].clone();
        for (key, value) in case["profile"].as_object().into_iter().flatten() {
            profile[key] = value.clone();
        }
        let profile: Profile = serde_json::from_value(profile).unwrap();
        let api = case["path"].as_str().map_or(Api::ChatCompletions, |path| {
            if path == "/v1/responses" {
                Api::Responses
            } else {
                Api::of_path(path).unwrap()
            }
        });
        let body = case["body"].as_str().unwrap();
        let now = case["now"].as_i64().unwrap_or(0);
        let ours = render(&profile, api, body, now);
        match (case["expect"].as_str(), ours) {
            (Some(expect), Ok(ours)) => {
                assert_same(&ours, expect, &format!("{name} case {n}: {body}"));
                equal += 1;
            }
            (Some(_), Err(Skip::Unsupported)) => passed_over += 1,
            (Some(_), Err(skip)) => panic!("{name} case {n}: {skip} of {body}"),
            (None, ours) => refused += usize::from(ours.is_err()),
        }
    }
    println!("{name}: {equal} equal, {refused} refused by both, {passed_over} passed over");
    assert!(passed_over <= equal / 10, "{passed_over} of {equal}");
    equal
}

/// Prompts are long: shows where they part.
fn assert_same(ours: &str, expect: &str, what: &str) {
    let both = ours.char_indices().zip(expect.chars());
    let at = both.take_while(|((_, a), b)| a == b).count();
    let tail = |text: &str| text.chars().skip(at).take(80).collect::<String>();
    assert!(
        ours == expect,
        "{what}\n  after {at} characters\n  ours:   {:?}\n  engine: {:?}",
        tail(ours),
        tail(expect)
    );
}

fn render(profile: &Profile, api: Api, body: &str, now: i64) -> Result<String, Skip> {
    let request = parse_request(api, body.as_bytes())?;
    if api == Api::Responses {
        let chat = Chat {
            api,
            original: &request.body,
            body: request.body.clone(),
            special_tokens: true,
            work: &Work::unlimited(),
        };
        return super::render(profile, &chat, &[], now)?.ok_or(Skip::NoTemplate);
    }
    let profile = CompiledProfile::compile(profile).unwrap();
    match profile.render(&request, now)? {
        Prompt::Text(prompt) => Ok(prompt.text),
        Prompt::TokenIds(_) => Err(Skip::Unsupported),
    }
}

macro_rules! vectors {
    ($test:ident, $file:literal, $equal:literal) => {
        #[test]
        fn $test() {
            let lines = include_str!(concat!("../../../../tests/vectors/prompt-families/", $file));
            let equal = check($file, lines);
            assert!(equal >= $equal, "{equal}");
        }
    };
}

vectors!(deepseek_v32, "deepseek_v32.jsonl", 250);
vectors!(deepseek_v4, "deepseek_v4.jsonl", 250);
vectors!(deepseek_v41, "deepseek_v41.jsonl", 250);
vectors!(harmony_chat, "harmony_chat.jsonl", 300);
vectors!(harmony_responses, "harmony_responses.jsonl", 300);

/// Fresh vectors: `PREFIX_PICKER_FAMILY_VECTORS` names files to check, with `:` between them.
#[cfg(not(target_arch = "wasm32"))]
#[test]
fn files_named_by_the_environment() {
    let Ok(files) = std::env::var("PREFIX_PICKER_FAMILY_VECTORS") else {
        println!("skipped: PREFIX_PICKER_FAMILY_VECTORS names no files");
        return;
    };
    for file in files.split(':') {
        check(file, &std::fs::read_to_string(file).unwrap());
    }
}
