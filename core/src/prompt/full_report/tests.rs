use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

use super::*;

pub(super) fn inserted(body: &str) -> Option<String> {
    let insertion = full_report(body.as_bytes())?;
    let (before, after) = body.split_at(insertion.at);
    Some(format!("{before}{}{after}", insertion.text))
}

#[test]
fn the_mode_goes_into_the_clients_own_arguments_or_new_ones() {
    for (body, expected) in [
        (
            r#"{"model":"m","n":1}"#,
            r#"{"vllm_xargs":{"kv_cache_report_mode":"full"},"model":"m","n":1}"#,
        ),
        (
            "  {\n \"a\" : [1, {\"vllm_xargs\": 3}, \"}\\\"\"] }\n",
            "  {\"vllm_xargs\":{\"kv_cache_report_mode\":\"full\"},\n \"a\" : [1, {\"vllm_xargs\": 3}, \"}\\\"\"] }\n",
        ),
        (
            r#"{"a": "x", "vllm_xargs": {}, "b": 2}"#,
            r#"{"a": "x", "vllm_xargs": {"kv_cache_report_mode":"full"}, "b": 2}"#,
        ),
        (
            r#"{"vllm_xargs" : { "x": [1, 2], "y": {"kv_cache_report_mode": 1} } }"#,
            r#"{"vllm_xargs" : {"kv_cache_report_mode":"full", "x": [1, 2], "y": {"kv_cache_report_mode": 1} } }"#,
        ),
    ] {
        assert_eq!(inserted(body).as_deref(), Some(expected));
    }
}

#[test]
fn doubtful_bodies_stay_as_they_are() {
    for body in [
        "",
        "{}",
        "[]",
        "null",
        r#"{"a": 1"#,
        r#"{"a": 1} {"b": 2}"#,
        r#"{"a": 1}x"#,
        r#"{"vllm_xargs": null}"#,
        r#"{"vllm_xargs": [1]}"#,
        r#"{"vllm_xargs": "x"}"#,
        r#"{"vllm_xargs": {}, "vllm_xargs": {}}"#,
        r#"{"vllm_xargs": {"kv_cache_report_mode": "incremental"}}"#,
        r#"{"vllm_xargs": {"kv_cache_report_mode": null}}"#,
        r#"{"vllm\u005fxargs": {}}"#,
        r#"{"vllm_xargs": {"kv\u005fcache_report_mode": "x"}}"#,
        r#"{"a": "unended}"#,
        r#"{"a": "unended\"#,
        r#"{"a" 1}"#,
        r#"{"a": {"b": [}"#,
    ] {
        assert_eq!(inserted(body), None, "{body}");
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use proptest::prelude::*;
    use serde_json::Map;

    use super::*;

    /// What the engine reads differs in nothing but the mode.
    fn check(body: &Value, text: &str) {
        let mut expected = body.clone();
        match inserted(text) {
            Some(new) => {
                if expected["vllm_xargs"].is_null() {
                    expected["vllm_xargs"] = json!({});
                }
                expected["vllm_xargs"]["kv_cache_report_mode"] = json!("full");
                assert_eq!(serde_json::from_str::<Value>(&new).unwrap(), expected);
            }
            None => {
                let xargs = body.get("vllm_xargs");
                let odd = xargs
                    .is_some_and(|x| !x.is_object() || x.get("kv_cache_report_mode").is_some());
                let escaped = text.contains('\\');
                assert!(
                    odd || escaped || body == &json!({}) || !body.is_object(),
                    "{text}"
                );
            }
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            (0..9).prop_map(Value::from),
            r#"[a-c"\\{}\[\],: é]{0,8}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let key = prop_oneof![
                Just("vllm_xargs".to_owned()),
                Just("kv_cache_report_mode".to_owned()),
                "[a-c]{1,3}",
                r#"["\\]x"#,
            ];
            let pairs = prop::collection::vec((key, inner.clone()), 0..4);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                pairs.prop_map(|p| Value::Object(p.into_iter().collect::<Map<_, _>>())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn only_the_mode_changes(body in values(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&body).unwrap() } else { body.to_string() };
            check(&body, &text);
        }

        #[test]
        fn any_bytes_do_no_harm(body: Vec<u8>, text in r#"[{}\[\]",:a-c\\ ]{0,60}"#) {
            let _ = full_report(&body);
            let _ = full_report(text.as_bytes());
        }
    }
}
