use std::cell::Cell;

use prefix_picker_core::sync::Poll;

use super::*;
use crate::config;
use crate::host::CallAnswer;
use crate::sync::tick;
use crate::testing::FakeHost;
use crate::testing::fleet::Fleet;

/// A gateway before two control planes, each a fleet, or nobody there.
struct Two<'a> {
    host: &'a FakeHost,
    config: Config,
    answered: Cell<usize>,
    polls: [Cell<usize>; 2],
}

impl<'a> Two<'a> {
    fn new(host: &'a FakeHost) -> Self {
        let json = br#"{"control_plane": {"clusters": ["cp-0", "cp-1"], "token": "t"}}"#;
        Self {
            host,
            config: config::parse(json).unwrap(),
            answered: Cell::new(0),
            polls: Default::default(),
        }
    }

    /// Ticks for so long; each call is answered by the control plane that it was made to: 503 where that
    /// one is away.
    fn run(&self, vm: &mut Vm, planes: [Option<&Fleet>; 2], ms: u64) {
        for _ in 0..ms / 50 {
            self.host.advance_ms(50);
            tick(vm, self.host, &self.config, 1);
            let calls = self.host.calls.borrow().clone();
            for call in calls.iter().skip(self.answered.get()) {
                let at = usize::from(call.cluster == "cp-1");
                self.answer(vm, call, at, planes[at]);
            }
            self.answered.set(calls.len());
        }
    }

    fn answer(&self, vm: &mut Vm, call: &crate::testing::Call, at: usize, plane: Option<&Fleet>) {
        let header = |name: &str| {
            let found = call.headers.iter().find(|(n, _)| n == name);
            found.map(|(_, value)| value.clone()).unwrap()
        };
        assert_eq!(header(":authority"), call.cluster);
        let path = header(":path");
        if path == "/v1/sync" {
            self.polls[at].set(self.polls[at].get() + 1);
        }
        let (status, body) = match (plane, path.as_str()) {
            (None, _) => (503, Vec::new()),
            (Some(_), "/readyz") => (200, Vec::new()),
            (Some(fleet), "/v1/sync") => {
                let poll: Poll = serde_json::from_slice(&call.body).unwrap();
                (200, fleet.answer(&poll))
            }
            (Some(_), _) => (404, Vec::new()),
        };
        let len = body.len();
        *self.host.answer.borrow_mut() = CallAnswer {
            status: Some(status),
            body,
        };
        crate::sync::answered(vm, self.host, &self.config, (1, call.token), (1, len));
    }

    fn take_polls(&self) -> [usize; 2] {
        [self.polls[0].take(), self.polls[1].take()]
    }
}

fn fleet(epoch: u64) -> Fleet {
    let mut fleet = Fleet::new(epoch, 4, 3);
    for n in 0..40 {
        fleet.holds_text((n % 3) as u16, &format!("prompt {n} ").repeat(100), None);
    }
    fleet
}

fn epoch(vm: &mut Vm, host: &FakeHost) -> u64 {
    let view = vm.heads.read(host).expect("a head");
    view.table.expect("a table").shape.epoch.0
}

#[test]
fn the_next_one_after_failures_and_back_after_a_minute() {
    let host = FakeHost::default();
    let two = Two::new(&host);
    let mut vm = Vm::new(&host);
    let planes = [fleet(10), fleet(11)];
    let [first, second] = planes.each_ref().map(Some);

    two.run(&mut vm, [first, second], 10_000);
    assert_eq!(epoch(&mut vm, &host), 10);
    assert_eq!(two.take_polls()[1], 0, "the second is not asked");
    assert_eq!(host.metric("control_plane_in_use"), 0);

    two.run(&mut vm, [None, second], 2_000);
    assert_eq!(epoch(&mut vm, &host), 11);
    assert_eq!(two.take_polls()[0], 2, "two failures are enough");
    assert_eq!(host.metric("control_plane_in_use"), 1);

    // Ready for less than a minute, then away again, then ready.
    two.run(&mut vm, [first, second], 55_000);
    two.run(&mut vm, [None, second], 6_000);
    two.run(&mut vm, [first, second], 55_000);
    assert_eq!(two.take_polls()[0], 0);
    assert_eq!(epoch(&mut vm, &host), 11);
    two.run(&mut vm, [first, second], 16_000);
    assert_eq!(epoch(&mut vm, &host), 10);
    assert_eq!(host.metric("control_plane_in_use"), 0);
    two.take_polls();
    two.run(&mut vm, [first, second], 5_000);
    assert_eq!(two.take_polls()[1], 0, "all is with the first");
}

#[test]
fn what_is_known_serves_while_nobody_answers() {
    let host = FakeHost::default();
    let two = Two::new(&host);
    let mut vm = Vm::new(&host);
    let first = fleet(10);
    two.run(&mut vm, [Some(&first), None], 2_000);
    two.take_polls();
    two.run(&mut vm, [None, None], 30_000);
    assert_eq!(epoch(&mut vm, &host), 10);
    let polls = two.take_polls();
    assert!(polls[0].abs_diff(polls[1]) <= 2, "in turn: {polls:?}");
    assert!(polls[0] + polls[1] <= 40, "slower and slower: {polls:?}");
    two.run(&mut vm, [Some(&first), None], 6_000);
    assert_eq!(host.metric("control_plane_in_use"), 0);
}

#[test]
fn one_answer_between_failures_is_enough_to_stay() {
    let host = FakeHost::default();
    let two = Two::new(&host);
    let mut vm = Vm::new(&host);
    vm.choice.take_over(&host, &two.config);
    for _ in 0..10 {
        assert!(!vm.choice.failed(&host, &two.config));
        vm.choice.worked();
    }
    assert_eq!(vm.choice.current(), 0);
}

#[test]
fn who_polls_next_goes_on_with_the_same_one() {
    let host = FakeHost::default();
    let two = Two::new(&host);
    let mut vm = Vm::new(&host);
    let second = fleet(11);
    two.run(&mut vm, [None, Some(&second)], 2_000);
    two.take_polls();
    drop(vm);
    host.advance_ms(60_000);
    let mut vm = Vm::new(&host);
    two.run(&mut vm, [None, Some(&second)], 2_000);
    assert_eq!(two.take_polls()[0], 0);

    // A list that has become shorter begins with its first.
    let mut config = two.config.clone();
    config.control_planes.truncate(1);
    vm.choice.take_over(&host, &config);
    assert_eq!(vm.choice.current(), 0);
    assert!(!vm.choice.failed(&host, &config) && !vm.choice.failed(&host, &config));
    assert_eq!(vm.choice.current(), 0);
}

#[test]
fn a_look_that_never_ends_is_given_up() {
    let host = FakeHost::default();
    let two = Two::new(&host);
    let mut vm = Vm::new(&host);
    let second = fleet(11);
    two.run(&mut vm, [None, Some(&second)], 2_000);
    for _ in 0..4 {
        host.advance_ms(6_000);
        step(&mut vm, &host, &two.config, 1);
    }
    assert_eq!(host.calls_to("/readyz").len(), 4, "one after the other");
    vm.choice.root_gone(1);
    assert!(vm.choice.look.is_none());
}
