use prefix_picker_core::sync::{Poll, ReplicaState};

use super::state::State;
use super::*;
use crate::config;
use crate::host::CallAnswer;
use crate::pools::Slot;
use crate::testing::FakeHost;
use crate::testing::fleet::Fleet;

fn config() -> Config {
    config::parse(br#"{"control_plane": {"cluster": "cp", "token": "t"}}"#).unwrap()
}

/// The calls that no answer came for yet.
struct Gateway<'a> {
    host: &'a FakeHost,
    config: Config,
    answered: usize,
}

impl<'a> Gateway<'a> {
    fn new(host: &'a FakeHost) -> Self {
        Self {
            host,
            config: config(),
            answered: 0,
        }
    }

    fn tick(&self, vm: &mut Vm) {
        tick(vm, self.host, &self.config, 1);
    }

    fn pending(&self) -> Option<(u32, Poll)> {
        let calls = self.host.calls_to("/v1/sync");
        let call = calls.get(self.answered)?;
        assert_eq!(
            calls.len(),
            self.answered + 1,
            "more than one poll in flight"
        );
        Some((call.token, serde_json::from_slice(&call.body).unwrap()))
    }

    fn deliver(&mut self, vm: &mut Vm, status: u16, body: Vec<u8>) {
        let (token, _) = self.pending().expect("a poll is in flight");
        self.answered += 1;
        let len = body.len();
        *self.host.answer.borrow_mut() = CallAnswer {
            status: Some(status),
            body,
        };
        poller::answered(vm, self.host, &self.config, (1, token), (1, len));
    }

    /// Answers polls and ticks until the control plane has nothing new.
    fn settle(&mut self, vm: &mut Vm, fleet: &Fleet) {
        for _ in 0..1_000 {
            self.host.advance_ms(50);
            self.tick(vm);
            let Some((_, poll)) = self.pending() else {
                continue;
            };
            let have = poll.have.filter(|h| h.epoch == fleet.store.epoch().0);
            let current = have.is_some_and(|h| {
                h.seq == fleet.store.seq() && h.generation == fleet.store.generation()
            });
            if current && poll.head_version == fleet.head.version {
                return;
            }
            self.deliver(vm, 200, fleet.answer(&poll));
        }
        panic!("does not settle: {:?}", self.pending());
    }
}

/// What requests would read equals what the control plane has.
fn assert_table(host: &FakeHost, vm: &mut Vm, fleet: &Fleet) {
    let view = vm.heads.read(host).expect("a head");
    let table = view.table.expect("a table");
    assert_eq!(table.shape.epoch, fleet.store.epoch());
    assert_eq!(table.shape.generation, fleet.store.generation());
    assert_eq!(view.head.replicas, fleet.head.replicas);
    for index in 0..fleet.store.page_count() {
        let ours = host.shared(&table.slot.page_key(index)).bytes;
        let theirs = fleet.store.page(index);
        let bodies = |page: &[u8]| page.get(48..).map(<[u8]>::to_vec);
        assert_eq!(bodies(&ours), bodies(&theirs), "page {index}");
    }
}

fn fill(fleet: &mut Fleet, from: u32, to: u32) {
    for n in from..to {
        fleet.holds_text((n % 3) as u16, &format!("prompt {n} ").repeat(100), None);
    }
}

#[test]
fn loads_follows_and_switches_to_another_epoch() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    let mut fleet = Fleet::new(7, 16, 3);
    fill(&mut fleet, 0, 200);
    fleet.budget_bytes = 10_000;
    gateway.settle(&mut vm, &fleet);
    assert_table(&host, &mut vm, &fleet);
    fill(&mut fleet, 200, 300);
    gateway.settle(&mut vm, &fleet);
    assert_table(&host, &mut vm, &fleet);
    fleet.head.replicas[1].state = ReplicaState::Down;
    fleet.head.version += 1;
    gateway.settle(&mut vm, &fleet);
    assert_table(&host, &mut vm, &fleet);

    let mut next = Fleet::new(8, 4, 2);
    next.budget_bytes = 5_000;
    fill(&mut next, 500, 600);
    gateway.settle(&mut vm, &next);
    assert_table(&host, &mut vm, &next);
    assert_eq!(host.metric("sync_loads_total"), 2);
    assert_eq!(host.metric("sync_polls_total_result=_=bad_answer_=_"), 0);

    // What the first table left behind is emptied.
    for _ in 0..10 {
        host.advance_ms(50);
        gateway.tick(&mut vm);
    }
    assert!((0..16).all(|n| host.shared(&Slot::A.page_key(n)).bytes.is_empty()));
}

#[test]
fn until_the_new_table_is_complete_the_old_one_serves() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    let mut old = Fleet::new(1, 4, 3);
    fill(&mut old, 0, 40);
    gateway.settle(&mut vm, &old);
    let mut new = Fleet::new(2, 64, 2);
    fill(&mut new, 40, 400);
    new.budget_bytes = 1_000;
    for _ in 0..5 {
        host.advance_ms(50);
        gateway.tick(&mut vm);
        if let Some((_, poll)) = gateway.pending() {
            gateway.deliver(&mut vm, 200, new.answer(&poll));
        }
        assert_table(&host, &mut vm, &old);
    }
    assert!(State::read(&host).0.loading.is_some());
    // Even if the control plane changes again in the middle of it.
    let newer = Fleet::new(3, 2, 1);
    gateway.settle(&mut vm, &newer);
    assert_table(&host, &mut vm, &newer);
}

