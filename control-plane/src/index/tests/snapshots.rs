//! Snapshots: round trip, refusal.

use super::*;

fn filled() -> Fixture {
    let mut fixture = Fixture::new(IndexConfig {
        token_ids: true,
        ..config()
    });
    for prompt in 0..20_u32 {
        let mut tokens = words(0, 80);
        tokens.extend(words(prompt * 40, 40));
        for replica in 0..3_u16 {
            if (prompt + u32::from(replica)) % 2 == 0 {
                let seed = u64::from(replica) * 1_000_000 + 1;
                let mut of: Vec<u64> = (seed..seed + 20).collect();
                of.extend((0..10).map(|n| seed + 1000 + u64::from(prompt) * 100 + n));
                fixture.store(replica, store(&of, None, &tokens));
            }
        }
    }
    fixture.apply(
        1,
        vec![placeholder(&[1_000_001, 1_000_002]), remove(&[1_000_001])],
    );
    fixture
        .index
        .set_position(r(1), StreamPosition::after(41, b"last"));
    fixture
}

fn snapshot(fixture: &Fixture) -> Vec<u8> {
    let mut bytes = Vec::new();
    fixture
        .index
        .write_snapshot(&mut bytes, |replica| Some(format!("replica-{}", replica.0)))
        .unwrap();
    bytes
}

#[test]
fn a_snapshot_brings_everything_back_under_new_numbers() {
    let mut fixture = filled();
    let bytes = snapshot(&fixture);
    let mut loaded = Fixture::new(IndexConfig {
        token_ids: true,
        ..config()
    });
    let renumber = |name: &str| {
        name.strip_prefix("replica-")?
            .parse::<u16>()
            .ok()
            .map(|n| r(n + 5))
    };
    let report = loaded.index.read_snapshot(&mut &*bytes, renumber).unwrap();
    assert_eq!((report.replicas, report.unknown_replicas), (3, 0));
    let wanted: Credits = fixture
        .credits()
        .into_iter()
        .map(|((hash, replica), credit)| ((hash, r(replica.0 + 5)), credit))
        .collect();
    assert!(wanted.len() > 100);
    assert_eq!(loaded.credits(), wanted);
    assert_eq!(
        loaded.index.position(r(6)),
        Some(StreamPosition::after(41, b"last"))
    );
    assert_eq!(loaded.index.position(r(5)), None);
    // It goes on as the old one does.
    let mut tokens = words(0, 80);
    tokens.extend(words(600, 30));
    for (fixture, replica) in [(&mut fixture, 0), (&mut loaded, 5)] {
        fixture.store(
            replica,
            store(&[9_001, 9_002, 9_003], Some(20), &tokens[80..92]),
        );
        fixture.apply(replica, vec![remove(&[1_000])]);
    }
    let ids = hash_ids(
        namespace_seed(Family::TokenIds, None, None),
        &tokens,
        usize::MAX,
    );
    let texts = text_hashes(&tokens[..92], None, None);
    assert_eq!(loaded.depth(5, &texts), (texts.len(), texts.len()));
    assert_eq!(loaded.depth(5, &ids).0, 1);
    assert_eq!(fixture.depth(0, &texts), loaded.depth(5, &texts));
    let (old, new) = (fixture.index.stats(), loaded.index.stats());
    assert_eq!(
        (old.nodes, old.blocks, old.held),
        (new.nodes, new.blocks, new.held)
    );
}

#[test]
fn a_replica_that_is_not_known_any_more_leaves_nothing() {
    let bytes = snapshot(&filled());
    let mut loaded = Fixture::new(IndexConfig {
        token_ids: true,
        ..config()
    });
    let report = loaded.index.read_snapshot(&mut &*bytes, |_| None).unwrap();
    assert_eq!((report.replicas, report.unknown_replicas), (0, 3));
    let stats = loaded.index.stats();
    assert_eq!((stats.nodes, stats.blocks, stats.groups), (0, 0, 0));
}

#[test]
fn what_is_damaged_cut_or_foreign_is_refused_and_leaves_it_empty() {
    let fixture = filled();
    let bytes = snapshot(&fixture);
    let mut target = filled();
    target.drain();
    let all = |_: &str| Some(r(0));
    for at in (0..bytes.len()).step_by(bytes.len() / 199) {
        let mut broken = bytes.clone();
        broken[at] ^= 1 << (at % 8);
        let mut index = PoolIndex::new(IndexConfig {
            token_ids: true,
            ..config()
        });
        assert!(
            index
                .read_snapshot(&mut &*broken, |name| name
                    .chars()
                    .last()?
                    .to_digit(10)
                    .map(|n| r(n as u16)))
                .is_err(),
            "{at}"
        );
        assert_eq!(index.stats().nodes, 0);
        assert!(index.read_snapshot(&mut &bytes[..at], all).is_err());
    }
    for other in [
        IndexConfig {
            profile_hash: 1,
            ..config()
        },
        IndexConfig {
            key: PoolKey::derive(b"another", "pool"),
            ..config()
        },
        IndexConfig {
            text: false,
            ..config()
        },
    ] {
        let error = PoolIndex::new(other)
            .read_snapshot(&mut &*bytes, all)
            .unwrap_err();
        assert!(matches!(error, SnapshotError::OtherPool), "{error}");
    }
    // A table that knew the old content hears that it is gone.
    assert!(target.index.read_snapshot(&mut &bytes[..100], all).is_err());
    assert_eq!(target.credits(), Credits::new());
    assert_eq!(target.table.len(), 0);
}
