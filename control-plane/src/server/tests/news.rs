//! Two gateways that tell each other by HTTP.

use prefix_picker_core::sync::news::{OthersNews, PlaceWork, Report, Sent};

use super::*;

async fn post(running: &Running, token: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
    let url = format!("{}/v1/news", running.base);
    let request = running.client.post(url).header("authorization", token);
    let response = request.body(body).send().await.unwrap();
    let status = response.status().as_u16();
    (status, response.bytes().await.unwrap().to_vec())
}

async fn tell(running: &Running, report: &Report) -> OthersNews {
    let (status, body) = post(running, "Bearer first-token", report.encode().unwrap()).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    OthersNews::decode(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_gateway_tells_another_hears_at_once() {
    let running = Running::start("news", 60_000).await;
    let named = |gateway: &str, seq| Report {
        gateway: gateway.into(),
        seq,
        ..Report::default()
    };
    assert_eq!(post(&running, "", vec![]).await.0, 401);
    assert_eq!(
        post(&running, "Bearer first-token", b"PPNR".to_vec())
            .await
            .0,
        400
    );
    let known = tell(&running, &named("one", 1)).await;
    let listens = Report {
        wait_ms: 1_200,
        instance: known.instance,
        cursor: known.cursor,
        seen: known.seen,
        ..named("one", 2)
    };
    let told = Report {
        work: vec![PlaceWork {
            place: 5,
            requests: 2,
            tokens: 30,
            context: 400,
        }],
        sent: vec![Sent {
            key: 9,
            place: 5,
            life_ms: 4_000,
            marks: vec![1, 2],
            ..Sent::default()
        }],
        ..named("two", 1)
    };
    let tells = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let begin = Instant::now();
        assert_eq!(tell(&running, &told).await.gateways, 1);
        begin
    };
    let (heard, begin) = tokio::join!(tell(&running, &listens), tells);
    assert!(
        begin.elapsed() < Duration::from_millis(900),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!((heard.gateways, &heard.work), (1, &told.work));
    assert_eq!((heard.sent[0].key, &heard.sent[0].marks), (9, &vec![1, 2]));
    let metrics = running.get("/metrics").await.1;
    for line in [
        "prefix_picker_news_gateways 2",
        "prefix_picker_news_reports_total{result=\"heard\"} 3",
        "prefix_picker_news_reports_total{result=\"malformed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    std::fs::remove_dir_all(running.stop().await).unwrap();
}
