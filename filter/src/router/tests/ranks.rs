//! Data-parallel ranks behind one endpoint: replicas of their own, asked for by a header.

use super::bench::{Bench, bench, text};
use crate::load::Work;
use crate::mode::Mode;
use crate::router::{DESTINATION_HEADER, RANK_HEADER, Request, STATE_REASON};
use crate::testing::fleet::{Fleet, MODEL};
use prefix_picker_core::sync::ReplicaState;

const JSON: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];
const ENDPOINTS: [&str; 3] = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"];
/// The second endpoint's second rank, which holds a text.
const HOLDER: u16 = 3;

/// Three endpoints with two ranks each.
fn held() -> (Bench, Fleet) {
    let mut b = bench();
    let mut fleet = Fleet::of_ranks(3, 2);
    fleet.holds_text(HOLDER, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    (b, fleet)
}

impl Bench {
    /// The rank asked for, by the request's header.
    pub(crate) fn rank(&self) -> Option<String> {
        let headers = self.host.request_headers.borrow();
        headers.get(RANK_HEADER).cloned()
    }

    /// Endpoints named, and the rank asked for.
    fn asked(&self) -> (Vec<String>, Option<String>) {
        let named = self.dest().unwrap_or_default();
        (named.split(',').map(str::to_owned).collect(), self.rank())
    }

    fn respond_from(&mut self, r: &mut Request, by: &str, attempts: u64, body: &str) {
        self.property("upstream.address", by.as_bytes());
        self.property("upstream.request_attempt_count", &attempts.to_le_bytes());
        self.respond(r, &JSON, body, 100);
    }

    fn requests_on(&mut self, fleet: &Fleet) -> Vec<u32> {
        let replicas = 0..u16::try_from(fleet.head.replicas.len()).unwrap();
        replicas.map(|r| self.load(fleet, r).requests).collect()
    }
}

#[test]
fn the_rank_that_holds_the_prompt_is_asked_for_wherever_it_is_tried() {
    let (mut b, mut fleet) = held();
    b.config.debug_header = Some("x-explain".to_owned());
    b.header("x-explain", "1");
    let body =
        serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": text(1)}]});
    let mut r = b.send(&body.to_string());
    let (mut named, rank) = b.asked();
    assert_eq!(
        (named[0].as_str(), rank.as_deref()),
        (ENDPOINTS[1], Some("1"))
    );
    named.sort();
    assert_eq!(named, ENDPOINTS, "each once");
    assert_eq!(b.requests_on(&fleet), [0, 0, 0, 1, 0, 0]);
    b.respond_from(&mut r, ENDPOINTS[1], 1, "{}");
    let told = b.host.response_headers.borrow().clone();
    let told = told.get("x-prefix-picker-replica");
    assert_eq!(told.map(String::as_str), Some("10.0.0.2:8000#1"));
    // An endpoint whose rank 1 gets nothing new is not tried, though its rank 0 would do.
    fleet.head.replicas[5].state = ReplicaState::Draining;
    fleet.head.version += 1;
    b.publish(&fleet);
    b.chat(&text(1));
    let expected = [ENDPOINTS[1], ENDPOINTS[0]].map(str::to_owned);
    assert_eq!(b.asked(), (expected.to_vec(), Some("1".to_owned())));
}

#[test]
fn a_clients_own_rank_is_removed_whatever_the_request() {
    for path in ["/v1/chat/completions", "/v1/models"] {
        for mode in [Mode::Enforce, Mode::Shadow, Mode::Off] {
            let mut b = bench();
            b.config.mode = mode;
            b.headers("POST", path, Some("application/json"), Some(2));
            b.header(RANK_HEADER, "7");
            b.send("{}");
            assert_eq!((b.rank(), b.dest()), (None, None), "{path} {mode:?}");
        }
    }
    // Where endpoints have no ranks, none is asked for.
    let mut b = bench();
    b.publish(&Fleet::new(1, 8, 2));
    b.header(RANK_HEADER, "7");
    b.send(&format!(
        r#"{{"model": "{MODEL}", "messages": [{{"role": "user", "content": "x"}}]}}"#
    ));
    assert!(b.dest().is_some());
    assert_eq!(b.rank(), None);
    // Where they have, the client's is replaced.
    let (mut b, _) = held();
    b.headers(
        "POST",
        "/v1/chat/completions",
        Some("application/json"),
        None,
    );
    b.header(RANK_HEADER, "0");
    b.header(DESTINATION_HEADER, ENDPOINTS[0]);
    let body =
        serde_json::json!({"model": MODEL, "messages": [{"role": "user", "content": text(1)}]});
    b.send(&body.to_string());
    let (named, rank) = b.asked();
    assert_eq!(
        (named[0].as_str(), rank.as_deref()),
        (ENDPOINTS[1], Some("1"))
    );
}

#[test]
fn load_is_counted_by_rank_and_moves_to_the_same_rank_elsewhere() {
    let (mut b, fleet) = held();
    let mut r = b.chat(&text(1));
    let second = b.asked().0[1].clone();
    let at = ENDPOINTS.iter().position(|e| *e == second).unwrap();
    b.property("upstream.address", second.as_bytes());
    b.property("upstream.request_attempt_count", &2u64.to_le_bytes());
    *b.host.response_headers.borrow_mut() = JSON.map(|(n, v)| (n.into(), v.into())).into();
    r.on_response_headers(&mut b.vm, &b.host, false);
    let mut expected = vec![0; 6];
    expected[2 * at + 1] = 1;
    assert_eq!(b.requests_on(&fleet), expected);
    assert_eq!(b.host.metric("missed_override_total"), 0);
    r.on_end(&mut b.vm, &b.host);
    assert_eq!(
        b.load(&fleet, u16::try_from(2 * at + 1).unwrap()),
        Work::default()
    );
    // Different prompts share all ranks.
    let (mut b, fleet) = held();
    let all: Vec<Request> = (10..16).map(|n| b.chat(&text(n))).collect();
    assert_eq!(b.requests_on(&fleet), [1; 6]);
    drop(all);
}

#[test]
fn siblings_of_a_moment_ago_find_the_rank() {
    let mut b = bench();
    b.publish(&Fleet::of_ranks(2, 2));
    let _first = b.chat(&text(1));
    let (named, rank) = b.asked();
    for _ in 0..5 {
        let _sibling = b.chat(&text(1));
        assert_eq!(b.state(STATE_REASON).as_deref(), Some("recent"));
        let again = b.asked();
        assert_eq!((&again.0[0], &again.1), (&named[0], &rank));
    }
}

#[test]
fn in_shadow_no_rank_is_asked_for_and_none_is_known_to_serve() {
    let (mut b, fleet) = held();
    b.config.mode = Mode::Shadow;
    let mut r = b.chat(&text(1));
    assert_eq!((b.dest(), b.rank()), (None, None));
    let usage = r#"{"usage":{"prompt_tokens":700,"prompt_tokens_details":{"cached_tokens":0}}}"#;
    b.respond_from(&mut r, ENDPOINTS[1], 1, usage);
    assert_eq!(b.host.metric("shadow_agreed_total"), 1);
    let judged: u64 = ["exact", "over", "under"]
        .map(|o| {
            b.host.metric(&format!(
                "feedback_responses_total_outcome=_={o}_=__pool=_=p_=_"
            ))
        })
        .iter()
        .sum();
    assert_eq!(judged, 0);
    assert_eq!(b.requests_on(&fleet), [0; 6]);
}

#[test]
fn an_endpoint_that_cannot_be_reached_is_left_alone_with_all_its_ranks() {
    let (mut b, _) = held();
    let two = [b.chat(&text(1)), b.chat(&text(1))];
    assert_eq!(b.asked().0[0], ENDPOINTS[1]);
    for mut r in two {
        // No connection.
        b.property("upstream.address", b"");
        b.property("upstream.request_attempt_count", &1u64.to_le_bytes());
        b.property("response.code_details", b"upstream_reset_before_response");
        b.property("response.flags", &0x20u64.to_le_bytes());
        b.respond(&mut r, &[(":status", "503")], "x", 100);
    }
    let mut all = Vec::new();
    for n in 10..30 {
        all.push(b.chat(&text(n)));
        assert!(!b.asked().0.contains(&ENDPOINTS[1].to_owned()));
    }
}

#[test]
fn what_builds_on_an_answer_goes_to_the_rank_that_gave_it_or_any_of_its_endpoint() {
    let ask = |b: &mut Bench, after: Option<&str>| {
        let body = serde_json::json!({"model": MODEL, "input": "x", "previous_response_id": after});
        b.headers("POST", "/v1/responses", Some("application/json"), None);
        b.send(&body.to_string())
    };
    let (mut b, _) = held();
    let mut r = ask(&mut b, None);
    let (named, rank) = b.asked();
    b.respond_from(&mut r, &named[0], 1, r#"{"id": "resp_asked"}"#);
    ask(&mut b, Some("resp_asked"));
    assert_eq!(b.asked(), (vec![named[0].clone()], rank));
    // Nobody was asked for then: which rank gave the answer is not known.
    b.config.mode = Mode::Shadow;
    let mut r = ask(&mut b, None);
    b.respond_from(&mut r, ENDPOINTS[2], 1, r#"{"id": "resp_shadow"}"#);
    b.config.mode = Mode::Enforce;
    ask(&mut b, Some("resp_shadow"));
    assert_eq!(b.state(STATE_REASON).as_deref(), Some("pinned"));
    let (named, rank) = b.asked();
    assert_eq!(named, [ENDPOINTS[2]]);
    assert!(rank.is_some());
}
