//! Requests that build on an answer which one engine keeps.

use super::bench::{Bench, bench};
use crate::router::{Request, STATE_REASON};
use crate::testing::fleet::{Fleet, MODEL};
use crate::vm::Vm;
use prefix_picker_core::sync::ReplicaState;

const JSON: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];
const STREAM: [(&str, &str); 2] = [(":status", "200"), ("content-type", "text/event-stream")];

fn fleet() -> (Bench, Fleet) {
    let mut b = bench();
    let fleet = Fleet::new(1, 8, 4);
    b.publish(&fleet);
    (b, fleet)
}

fn ask(b: &mut Bench, after: Option<&str>) -> (Request, String) {
    let body = serde_json::json!({
        "model": MODEL, "input": "And then?", "previous_response_id": after,
    });
    b.headers("POST", "/v1/responses", Some("application/json"), Some(100));
    let request = b.send(&body.to_string());
    (request, b.dest().unwrap_or_default())
}

fn reason(b: &Bench) -> String {
    b.state(STATE_REASON).unwrap()
}

fn answer(b: &mut Bench, request: &mut Request, by: &str, headers: &[(&str, &str)], body: &str) {
    b.property("upstream.address", by.as_bytes());
    b.respond(request, headers, body, 7);
}

#[test]
fn the_keeper_of_an_answer_gets_what_builds_on_it() {
    let (mut b, _) = fleet();
    let whole = r#"{"id": "resp_whole", "object": "response", "output": []}"#;
    let stream = concat!(
        "event: response.created\n",
        r#"data: {"type":"response.created","response":{"id":"resp_stream"}}"#,
        "\n\n"
    );
    for (headers, body, id) in [(JSON, whole, "resp_whole"), (STREAM, stream, "resp_stream")] {
        for keeper in ["10.0.0.2:8000", "10.0.0.4:8000"] {
            let (mut request, _) = ask(&mut b, None);
            answer(&mut b, &mut request, keeper, &headers, body);
            b.host.advance_ms(60 * 60 * 1_000);
            b.vm.freshness = crate::sync::Freshness::default();
            // From any worker, an hour later, and however busy the keeper is.
            let mut other = Vm::new(&b.host);
            std::mem::swap(&mut b.vm, &mut other);
            for _ in 0..5 {
                let (request, dest) = ask(&mut b, Some(id));
                assert_eq!((dest.as_str(), reason(&b).as_str()), (keeper, "pinned"));
                drop(request);
            }
            std::mem::swap(&mut b.vm, &mut other);
        }
    }
}

#[test]
fn what_nobody_is_known_to_keep_goes_by_load() {
    let (mut b, mut fleet) = fleet();
    let (_request, dest) = ask(&mut b, Some("resp_unknown"));
    assert_eq!(
        (dest.split(',').count(), reason(&b).as_str()),
        (3, "stored_history")
    );
    // Refused, or without a name: nothing is kept.
    for (status, body) in [
        ("500", r#"{"id": "resp_a"}"#),
        ("200", r#"{"error": {"id": "resp_a"}}"#),
    ] {
        let (mut request, _) = ask(&mut b, None);
        answer(
            &mut b,
            &mut request,
            "10.0.0.1:8000",
            &[(":status", status), JSON[1]],
            body,
        );
        drop(ask(&mut b, Some("resp_a")));
        assert_eq!(reason(&b), "stored_history");
    }
    // The keeper is gone.
    let (mut request, _) = ask(&mut b, None);
    answer(
        &mut b,
        &mut request,
        "10.0.0.1:8000",
        &JSON,
        r#"{"id": "resp_b"}"#,
    );
    for (state, expected) in [
        (ReplicaState::Draining, "pinned"),
        (ReplicaState::Warming, "pinned"),
        (ReplicaState::Down, "stored_history"),
    ] {
        fleet.head.replicas[0].state = state;
        b.publish(&fleet);
        drop(ask(&mut b, Some("resp_b")));
        assert_eq!(reason(&b), expected, "{state:?}");
    }
}

/// The keeper is who answered, whoever was named; other interfaces' names mean nothing.
#[test]
fn only_responses_are_noted_and_by_who_gave_them() {
    let (mut b, _) = fleet();
    let mut request = b.chat("x");
    answer(
        &mut b,
        &mut request,
        "10.0.0.3:8000",
        &JSON,
        r#"{"id": "resp_c"}"#,
    );
    drop(ask(&mut b, Some("resp_c")));
    assert_eq!(reason(&b), "stored_history");
    // Nothing could be named, since the model is not known: Envoy chose.
    b.headers("POST", "/v1/responses", Some("application/json"), Some(100));
    b.property("xds.cluster_name", b"other");
    let mut request = b.send(r#"{"model": "m", "input": "x"}"#);
    assert_eq!(b.dest(), None);
    answer(
        &mut b,
        &mut request,
        "10.0.0.3:8000",
        &JSON,
        r#"{"id": "resp_d"}"#,
    );
    b.property("xds.cluster_name", b"pool");
    let (_request, dest) = ask(&mut b, Some("resp_d"));
    assert_eq!(
        (dest.as_str(), reason(&b).as_str()),
        ("10.0.0.3:8000", "pinned")
    );
}
