use super::*;
use crate::blocks::PoolKey;
use crate::ids::{BlockHash, Epoch, ReplicaIndex};
use crate::pick::{RAMPED, Rates};
use crate::table::{GroupChange, PageChange, PageContent};
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn head() -> Head {
    Head {
        epoch: Epoch(0x1122_3344_5566_7788),
        generation: 3,
        page_count: 64,
        seq: 1000,
        version: 42,
        pools: vec![PoolHead {
            name: "demo".into(),
            key: PoolKey([7; 32]),
            profile_hash: 0xfeed,
            models: vec!["demo".into(), "démo".into()],
            clusters: vec!["pool".into()],
            block_size: 16,
            bytes_per_token_milli: 4210,
            token_ids: true,
            loras: vec![
                lora("sql", &[0, 2, 9]),
                lora("größe/v2", &[1]),
                lora("nowhere", &[]),
            ],
            full_reports: false,
        }],
        replicas: vec![
            replica(0, ReplicaState::Ready),
            replica(1, ReplicaState::Warming),
            replica(2, ReplicaState::Draining),
            replica(9, ReplicaState::Down),
        ],
    }
}

fn lora(name: &str, replicas: &[u16]) -> LoraHead {
    LoraHead {
        name: name.into(),
        replicas: replicas.iter().copied().map(ReplicaIndex).collect(),
    }
}

fn replica(index: u16, state: ReplicaState) -> ReplicaHead {
    ReplicaHead {
        index: ReplicaIndex(index),
        pool: 0,
        endpoint: format!("127.0.0.1:{}", 8101 + index),
        dp_rank: index.checked_sub(1),
        state,
        running: 3,
        waiting: u32::from(index),
        kv_usage_permille: 999,
        pace: Pace {
            prefill_tokens_per_s: 8_000 + u32::from(index),
            step_us: 12_500,
            ramp_permille: 100 * index,
        },
    }
}

fn answers() -> Vec<Answer> {
    let base = Answer {
        epoch: Epoch(5),
        generation: 1,
        page_count: 4,
        table: TableUpdate::None,
        head: None,
        profiles: Vec::new(),
    };
    vec![
        base.clone(),
        Answer {
            head: head().encode().ok(),
            profiles: vec![ProfileRecord {
                hash: 9,
                json: b"{}".to_vec(),
            }],
            ..base.clone()
        },
        Answer {
            table: TableUpdate::Delta {
                from_seq: 3,
                to_seq: 9,
                more: true,
                pages: vec![
                    PageChange {
                        index: 3,
                        content: PageContent::Whole(vec![1, 2, 3]),
                    },
                    PageChange {
                        index: 0,
                        content: PageContent::Delta(vec![
                            GroupChange {
                                anchor: BlockHash(u64::MAX),
                                body: Some(vec![5; 9]),
                            },
                            GroupChange {
                                anchor: BlockHash(0),
                                body: None,
                            },
                        ]),
                    },
                ],
            },
            ..base.clone()
        },
        Answer {
            table: TableUpdate::Load {
                start_seq: 77,
                next_page: Some(2),
                pages: vec![PageChange {
                    index: 1,
                    content: PageContent::Whole(Vec::new()),
                }],
            },
            ..base.clone()
        },
        Answer {
            table: TableUpdate::Load {
                start_seq: 77,
                next_page: None,
                pages: Vec::new(),
            },
            ..base
        },
    ]
}

