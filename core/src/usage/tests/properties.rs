//! Against a full parse of the same bytes, over random values and random pieces.

use proptest::prelude::*;
use serde_json::Map;

use super::*;

/// Any JSON, with keys and texts that look like what is wanted.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..5000u64).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|n| json!(n)),
        texts().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            objects(inner),
        ]
    })
}

fn objects(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let pairs = prop::collection::vec((keys(), inner), 0..6);
    pairs.prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>()))
}

fn keys() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "usage", "message", "response", "prompt_tokens_details", "input_tokens_details",
            "prompt_tokens", "input_tokens", "cached_tokens", "cache_read_input_tokens",
            "id", "cache_creation_input_tokens", "choices", "cached_tokens_per_turn",
        ]).prop_map(str::to_owned),
        1 => texts(),
    ]
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}",
        r#"["\\{}\[\]:,\n\r é]{0,12}"#,
        Just(r#"{"usage":{"prompt_tokens_details":{"cached_tokens":9}}}"#.to_owned()),
        "[a-z]{30,70}",
    ]
}

/// Bodies that have the figures more often than not.
fn bodies() -> impl Strategy<Value = Value> {
    let usage = || {
        objects(prop_oneof![
            values(),
            (0..5000u64).prop_map(Value::from),
            objects(values())
        ])
    };
    prop_oneof![
        values(),
        (objects(values()), usage()).prop_map(|(mut body, usage)| {
            body["usage"] = usage;
            body
        }),
        (objects(values()), usage()).prop_map(|(mut body, usage)| {
            body["response"] = json!({"output": [usage.clone()], "usage": usage, "user": null});
            body
        }),
    ]
}

/// Figures of one value after another, by a full parse.
#[derive(Default)]
struct Naive {
    usage: bool,
    prompt: Option<u64>,
    input: Option<u64>,
    creation: Option<u64>,
    read: Option<Option<u64>>,
    cached: Option<Option<u64>>,
    id: Option<String>,
}

impl Naive {
    /// The first that is neither empty, nor long, nor written with escapes.
    fn take_id(&mut self, id: &Value) {
        let Some(text) = id.as_str() else { return };
        let json = id.to_string();
        let plain = json.get(1..json.len() - 1) == Some(text);
        if plain && (1..=128).contains(&text.len()) {
            self.id.get_or_insert(text.to_owned());
        }
    }

    fn take(&mut self, value: &Value) {
        let Some(root) = value.as_object() else {
            return;
        };
        // In the order of the bytes: of a figure that stands in two places, the later one holds.
        for (key, value) in root {
            match key.as_str() {
                "usage" => self.take_usage(value),
                "id" => self.take_id(value),
                "message" | "response" => {
                    let fields = value.as_object().into_iter().flatten();
                    for (key, value) in fields {
                        match key.as_str() {
                            "usage" => self.take_usage(value),
                            "id" => self.take_id(value),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn take_usage(&mut self, usage: &Value) {
        let Some(usage) = usage.as_object() else {
            return;
        };
        self.usage = true;
        for (key, value) in usage {
            let count = value.as_u64();
            match key.as_str() {
                "prompt_tokens" => self.prompt = count.or(self.prompt),
                "input_tokens" => self.input = count.or(self.input),
                "cache_creation_input_tokens" => self.creation = count.or(self.creation),
                "cache_read_input_tokens" => self.read = Some(count.or(self.read.flatten())),
                "prompt_tokens_details" | "input_tokens_details" => {
                    if let Some(value) = value.get("cached_tokens") {
                        self.cached = Some(value.as_u64().or(self.cached.flatten()));
                    }
                }
                _ => {}
            }
        }
    }

    fn all(&self) -> (Usage, Option<Vec<u8>>) {
        let id = self.id.as_ref().map(|id| id.as_bytes().to_vec());
        (self.usage(), id)
    }

    fn usage(&self) -> Usage {
        let apart = self.read.flatten().unwrap_or(0) + self.creation.unwrap_or(0);
        Usage {
            prompt_tokens: self.prompt.or(self.input.map(|n| n.saturating_add(apart))),
            cached: match self.cached.or(self.read) {
                Some(Some(n)) => Cached::Tokens(n),
                Some(None) => Cached::Null,
                None if self.usage => Cached::NoFigure,
                None => Cached::NoUsage,
            },
        }
    }
}

/// A body cut at any places.
fn scan_at(
    framing: Framing,
    body: &[u8],
    cuts: &[prop::sample::Index],
) -> (Usage, Option<Vec<u8>>) {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    let mut scanner = UsageScanner::new(framing);
    for pair in cuts.windows(2) {
        scanner.feed(&body[pair[0]..pair[1]]);
    }
    (scanner.usage(), scanner.id().map(<[u8]>::to_vec))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_body_as_a_full_parse_reads_it(
        body in bodies(),
        pretty: bool,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let text = if pretty { serde_json::to_string_pretty(&body).unwrap() } else { body.to_string() };
        let mut naive = Naive::default();
        naive.take(&body);
        prop_assert_eq!(scan_at(Framing::Json, text.as_bytes(), &cuts), naive.all(), "{}", text);
    }

    #[test]
    fn a_stream_as_a_full_parse_of_each_event_reads_it(
        data in prop::collection::vec(bodies(), 0..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut naive = Naive::default();
        for value in &data {
            naive.take(value);
        }
        let text = events(&data);
        prop_assert_eq!(scan_at(Framing::Events, text.as_bytes(), &cuts), naive.all(), "{}", text);
    }

    #[test]
    fn any_bytes_do_no_harm(body: Vec<u8>, text in "[{}\\[\\]\",:a-e\\\\ \ndata0-9]{0,200}", size in 1..9usize) {
        for framing in [Framing::Json, Framing::Events] {
            prop_assert_eq!(scan(framing, &body, size), scan(framing, &body, usize::MAX));
            prop_assert_eq!(scan(framing, text.as_bytes(), size), scan(framing, text.as_bytes(), usize::MAX));
        }
    }
}
