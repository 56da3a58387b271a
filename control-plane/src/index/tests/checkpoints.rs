//! Prefixes that can be used only up to some places: saved states, and chunks of a lower tier.

mod model;

use super::*;

fn attention(of: &[u64], parent: Option<u64>, tokens: &[u32]) -> Stored {
    Stored {
        group: Some(2),
        kind: Some("full_attention".into()),
        ..store(of, parent, tokens)
    }
}

/// States as "align" mode tells them: the tokens of all blocks, the hashes of those with a state.
fn states(group: u32, of: &[u64], tokens: &[u32], block_size: usize) -> KvEvent {
    KvEvent::Stored(Stored {
        hashes: hashes(of),
        tokens: tokens.to_vec(),
        block_size: u32::try_from(block_size).unwrap(),
        group: Some(group),
        kind: Some("mamba".into()),
        medium: Some("GPU".into()),
        extra_keys: Some(vec![None; of.len()]),
        ..Stored::default()
    })
}

fn remove_states(group: u32, of: &[u64]) -> KvEvent {
    KvEvent::Removed(Removed {
        hashes: hashes(of),
        medium: Some("GPU".into()),
        group: Some(group),
    })
}

/// Whole chunks as self-describing offload events tell them.
fn chunk(of: &[u64], tokens: &[u32]) -> Stored {
    Stored {
        medium: Some("CPU".into()),
        extra_keys: None,
        ..attention(of, None, tokens)
    }
}

impl Fixture {
    /// What the longest match of a prompt is worth at a replica, in tokens: in GPU, in any tier.
    fn worth(&mut self, replica: u16, tokens: &[u32]) -> (u32, u32) {
        let (gpu, any) = self.text_depth(replica, tokens);
        let hashes = text_hashes(tokens, None, None);
        let credits = self.credits();
        let at = |blocks: usize| {
            let last = blocks.checked_sub(1).and_then(|last| hashes.get(last));
            last.map_or(0, |hash| credits[&(*hash, r(replica))].1)
        };
        (at(gpu), at(any))
    }
}

/// A prompt of 4 engine blocks of 64 tokens, with states of two groups at the ends of those named.
fn with_states(first: &[u64], second: &[u64]) -> (Fixture, Vec<u32>) {
    let mut fixture = Fixture::new(config());
    let prompt = words(0, 256);
    fixture.store(0, attention(&[1, 2, 3, 4], None, &prompt));
    for (group, of) in [(0, first), (1, second)] {
        fixture.apply(0, vec![states(group, of, &prompt, 64)]);
    }
    (fixture, prompt)
}

#[test]
fn a_prefix_is_worth_what_its_last_checkpoint_is() {
    let (mut fixture, prompt) = with_states(&[2, 4], &[2, 4]);
    let whole = fixture.worth(0, &prompt).0;
    assert!(whole > 192 && whole <= 256, "{whole}");
    // Up to the third block: the state at the second's end is the last one.
    assert_eq!(fixture.worth(0, &prompt[..230]), (128, 128));
    assert_eq!(fixture.worth(0, &prompt[..120]), (0, 0));
}

#[test]
fn a_prompt_that_ends_inside_an_engine_block_does_not_have_its_state() {
    let (mut fixture, prompt) = with_states(&[2], &[2]);
    assert_eq!(fixture.worth(0, &prompt[..110]), (0, 0));
    assert_eq!(fixture.worth(0, &prompt[..140]), (128, 128));
}

#[test]
fn every_group_must_have_saved_its_state() {
    let (mut fixture, prompt) = with_states(&[2, 4], &[2, 3]);
    assert_eq!(fixture.worth(0, &prompt), (128, 128));
    let (mut fixture, prompt) = with_states(&[1, 2, 3, 4], &[]);
    assert_eq!(fixture.worth(0, &prompt), (0, 0));
}

#[test]
fn a_state_may_come_before_its_block_and_go_before_it() {
    let mut fixture = Fixture::new(config());
    let prompt = words(0, 256);
    fixture.apply(0, vec![states(0, &[2, 3], &prompt, 64)]);
    fixture.store(0, attention(&[1, 2, 3, 4], None, &prompt));
    assert_eq!(fixture.worth(0, &prompt), (192, 192));
    fixture.apply(0, vec![remove_states(0, &[3])]);
    assert_eq!(fixture.worth(0, &prompt), (128, 128));
    // A second copy of a state outlives the first.
    fixture.apply(0, vec![states(0, &[2], &prompt[..128], 64)]);
    fixture.apply(0, vec![remove_states(0, &[2])]);
    assert_eq!(fixture.worth(0, &prompt), (128, 128));
    fixture.apply(0, vec![remove_states(0, &[2])]);
    assert_eq!(fixture.worth(0, &prompt), (0, 0));
}

