use super::*;

fn expected(tokens: u32) -> Expected {
    Expected {
        pool: Rc::from("p"),
        tokens,
        prompt_tokens: 1_000,
        prompt_len: 4_000,
        block_len: 324,
        engine_block: 16,
        sibling: None,
        early: false,
        comparable: true,
    }
}

fn cached(tokens: u64, prompt_tokens: Option<u64>) -> Option<Usage> {
    Some(Usage {
        prompt_tokens,
        cached: Cached::Tokens(tokens),
    })
}

#[test]
fn within_one_block_is_exact() {
    let judge = |e: Expected, tokens| e.judge(cached(tokens, Some(1_000))).outcome;
    // 324 bytes at 4 bytes a token, in whole blocks of the engine.
    assert_eq!(judge(expected(0), 96), Outcome::Exact);
    assert_eq!(judge(expected(0), 97), Outcome::Under);
    assert_eq!(judge(expected(896), 800), Outcome::Exact);
    assert_eq!(judge(expected(897), 800), Outcome::Over);
    let unknown = Expected {
        engine_block: 0,
        ..expected(82)
    };
    assert_eq!(judge(unknown, 0), Outcome::Over);
    // The engine's own block, where it is larger.
    let large = |tokens| Expected {
        engine_block: 528,
        ..expected(tokens)
    };
    assert_eq!(judge(large(0), 528), Outcome::Exact);
    assert_eq!(judge(large(529), 0), Outcome::Over);
    // Text of many tokens a byte, as the engine's own count of the prompt tells.
    let dense = expected(0).judge(cached(160, Some(2_000)));
    assert_eq!(dense.outcome, Outcome::Exact);
    // Never more tokens than bytes.
    let odd = Expected {
        prompt_len: 0,
        ..expected(0)
    };
    assert_eq!(
        odd.judge(cached(337, Some(u64::MAX))).outcome,
        Outcome::Under
    );
}

#[test]
fn nothing_to_find_and_nothing_found_tells_nothing() {
    let judged = expected(16).judge(cached(0, None));
    assert_eq!((judged.outcome, judged.telling), (Outcome::Exact, false));
    let judged = expected(640).judge(cached(640, None));
    assert_eq!((judged.outcome, judged.telling), (Outcome::Exact, true));
}

#[test]
fn headers_say_how_to_read_a_response() {
    let reads = |kind, encoding| matches!(Reading::of(kind, encoding), Reading::Scan(_));
    assert!(reads("application/json", None));
    assert!(reads("application/JSON ; charset=utf-8", Some("identity")));
    assert!(reads("text/event-stream; charset=utf-8", None));
    assert!(!reads("application/json", Some("br")));
    assert!(!reads("text/html", None));
    assert!(!reads("", None));
}

#[test]
fn no_more_pools_than_the_limit_are_measured() {
    let host = crate::testing::FakeHost::default();
    let mut figures = Figures::default();
    for n in 0..POOLS_MAX {
        assert!(figures.name(&host, &format!("pool-{n}")).is_some());
    }
    assert_eq!(figures.name(&host, "one-more"), None);
    assert!(figures.name(&host, "pool-3").is_some());
}
