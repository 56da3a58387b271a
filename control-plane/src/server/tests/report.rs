//! Decisions in, report out.

use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::{Decision, Decisions};

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gateways_tell_is_in_the_report() {
    let running = Running::start("report", 60_000).await;
    let post = async |token: &str, body: Vec<u8>| {
        let url = format!("{}/v1/decisions", running.base);
        let request = running.client.post(url).header("authorization", token);
        request.body(body).send().await.unwrap().status().as_u16()
    };
    let get = async |token: &str, query: &str| {
        let url = format!("{}/v1/report{query}", running.base);
        let request = running.client.get(url).header("authorization", token);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let decisions = Decisions {
        lost: 1,
        records: vec![Decision {
            chosen: place("127.0.0.1:4"),
            prompt_tokens: 500,
            ..Decision::default()
        }],
        ..Decisions::default()
    };
    let bytes = decisions.encode().unwrap();
    assert_eq!(post("Bearer first-token", bytes.clone()).await, 200);
    assert_eq!(post("Bearer first-token", b"PPDR".to_vec()).await, 400);
    assert_eq!(post("Bearer wrong", bytes).await, 401);

    assert_eq!(get("Bearer wrong", "?since_s=60").await.0, 401);
    let (status, text) = get("Bearer first-token", "").await;
    assert_eq!(status, 400);
    assert!(text.starts_with("expected ?since_s=SECONDS"), "{text}");
    let (status, text) = get("Bearer first-token", "?since_s=60").await;
    assert_eq!(status, 200, "{text}");
    let told: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["schema"], "prefix-picker.report/1");
    assert_eq!(
        (&told["lost"], &told["unknown_replica"]),
        (&1.into(), &0.into())
    );
    assert_eq!(told["pools"][0]["shadow"]["prompt_tokens"], 500);
    running.stop().await;
}