#[test]
fn another_vm_goes_on_where_a_dead_one_stopped() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let (mut a, mut b) = (Vm::new(&host), Vm::new(&host));
    let mut fleet = Fleet::new(1, 64, 3);
    fill(&mut fleet, 0, 600);
    fleet.budget_bytes = 4_000;
    for _ in 0..3 {
        host.advance_ms(50);
        gateway.tick(&mut a);
        gateway.tick(&mut b);
        let (_, poll) = gateway.pending().unwrap();
        gateway.deliver(&mut a, 200, fleet.answer(&poll));
    }
    let reached = State::read(&host).0.loading.unwrap().next_page;
    assert!(reached > 0);
    // a is gone, its poll with it.
    gateway.answered += 1;
    for _ in 0..30 {
        host.advance_ms(50);
        gateway.tick(&mut b);
        if gateway.pending().is_some() {
            break;
        }
    }
    let (_, poll) = gateway.pending().expect("b took over");
    assert_eq!(
        poll.loading.unwrap().next_page,
        reached,
        "not from the start"
    );
    gateway.settle(&mut b, &fleet);
    assert_table(&host, &mut b, &fleet);
    // a wakes up: it must not do anything but watch.
    gateway.tick(&mut a);
    assert!(!a.lease.is_held());
    assert_table(&host, &mut a, &fleet);
}

#[test]
fn an_answer_to_a_poller_that_lost_the_lease_is_dropped() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let (mut a, mut b) = (Vm::new(&host), Vm::new(&host));
    let fleet = Fleet::new(1, 4, 3);
    gateway.tick(&mut a);
    gateway.tick(&mut b);
    let (token, poll) = gateway.pending().unwrap();
    host.advance_ms(1_500);
    gateway.answered += 1;
    gateway.tick(&mut b);
    assert!(b.lease.is_held());
    let body = fleet.answer(&poll);
    let len = body.len();
    *host.answer.borrow_mut() = CallAnswer {
        status: Some(200),
        body,
    };
    poller::answered(&mut a, &host, &gateway.config, (1, token), (1, len));
    assert_eq!(host.metric("sync_polls_total_result=_=lease_lost_=_"), 1);
    assert!(a.heads.read(&host).is_none());
    gateway.settle(&mut b, &fleet);
}

#[test]
fn failures_keep_the_table_and_back_off() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    let mut fleet = Fleet::new(1, 4, 3);
    fill(&mut fleet, 0, 20);
    gateway.settle(&mut vm, &fleet);
    let sent_before = host.calls_to("/v1/sync").len();
    let mut flipped = {
        let (_, poll) = gateway.pending().unwrap();
        fill(&mut fleet, 20, 40);
        fleet.answer(&poll)
    };
    flipped[60] ^= 1;
    gateway.deliver(&mut vm, 200, flipped);
    for ms in 0..10_000 {
        host.advance_ms(1);
        if ms % 50 == 0 {
            gateway.tick(&mut vm);
            if gateway.pending().is_some() {
                match ms / 50 % 3 {
                    0 => gateway.deliver(&mut vm, 503, vec![]),
                    1 => gateway.deliver(&mut vm, 401, vec![]),
                    _ => gateway.deliver(&mut vm, 200, b"garbage".to_vec()),
                }
            }
        }
    }
    let sent = host.calls_to("/v1/sync").len() - sent_before;
    assert!((4..20).contains(&sent), "{sent} polls in 10 s");
    assert!(vm.heads.read(&host).unwrap().table.is_some());
    gateway.settle(&mut vm, &fleet);
    assert_table(&host, &mut vm, &fleet);
    assert!(vm.freshness.age_ms(&host) < 5_000);
}

#[test]
fn no_answer_at_all_and_refused_calls() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    host.refuse_calls.set(true);
    gateway.tick(&mut vm);
    assert_eq!(host.metric("sync_polls_total_result=_=refused_=_"), 1);
    host.refuse_calls.set(false);
    host.advance_ms(5_000);
    gateway.tick(&mut vm);
    let (token, _) = gateway.pending().unwrap();
    gateway.answered += 1;
    poller::answered(&mut vm, &host, &gateway.config, (1, token), (0, 0));
    assert_eq!(host.metric("sync_polls_total_result=_=reset_=_"), 1);
    gateway.settle(&mut vm, &Fleet::new(1, 1, 1));
}

#[test]
fn a_poll_whose_root_context_went_away_is_sent_again() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    gateway.tick(&mut vm);
    assert!(gateway.pending().is_some());
    vm.poller.root_gone(2);
    gateway.tick(&mut vm);
    assert!(gateway.pending().is_some());
    gateway.answered += 1;
    vm.poller.root_gone(1);
    gateway.tick(&mut vm);
    assert!(gateway.pending().is_some(), "a new one");
}

