use super::*;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Values of the same kind, in the same order.
fn same(one: &Value, other: &Value) -> bool {
    format!("{one:?}") == format!("{other:?}")
        && one.kind() == other.kind()
        && serde_json::to_string(one).ok() == serde_json::to_string(other).ok()
}

/// With room for any number of values.
fn read(json: &[u8]) -> Option<Value> {
    super::read(json, &mut u32::MAX.clone()).ok()
}

/// `serde_json` makes floats of these, Python does not.
fn has_odd_integer(text: &str) -> bool {
    let runs = text.split(|c: char| !c.is_ascii_digit());
    text.contains("-0") || runs.map(str::len).max() >= Some(19)
}

fn check(json: &[u8]) {
    let ours = read(json);
    let theirs: Option<Value> = serde_json::from_slice(json).ok();
    let agree = match (&ours, &theirs) {
        (Some(one), Some(other)) => same(one, other),
        (None, None) => true,
        _ => false,
    };
    let text = String::from_utf8_lossy(json);
    assert!(
        agree || has_odd_integer(&text),
        "{text:?}: {ours:?}, serde_json: {theirs:?}"
    );
}

#[test]
fn whatever_is_valid_or_not_is_read_as_serde_json_does() {
    for json in [
        "",
        " ",
        "null",
        "nul",
        "nulls",
        "true",
        "tru",
        "false",
        "fals",
        " true ",
        "[]",
        "[ ]",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1,2,3] ",
        "[1] 2",
        "{}",
        "{ }",
        "{",
        "}",
        r#"{"a"}"#,
        r#"{"a":}"#,
        r#"{"a":1"#,
        r#"{"a":1,}"#,
        r#"{"a":1,"b":[{}]}"#,
        r#"{a:1}"#,
        r#"{1:1}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"a" : 1 , "b" : 2}"#,
        r#"{"":""}"#,
        "\u{feff}1",
        "\u{a0}1",
        "0",
        "00",
        "01",
        "-1",
        "-",
        "+1",
        "1.",
        ".5",
        "1.5",
        "1e3",
        "1E+3",
        "1e",
        "1-2",
        "0.1e-400",
        "1e400",
        "123456789012345678",
        "999999999999999999",
        "1234567890123456789",
        "18446744073709551615",
        "-9223372036854775808",
        "0x1",
        "NaN",
        "Infinity",
        "1_000",
        "1e1.5",
        r#"""#,
        r#""a"#,
        r#""a\"#,
        r#""\"#,
        r#""a\""#,
        r#""\n""#,
        r#""\q""#,
        r#""\/\b\f\r\t\"\\""#,
        "\"\u{1}\"",
        "\"a\nb\"",
        "\"tab\tin\"",
        "\"\u{7f}\"",
        r#""A""#,
        r#""\u00""#,
        r#""\u00g0""#,
        r#""\ud83d\ude80""#,
        r#""\ud83d""#,
        r#""\ude80""#,
        r#""\ud83dx""#,
        r#""\ud83d\n""#,
        r#""\ud83d\u0041""#,
        r#""\ud83d\ud83d""#,
        r#""\u+041""#,
        r#""\U0041""#,
        r#""é\u00e9""#,
        r#""naïve 🚀""#,
        r#"["a" "b"]"#,
        r#"{"a":1 "b":2}"#,
        r#"{"a":1,,"b":2}"#,
        "//",
        "/**/1",
        "'a'",
    ] {
        check(json.as_bytes());
    }
    for bytes in [
        &b"\"\xff\""[..],
        b"\"\xc3\"",
        b"\"\xc3\xa9\"",
        b"\"a\\n\xc3\"",
        b"\"a\\n\xc3\xa9\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xe2\x82\"",
        b"\xff",
        b"{\"\xff\":1}",
        b"\"\\\xc3\xa9\"",
        b"\"\\u00\xc3\xa9\"",
    ] {
        check(bytes);
    }
}