#[test]
fn heads_come_back_as_they_were() {
    let bytes = head().encode().unwrap();
    assert_eq!(Head::decode(&bytes).unwrap(), head());
    assert_eq!(Head::version_of(&bytes).unwrap(), (head().epoch, 42));
    let mut longer = bytes.clone();
    longer.extend_from_slice(b"a later minor version");
    assert_eq!(Head::decode(&longer).unwrap(), head());
    for end in 0..bytes.len() {
        assert!(Head::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn answers_come_back_as_they_were() {
    for answer in answers() {
        let bytes = answer.encode().unwrap();
        assert_eq!(Answer::decode(&bytes).unwrap(), answer);
    }
}

#[test]
fn any_flipped_bit_and_any_cut_is_refused() {
    for answer in answers() {
        let bytes = answer.encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Answer::decode(&bad).is_err(), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(Answer::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }
}

#[test]
fn polls_ignore_what_they_do_not_know() {
    let poll = Poll {
        protocol: MAJOR,
        gateway: "g".into(),
        have: Some(Have {
            epoch: u64::MAX,
            generation: 1,
            seq: 2,
        }),
        wait_ms: 10,
        ..Poll::default()
    };
    let mut json = serde_json::to_value(&poll).unwrap();
    assert_eq!(serde_json::from_value::<Poll>(json.clone()).unwrap(), poll);
    json["new_in_a_later_version"] = true.into();
    assert_eq!(serde_json::from_value::<Poll>(json).unwrap(), poll);
    assert_eq!(
        serde_json::from_str::<Poll>(r#"{"protocol":1}"#)
            .unwrap()
            .have,
        None
    );
}

/// Frozen messages, made by `generate.py` beside them: this build must write the same.
#[test]
fn version_1_3_is_frozen() {
    let bytes = answers()[2].encode().unwrap();
    let frozen = include_str!("../../../tests/vectors/wire/v1.3/answer-delta.hex");
    assert_eq!(to_hex(&bytes), frozen.trim());
    let frozen = include_str!("../../../tests/vectors/wire/v1.3/head.hex");
    assert_eq!(to_hex(&head().encode().unwrap()), frozen.trim());
}

/// What builds of version 1.2 wrote is still read: no endpoint has ranks.
#[test]
fn version_1_2_is_read() {
    let bytes = of_hex(include_str!(
        "../../../tests/vectors/wire/v1.2/answer-delta.hex"
    ));
    assert_eq!(Answer::decode(&bytes).unwrap(), answers()[2]);
    let bytes = of_hex(include_str!("../../../tests/vectors/wire/v1.2/head.hex"));
    assert_eq!(Head::decode(&bytes).unwrap(), without_ranks());
}

fn without_ranks() -> Head {
    let mut head = head();
    for replica in &mut head.replicas {
        replica.dp_rank = None;
    }
    head
}

#[test]
fn a_replica_is_named_by_its_endpoint_and_rank() {
    let names: Vec<_> = head()
        .replicas
        .iter()
        .map(|r| r.name().into_owned())
        .collect();
    assert_eq!(names[..2], ["127.0.0.1:8101", "127.0.0.1:8102#0"]);
    let mut highest = head();
    highest.replicas[0].dp_rank = Some(DP_RANK_MAX);
    let bytes = highest.encode().unwrap();
    assert_eq!(Head::decode(&bytes).unwrap(), highest);
}

/// What builds of version 1.1 wrote is still read: replicas of unknown speed, none of them new.
#[test]
fn version_1_1_is_read() {
    let bytes = of_hex(include_str!(
        "../../../tests/vectors/wire/v1.1/answer-delta.hex"
    ));
    assert_eq!(Answer::decode(&bytes).unwrap(), answers()[2]);
    let bytes = of_hex(include_str!("../../../tests/vectors/wire/v1.1/head.hex"));
    assert_eq!(Head::decode(&bytes).unwrap(), without_pace());
    let pace = without_pace().replicas[0].pace;
    assert_eq!((pace.rates(), pace.ramp_permille), (Rates::START, RAMPED));
}

fn without_pace() -> Head {
    let mut head = without_ranks();
    for replica in &mut head.replicas {
        replica.pace = Pace::default();
    }
    head
}

/// What builds of version 1.0 wrote is still read.
#[test]
fn version_1_0_is_read() {
    let bytes = of_hex(include_str!(
        "../../../tests/vectors/wire/v1/answer-delta.hex"
    ));
    assert_eq!(Answer::decode(&bytes).unwrap(), answers()[2]);
    let bytes = of_hex(include_str!("../../../tests/vectors/wire/v1/head.hex"));
    let mut without = without_pace();
    without.pools[0].loras.clear();
    assert_eq!(Head::decode(&bytes).unwrap(), without);
}

#[test]
fn adapters_know_their_replicas() {
    let head = head();
    let sql = head.pools[0].lora("sql").unwrap();
    let on: Vec<u16> = (0..12).filter(|r| sql.is_on(ReplicaIndex(*r))).collect();
    assert_eq!(on, [0, 2, 9]);
    assert_eq!(head.pools[0].lora("sq"), None);
    let mut unordered = head.clone();
    unordered.pools[0].loras[0].replicas.reverse();
    assert!(unordered.encode().is_err());
}

#[test]
fn a_pool_that_takes_full_reports_says_so() {
    let mut full = head();
    full.pools[0].full_reports = true;
    for token_ids in [false, true] {
        full.pools[0].token_ids = token_ids;
        assert_eq!(Head::decode(&full.encode().unwrap()), Ok(full.clone()));
    }
}

pub(super) fn of_hex(text: &str) -> Vec<u8> {
    let digits = text.trim().as_bytes().chunks(2);
    digits
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(not(target_arch = "wasm32"))]
proptest::proptest! {
    #[test]
    fn decoders_never_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let _ = Head::decode(&bytes);
        let _ = Answer::decode(&bytes);
    }

    #[test]
    fn damaged_heads_never_panic(at in 0usize..200, value in proptest::num::u8::ANY) {
        let mut bytes = head().encode().unwrap();
        let at = at % bytes.len();
        bytes[at] = value;
        let _ = Head::decode(&bytes);
    }
}
