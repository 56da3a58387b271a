//! One fault each of what prompts are made with, and of what engines say of requests.

use prefix_picker::doctor::Options;
use prefix_picker::doctor::Status::{Fail, Ok, Warn};

use super::engines::check;
use super::fleet::{Fleet, expect, healthy, model_with, run};

#[test]
fn wrong_template() {
    let mut fleet = Fleet::start("template", |_| {});
    fleet.model_dir = model_with(&fleet.state.0, "chat_template.jinja", |text| {
        let turn = "message.role + '\\n'";
        assert!(text.contains(turn));
        text.replace(turn, "message.role + ':\\n'")
    });
    let fault = "the engine has";
    expect(
        &fleet.doctor(),
        &["engine."],
        &[
            ("engine.template", "a", Fail, fault, "`chat_template`"),
            ("engine.template", "b", Fail, fault, "`chat_template`"),
        ],
    );
}

#[test]
fn a_template_that_is_wrong_with_tools_only() {
    let mut fleet = Fleet::start("tools", |_| {});
    fleet.model_dir = model_with(&fleet.state.0, "chat_template.jinja", |text| {
        assert!(text.contains("# Tools"));
        text.replace("# Tools", "# Functions")
    });
    let found = fleet.doctor();
    let item = found.items.iter().find(|item| item.id == "engine.template");
    let item = item.unwrap();
    assert_eq!(item.status, Fail);
    assert!(
        item.found.contains("# Tools") && item.found.contains("# Functions"),
        "{item:?}"
    );
}

#[test]
fn wrong_tokenizer() {
    let mut fleet = Fleet::start("tokenizer", |_| {});
    // Of another model: the same words, with other ids.
    fleet.model_dir = model_with(&fleet.state.0, "tokenizer.json", |text| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let vocab = json["model"]["vocab"].as_object_mut().unwrap();
        let last = vocab.len() as u64 - 1;
        vocab
            .values_mut()
            .for_each(|id| *id = serde_json::json!(last - id.as_u64().unwrap()));
        json.to_string()
    });
    let fault = "a text";
    expect(
        &fleet.doctor(),
        &["engine."],
        &[
            ("engine.tokenizer", "a", Fail, fault, "`model_dir`"),
            ("engine.tokenizer", "b", Fail, fault, "`model_dir`"),
        ],
    );
}

#[test]
fn a_tokenizer_that_cuts_otherwise() {
    let mut fleet = Fleet::start("merges", |_| {});
    // The same vocabulary, but it never joins what stands behind a space.
    fleet.model_dir = model_with(&fleet.state.0, "tokenizer.json", |text| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        json["model"]["merges"] = serde_json::json!([]);
        json.to_string()
    });
    let report = fleet.doctor();
    let faults = super::fleet::faults(&report, &["engine."]);
    assert!(
        faults.iter().all(|item| item.id == "engine.tokenizer"),
        "{}",
        report.text(false)
    );
    assert!(
        faults.len() == 2 && faults[0].found.contains("other tokens"),
        "{faults:?}"
    );
}

#[test]
fn no_prompt_tokens_details() {
    check(
        "details",
        |engine| engine.prompt_tokens_details = false,
        &[(
            "engine.cached_tokens",
            "b",
            Warn,
            "does not tell cached_tokens",
            "--enable-prompt-tokens-details",
        )],
    );
}

#[test]
fn no_usage_in_streams() {
    check(
        "streams",
        |engine| engine.force_include_usage = false,
        &[(
            "engine.stream_usage",
            "b",
            Warn,
            "only where the client asks",
            "--enable-force-include-usage",
        )],
    );
}

#[test]
fn no_requests_are_sent_where_none_shall_be() {
    let fleet = Fleet::start("quiet", |_| {});
    let options = Options {
        probe: false,
        ..Options::default()
    };
    let report = run(&fleet.config(), &options);
    expect(&report, &["engine."], &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for engine in &fleet.engines {
        let get = async {
            reqwest::get(format!("{}/metrics", engine.url()))
                .await?
                .text()
                .await
        };
        let text = runtime.block_on(get).unwrap();
        assert!(
            text.contains("vllm:prompt_tokens_total{engine=\"0\",model_name=\"sim\"} 0.0"),
            "{text}"
        );
    }
}

#[test]
fn an_engine_that_embeds() {
    let mut fleet = Fleet::start("embeds", |_| {});
    fleet.engines = ["a", "b"]
        .map(|name| {
            let pooling = true;
            let config = engine_sim::Config {
                pooling,
                ..healthy(name)
            };
            engine_sim::spawn(config).unwrap()
        })
        .into();
    let report = fleet.doctor();
    expect(&report, &["engine.", "pool."], &[]);
    let events = report.items.iter().find(|item| item.id == "engine.events");
    assert_eq!(events.unwrap().status, Ok, "{}", report.text(false));
}
