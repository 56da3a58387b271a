use super::*;
use crate::config::{KubernetesConfig, Pods};
use crate::discovery::kubernetes::client::Cluster;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn asked() -> Asked {
    asked_of("http://127.0.0.1:1").await
}

async fn asked_of(api_server: &str) -> Asked {
    let of = KubernetesConfig {
        namespace: Some("ml".into()),
        pods: Pods::Labels("app=vllm".into()),
        port: None,
        kubeconfig: None,
        api_server: Some(api_server.into()),
        token_file: None,
        ca_file: None,
    };
    let kind = kube::core::GroupVersionKind::gvk("", "v1", "Pod");
    let resource = kube::core::ApiResource::from_gvk_with_plural(&kind, "pods");
    Cluster::connect(&of).await.unwrap().asked(&resource)
}

#[tokio::test]
async fn what_is_refused_is_said_with_verb_and_resource() {
    let asked = asked().await;
    let status = |code: u16, message: &str| Status::failure(message, "").with_code(code);
    let said =
        "pods is forbidden: User \"system:serviceaccount:ml:pp\" cannot list resource \"pods\"";
    let failure = asked.status(&status(403, said), "list").failure;
    assert_eq!(failure.kind, Kind::Forbidden);
    assert_eq!(
        failure.text,
        format!(
            "cannot list pods in namespace \"ml\": 403 {said}; give the control plane's service account a Role with the \
             verbs get, list and watch on it"
        )
    );
    let kinds =
        [401, 404, 410, 500].map(|code| asked.status(&status(code, ""), "watch").failure.kind);
    assert_eq!(
        kinds,
        [Kind::Forbidden, Kind::NotFound, Kind::Gone, Kind::Server]
    );
}

#[tokio::test]
async fn a_version_that_is_of_no_use_is_known_by_its_refusal() {
    let asked = asked().await;
    let anew = |status: serde_json::Value| {
        let status = super::status(500, status.to_string().as_bytes());
        let refused = asked.status(&status, "watch");
        assert_eq!(
            refused.anew,
            refused.failure.kind == Kind::Gone,
            "{refused:?}"
        );
        refused.anew
    };
    let cause = json!({"causes": [{"reason": "ResourceVersionTooLarge"}]});
    for status in [
        json!({"code": 410}),
        json!({"code": 500, "reason": "Expired"}),
        json!({"code": 504, "reason": "Timeout", "details": cause}),
        json!({"code": 504, "message": "Timeout: Too large resource version: 10, current: 5"}),
        json!({"code": 400, "message": "Invalid value: \"x\": invalid resource version"}),
    ] {
        assert!(anew(status.clone()), "{status}");
    }
    for status in [
        json!({"code": 504, "message": "upstream request timeout"}),
        json!({"code": 400, "message": "unable to parse requirement"}),
        json!({"code": 403, "reason": "Forbidden"}),
        json!("no status"),
    ] {
        assert!(!anew(status.clone()), "{status}");
    }
}

#[tokio::test]
async fn nobody_is_left_alone_for_longer_than_a_minute() {
    let asked = asked().await;
    let after = |seconds: u64| {
        let status = json!({"code": 429, "details": {"retryAfterSeconds": seconds}});
        let status = super::status(429, status.to_string().as_bytes());
        asked.status(&status, "list").after
    };
    let wanted = [0, 7, 600].map(after);
    assert_eq!(
        wanted,
        [
            None,
            Some(Duration::from_secs(7)),
            Some(Duration::from_secs(60))
        ]
    );
}

/// A byte now and then keeps every other time limit away.
#[tokio::test]
async fn a_list_that_drips_has_an_end() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dripping = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        assert!(socket.read(&mut [0; 4096]).await.unwrap() > 0);
        let head =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n";
        socket.write_all(head).await.unwrap();
        while socket.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    let asked = asked_of(&url).await;
    // Long enough to be connected by then, or nothing drips.
    let until = Instant::now() + Duration::from_secs(3);
    let refused = asked.list(&ListParams::default(), until).await.err();
    let failure = refused.unwrap().failure;
    assert_eq!(failure.kind, Kind::Unreachable);
    assert!(failure.text.contains("in time"), "{}", failure.text);
    // And nobody goes on reading.
    let ended = tokio::time::timeout(Duration::from_secs(60), dripping).await;
    ended.unwrap().unwrap();
}

#[tokio::test]
async fn a_line_has_an_end() {
    let body = |parts: Vec<Bytes>| {
        let parts = parts.into_iter().map(Ok);
        lines(futures_util::stream::iter(parts)).try_collect::<Vec<_>>()
    };
    let two = vec![Bytes::from("{\"a\""), Bytes::from(": 1}\n{}\n{\"ha")];
    assert_eq!(body(two).await.unwrap(), ["{\"a\": 1}", "{}", "{\"ha"]);
    let endless = vec![Bytes::from(vec![b'x'; 1 << 20]); 9];
    let ended = body(endless).await;
    assert!(matches!(ended, Err(LinesCodecError::MaxLineLengthExceeded)));
}

#[test]
fn texts_of_others_are_shortened() {
    assert_eq!(shortened("é"), "é");
    assert_eq!(
        shortened(&"é".repeat(1_000)).chars().count(),
        TEXT_CHARS_MAX + 1
    );
}
