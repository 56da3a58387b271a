use super::*;
use crate::pools;
use crate::testing::FakeHost;
use crate::testing::fleet::Fleet;

const SECOND_US: u64 = 1_000_000;

fn view(epoch: u64) -> View {
    let fleet = Fleet::new(epoch, 1, 3);
    View::decode(&pools::encode(None, &fleet.head.encode().unwrap())).unwrap()
}

/// A stream's.
fn brings(tokens: u64) -> Brings {
    Brings {
        tokens,
        context: 10 * tokens,
        prefill_us: None,
    }
}

/// What a VM that never had requests of its own sees on a replica.
fn seen(host: &FakeHost, view: &View, loads: &mut Loads, replica: u16) -> (u32, u64) {
    host.advance_ms(10);
    loads.refresh(host, view);
    let work = loads.on(
        ReplicaIndex(replica),
        &view.replica(ReplicaIndex(replica)).unwrap().name(),
    );
    (work.requests, work.tokens)
}

#[test]
fn all_vms_see_the_sum_and_it_returns_to_zero() {
    let (host, view) = (FakeHost::default(), view(1));
    let (mut a, mut b, mut c) = (Loads::new(1), Loads::new(2), Loads::new(3));
    let first = a.start(&host, &view, "10.0.0.1:8000", brings(100));
    let second = b.start(&host, &view, "10.0.0.1:8000", brings(50));
    let third = b.start(&host, &view, "10.0.0.2:8000", brings(7));
    for loads in [&mut a, &mut b, &mut c] {
        assert_eq!(seen(&host, &view, loads, 0), (2, 150));
        assert_eq!(seen(&host, &view, loads, 1), (1, 7));
        assert_eq!(seen(&host, &view, loads, 2), (0, 0));
    }
    a.prefill_ended(&host, Some(&view), &first);
    a.prefill_ended(&host, Some(&view), &first);
    assert_eq!(seen(&host, &view, &mut c, 0), (2, 50));
    assert!(b.moved(&host, Some(&view), &third, "10.0.0.3:8000"));
    assert_eq!(seen(&host, &view, &mut c, 1), (0, 0));
    assert_eq!(seen(&host, &view, &mut c, 2), (1, 7));
    a.end(&host, Some(&view), first);
    b.end(&host, Some(&view), second);
    b.end(&host, Some(&view), third);
    for replica in 0..3 {
        assert_eq!(seen(&host, &view, &mut c, replica), (0, 0));
    }
}

#[test]
fn a_silent_vm_stops_counting_and_a_stalled_one_comes_back() {
    let (host, view) = (FakeHost::default(), view(1));
    let (mut a, mut b) = (Loads::new(1), Loads::new(2));
    let _ticket = a.start(&host, &view, "10.0.0.1:8000", brings(100));
    assert_eq!(seen(&host, &view, &mut b, 0), (1, 100));
    host.advance_ms(SILENT_US / 1_000);
    assert_eq!(seen(&host, &view, &mut b, 0), (0, 0));
    a.beat(&host, Some(&view), host.monotonic_us());
    assert_eq!(seen(&host, &view, &mut b, 0), (1, 100));
    for _ in 0..20 {
        host.now_us.set(host.now_us.get() + SECOND_US);
        a.beat(&host, Some(&view), host.monotonic_us());
        assert_eq!(seen(&host, &view, &mut b, 0), (1, 100));
    }
}

#[test]
fn a_dead_vms_slot_is_used_again() {
    let (host, view) = (FakeHost::default(), view(1));
    let mut b = Loads::new(1_000);
    let _keep = b.start(&host, &view, "10.0.0.1:8000", brings(1));
    for id in 0..50 {
        let mut loads = Loads::new(id + 1);
        let _lost = loads.start(&host, &view, "10.0.0.1:8000", brings(1));
        drop(loads);
        for _ in 0..40 {
            host.now_us.set(host.now_us.get() + SECOND_US);
            b.beat(&host, Some(&view), host.monotonic_us());
            b.refresh(&host, &view);
        }
    }
    let slots = host
        .shared
        .borrow()
        .keys()
        .filter(|k| k.starts_with("pp/work/"))
        .count();
    assert!(slots <= 52, "{slots}");
    assert_eq!(seen(&host, &view, &mut b, 0), (1, 1));
}

