use prefix_picker_core::reasons::code;
use prefix_picker_core::sync::decisions::Told;

use super::gateways::{GATEWAY_GONE_MS, GATEWAYS_MAX, NAME_BYTES_MAX};
use super::*;

fn decision(chosen: u64, prompt_tokens: u32, cached: Option<u32>) -> Decision {
    Decision {
        enforced: true,
        agreed: true,
        chosen,
        prompt_tokens,
        chosen_tokens: 64,
        served_tokens: 32,
        told: cached.map(|cached_tokens| Told {
            prompt_tokens: prompt_tokens + 1,
            cached_tokens,
        }),
        reason: code("prefix"),
        first: 5,
        ..Decision::default()
    }
}

fn told(records: Vec<Decision>) -> Decisions {
    Decisions {
        records,
        ..Decisions::default()
    }
}

#[test]
fn sums_tell_what_was_measured_and_what_was_saved() {
    let mut book = Book::default();
    let elsewhere = Decision {
        agreed: false,
        ..decision(2, 100, None)
    };
    let mut message = told(vec![decision(1, 999, Some(500)), elsewhere]);
    message.counts = vec![(code("prefix"), 2), (code("load"), 40)];
    message.lost = 3;
    book.take(&message, 1_000);
    let now = book.now(5, 2_000);
    let expected = Figures {
        requests: 2,
        enforced: 2,
        elsewhere: 1,
        prompt_tokens: 1_100,
        saved_tokens: 532,
        told: 1,
        told_prompt_tokens: 1_000,
        told_cached_tokens: 500,
    };
    assert_eq!((now.recent, now.ever, now.lost), (expected, expected, 3));
    assert_eq!(now.recent.hit_rate(), Some(0.5));
    assert_eq!(now.places[&1].requests, 1);
    assert_eq!(now.places[&2].hit_rate(), None);
    assert_eq!(now.reasons[&code("load")], (40, 40));
    assert_eq!(now.steps.last().unwrap().requests, 2);
    // Ten minutes later only the totals are left.
    let now = book.now(5, 700_000);
    assert_eq!((now.recent, now.ever), (Figures::default(), expected));
    assert_eq!(now.reasons[&code("load")], (0, 40));
    assert!(now.places.is_empty());
}

#[test]
fn the_last_decisions_are_numbered_and_bounded() {
    let mut book = Book::default();
    let mut message = told(vec![decision(1, 10, Some(3)); 150]);
    message.others = vec![
        Other {
            enforced: true,
            reason: code("body_too_large"),
            chosen: 0,
            prompt_tokens: 7,
            status: 503,
        };
        30
    ];
    book.take(&message, 5);
    book.take(&message, 6);
    assert_eq!(book.last.len(), DECISIONS_MAX);
    let numbers = book.last.iter().map(|seen| seen.number);
    assert!(numbers.eq(161..=360));
    let other = book.last.back().unwrap();
    assert_eq!((other.status, other.predicted_tokens), (503, None));
    assert_eq!(book.last.front().unwrap().cached_tokens, None);
    assert_eq!(book.last[100].cached_tokens, Some(3));
}

/// Whatever gateways tell, no more is kept.
#[test]
fn memory_is_bounded() {
    let mut book = Book::default();
    for gateway in 0..1_000 {
        let name = format!("{gateway}{}", "x".repeat(500));
        book.gateways.polled(&name, "9", 0);
    }
    assert_eq!(book.gateways.0.len(), GATEWAYS_MAX);
    assert!(
        (book.gateways.0)
            .keys()
            .all(|name| name.len() <= NAME_BYTES_MAX)
    );
    book.gateways.polled("late", "1.2", GATEWAY_GONE_MS);
    assert_eq!(book.now(0, GATEWAY_GONE_MS).gateways[0].version, "1.2");
    for place in 0..20_000 {
        book.take(&told(vec![decision(place, 1, None)]), 0);
    }
    assert_eq!(book.places.len(), PLACES_MAX);
    book.take(&told(vec![decision(99_999, 1, None)]), 700_000);
    assert!(book.places.contains_key(&99_999) && book.places.len() == 1);
}

#[test]
fn shares_are_rounded_down_and_never_of_nothing() {
    assert_eq!(share(1, 3), Some(0.3333));
    assert_eq!(share(0, 0), None);
    assert_eq!(share(u64::MAX, u64::MAX), Some(1.0));
}
