//! The API of a running engine.
#![allow(clippy::unwrap_used, clippy::expect_used)] // how tests fail

#[path = "support.rs"]
mod support;

use engine_sim::Config;
use serde_json::{Value, json};
use support::{chat, get, post, post_bytes, start};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

#[tokio::test(flavor = "multi_thread")]
async fn turns_of_a_chat_hit_what_was_prompt_and_what_was_answered() {
    let engine = start(Config {
        name: "a".into(),
        ..Config::default()
    });
    let mut body = chat("Where is my parcel? 日本語 🚀");
    let first = post(&engine, CHAT, &body).await;
    assert_eq!(
        (first.status, first.engine.as_str(), first.cached_tokens()),
        (200, "a", 0)
    );
    let answer = first.json();
    assert_eq!(answer["system_fingerprint"], "a");
    let total = answer["usage"]["total_tokens"].as_u64().unwrap();
    let said = answer["choices"][0]["message"].clone();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(said);
    messages.push(json!({"role": "user", "content": "And then?"}));
    let second = post(&engine, CHAT, &body).await;
    // The last generated token was never computed, so nothing behind it is stored.
    assert_eq!(second.cached_tokens(), (total - 1) / 16 * 16);
    assert_eq!(second.cached, second.cached_tokens().to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_called_and_the_call_is_hit_again() {
    let engine = start(Config::default());
    let mut body = chat("Look it up.");
    body["max_tokens"] = json!(400);
    body["tools"] = json!([{"type": "function", "function": {"name": "track", "description": "Find a parcel",
        "parameters": {"type": "object", "properties": {"number": {"type": "string"}, "deep": {"type": "boolean"}}, "required": ["number", "deep"]}}}]);
    let first = post(&engine, CHAT, &body).await.json();
    let choice = &first["choices"][0];
    assert_eq!(
        (
            choice["finish_reason"].as_str(),
            &choice["message"]["content"]
        ),
        (Some("tool_calls"), &Value::Null)
    );
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "track");
    let arguments: Value =
        serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["number"].is_string());
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(choice["message"].clone());
    messages
        .push(json!({"role": "tool", "tool_call_id": call["id"], "content": "{\"at\": \"Lyon\"}"}));
    let second = post(&engine, CHAT, &body).await;
    assert_eq!(
        second.json()["choices"][0]["finish_reason"],
        "stop",
        "answers in words"
    );
    let total = first["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(second.cached_tokens(), (total - 1) / 16 * 16);
}

/// Server-sent events as JSON, `[DONE]` checked and left out.
fn events(text: &str) -> Vec<Value> {
    let mut lines: Vec<_> = text
        .split("\n\n")
        .filter(|l| !l.is_empty())
        .map(|l| l.strip_prefix("data: ").unwrap())
        .collect();
    assert_eq!(lines.pop(), Some("[DONE]"));
    lines
        .into_iter()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_say_what_whole_answers_say() {
    let engine = start(Config::default());
    for (path, mut body, pointer, whole) in [
        (
            CHAT,
            chat("Größe? 🚀"),
            "/choices/0/delta/content",
            "/choices/0/message/content",
        ),
        (
            COMPLETIONS,
            json!({"prompt": "Once upon a time", "max_tokens": 60, "model": "sim"}),
            "/choices/0/text",
            "/choices/0/text",
        ),
    ] {
        let expected = post(&engine, path, &body).await.json();
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let mut chunks = events(&post(&engine, path, &body).await.text);
        let usage = chunks.pop().unwrap()["usage"].clone();
        assert_eq!(
            usage["completion_tokens"],
            expected["usage"]["completion_tokens"]
        );
        assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64());
        let text: String = chunks
            .iter()
            .filter_map(|c| c.pointer(pointer)?.as_str())
            .collect();
        assert_eq!(text, expected.pointer(whole).unwrap().as_str().unwrap());
        assert_eq!(
            chunks.last().unwrap()["choices"][0]["finish_reason"],
            expected["choices"][0]["finish_reason"]
        );
        assert!(chunks.len() > 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_take_strings_ids_and_lists_of_either() {
    let engine = start(Config::default());
    let ids: Vec<u32> = (0..40).collect();
    for (prompt, choices, prompt_tokens) in [
        (json!("one two"), 1, None),
        (json!(ids), 1, Some(40)),
        (json!(["one two", "three"]), 2, None),
        (json!([ids, [1, 2, 3]]), 2, Some(43)),
    ] {
        let answer = post(
            &engine,
            COMPLETIONS,
            &json!({"model": "sim", "prompt": prompt, "max_tokens": 3}),
        )
        .await;
        let json = answer.json();
        assert_eq!(json["choices"].as_array().unwrap().len(), choices, "{json}");
        if let Some(count) = prompt_tokens {
            assert_eq!(json["usage"]["prompt_tokens"], count);
        }
    }
    let twice = json!({"model": "sim", "prompt": ids, "max_tokens": 3, "n": 2});
    let answer = post(&engine, COMPLETIONS, &twice).await;
    assert_eq!(answer.cached, "32,32");
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn salts_and_adapters_do_not_share() {
    let lora = vec!["sql=/adapters/sql".parse().unwrap()];
    let engine = start(Config {
        lora,
        ..Config::default()
    });
    let base = chat("x");
    let with = |key: &str, value: &str| {
        let mut body = base.clone();
        body[key] = json!(value);
        body
    };
    let variants = [
        base.clone(),
        with("cache_salt", "a"),
        with("cache_salt", "b"),
        with("model", "sql"),
    ];
    for body in &variants {
        assert_eq!(
            post(&engine, CHAT, body).await.cached_tokens(),
            0,
            "{}",
            body["cache_salt"]
        );
    }
    for body in &variants {
        assert!(post(&engine, CHAT, body).await.cached_tokens() > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_come_and_go() {
    let engine = start(Config::default());
    let mut body = chat("x");
    body["model"] = json!("sql");
    assert_eq!(post(&engine, CHAT, &body).await.status, 404);
    let load = |path: &str, inplace: bool| json!({"lora_name": "sql", "lora_path": path, "load_inplace": inplace});
    let (loads, unloads) = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter");
    assert_eq!(post(&engine, loads, &load("/1", false)).await.status, 200);
    assert_eq!(post(&engine, loads, &load("/1", false)).await.status, 400);
    assert_eq!(post(&engine, CHAT, &body).await.cached_tokens(), 0);
    assert!(post(&engine, CHAT, &body).await.cached_tokens() > 0);
    // Again from the same path: the same blocks; from another one: others.
    assert_eq!(post(&engine, loads, &load("/1", true)).await.status, 200);
    assert!(post(&engine, CHAT, &body).await.cached_tokens() > 0);
    assert_eq!(post(&engine, loads, &load("/2", true)).await.status, 200);
    assert_eq!(post(&engine, CHAT, &body).await.cached_tokens(), 0);
    let name = json!({"lora_name": "sql"});
    assert_eq!(post(&engine, unloads, &name).await.status, 200);
    assert_eq!(post(&engine, unloads, &name).await.status, 404);
    assert_eq!(post(&engine, CHAT, &body).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_as_vllm_does() {
    let engine = start(Config {
        max_model_len: Some(500),
        ..Config::default()
    });
    let check = async |path: &str, body: &str, status: u16| {
        let answer = post_bytes(&engine, path, body.as_bytes().to_vec()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
        assert_eq!(answer.json()["error"]["code"], status);
    };
    check(CHAT, "", 400).await;
    check(CHAT, "{", 400).await;
    check(CHAT, "[]", 400).await;
    check(CHAT, r#"{"messages": []}"#, 400).await;
    check(
        CHAT,
        r#"{"model": "nope", "messages": [{"role": "user", "content": "x"}]}"#,
        404,
    )
    .await;
    check(COMPLETIONS, r#"{"prompt": ""}"#, 400).await;
    check(COMPLETIONS, r#"{"prompt": [999999]}"#, 400).await;
    check(COMPLETIONS, r#"{"prompt": "x", "max_tokens": 500}"#, 400).await;
    check(COMPLETIONS, r#"{"prompt": "x", "cache_salt": ""}"#, 400).await;
    check(
        COMPLETIONS,
        &json!({"prompt": vec![7; 600]}).to_string(),
        400,
    )
    .await;
    check(
        COMPLETIONS,
        &json!({"prompt": "word ".repeat(1_000_000)}).to_string(),
        400,
    )
    .await;
    assert_eq!(get(&engine, CHAT).await.status, 405);
    assert_eq!(get(&engine, "/nowhere").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_100_mb_is_read() {
    let engine = start(Config::default());
    let body =
        json!({"model": "sim", "prompt": "x", "padding": "y".repeat(100_000_000), "max_tokens": 1})
            .to_string();
    assert_eq!(
        post_bytes(&engine, COMPLETIONS, body.into_bytes())
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn operational_endpoints() {
    let engine = start(Config {
        blocks: 64,
        ..Config::default()
    });
    let generated =
        post(&engine, CHAT, &chat("x")).await.json()["usage"]["completion_tokens"].clone();
    assert_eq!(get(&engine, "/health").await.status, 200);
    assert_eq!(get(&engine, "/version").await.json()["version"], "0.32.0");
    assert_eq!(
        get(&engine, "/v1/models").await.json()["data"][0]["max_model_len"],
        63 * 16
    );
    let sources = get(&engine, "/kv_event_sources").await.json();
    assert_eq!(sources["0"]["publisher"], "zmq");
    let metrics = get(&engine, "/metrics").await.text;
    for line in [
        "vllm:num_requests_running{engine=\"0\",model_name=\"sim\"} 0.0",
        "vllm:num_requests_waiting{engine=\"0\",model_name=\"sim\"} 0.0",
        "vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"sim\"} 0.0",
        &format!("vllm:generation_tokens_total{{engine=\"0\",model_name=\"sim\"}} {generated}.0"),
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"sim\"} 1.0",
        "block_size=\"16\"",
        "num_gpu_blocks=\"64\"",
        "process_start_time_seconds 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    let prompt = json!({"messages": chat("x")["messages"]});
    let count = post(&engine, "/tokenize", &prompt).await.json()["count"]
        .as_u64()
        .unwrap();
    assert_eq!(
        post(&engine, CHAT, &chat("x")).await.json()["usage"]["prompt_tokens"],
        count
    );
    assert_eq!(
        post(&engine, "/reset_prefix_cache", &json!({}))
            .await
            .json()["success"],
        true
    );
    assert_eq!(post(&engine, CHAT, &chat("x")).await.cached_tokens(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_have_a_cache_each_and_are_chosen_by_header_or_load() {
    let engine = start(Config {
        data_parallel_size: 2,
        events: None,
        replay: None,
        ..Config::default()
    });
    let client = reqwest::Client::new();
    let ask = async |asked: Option<&str>| {
        let request = client.post(engine.url() + CHAT).json(&chat("Where is it?"));
        let request = match asked {
            Some(rank) => request.header("X-data-parallel-rank", rank),
            None => request,
        };
        let answer = request.send().await.unwrap();
        let rank = answer.headers().get("x-engine-rank").cloned();
        let rank = rank.map(|rank| rank.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let body: Value = answer.json().await.unwrap();
        let cached = &body["usage"]["prompt_tokens_details"]["cached_tokens"];
        (status, rank, cached.as_u64().unwrap_or(0))
    };
    for rank in ["1", "0"] {
        assert_eq!(ask(Some(rank)).await, (200, Some(rank.to_owned()), 0));
        let (_, again, cached) = ask(Some(rank)).await;
        assert_eq!((again.as_deref(), cached > 0), (Some(rank), true));
    }
    for wrong in ["2", "-1", "x"] {
        assert_eq!(ask(Some(wrong)).await.0, 400, "{wrong}");
    }
    let (first, second) = (ask(None).await.1, ask(None).await.1);
    assert_ne!(first, second, "in turn");
    let metrics = get(&engine, "/metrics").await.text;
    for rank in [0, 1] {
        let line =
            format!("vllm:prefix_cache_queries_total{{engine=\"{rank}\",model_name=\"sim\"}}");
        assert!(metrics.contains(&line), "{metrics}");
    }
    let sources = get(&engine, "/kv_event_sources").await.json();
    assert_eq!(sources.as_object().unwrap().len(), 2);
}