#[test]
fn another_epoch_renumbers() {
    let host = FakeHost::default();
    let (old, mut new) = (view(1), view(2));
    let (mut a, mut b) = (Loads::new(1), Loads::new(2));
    let ticket = a.start(&host, &old, "10.0.0.1:8000", brings(9));
    // The same endpoint is replica 5 of the new epoch.
    let mut head = new.head.clone();
    head.replicas[0].index = ReplicaIndex(5);
    new = View::decode(&pools::encode(None, &head.encode().unwrap())).unwrap();
    assert_eq!(seen(&host, &new, &mut b, 1), (0, 0));
    host.advance_ms(1_100);
    a.beat(&host, Some(&new), host.monotonic_us());
    assert_eq!(seen(&host, &new, &mut b, 5), (1, 9));
    a.end(&host, Some(&new), ticket);
    assert_eq!(seen(&host, &new, &mut b, 5), (0, 0));
}

#[test]
fn two_vms_that_race_for_a_slot_end_up_with_one_each() {
    let (host, view) = (FakeHost::default(), view(1));
    let (mut a, mut b) = (Loads::new(1), Loads::new(2));
    let _a = a.start(&host, &view, "10.0.0.1:8000", brings(1));
    // b believes that a's slot is its own, as after a claim that a overwrote.
    b.slot = Some(0);
    let _b = b.start(&host, &view, "10.0.0.1:8000", brings(2));
    assert_eq!((a.slot, b.slot), (Some(0), Some(1)));
    assert_eq!(seen(&host, &view, &mut a, 0), (2, 3));
}

#[test]
fn a_prefill_that_nothing_tells_the_end_of_ends_by_the_clock() {
    let (host, view) = (FakeHost::default(), view(1));
    let (mut a, mut b) = (Loads::new(1), Loads::new(2));
    let endpoint = "10.0.0.1:8000";
    let timed = Brings {
        prefill_us: Some(200_000),
        ..brings(100)
    };
    let first = a.start(&host, &view, endpoint, timed);
    let stream = a.start(&host, &view, endpoint, brings(7));
    host.advance_ms(180);
    a.beat(&host, Some(&view), host.monotonic_us());
    assert_eq!(seen(&host, &view, &mut b, 0), (2, 107));
    host.advance_ms(20);
    a.beat(&host, Some(&view), host.monotonic_us());
    assert_eq!(seen(&host, &view, &mut b, 0), (2, 7));
    // It moves with what is left, and its context stays to the end.
    assert!(a.moved(&host, Some(&view), &first, "10.0.0.2:8000"));
    assert!(!a.moved(&host, Some(&view), &first, "10.0.0.2:8000"));
    assert_eq!(seen(&host, &view, &mut b, 1), (1, 0));
    let work = b.on(ReplicaIndex(1), "10.0.0.2:8000");
    assert_eq!(work.context, 1_000);
    a.end(&host, Some(&view), first);
    a.end(&host, Some(&view), stream);
    assert_eq!(a.open.len() + a.own.len(), 0);
}

#[test]
fn a_stream_counts_for_as_long_as_it_lasts() {
    let (host, view) = (FakeHost::default(), view(1));
    let (mut a, mut b) = (Loads::new(1), Loads::new(2));
    let stream = a.start(&host, &view, "10.0.0.1:8000", brings(100));
    a.prefill_ended(&host, Some(&view), &stream);
    for _ in 0..10 * 60 * 20 {
        host.advance_ms(50);
        a.beat(&host, Some(&view), host.monotonic_us());
    }
    assert_eq!(seen(&host, &view, &mut b, 0), (1, 0));
    a.end(&host, Some(&view), stream);
    assert_eq!(seen(&host, &view, &mut b, 0), (0, 0));
}