#[test]
fn a_start_that_many_share_is_worth_what_all_have_of_it() {
    let mut fixture = Fixture::new(config());
    let prompt = words(0, 256);
    for (replica, of) in [(0, vec![2, 4]), (1, vec![3])] {
        fixture.store(replica, attention(&[1, 2, 3, 4], None, &prompt));
        fixture.apply(replica, vec![states(0, &of, &prompt, 64)]);
    }
    // 1 has no state at the second block's end.
    assert_eq!(fixture.worth(0, &prompt[..140]), (0, 0));
    // 1 has nothing at the fourth's, so that what it has at the third's counts for both.
    assert_eq!(fixture.worth(1, &prompt), (192, 192));
    // What 0 alone holds is worth what it is worth to 0.
    let longer = words(0, 320);
    fixture.store(0, attention(&[5], Some(4), &longer[256..]));
    assert_eq!(fixture.worth(0, &longer), (256, 256));
    // Replicas without such groups are worth what they hold, where no other holds it.
    fixture.store(2, attention(&[1, 2, 3, 4, 5, 6], None, &words(0, 384)));
    assert!(fixture.worth(2, &words(0, 384)).0 > 370);
}

#[test]
fn a_full_report_of_states_tells_of_no_new_ones() {
    let mut fixture = Fixture::new(IndexConfig {
        full_reports: true,
        ..config()
    });
    let prompt = words(0, 256);
    fixture.store(0, attention(&[1, 2, 3, 4], None, &prompt));
    fixture.apply(0, vec![states(0, &[4], &prompt, 64)]);
    fixture.apply(0, vec![states(0, &[1, 2, 3, 4], &prompt, 64)]);
    assert_eq!(fixture.worth(0, &prompt[..230]), (0, 0));
}

#[test]
fn states_end_with_the_replica_and_with_the_cache() {
    let (mut fixture, prompt) = with_states(&[4], &[4]);
    fixture.apply(0, vec![KvEvent::Cleared]);
    fixture.store(0, attention(&[1, 2, 3, 4], None, &prompt));
    assert_eq!(fixture.worth(0, &prompt), (0, 0));
    // An engine that has begun anew may serve another model.
    fixture.index.drop_replica(r(0));
    fixture.store(0, attention(&[1, 2, 3, 4], None, &prompt));
    assert!(fixture.worth(0, &prompt).0 > 192);
}

#[test]
fn lower_tiers_claim_nothing_where_states_are_needed() {
    let (mut fixture, prompt) = with_states(&[2, 4], &[2, 4]);
    fixture.store(0, chunk(&[1, 2, 3, 4], &prompt));
    fixture.apply(0, vec![remove_from(&[3, 4], "GPU")]);
    // The last block of ours that ends before the third of the engine's.
    assert_eq!(fixture.worth(0, &prompt), (122, 122));
}

#[test]
fn a_chunk_counts_as_a_whole() {
    let mut fixture = Fixture::new(config());
    let prompt = words(0, 128);
    let of: Vec<u64> = (1..=8).collect();
    fixture.store(0, attention(&of, None, &prompt));
    fixture.store(0, chunk(&of[..4], &prompt[..64]));
    fixture.store(0, chunk(&of[4..], &prompt[64..]));
    let removes = of.iter().rev().map(|hash| remove(&[*hash])).collect();
    fixture.apply(0, removes);
    assert!(fixture.worth(0, &prompt).1 > 112);
    assert_eq!(fixture.worth(0, &prompt[..120]), (0, 64));
    // With one more block in GPU memory, that is where the match may end.
    fixture.store(0, attention(&of[..5], None, &prompt[..80]));
    assert_eq!(fixture.worth(0, &prompt[..120]).1, 80);
    fixture.apply(0, vec![remove(&[5])]);
    assert_eq!(fixture.worth(0, &prompt[..120]).1, 64);
}

#[test]
fn pages_strung_together_are_no_chunk() {
    let mut fixture = Fixture::new(config());
    let prompt = words(0, 128);
    let of: Vec<u64> = (1..=8).collect();
    fixture.store(0, store(&of, None, &prompt));
    let pages = Stored {
        medium: Some("CPU_PINNED".into()),
        extra_keys: None,
        ..store(&of, None, &prompt)
    };
    fixture.store(0, pages);
    fixture.apply(0, vec![remove(&of)]);
    assert!(fixture.worth(0, &prompt[..120]).1 > 100);
}
