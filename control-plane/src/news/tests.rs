use proptest::prelude::*;

use super::*;

const SMALL: Limits = Limits {
    gateways: 3,
    claims: 12,
    answered: 4,
};

fn report(gateway: u8, seq: u64) -> Report {
    Report {
        gateway: format!("g{gateway}"),
        seq,
        ..Report::default()
    }
}

fn work(place: u64, requests: u32) -> PlaceWork {
    PlaceWork {
        place,
        requests,
        tokens: u64::from(requests) * 10,
        context: u64::from(requests) * 100,
    }
}

fn sent(key: u64, life_ms: u32) -> Sent {
    Sent {
        key,
        life_ms,
        ..Sent::default()
    }
}

#[test]
fn totals_are_the_others_and_gone_with_them() {
    let mut board = Board::new(7, Limits::default());
    let of = |gateway, seq, work: &[PlaceWork]| Report {
        work: work.to_vec(),
        ..report(gateway, seq)
    };
    assert!(board.take(&of(1, 1, &[work(10, 3), work(11, 0)]), 0));
    assert!(board.take(&of(2, 1, &[work(10, 1), work(12, 2), work(12, 1)]), 10));
    let ask = report(1, 2);
    let answer = board.answer(&ask, 20);
    assert_eq!(answer.work, [work(10, 1), work(12, 3)]);
    assert_eq!((answer.gateways, answer.instance), (1, 7));
    assert_eq!(
        board.answer(&report(3, 1), 20).work,
        [work(10, 4), work(12, 3)]
    );
    // Knowing that there is nothing new, until the other one changes.
    let knows = Report {
        instance: 7,
        seen: answer.seen,
        cursor: answer.cursor,
        ..ask
    };
    assert!(!board.has_news(&knows, 30));
    board.take(&of(1, 3, &[]), 30);
    assert!(!board.has_news(&knows, 30), "its own");
    board.take(&of(2, 2, &[work(10, 1), work(12, 3)]), 40);
    assert!(!board.has_news(&knows, 40), "the same");
    // Overtaken: what it says is over.
    board.take(&of(2, 1, &[work(10, 9)]), 50);
    assert!(!board.has_news(&knows, 50));
    board.take(&of(2, 3, &[work(10, 2)]), 60);
    assert!(board.has_news(&knows, 60));
    // Gone after a while, and that is news.
    let answer = board.answer(&knows, 60);
    let knows = Report {
        seen: answer.seen,
        ..knows
    };
    board.take(&knows, 2_000);
    assert!(!board.has_news(&knows, 3_059));
    assert!(board.has_news(&knows, 3_060));
    assert_eq!(board.answer(&knows, 3_060).work, []);
}

#[test]
fn another_life_of_the_control_plane_tells_all_anew() {
    let mut board = Board::new(8, Limits::default());
    board.take(
        &Report {
            sent: vec![sent(1, 5_000)],
            ..report(1, 1)
        },
        0,
    );
    let of_before = Report {
        instance: 7,
        cursor: 900,
        seen: 900,
        ..report(2, 55)
    };
    assert!(board.has_news(&of_before, 10));
    let answer = board.answer(&of_before, 10);
    assert_eq!(
        (answer.instance, answer.cursor, answer.sent.len()),
        (8, 1, 1)
    );
    assert_eq!((answer.sent[0].age_ms, answer.sent[0].life_ms), (10, 4_990));
}

#[test]
fn one_gateway_too_many_is_answered_but_not_heard() {
    let mut board = Board::new(1, SMALL);
    for gateway in 0..3 {
        let heard = Report {
            work: vec![work(5, 1)],
            ..report(gateway, 1)
        };
        assert!(board.take(&heard, 0));
    }
    let fourth = Report {
        work: vec![work(5, 1)],
        sent: vec![sent(1, 1_000)],
        ..report(4, 1)
    };
    assert!(!board.take(&fourth, 0));
    assert_eq!(board.answer(&fourth, 0).work, [work(5, 3)]);
    assert_eq!(board.sizes(0), (3, 0));
    assert!(board.take(&fourth, SILENT_MS));
    assert_eq!(board.sizes(SILENT_MS), (1, 1));
}

#[derive(Clone, Debug)]
enum Act {
    /// A gateway reports: work by place, lives of claims, and reads the answer or not.
    Report(u8, Vec<(u8, u8)>, Vec<u16>, bool),
    /// One of its earlier reports comes late.
    Late(u8, u8),
    Pass(u16),
}

fn act() -> impl Strategy<Value = Act> {
    let works = proptest::collection::vec((0u8..4, 0u8..5), 0..4);
    let claims = proptest::collection::vec(0u16..3_000, 0..5);
    prop_oneof![
        10 => (0u8..3, works, claims, any::<bool>())
            .prop_map(|(gateway, work, claims, reads)| Act::Report(gateway, work, claims, reads)),
        1 => (0u8..3, 0u8..5).prop_map(|(gateway, work)| Act::Late(gateway, work)),
        4 => (0u16..2_000).prop_map(Act::Pass),
    ]
}

/// All that was ever said, looked through anew each time.
#[derive(Default)]
struct Model {
    now: u64,
    /// Who, when, sequence, work.
    reports: Vec<(u8, u64, u64, BTreeMap<u64, u32>)>,
    /// Who, until when, key.
    claims: Vec<(u8, u64, u64)>,
}

