use super::*;
use crate::events::tests::golden::vector;

/// What is printed: standard output, standard error, and how much was bad.
fn print(text: &str, payload_hex: bool) -> (String, String, u64) {
    let mut printer = Printer {
        schema: None,
        out: Vec::new(),
        err: Vec::new(),
        bad: 0,
        payloads: 0,
    };
    if payload_hex {
        printer.payloads(text)
    } else {
        printer.frames(text)
    }
    .unwrap();
    (
        String::from_utf8(printer.out).unwrap(),
        String::from_utf8(printer.err).unwrap(),
        printer.bad,
    )
}

#[test]
fn golden_lines() {
    let golden: Vec<serde_json::Value> =
        serde_json::from_str(&vector("kv-events/kv_events_golden.json")).unwrap();
    let lines = |version: &str| -> String {
        let chosen: Vec<_> = golden
            .iter()
            .filter(|entry| entry["vllm"] == version)
            .collect();
        print(&serde_json::to_string(&chosen).unwrap(), true).0
    };
    assert_eq!(
        lines("0.33.0"),
        r#"{"seq":null,"rank":0,"type":"stored","hashes":["f4caf0123456789a","1122334455667788"],"parent":null,"tokens":32,"block_size":16,"medium":"GPU","lora":null,"group":0,"kind":"full_attention"}
{"seq":null,"rank":0,"type":"stored","hashes":["f4caf0123456789a"],"parent":"ffffffffffffffff","tokens":16,"block_size":16,"medium":"GPU","lora":"sql","group":0,"kind":"full_attention"}
{"seq":null,"rank":0,"type":"stored","hashes":["000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"],"parent":"202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f","tokens":16,"block_size":16,"medium":"GPU","lora":null,"group":0,"kind":"full_attention"}
{"seq":null,"rank":0,"type":"stored","hashes":["f4caf0123456789a","1122334455667788"],"parent":null,"tokens":32,"block_size":16,"medium":"GPU","lora":null,"group":0,"kind":"full_attention"}
{"seq":null,"rank":0,"type":"stored","hashes":["1122334455667788"],"parent":"ffffffffffffffff","tokens":64,"block_size":16,"medium":"GPU","lora":null,"group":1,"kind":"sliding_window"}
{"seq":null,"rank":0,"type":"stored","hashes":[],"parent":null,"tokens":16,"block_size":16,"medium":"GPU","lora":null,"group":1,"kind":"mamba"}
{"seq":null,"rank":0,"type":"stored","hashes":["f4caf0123456789a"],"parent":null,"tokens":0,"block_size":0,"medium":"CPU","lora":null,"group":0,"kind":null}
{"seq":null,"rank":0,"type":"removed","hashes":["f4caf0123456789a"],"parent":null,"tokens":null,"block_size":null,"medium":"GPU","lora":null,"group":0,"kind":null}
{"seq":null,"rank":0,"type":"cleared","hashes":[],"parent":null,"tokens":null,"block_size":null,"medium":null,"lora":null,"group":null,"kind":null}
{"seq":null,"rank":0,"type":"stored","hashes":["f4caf0123456789a","1122334455667788"],"parent":null,"tokens":32,"block_size":16,"medium":"GPU","lora":null,"group":0,"kind":"full_attention"}
{"seq":null,"rank":3,"type":"cleared","hashes":[],"parent":null,"tokens":null,"block_size":null,"medium":null,"lora":null,"group":null,"kind":null}
{"seq":null,"rank":3,"type":"stored","hashes":["f4caf0123456789a","1122334455667788"],"parent":null,"tokens":32,"block_size":16,"medium":"GPU","lora":null,"group":0,"kind":"full_attention"}
{"seq":null,"rank":3,"type":"removed","hashes":["f4caf0123456789a"],"parent":null,"tokens":null,"block_size":null,"medium":"GPU","lora":null,"group":0,"kind":null}
{"seq":null,"rank":3,"type":"stored","hashes":["f4caf0123456789a"],"parent":"ffffffffffffffff","tokens":16,"block_size":16,"medium":"GPU","lora":"sql","group":0,"kind":"full_attention"}
"#
    );
    let oldest = lines("0.10.0");
    assert_eq!(
        oldest.lines().nth(1),
        Some(
            r#"{"seq":null,"rank":0,"type":"stored","hashes":["f4caf0123456789a"],"parent":"ffffffffffffffff","tokens":16,"block_size":16,"medium":null,"lora":"1","group":null,"kind":null}"#
        )
    );
}

#[test]
fn captures_print_every_event() {
    let (out, err, bad) = print(&vector("vllm-real/capture-main.jsonl"), false);
    assert_eq!((out.lines().count(), err.as_str(), bad), (219, "", 0));
    assert_eq!(
        out.lines().next(),
        Some(
            r#"{"seq":0,"rank":0,"type":"stored","hashes":["7ffb7f1727803765","9bb49edc131993c9","3cf89e0596acadca","670ea7316ef76c88","ea6d02f346477ca2"],"parent":null,"tokens":160,"block_size":32,"medium":"GPU","lora":null,"group":0,"kind":"full_attention"}"#
        )
    );
    let (out, err, bad) = print(&vector("vllm-real/capture-replay.jsonl"), false);
    assert!(!out.is_empty());
    assert_eq!(
        (err.as_str(), bad),
        ("", 0),
        "END markers and lines without frames are passed over"
    );
}

#[test]
fn golden_payloads_all_print() {
    let (out, err, bad) = print(&vector("kv-events/kv_events_golden.json"), true);
    assert_eq!(
        (out.lines().count(), err.as_str(), bad),
        (161 + 16 * 3, "", 0)
    );
}

#[test]
fn a_bad_event_is_told_and_its_batch_kept() {
    // A batch of AllBlocksCleared, 7, {"type": "Novel"}, AllBlocksCleared.
    let payload = "93c09491b0416c6c426c6f636b73436c65617265640781a474797065a54e6f76656c91b0416c6c426c6f636b73436c656172656401";
    let (out, err, bad) = print(&format!(r#"{{"payload_hex": "{payload}"}}"#), true);
    assert_eq!(out.lines().count(), 2);
    assert_eq!(
        err,
        "line 1: note: unknown event \"Novel\"\nline 1: event 1: wanted an array or a map, found an unsigned integer\n"
    );
    assert_eq!(bad, 1);
}

#[test]
fn broken_lines_are_told_and_the_rest_is_read() {
    let text = "{}\n\nnot json\n{\"frames_b64\": [\"AA==\"]}\n{\"frames_b64\": [\"*\", \"\", \"\"]}\n{\"frames_b64\": null}\n\
        {\"frames_b64\": [\"\", \"AAAAAAAAAAU=\", \"wA==\"]}\n{\"frames_b64\": [\"\", \"AAAAAAAAAAU=\", \"k8CQAw==\"]}\n";
    let (out, err, bad) = print(text, false);
    assert_eq!((out.as_str(), bad), ("", 4));
    let places: Vec<&str> = err
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(places, ["line 3", "line 4", "line 5", "line 7"]);
}

#[test]
fn a_file_without_payloads_is_not_taken_for_a_good_one() {
    for text in ["", "[]", "[{}]", r#"{"frames_b64": []}"#] {
        let (out, err, bad) = print(text, true);
        assert_eq!((out.as_str(), bad), ("", 1), "{text}");
        assert!(err.contains("no payload_hex"), "{err}");
    }
}
