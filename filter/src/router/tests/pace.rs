//! What the control plane says of a replica's speed and age.

use super::bench::{bench, text};
use crate::testing::fleet::Fleet;

#[test]
fn what_was_learned_of_a_replicas_speed_counts() {
    for fast in 0..3usize {
        let mut b = bench();
        let mut fleet = Fleet::new(1, 8, 3);
        for replica in &mut fleet.head.replicas {
            replica.pace.prefill_tokens_per_s = 2_000;
        }
        fleet.head.replicas[fast].pace.prefill_tokens_per_s = 40_000;
        b.publish(&fleet);
        b.chat(&text(1));
        let dest = b.dest().unwrap();
        let first = format!("10.0.0.{}:8000,", fast + 1);
        assert!(dest.starts_with(&first), "{dest}");
    }
}

#[test]
fn a_replica_that_is_new_reaches_its_bound_sooner() {
    let holder_is_named = |ramp_permille| {
        let mut b = bench();
        let mut fleet = Fleet::new(1, 8, 3);
        fleet.holds_text(0, &format!("user: {}", text(1)), None);
        for replica in &mut fleet.head.replicas {
            replica.running = 40;
        }
        fleet.head.replicas[0].pace.ramp_permille = ramp_permille;
        b.publish(&fleet);
        b.chat(&text(1));
        b.dest().unwrap().starts_with("10.0.0.1:8000,")
    };
    assert!(holder_is_named(1_000));
    assert!(!holder_is_named(100));
}
