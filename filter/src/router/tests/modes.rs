//! Off, and in shadow: what is chosen is counted, and Envoy does what it would have done.

use super::bench::{Bench, bench, text};
use crate::load::Work;
use crate::mode::Mode;
use crate::router::{Request, STATE_ENDPOINT, STATE_PREDICTED, STATE_REASON};
use crate::testing::fleet::Fleet;

const JSON: [(&str, &str); 2] = [(":status", "200"), ("content-type", "application/json")];
const HOLDER: &str = "10.0.0.1:8000";
const OTHER: &str = "10.0.0.2:8000";

/// The first of two replicas holds a text.
fn held(mode: Mode) -> (Bench, Fleet) {
    let mut b = bench();
    b.config.mode = mode;
    let mut fleet = Fleet::new(1, 8, 2);
    fleet.holds_text(0, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    (b, fleet)
}

fn answer(b: &mut Bench, request: &mut Request, by: &str, cached: u32) {
    let body = format!(
        r#"{{"usage":{{"prompt_tokens":700,"prompt_tokens_details":{{"cached_tokens":{cached}}}}}}}"#
    );
    b.property("upstream.address", by.as_bytes());
    b.respond(request, &JSON, &body, 100);
}

#[test]
fn in_shadow_nothing_is_named_and_all_is_counted() {
    let (mut b, fleet) = held(Mode::Shadow);
    let mut agreed = b.chat(&text(1));
    assert_eq!(b.dest(), None);
    assert_eq!(b.state(STATE_REASON).as_deref(), Some("prefix"));
    assert!(b.state(STATE_ENDPOINT).unwrap().starts_with(HOLDER));
    let predicted: u64 = b.state(STATE_PREDICTED).unwrap().parse().unwrap();
    answer(&mut b, &mut agreed, HOLDER, 640);
    let mut apart = b.chat(&text(1));
    assert_eq!(b.load(&fleet, 0).requests, 1);
    b.property("upstream.address", OTHER.as_bytes());
    let headers = JSON.map(|(n, v)| (n.to_owned(), v.to_owned()));
    *b.host.response_headers.borrow_mut() = headers.into();
    apart.on_response_headers(&mut b.vm, &b.host, false);
    // The load is where it is, not where it would have been.
    assert_eq!(
        (b.load(&fleet, 0).requests, b.load(&fleet, 1).requests),
        (0, 1)
    );
    answer(&mut b, &mut apart, OTHER, 0);
    assert_eq!(
        (b.load(&fleet, 0), b.load(&fleet, 1)),
        (Work::default(), Work::default())
    );
    let count = |name: &str| b.host.metric(name);
    assert_eq!((count("shadow_total"), count("named_total")), (2, 0));
    assert_eq!(
        (count("shadow_agreed_total"), count("missed_override_total")),
        (1, 0)
    );
    assert_eq!(count("shadow_predicted_tokens_total"), 2 * predicted);
    assert_eq!(count("shadow_cached_tokens_total"), 640);
    // What went elsewhere says nothing of the prediction.
    let exact = count("feedback_responses_total_outcome=_=exact_=__pool=_=p_=_");
    assert_eq!(exact, 1);
}

#[test]
fn off_is_off() {
    let (mut b, _) = held(Mode::Off);
    b.header(crate::router::DESTINATION_HEADER, OTHER);
    let mut request = b.chat(&text(1));
    assert_eq!(b.dest(), None);
    assert_eq!(b.state(STATE_REASON).as_deref(), Some("off"));
    answer(&mut b, &mut request, OTHER, 0);
    assert_eq!(
        (b.host.requests("off"), b.host.metric("shadow_total")),
        (1, 0)
    );
}