#[test]
fn an_escape_is_found_wherever_it_stands() {
    for before in (0..12).chain(50..80) {
        for special in [
            r#"\"""#,
            r"\\",
            r#"\\\""#,
            "\\n",
            "\\u00e9",
            "\\ud83d\\ude80",
            "\"",
            "\\",
            "\u{1}",
            "é",
            "\\x",
        ] {
            for after in [0, 1, 7, 8, 9, 31] {
                let (before, after) = ("x".repeat(before), "y".repeat(after));
                check(format!("\"{before}{special}{after}\"").as_bytes());
                check(format!("[\"{before}{special}{special}{after}\",1]").as_bytes());
            }
        }
    }
}

#[test]
fn long_strings_are_whole() {
    let text = "some \"quoted\"\n code \\ and 天气 ".repeat(2_000);
    let json = serde_json::to_vec(&[&text, "short", &text]).unwrap();
    check(&json);
    let value = read(&json).unwrap();
    assert_eq!(value.get_item_by_index(2).unwrap().as_str(), Some(&*text));
}

#[test]
fn nesting_is_limited_where_serde_json_limits_it() {
    for depth in 120..135 {
        check(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).as_bytes());
        let maps = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        check(maps.as_bytes());
    }
    assert!(read("[".repeat(1 << 20).as_bytes()).is_none());
}

#[cfg(not(target_arch = "wasm32"))]
mod properties {
    use super::*;
    use proptest::prelude::*;

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            ".{0,40}".prop_map(Into::into),
            "[\"\\\\\n\t a-z]{0,40}".prop_map(Into::into),
        ];
        leaf.prop_recursive(5, 60, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::vec((".{0,6}", inner), 0..8)
                    .prop_map(|pairs| serde_json::Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_is_read(value in json(), pretty: bool) {
            let text = if pretty {
                serde_json::to_vec_pretty(&value)
            } else {
                serde_json::to_vec(&value)
            };
            check(&text.unwrap());
        }

        #[test]
        fn damage_is_treated_the_same(value in json(), at in 0usize..400, byte: u8, cut: bool) {
            let mut text = serde_json::to_vec(&value).unwrap();
            let at = at % text.len().max(1);
            if cut {
                text.truncate(at);
            } else {
                text[at] = byte;
            }
            check(&text);
        }

        #[test]
        fn any_bytes_do(bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(b'"'), Just(b'\\'), Just(b'['), Just(b','), Just(b'u')], 0..60,
        )) {
            check(&bytes);
        }
    }
}

#[test]
fn integers_stay_integers_as_in_python() {
    let max = i128::MAX.to_string();
    for (json, written) in [
        ("-0", "0"),
        ("[-0, -0.0]", "[0,-0.0]"),
        ("18446744073709551616", "18446744073709551616"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("-9223372036854775808", "-9223372036854775808"),
        (&max, &max),
    ] {
        let value = read(json.as_bytes()).unwrap();
        let text = value.to_string().replace(", ", ",");
        assert_eq!(text, written, "{json}");
    }
    for unsupported in [
        "9".repeat(78),
        format!("-{}", "9".repeat(78)),
        "1e400".into(),
    ] {
        let json = format!("[1, {unsupported}]");
        let refused = super::read(json.as_bytes(), &mut u32::MAX.clone());
        assert_eq!(refused, Err(Skip::Unsupported), "{json}");
    }
    for broken in ["-", "-01", "01", "--1", "1-", "-00"] {
        assert!(read(broken.as_bytes()).is_none(), "{broken}");
    }
}

#[test]
fn no_more_values_are_read_than_there_is_room_for() {
    for (json, cost) in [
        ("1", WORD),
        ("true", WORD),
        (r#""a, [{""#, STRING),
        ("[]", CONTAINER),
        ("[1,2,null]", CONTAINER + 3 * WORD),
        (r#"{"a":{},"b":"\n"}"#, 2 * CONTAINER + 3 * STRING),
        ("1.5", WORD + FRACTION),
    ] {
        let mut room = cost + 1;
        assert!(super::read(json.as_bytes(), &mut room).is_ok(), "{json}");
        assert_eq!(room, 1, "{json}");
        let too_little = super::read(json.as_bytes(), &mut (cost - 1));
        assert_eq!(too_little, Err(Skip::TooComplex), "{json}");
    }
    // Broken JSON is broken, however little room there is.
    let broken = super::read(b"{", &mut CONTAINER.clone());
    assert_eq!(broken, Err(Skip::InvalidJson));
}
