//! Media items in chats.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

/// Renders a chat whose template takes parts; gives the exact text, and the items in it.
fn with_media(profile: &Profile, parts: &str, rest: &str) -> (String, Vec<(usize, String)>) {
    let body = format!(
        r#"{{"messages": [{{"role": "user", "content": "first"}},
        {{"role": "user", "content": [{parts}]}}]{rest}}}"#
    );
    match render(profile, Api::ChatCompletions, &body) {
        Ok(Prompt::Text(prompt)) => {
            let items = prompt.media.iter();
            let items = items.map(|item| (item.at, item.identifier.clone()));
            (
                prompt.text[..prompt.exact_bytes].to_owned(),
                items.collect(),
            )
        }
        other => panic!("{other:?}"),
    }
}

fn image(uuid: &str) -> String {
    format!(r#"{{"type": "image_url", "image_url": {{"url": "x"}}, "uuid": {uuid}}}"#)
}

const PARTS: &str = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}\
    {% if p.type == 'image' %}<|vis|><|pad|>{% else %}{{ p.text }}{% endif %}\
    {% endfor %}{% endfor %}<end>";

#[test]
fn media_are_found_by_their_placeholders() {
    let mut profile = profile(PARTS);
    let placeholder = ("image".to_owned(), "<|pad|>".to_owned());
    profile.media_placeholders = BTreeMap::from([placeholder]);
    let text = r#"{"type": "text", "text": "a"}"#;
    let (a, b, none) = (image(r#""A""#), image(r#""B""#), image("null"));
    let all = "<user>first<user>a<|vis|><|pad|><|vis|><|pad|><end>";
    let both = vec![(25, "A".to_owned()), (39, "B".to_owned())];
    let (exact, items) = with_media(&profile, &format!("{text}, {a}, {b}"), "");
    assert_eq!((exact.as_str(), items), (all, both));
    // Without a name, the text is known up to the item.
    let (exact, items) = with_media(&profile, &format!("{text}, {a}, {none}"), "");
    assert_eq!(exact, "<user>first<user>a<|vis|><|pad|><|vis|>");
    assert_eq!(items, [(25, "A".to_owned())]);
    // What else decides how an item is processed makes its name another.
    let kwargs = r#", "mm_processor_kwargs": {"x": 1}"#;
    let (exact, items) = with_media(&profile, &format!("{text}, {a}"), kwargs);
    assert_eq!(
        (exact.as_str(), items.len()),
        ("<user>first<user>a<|vis|>", 0)
    );
    // A placeholder that a client wrote: nobody knows which is which.
    let literal = r#"{"type": "text", "text": "b<|pad|>"}"#;
    let (exact, items) = with_media(&profile, &format!("{literal}, {a}"), "");
    assert_eq!((exact.as_str(), items.len()), ("<user>first<user>b", 0));
}

#[test]
fn unknown_placeholders_end_the_exact_text() {
    let mut profile = profile(PARTS);
    let text = r#"{"type": "text", "text": "a"}"#;
    let (exact, items) = with_media(&profile, &format!("{text}, {}", image("null")), "");
    assert_eq!((exact.as_str(), items.len()), ("<user>first<user>a", 0));
    // The client wrote what may be the placeholder.
    profile.canonical.added_tokens = vec![token("<|pad|>")];
    let literal = r#"{"type": "text", "text": "b<|pad|>c"}"#;
    let (exact, _) = with_media(&profile, &format!("{literal}, {}", image("null")), "");
    assert_eq!(exact, "<user>first<user>b");
    // A template that leaves media out: the engine may put them anywhere.
    let without = PARTS
        .replace("<|vis|><|pad|>", "")
        .replace("{{ p.text }}", "t");
    profile.chat_template = Some(without);
    let (exact, _) = with_media(&profile, &format!("{text}, {}", image("null")), "");
    assert_eq!(exact, "");
}

#[test]
fn media_stand_in_front_where_content_is_one_string() {
    let mut profile = profile(CHATML);
    let parts = format!(r#"{{"type": "text", "text": "a"}}, {}"#, image(r#""A""#));
    let start = "<|im_start|>user\nfirst<|im_end|>\n<|im_start|>user\n";
    assert_eq!(with_media(&profile, &parts, "").0, start);
    profile.media_strings = BTreeMap::from([("image".to_owned(), "<img{i}>".to_owned())]);
    assert_eq!(with_media(&profile, &parts, "").0, start);
    profile.media_placeholders = BTreeMap::from([("image".to_owned(), "<img1>".to_owned())]);
    let end = "<|im_end|>\n<|im_start|>assistant\n";
    let (exact, items) = with_media(&profile, &parts, "");
    assert_eq!(exact, format!("{start}<img1>\na{end}"));
    assert_eq!(items, [(start.len(), "A".to_owned())]);
    profile.interleave_mm_strings = true;
    assert_eq!(
        with_media(&profile, &parts, "").0,
        format!("{start}a\n<img1>{end}")
    );
}