impl Model {
    /// What the gateway last said, if it is not gone. One that is gone and comes back begins anew.
    fn work(&self, gateway: u8) -> Option<BTreeMap<u64, u32>> {
        let mut alive: Option<(u64, u64, BTreeMap<u64, u32>)> = None;
        for (_, at, seq, work) in self.reports.iter().filter(|report| report.0 == gateway) {
            alive = match alive {
                Some((heard, newest, known)) if at - heard < SILENT_MS && *seq <= newest => {
                    Some((*at, newest, known))
                }
                _ => Some((*at, *seq, work.clone())),
            };
        }
        let (heard, _, work) = alive?;
        (self.now - heard < SILENT_MS).then_some(work)
    }

    fn others(&self, gateway: u8) -> BTreeMap<u64, u32> {
        let mut sum = BTreeMap::new();
        for other in (0..3).filter(|other| *other != gateway) {
            for (place, requests) in self.work(other).unwrap_or_default() {
                *sum.entry(place).or_insert(0) += requests;
            }
        }
        sum.retain(|_, requests| *requests > 0);
        sum
    }

    /// Those of others that may be told after `cursor` of all claims.
    fn unknown(&self, gateway: u8, cursor: u64) -> Vec<(u64, u64)> {
        let first = self.claims.len().saturating_sub(SMALL.claims) as u64;
        let numbered = (1u64..).zip(&self.claims);
        numbered
            .filter(|(number, _)| *number > cursor.max(first))
            .filter(|(_, claim)| claim.0 != gateway && claim.1 > self.now)
            .map(|(number, claim)| (number, claim.2))
            .collect()
    }
}

proptest! {
    #[test]
    fn it_says_what_a_naive_model_says(acts in proptest::collection::vec(act(), 1..80)) {
        let mut board = Board::new(3, SMALL);
        let mut model = Model::default();
        let mut reader: [(u64, u64); 3] = [(0, 0); 3];
        let mut told: [BTreeMap<u64, u32>; 3] = Default::default();
        let mut seq = 0;
        for act in acts {
            seq += 1;
            let (gateway, works, lives, reads, seq) = match act {
                Act::Pass(ms) => {
                    model.now += u64::from(ms);
                    continue;
                }
                Act::Report(gateway, work, claims, reads) => (gateway, work, claims, reads, seq),
                Act::Late(gateway, work) => (gateway, vec![(0, work)], vec![], false, seq / 2),
            };
            let at = usize::from(gateway);
            let first = model.claims.len() as u64;
            let now = Report {
                instance: 3,
                cursor: reader[at].0,
                seen: reader[at].1,
                work: works.iter().map(|(place, n)| work((*place).into(), (*n).into())).collect(),
                sent: (first..).zip(&lives).map(|(key, life)| sent(key, (*life).into())).collect(),
                ..report(gateway, seq)
            };
            prop_assert!(board.take(&now, model.now));
            let mut summed = BTreeMap::new();
            for (place, n) in works {
                *summed.entry(u64::from(place)).or_insert(0) += u32::from(n);
            }
            model.reports.push((gateway, model.now, seq, summed));
            for (key, life) in (first..).zip(lives) {
                model.claims.push((gateway, model.now + u64::from(life), key));
            }
            if !reads {
                continue;
            }
            let wanted = model.unknown(gateway, reader[at].0);
            let news = board.has_news(&now, model.now);
            // It may say that there is news where there is none any more, never the other way round.
            prop_assert!(news || wanted.is_empty());
            prop_assert!(news || model.others(gateway) == told[at]);
            let answer = board.answer(&now, model.now);
            let got: BTreeMap<u64, u32> = answer.work.iter().map(|w| (w.place, w.requests)).collect();
            prop_assert_eq!(&got, &model.others(gateway));
            told[at] = got;
            let keys: Vec<u64> = answer.sent.iter().map(|sent| sent.key).collect();
            let some: Vec<u64> = wanted.iter().map(|(_, key)| *key).take(SMALL.answered).collect();
            prop_assert_eq!(keys, some);
            prop_assert_eq!(answer.more, wanted.len() > SMALL.answered);
            reader[at] = (answer.cursor, answer.seen);
            let (gateways, claims) = board.sizes(model.now);
            prop_assert!(gateways <= 3 && claims <= SMALL.claims);
        }
    }
}

#[tokio::test]
async fn who_waits_is_woken_by_news_and_by_the_end_of_the_wait() {
    use std::time::Duration;
    use tokio::time::Instant;

    let news = News::new(1);
    let gather = Duration::from_secs(1);
    news.take(&report(1, 1));
    let begin = Instant::now();
    let until = begin + Duration::from_millis(100);
    let answer = news.answer(&report(1, 1), until, gather).await;
    assert_eq!(answer.sent.len(), 0);
    assert!(begin.elapsed() >= Duration::from_millis(100));

    // Two in a burst: the second one comes when the first has woken who waits, with no time in between.
    let tell = async {
        for key in [1, 2] {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            news.take(&Report {
                sent: vec![sent(key, 10_000)],
                ..report(2, key)
            });
        }
    };
    let begin = Instant::now();
    let until = begin + Duration::from_secs(60);
    let ask = report(1, 1);
    let (answer, ()) = tokio::join!(news.answer(&ask, until, gather), tell);
    let keys: Vec<u64> = answer.sent.iter().map(|sent| sent.key).collect();
    assert_eq!(keys, [1, 2]);
    assert!(begin.elapsed() < Duration::from_secs(30));
}
