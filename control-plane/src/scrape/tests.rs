use super::Health;
use super::parse::{Figures, Mean, figures};
use crate::engine::Load;

#[test]
fn ranks_are_summed_and_other_lines_passed_over() {
    let text = "# HELP vllm:num_requests_running Number of requests
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"a}b\"} 2.0
vllm:num_requests_running{engine=\"1\",model_name=\"a}b\"} 3.0 1700000000
vllm:num_requests_waiting{engine=\"0\"} 1e1
vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 7.0
vllm:kv_cache_usage_perc{engine=\"0\"} 0.25
vllm:kv_cache_usage_perc{engine=\"1\"} 0.5004
vllm:cache_config_info{_block_size=\"9\",block_size=\"32\",engine=\"0\",odd=\"a\\\"b,block_size=\\\"1\"} 1.0
vllm:prefix_cache_queries_total{engine=\"0\"} 1000.0
vllm:prefix_cache_queries_total{engine=\"1\"} 500.0
vllm:prefix_cache_hits_total{engine=\"0\"} 640.0
vllm:prefix_cache_queries_created{engine=\"0\"} 1.7e9
vllm:external_prefix_cache_hits_total{engine=\"0\"} 7.0
vllm:request_prefill_time_seconds_bucket{engine=\"0\",le=\"0.3\"} 4.0
vllm:request_prefill_time_seconds_sum{engine=\"0\"} 1.5
vllm:request_prefill_time_seconds_count{engine=\"0\"} 4.0
vllm:request_prefill_time_seconds_sum{engine=\"1\"} 0.5
vllm:request_prefill_time_seconds_count{engine=\"1\"} 1.0
vllm:request_prompt_tokens_sum{engine=\"0\"} 9000.0
vllm:request_prefill_kv_computed_tokens_sum{engine=\"0\"} 7000.0
vllm:inter_token_latency_seconds_sum{engine=\"0\"} 2.5
vllm:inter_token_latency_seconds_count{engine=\"0\"} 100.0
process_start_time_seconds 1.7e9
nonsense
";
    let got = figures(text, None);
    assert_eq!(
        got,
        Figures {
            hash_algorithm: None,
            running: Some(5.0),
            waiting: Some(10.0),
            kv_usage: Some(0.5004),
            block_size: Some(32),
            capacity_tokens: None,
            cache_queries: Some(1500.0),
            cache_hits: Some(647.0),
            prefill: Some(Mean {
                sum: 2.0,
                count: 5.0
            }),
            prompt_tokens: Some(9000.0),
            computed_tokens: Some(7000.0),
            between_tokens: Some(Mean {
                sum: 2.5,
                count: 100.0
            }),
        }
    );
    assert_eq!(got.cache(), Some((1500, 647)));
    assert_eq!(
        got.load(),
        Some(Load {
            running: 5,
            waiting: 10,
            kv_usage_permille: 500
        })
    );
}

#[test]
fn of_one_rank_only_its_own_lines_count() {
    let text = "vllm:num_requests_running{engine=\"1\",model_name=\"a\"} 2.0
vllm:num_requests_running{engine=\"11\",model_name=\"a\"} 5.0
vllm:num_requests_running{model_name=\"engine=\\\"1\"} 7.0
vllm:num_requests_waiting{model_name=\"a\",engine=\"1\"} 3.0
vllm:num_requests_waiting{model_name=\"a\",engine=\"0\"} 4.0
vllm:cache_config_info{block_size=\"32\",engine=\"1\"} 1.0
vllm:cache_config_info{block_size=\"16\",engine=\"0\"} 1.0
";
    let of = |rank| figures(text, rank);
    let load = |rank| of(rank).load().map(|load| (load.running, load.waiting));
    assert_eq!(
        (load(Some(1)), of(Some(1)).block_size),
        (Some((2, 3)), Some(32))
    );
    assert_eq!(load(None), Some((14, 7)));
    // Not there (any more): unknown, not the others' sum.
    assert_eq!(of(Some(2)), Figures::default());
}

#[test]
fn a_cache_has_room_for_so_many_tokens() {
    let of = |labels: &str, rank| {
        let line = |engine| format!("vllm:cache_config_info{{{labels},engine=\"{engine}\"}} 1.0\n");
        figures(&(line(0) + &line(1)), rank).capacity_tokens
    };
    // As it says, or by its blocks; ranks are summed.
    let says = r#"block_size="16",kv_cache_size_tokens="4000",num_gpu_blocks="256""#;
    assert_eq!(of(says, None), Some(8_000));
    assert_eq!(of(says, Some(1)), Some(4_000));
    let before = r#"block_size="16",num_gpu_blocks="256""#;
    assert_eq!(of(before, None), Some(8_192));
    for unknown in [
        r#"block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="None""#,
        r#"block_size="16",num_gpu_blocks="0""#,
        r#"num_gpu_blocks="256""#,
    ] {
        assert_eq!(of(unknown, None), None, "{unknown}");
    }
}

#[test]
fn sglang_and_odd_values() {
    let got = figures(
        "sglang:num_running_reqs 3\nsglang:num_queue_reqs{a=\"b\"} 4\nsglang:token_usage NaN\n",
        None,
    );
    assert_eq!(
        got.load(),
        Some(Load {
            running: 3,
            waiting: 4,
            kv_usage_permille: 0
        })
    );
    assert_eq!(
        figures(
            "vllm:num_requests_running -5\nvllm:num_requests_waiting +Inf\n",
            None
        )
        .load(),
        None
    );
    assert_eq!(figures("", None).load(), None);
}

#[test]
fn the_metrics_of_a_real_engine() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/vllm-real");
    let Ok(text) = std::fs::read_to_string(path.join("metrics-after.txt")) else {
        eprintln!("skipped: no captured metrics here");
        return;
    };
    let got = figures(&text, None);
    assert!(got.load().is_some(), "{got:?}");
    assert_eq!(
        (got.block_size, got.capacity_tokens),
        (Some(32), Some(4_096))
    );
    assert!(got.prefill.is_some_and(|mean| mean.count > 0.0), "{got:?}");
    assert!(got.between_tokens.is_some_and(|mean| mean.sum > 0.0));
    assert!(got.prompt_tokens > Some(0.0) && got.computed_tokens > Some(0.0));
}

#[test]
fn down_after_some_misses_and_back_at_once() {
    let mut health = Health::new(3);
    let outcomes = [
        true, false, false, true, false, false, false, false, true, false,
    ];
    let believed: Vec<_> = outcomes.into_iter().map(|ok| health.observe(ok)).collect();
    let (up, down) = (Some(true), Some(false));
    assert_eq!(
        believed,
        [up, None, None, up, None, None, down, down, up, None]
    );
}

#[test]
fn hash_algorithm_and_adapters_in_use_are_read() {
    let text = "\
vllm:cache_config_info{block_size=\"16\",engine=\"0\",prefix_caching_hash_algo=\"sha256_cbor\"} 1.0
vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\",waiting_lora_adapters=\"\"} 1.7e9
vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"sql,law\",waiting_lora_adapters=\" tax\"} 1.700000001e9
";
    let algorithm = super::parse::figures(text, None).hash_algorithm;
    assert_eq!(algorithm, Some(crate::block_hash::Algorithm::Sha256Cbor));
    let names: Vec<String> = super::parse::adapters_in_use(text).into_iter().collect();
    assert_eq!(names, ["law", "sql", "tax"]);
    assert!(
        super::parse::adapters_in_use("vllm:lora_requests_info{running_lora_adapters=\"\"} 1")
            .is_empty()
    );
    assert_eq!(
        super::parse::figures(
            "vllm:cache_config_info{prefix_caching_hash_algo=\"new\"} 1",
            None
        )
        .hash_algorithm,
        None
    );
}

/// Knows no name, whatever the machine's own resolver says and however long it takes.
struct NoNames;

impl reqwest::dns::Resolve for NoNames {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(async { Err("no such name".into()) })
    }
}

/// What a health check meets with is told apart.
#[tokio::test]
async fn troubles_have_names() {
    use std::time::Duration;

    use axum::http::StatusCode;
    use axum::routing::get;
    use tokio::net::TcpListener;

    use super::trouble;
    use crate::engine::Trouble;

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let late = || async { tokio::time::sleep(Duration::from_secs(60)).await };
    let app = axum::Router::new()
        .route("/ok", get(|| async { "" }))
        .route("/late", get(late))
        .route("/ill", get(|| async { StatusCode::SERVICE_UNAVAILABLE }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let breaks = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broken = format!("http://{}/", breaks.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = breaks.accept().await {
            drop(stream);
        }
    });
    let client = reqwest::Client::builder().no_proxy();
    let client = client.dns_resolver(NoNames).build().unwrap();
    for (url, expected) in [
        (format!("{base}/ok"), None),
        (format!("{base}/ill"), Some(Trouble::Status(503))),
        (format!("{base}/no"), Some(Trouble::Status(404))),
        (format!("{base}/late"), Some(Trouble::Late)),
        (broken, Some(Trouble::Broken)),
        ("http://127.0.0.1:9/health".into(), Some(Trouble::Refused)),
        ("http://[::1]:9/health".into(), Some(Trouble::Refused)),
        ("http://no.such.invalid/".into(), Some(Trouble::Unreachable)),
    ] {
        let limit = Duration::from_millis(if url.ends_with("/late") { 200 } else { 20_000 });
        assert_eq!(trouble(&client, &url, limit).await, expected, "{url}");
    }
}
