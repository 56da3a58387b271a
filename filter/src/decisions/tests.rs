use prefix_picker_core::reasons;
use prefix_picker_core::recent::place;
use prefix_picker_core::sync::decisions::Told as Said;

use super::*;
use crate::mode::Mode;
use crate::router::tests::bench::{Bench, bench, text};
use crate::testing::Call;
use crate::testing::fleet::Fleet;

const HOLDER: &str = "10.0.0.1:8000";
const OTHER: &str = "10.0.0.2:8000";

/// The first of two replicas holds a text.
fn held(mode: Mode) -> Bench {
    let mut b = bench();
    b.config.mode = mode;
    let mut fleet = Fleet::new(1, 8, 2);
    fleet.holds_text(0, &format!("user: {}", text(1)), None);
    b.publish(&fleet);
    b
}

/// A request, answered by an endpoint.
fn served(b: &mut Bench, content: &str, by: &str, status: &str) {
    let mut request = b.chat(content);
    b.property("upstream.address", by.as_bytes());
    let headers = [(":status", status), ("content-type", "application/json")];
    let body = r#"{"usage":{"prompt_tokens":700,"prompt_tokens_details":{"cached_tokens":640}}}"#;
    b.respond(&mut request, &headers, body, 100);
}

/// So many ticks of one VM; the calls that it made.
fn tick(b: &mut Bench, ticks: u32) -> Vec<Call> {
    let before = b.host.calls_to("/v1/decisions").len();
    for _ in 0..ticks {
        b.host.advance_ms(50);
        crate::sync::tick(&mut b.vm, &b.host, &b.config, 1);
    }
    b.host.calls_to("/v1/decisions").split_off(before)
}

fn answer(b: &mut Bench, call: &Call, status: u16) {
    b.host.answer.borrow_mut().status = Some(status);
    let call = (1, call.token);
    crate::sync::answered(&mut b.vm, &b.host, &b.config, call, (1, 0));
}

fn told(calls: &[Call]) -> Decisions {
    assert_eq!(calls.len(), 1);
    Decisions::decode(&calls[0].body).unwrap()
}

#[test]
fn what_was_chosen_and_what_became_of_it_is_told() {
    let mut b = held(Mode::Shadow);
    served(&mut b, &text(1), HOLDER, "200");
    let predicted: u32 = b
        .state("prefix_picker.predicted_tokens")
        .unwrap()
        .parse()
        .unwrap();
    assert!(predicted > 500);
    served(&mut b, &text(1), OTHER, "200");
    let decisions = told(&tick(&mut b, 40));
    let [agreed, apart] = &decisions.records[..] else {
        panic!("{decisions:?}");
    };
    assert_eq!(decisions.lost, 0);
    let last = agreed.marks.last().unwrap();
    // The last block is not whole without what follows it.
    assert!((predicted * 3 / 4..predicted).contains(&last.tokens));
    let expected = Decision {
        enforced: false,
        agreed: true,
        chosen: place(HOLDER),
        prompt_tokens: agreed.prompt_tokens,
        chosen_tokens: predicted,
        served_tokens: predicted,
        told: Some(Said {
            prompt_tokens: 700,
            cached_tokens: 640,
        }),
        marks: agreed.marks.clone(),
        reason: reasons::code("prefix"),
        first: agreed.first,
        second: agreed.second,
    };
    assert!(agreed.first != 0 && agreed.second != 0);
    let told = |name| (reasons::code(name), 2);
    assert_eq!(decisions.counts, [told("prefix")]);
    assert_eq!(decisions.others, []);
    assert_eq!(agreed, &expected);
    let elsewhere = Decision {
        agreed: false,
        served_tokens: 0,
        ..expected
    };
    assert_eq!(apart, &elsewhere);
    assert!(agreed.prompt_tokens > predicted);
}

#[test]
fn so_it_is_of_those_that_were_enforced_and_not_of_those_that_failed() {
    let mut b = held(Mode::Enforce);
    served(&mut b, &text(1), HOLDER, "404");
    served(&mut b, &text(1), HOLDER, "400");
    let mut gone = b.chat(&text(1));
    gone.on_end(&mut b.vm, &b.host);
    // Nothing was looked up.
    b.headers("GET", "/v1/models", None, None);
    let mut other = b.send("");
    other.on_end(&mut b.vm, &b.host);
    b.headers(
        "POST",
        "/v1/chat/completions",
        Some("application/json"),
        None,
    );
    let mut odd = b.send("{");
    odd.on_end(&mut b.vm, &b.host);
    let before = told(&tick(&mut b, 40));
    assert_eq!((before.records, before.lost), (vec![], 0));
    let code = reasons::code;
    let counted = |reason| before.counts.iter().find(|(r, _)| *r == code(reason));
    for (reason, count) in [("prefix", 3), ("method", 1), ("invalid_json", 1)] {
        assert_eq!(counted(reason), Some(&(code(reason), count)), "{reason}");
    }
    // A request that is not for us is only counted.
    let seen = before.others.iter();
    let seen = seen.map(|o| (o.reason, o.status, o.chosen != 0));
    let held = |status| (code("prefix"), status, true);
    let expected = [
        held(404),
        held(400),
        held(0),
        (code("invalid_json"), 0, true),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    assert!(before.others[0].enforced && before.others[0].prompt_tokens > 500);
    served(&mut b, &text(1), HOLDER, "200");
    let decisions = told(&tick(&mut b, 24));
    let [one] = &decisions.records[..] else {
        panic!("{decisions:?}");
    };
    assert!(one.enforced && one.agreed && one.chosen_tokens > 500);
}

#[test]
fn what_is_too_much_or_fails_is_counted() {
    let mut b = held(Mode::Shadow);
    for _ in 0..RECORDS_MAX + 3 {
        served(&mut b, &text(1), HOLDER, "200");
    }
    let calls = tick(&mut b, 40);
    let decisions = told(&calls);
    assert_eq!((decisions.records.len(), decisions.lost), (RECORDS_MAX, 3));
    assert_eq!(b.host.metric("decisions_lost_total"), 3);
    // One call at a time.
    served(&mut b, &text(1), HOLDER, "200");
    assert_eq!(tick(&mut b, 10).len(), 0);
    answer(&mut b, &calls[0], 200);
    let calls = tick(&mut b, 10);
    assert_eq!(told(&calls).records.len(), 1);
    answer(&mut b, &calls[0], 500);
    assert_eq!(b.host.metric("decisions_lost_total"), 4);
    assert_eq!(tick(&mut b, 15).len(), 0);
    served(&mut b, &text(1), HOLDER, "200");
    let calls = tick(&mut b, 10);
    let decisions = told(&calls);
    assert_eq!((decisions.records.len(), decisions.lost), (1, 1));
    // An older control plane; meanwhile memory is bounded.
    answer(&mut b, &calls[0], 404);
    for _ in 0..2 * RECORDS_MAX {
        served(&mut b, &text(1), HOLDER, "200");
        assert_eq!(tick(&mut b, 1).len(), 0);
    }
    let decisions = told(&tick(&mut b, 100));
    let lost = u32::try_from(RECORDS_MAX).unwrap() + 2;
    assert_eq!(
        (decisions.records.len(), decisions.lost),
        (RECORDS_MAX, lost)
    );
    // No answer ever comes.
    assert_eq!(tick(&mut b, 100).len(), 1);
}
