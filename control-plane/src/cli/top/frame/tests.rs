use serde_json::json;

use super::*;

fn view(columns: usize, rows: usize) -> View {
    View {
        url: "http://127.0.0.1:9400".to_owned(),
        columns,
        rows,
        first: 0,
        sort: Sort::Name,
        gone: None,
    }
}

fn status(replicas: usize) -> Value {
    let replica = |n: usize| {
        json!({"replica": format!("10.0.0.{n}:8000"), "state": "ready", "running": n, "waiting": n % 2,
            "kv_usage": 0.455, "cached_tokens": 1_234_567 * n, "recent": {"hit_rate": 0.5123, "requests": 10 * n}})
    };
    let mut all: Vec<Value> = (1..replicas).map(replica).collect();
    all.push(json!({"replica": "a-very-long-name-as-pods-have-them-6c9fd7b5-x2x4q", "state": "down",
        "running": 0, "waiting": 0, "kv_usage": 0, "cached_tokens": 0, "recent": {"hit_rate": null, "requests": 0}}));
    json!({
        "version": "0.1.0", "uptime_s": 8_000, "window_s": 600,
        "gateways": {"count": 2},
        "fleet": {"pickable": replicas - 1, "replicas": replicas, "engines": {"hit_rate": 0.479},
            "recent": {"hit_rate": 0.5123, "saved_tokens": 12_345_678, "prompt_tokens": 24_000_000, "requests": 1_234}},
        "alarms": [{"severity": "warning", "pool": "chat", "text": "down: x\u{1b}[2J"}],
        "reasons": [{"reason": "prefix", "recent": 812}, {"reason": "load", "recent": 188},
            {"reason": null, "recent": 1}, {"reason": "off", "recent": 0}],
        "pools": [{"pool": "chat", "replicas": all}],
    })
}

#[test]
fn eighty_columns_are_enough() {
    let expected = "\
prefix-picker 0.1.0  up 2 h  2/3 replicas may serve  2 gateway(s)  http://127.0…
10 min: hit 51.2 % (engines 47.9 %)  saved 12.3M of 24.0M tokens  1234 picks
! warning chat: down: x?[2J

REPLICA                      STATE      RUN  WAIT   KV %  CACHED  HIT %   PICKS
10.0.0.1:8000                ready        1     1   45.5    1.2M   51.2      10
10.0.0.2:8000                ready        2     0   45.5    2.4M   51.2      20
a-very-long-n…6c9fd7b5-x2x4q down         0     0    0.0       0      -       0

by reason:  prefix 812 (81.1 %)  load 188 (18.7 %)  other 1 (0.0 %)";
    assert_eq!(
        frame(&status(3), &mut view(80, usize::MAX)).join("\n"),
        expected
    );
}

#[test]
fn what_does_not_fit_is_seen_to_be_cut_and_alarms_are_told_whole_where_there_is_room() {
    let mut told = status(3);
    let long = "down: engine-one, engine-two, engine-three, engine-four and 27 more of this pool, all at once";
    told["alarms"][0]["text"] = json!(long);
    let lines = frame(&told, &mut view(60, usize::MAX));
    assert_eq!(
        lines[2..4],
        [
            "! warning chat: down: engine-one, engine-two, engine-three,",
            "  engine-four and 27 more of this pool, all at once",
        ]
    );
    let lines = frame(&told, &mut view(60, 24));
    assert_eq!(
        lines[2],
        "! warning chat: down: engine-one, engine-two, engine-three,…"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 60));
}

#[test]
fn many_replicas_scroll_and_nothing_is_longer_than_the_screen() {
    for (columns, rows) in [(80, 24), (200, 50), (20, 5), (1, 1)] {
        let mut view = view(columns, rows);
        view.first = usize::MAX;
        let lines = frame(&status(200), &mut view);
        assert!(lines.len() <= rows, "{rows}");
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= columns.max(COLUMNS_MIN))
        );
        assert!(view.first < 200);
    }
    let mut few = view(80, 24);
    few.first = usize::MAX;
    let lines = frame(&status(200), &mut few);
    assert_eq!(lines.len(), 24);
    assert_eq!(
        lines.last().unwrap(),
        &format!(
            "q quit  s sort (name)  arrows scroll ({}-200 of 200)",
            few.first + 1
        )
    );
    assert!(lines.iter().any(|line| line.contains("x2x4q")));
}

#[test]
fn each_order_has_its_first() {
    for (sort, first) in [
        (Sort::Name, "10.0.0.1:8000"),
        (Sort::Load, "10.0.0.7:8000"),
        (Sort::Cached, "10.0.0.8:8000"),
        (Sort::Hit, "10.0.0.1:8000"),
        (Sort::Picks, "10.0.0.8:8000"),
    ] {
        let mut view = view(80, usize::MAX);
        view.sort = sort;
        assert!(
            frame(&status(9), &mut view)[5].starts_with(first),
            "{sort:?}"
        );
    }
    let mut sort = Sort::Name;
    let mut seen = vec![sort];
    while sort.next() != Sort::Name {
        sort = sort.next();
        seen.push(sort);
    }
    assert_eq!(seen.len(), 5);
}

/// Whatever comes, it is shown.
#[test]
fn odd_answers_are_shown_as_far_as_they_go() {
    let mut view = view(80, 24);
    view.gone = Some(7);
    let lines = frame(&json!(null), &mut view);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("DOES NOT ANSWER; this is as of 7 s ago"))
    );
    for (value, expected) in [
        (0, "0"),
        (9_999, "9999"),
        (12_345, "12.3K"),
        (123_456, "123K"),
        (u64::MAX, "18446744T"),
    ] {
        assert_eq!(short(value), expected);
    }
    assert_eq!(fit("abcdefghij", 5), "ab…ij");
}
