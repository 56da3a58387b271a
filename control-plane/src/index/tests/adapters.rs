//! Forgetting an adapter.

use super::scenarios::{plain, prompt};
use super::*;
use crate::events::ExtraKey;

/// A prompt of an adapter, perhaps salted. Hashes `first`...
fn adapted(first: u64, name: &str, salt: Option<&str>, tokens: &[u32]) -> Stored {
    let of: Vec<u64> = (first..first + tokens.len() as u64 / 4).collect();
    let lora = ExtraKey::Text(name.into());
    let mut keys = vec![Some(vec![lora]); of.len()];
    if let Some(salt) = salt {
        keys[0].as_mut().unwrap().push(ExtraKey::Text(salt.into()));
    }
    Stored {
        lora_name: Some(name.into()),
        extra_keys: Some(keys),
        ..store(&of, None, tokens)
    }
}

fn depth(fixture: &mut Fixture, replica: u16, lora: Option<&str>, salt: Option<&str>) -> usize {
    let hashes = text_hashes(&prompt(), lora, salt);
    fixture.depth(replica, &hashes).1
}

fn filled() -> Fixture {
    let mut fixture = plain();
    let tokens = prompt();
    for replica in 0..2 {
        fixture.store(replica, adapted(100, "sql", None, &tokens));
        fixture.store(replica, adapted(200, "sql", Some("s"), &tokens));
        fixture.store(replica, adapted(300, "law", None, &tokens));
        fixture.store_prompt(replica, 400, &tokens);
        // Also kept in a lower tier.
        fixture.apply(replica, vec![placeholder(&[100, 101, 300])]);
        // An orphan of each adapter.
        for (hash, name) in [(500, "sql"), (600, "law")] {
            let orphan = adapted(hash, name, None, &tokens[..4]);
            fixture.store(
                replica,
                Stored {
                    parent: Some(EngineHash::from_u64(hash - 1)),
                    ..orphan
                },
            );
        }
    }
    fixture
}

fn assert_only_sql_is_gone(fixture: &mut Fixture, gone: usize) {
    let whole = text_hashes(&prompt(), None, None).len();
    assert_eq!(gone, 20);
    for salt in [None, Some("s")] {
        assert_eq!(depth(fixture, 0, Some("sql"), salt), 0);
        assert_eq!(depth(fixture, 1, Some("sql"), salt), whole);
    }
    assert_eq!(depth(fixture, 0, Some("law"), None), whole);
    assert_eq!(depth(fixture, 0, None, None), whole);
    assert_eq!(fixture.index.held_blocks(r(0)), 20);
    assert_eq!(fixture.index.held_blocks(r(1)), 40);
}

#[test]
fn an_adapters_blocks_go_with_any_salt_and_nothing_else_does() {
    let mut fixture = filled();
    assert_eq!(fixture.index.stats().pending, 4);
    let gone = fixture.index.drop_adapter(r(0), "sql");
    assert_only_sql_is_gone(&mut fixture, gone);
    assert_eq!(fixture.index.stats().pending, 3);
    // The engine removes what it still has: nothing that counts.
    let stats = fixture.apply(0, vec![remove(&[109, 108, 200])]);
    assert_eq!((stats.removed, stats.unknown_removes), (0, 3));
    // With the new weights it is stored again.
    fixture.store(0, adapted(700, "sql", None, &prompt()));
    assert!(depth(&mut fixture, 0, Some("sql"), None) > 0);
}

#[test]
fn what_is_stored_below_a_dropped_block_claims_nothing() {
    let mut fixture = plain();
    let tokens = prompt();
    fixture.store(0, adapted(100, "sql", None, &tokens[..20]));
    fixture.index.drop_adapter(r(0), "sql");
    let rest = adapted(105, "sql", None, &tokens[20..]);
    let stats = fixture.store(
        0,
        Stored {
            parent: Some(EngineHash::from_u64(104)),
            ..rest
        },
    );
    assert_eq!(stats.orphans, 5);
    assert_eq!(fixture.credits(), Credits::new());
}

#[test]
fn a_restarted_control_plane_still_knows_whose_blocks_they_are() {
    let fixture = filled();
    let mut bytes = Vec::new();
    let name = |replica: ReplicaIndex| Some(replica.0.to_string());
    fixture.index.write_snapshot(&mut bytes, name).unwrap();
    let mut loaded = plain();
    let of_name = |name: &str| Some(r(name.parse().unwrap()));
    loaded.index.read_snapshot(&mut &*bytes, of_name).unwrap();
    let gone = loaded.index.drop_adapter(r(0), "sql");
    assert_only_sql_is_gone(&mut loaded, gone);
}

#[test]
fn unknown_adapters_and_replicas_have_nothing_to_drop() {
    let mut fixture = filled();
    assert_eq!(fixture.index.drop_adapter(r(0), "nobody"), 0);
    assert_eq!(fixture.index.drop_adapter(r(9), "sql"), 0);
    // A salt is no adapter.
    assert_eq!(fixture.index.drop_adapter(r(0), "s"), 0);
    for replica in 0..2 {
        fixture.index.drop_replica(r(replica));
    }
    assert_eq!(fixture.index.stats().nodes, 0);
    assert_eq!(
        fixture.index.adapters.memory_bytes(),
        plain().index.adapters.memory_bytes()
    );
}