#[test]
fn a_damaged_page_makes_the_table_load_anew() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    let mut fleet = Fleet::new(1, 1, 3);
    fill(&mut fleet, 0, 20);
    gateway.settle(&mut vm, &fleet);
    host.set_shared(&Slot::A.page_key(0), b"damaged", 0)
        .unwrap();
    fill(&mut fleet, 20, 30);
    gateway.settle(&mut vm, &fleet);
    assert_table(&host, &mut vm, &fleet);
    assert_eq!(host.metric("sync_page_errors_total"), 1);
    assert_eq!(vm.heads.read(&host).unwrap().table.unwrap().slot, Slot::B);
}

#[test]
fn a_poller_that_died_between_head_and_state_loses_nothing() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    let mut fleet = Fleet::new(1, 8, 3);
    fill(&mut fleet, 0, 50);
    fleet.budget_bytes = 8_000;
    let mut before = Vec::new();
    for _ in 0..100 {
        host.advance_ms(50);
        gateway.tick(&mut vm);
        let state = host.shared(state::KEY).bytes;
        let Some((_, poll)) = gateway.pending() else {
            continue;
        };
        gateway.deliver(&mut vm, 200, fleet.answer(&poll));
        if vm.heads.read(&host).is_some_and(|v| v.table.is_some()) {
            before = state;
            break;
        }
    }
    // As if the state had not been written after the head.
    host.set_shared(state::KEY, &before, 0).unwrap();
    let (state, _) = State::read(&host);
    let table = state.table.unwrap();
    assert_eq!((table.slot, state.loading), (Slot::A, None));
    assert!(
        state.left_over().is_none_or(|(slot, _)| slot != Slot::A),
        "the table in use stays"
    );
}

#[test]
fn token_id_pools_are_told_once() {
    let host = FakeHost::default();
    let (mut a, mut b) = (Vm::new(&host), Vm::new(&host));
    for vm in [&mut a, &mut b] {
        poller::note_token_ids(vm, &host, "p");
        poller::note_token_ids(vm, &host, "p");
        poller::note_token_ids(vm, &host, "q");
    }
    Gateway::new(&host).tick(&mut a);
    let (_, poll) = Gateway::new(&host).pending().unwrap();
    assert_eq!(poll.token_id_pools, ["p", "q"]);
}

#[test]
fn a_poll_carries_the_token_to_the_configured_cluster() {
    let host = FakeHost::default();
    let gateway = Gateway::new(&host);
    gateway.tick(&mut Vm::new(&host));
    let calls = host.calls_to("/v1/sync");
    assert_eq!(calls[0].cluster, "cp");
    for (name, value) in [
        ("authorization", "Bearer t"),
        (":path", "/v1/sync"),
        (":authority", "cp"),
    ] {
        assert!(
            calls[0]
                .headers
                .contains(&(name.to_owned(), value.to_owned())),
            "{name}"
        );
    }
}

#[test]
fn a_control_plane_that_does_not_wait_is_not_asked_in_a_tight_loop() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let mut vm = Vm::new(&host);
    let fleet = Fleet::new(1, 1, 1);
    gateway.settle(&mut vm, &fleet);
    let (_, poll) = gateway.pending().unwrap();
    gateway.deliver(&mut vm, 200, fleet.answer(&poll));
    assert!(gateway.pending().is_none(), "an answer without news");
    host.advance_ms(50);
    gateway.tick(&mut vm);
    assert!(gateway.pending().is_some());
}

/// The VM is held up for seconds between its look at the lease and the end of an answer.
#[test]
fn a_poller_that_slept_through_a_change_of_lease_writes_no_old_head() {
    let host = FakeHost::default();
    let mut gateway = Gateway::new(&host);
    let (mut a, mut b) = (Vm::new(&host), Vm::new(&host));
    let mut old = Fleet::new(1, 4, 3);
    fill(&mut old, 0, 40);
    gateway.settle(&mut a, &old);
    let (token, asked) = gateway.pending().unwrap();
    let lease_of_a = host.shared(crate::lease::KEY).bytes;
    // Meanwhile b has loaded the table of another control plane.
    gateway.answered += 1;
    gateway.tick(&mut b);
    host.advance_ms(3_000);
    let new = Fleet::new(2, 4, 2);
    gateway.settle(&mut b, &new);
    assert!(b.lease.is_held());
    // a goes on as if it still had the lease.
    host.set_shared(crate::lease::KEY, &lease_of_a, 0).unwrap();
    fill(&mut old, 40, 60);
    old.head.version += 1;
    let body = old.answer(&asked);
    let len = body.len();
    *host.answer.borrow_mut() = CallAnswer {
        status: Some(200),
        body,
    };
    poller::answered(&mut a, &host, &gateway.config, (1, token), (1, len));
    assert_eq!(host.metric("sync_polls_total_result=_=lease_lost_=_"), 0);
    assert_table(&host, &mut b, &new);
}
