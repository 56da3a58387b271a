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
    let work = vec![PlaceWork {
        place: 5,
        requests: 2,
        tokens: 30,
        context: 400,
    }];
    let mut known = tell(&running, &named("one", 1)).await;
    let mut tries = 0;
    // An answer that waits to the end is never so early, one that does not may be late where much else goes on:
    // one of a few must be early.
    loop {
        tries += 1;
        let listens = Report {
            wait_ms: 1_200,
            instance: known.instance,
            cursor: known.cursor,
            seen: known.seen,
            ..named("one", tries + 1)
        };
        let told = Report {
            work: work.clone(),
            sent: vec![Sent {
                key: tries,
                place: 5,
                life_ms: 4_000,
                marks: vec![1, 2],
                ..Sent::default()
            }],
            ..named("two", tries)
        };
        let tells = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let begin = Instant::now();
            (tell(&running, &told).await.gateways, begin)
        };
        let (heard, (others, begin)) = tokio::join!(tell(&running, &listens), tells);
        let took = begin.elapsed();
        if took < Duration::from_millis(900) {
            assert_eq!((others, heard.gateways, &heard.work), (1, 1, &work));
            let sent = &heard.sent[0];
            assert_eq!((sent.key, &sent.marks), (tries, &vec![1, 2]));
            break;
        }
        assert!(tries < 20, "{took:?}");
        known = heard;
    }
    let metrics = running.get("/metrics").await.1;
    for line in [
        "prefix_picker_news_gateways 2",
        &format!(
            "prefix_picker_news_reports_total{{result=\"heard\"}} {}",
            1 + 2 * tries
        ),
        "prefix_picker_news_reports_total{result=\"malformed\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    std::fs::remove_dir_all(running.stop().await).unwrap();
}
