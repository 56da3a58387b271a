use std::collections::BTreeMap;

use super::*;
use crate::config;
use crate::host::CallAnswer;
use crate::router::tests::bench::{Bench, bench, text};
use crate::testing::Call;
use crate::testing::fleet::Fleet;

/// A control plane as far as news go: what was said last, and all claims.
#[derive(Default)]
struct Relay {
    work: BTreeMap<String, Vec<PlaceWork>>,
    claims: Vec<(String, Sent)>,
}

impl Relay {
    fn take(&mut self, report: &Report) {
        self.work
            .insert(report.gateway.clone(), report.work.clone());
        let claims = report.sent.iter().cloned();
        self.claims
            .extend(claims.map(|sent| (report.gateway.clone(), sent)));
    }

    fn answer(&self, report: &Report) -> OthersNews {
        let others = self
            .work
            .iter()
            .filter(|(name, _)| **name != report.gateway);
        let known = usize::try_from(report.cursor).unwrap();
        let news = self.claims.iter().skip(known);
        let news = news.filter(|(name, _)| *name != report.gateway);
        OthersNews {
            instance: 1,
            cursor: self.claims.len() as u64,
            seen: 0,
            more: false,
            gateways: u16::try_from(others.clone().count()).unwrap(),
            work: others.flat_map(|(_, work)| work.clone()).collect(),
            sent: news.map(|(_, sent)| sent.clone()).collect(),
        }
    }
}

struct Gateway {
    bench: Bench,
    /// Calls whose report the control plane has and that it has not answered yet.
    open: Vec<(Call, Report)>,
    sent: usize,
    /// Others' work as it was last told.
    told: Vec<PlaceWork>,
}

impl Gateway {
    fn new(fleet: &Fleet) -> Self {
        let mut bench = bench();
        bench.publish(fleet);
        let _ = bench.vm.heads.read(&bench.host);
        Self {
            bench,
            open: Vec::new(),
            sent: 0,
            told: Vec::new(),
        }
    }

    fn tick(&mut self, relay: &mut Relay) {
        let b = &mut self.bench;
        crate::sync::tick(&mut b.vm, &b.host, &b.config, 1);
        let calls = b.host.calls_to("/v1/news");
        for call in calls.into_iter().skip(self.sent) {
            self.sent += 1;
            let report = Report::decode(&call.body).unwrap();
            relay.take(&report);
            self.open.push((call, report));
        }
    }

    /// Answers what is open; who listens waits for news, or a second.
    fn hear(&mut self, relay: &Relay, at_last: bool) {
        let b = &mut self.bench;
        for (call, report) in std::mem::take(&mut self.open) {
            let answer = relay.answer(&report);
            let news = !answer.sent.is_empty() || answer.work != self.told;
            if report.wait_ms > 0 && !news && !at_last {
                self.open.push((call, report));
                continue;
            }
            self.told.clone_from(&answer.work);
            let body = answer.encode().unwrap();
            let len = body.len();
            *b.host.answer.borrow_mut() = CallAnswer {
                status: Some(200),
                body,
            };
            let call = (1, call.token);
            crate::sync::answered(&mut b.vm, &b.host, &b.config, call, (1, len));
        }
    }

    fn first_of_chat(&mut self, content: &str) -> (String, crate::router::Request) {
        let request = self.bench.chat(content);
        let dest = self.bench.dest().unwrap();
        (dest.split(',').next().unwrap().to_owned(), request)
    }
}

/// Both gateways' clocks go on, in steps of their ticks.
fn pass(gateways: &mut [Gateway; 2], relay: &mut Relay, ms: u64) {
    for at in (0..ms).step_by(50) {
        for gateway in gateways.iter_mut() {
            gateway.bench.host.advance_ms(50);
            gateway.tick(relay);
        }
        for gateway in gateways.iter_mut() {
            gateway.hear(relay, at % 1_000 == 950);
        }
    }
}

fn two(fleet: &Fleet) -> ([Gateway; 2], Relay) {
    let mut gateways = [Gateway::new(fleet), Gateway::new(fleet)];
    // Not the same name: their seeds are equal here.
    for (gateway, name) in gateways.iter().zip(["one", "two"]) {
        let host = &gateway.bench.host;
        host.set_shared("pp/gateway", name.as_bytes(), 0).unwrap();
    }
    let mut relay = Relay::default();
    pass(&mut gateways, &mut relay, 2_000);
    for gateway in &gateways {
        assert_eq!(gateway.bench.vm.loads.other_gateways(), 1);
        assert_eq!(gateway.bench.host.metric("other_gateways"), 1);
    }
    (gateways, relay)
}

#[test]
fn siblings_that_enter_by_two_gateways_within_200_ms_share_two_replicas() {
    for round in 0..20 {
        let fleet = Fleet::new(1, 8, 8);
        let (mut gateways, mut relay) = two(&fleet);
        let system = text(round);
        let mut used = std::collections::BTreeSet::new();
        let mut requests = Vec::new();
        for n in 0..8usize {
            if n == 4 {
                pass(&mut gateways, &mut relay, 150);
            }
            let (first, request) = gateways[n / 4].first_of_chat(&format!("{system} sibling {n}"));
            used.insert(first);
            requests.push((n / 4, request));
        }
        assert!(used.len() <= 2, "round {round}: {used:?}");
        assert!(gateways[1].bench.host.metric("news_claims_total") > 0);
        for (at, mut request) in requests {
            let b = &mut gateways[at].bench;
            request.on_end(&mut b.vm, &b.host);
        }
    }
}

#[test]
fn others_work_is_told_by_rank() {
    let fleet = Fleet::of_ranks(1, 3);
    let (mut gateways, mut relay) = two(&fleet);
    let (_, _request) = gateways[0].first_of_chat(&text(1));
    pass(&mut gateways, &mut relay, 150);
    let [ours, theirs] = &mut gateways;
    let on = |gateway: &mut Gateway| -> Vec<u32> {
        (0..3)
            .map(|r| gateway.bench.load(&fleet, r).requests)
            .collect()
    };
    let told = on(ours);
    assert_eq!(told.iter().sum::<u32>(), 1);
    let b = &mut theirs.bench;
    let view = b.vm.heads.read(&b.host).unwrap();
    b.host.advance_ms(5);
    b.vm.loads.refresh(&b.host, &view);
    assert_eq!(on(theirs), told);
}

#[test]
fn others_work_counts_and_is_gone_with_them() {
    let fleet = Fleet::new(1, 8, 3);
    let (mut gateways, mut relay) = two(&fleet);
    let (first, mut request) = gateways[0].first_of_chat(&text(1));
    pass(&mut gateways, &mut relay, 150);
    let on = |gateway: &mut Gateway| {
        let b = &mut gateway.bench;
        let view = b.vm.heads.read(&b.host).unwrap();
        b.host.advance_ms(5);
        b.vm.loads.refresh(&b.host, &view);
        let replica = view.replica_called(&first).unwrap();
        let (all, local) = (
            b.vm.loads.on(replica, &first),
            b.vm.loads.local(replica, &first),
        );
        (all, local.requests)
    };
    let ours = on(&mut gateways[0]).0;
    let (theirs, local) = on(&mut gateways[1]);
    assert_eq!((ours.requests, local), (1, 0));
    // By way of the control plane, as of a moment ago: its prefill has just ended by the clock.
    let all = |work: crate::load::Work| (work.requests, work.context);
    assert_eq!(all(theirs), all(ours));
    assert!(theirs.tokens >= ours.tokens && theirs.context > 0);
    let b = &mut gateways[0].bench;
    request.on_end(&mut b.vm, &b.host);
    pass(&mut gateways, &mut relay, 150);
    assert_eq!(on(&mut gateways[1]).0.requests, 0);

    // The control plane falls silent while something is in flight.
    let (_, _request) = gateways[0].first_of_chat(&text(2));
    pass(&mut gateways, &mut relay, 150);
    let sum = |gateway: &Gateway| {
        let loads = &gateway.bench.vm.loads;
        let replicas = fleet.head.replicas.iter();
        replicas
            .map(|r| loads.on(r.index, &r.endpoint).requests)
            .sum::<u32>()
    };
    assert_eq!(sum(&gateways[1]), 1);
    for _ in 0..45 {
        let gateway = &mut gateways[1];
        gateway.bench.host.advance_ms(50);
        gateway.tick(&mut Relay::default());
    }
    assert_eq!(sum(&gateways[1]), 0);
    assert_eq!(gateways[1].bench.vm.loads.other_gateways(), 0);
}

#[test]
fn alone_there_is_one_small_call_a_second_and_no_claims_are_kept() {
    let fleet = Fleet::new(1, 8, 3);
    let mut gateways = [Gateway::new(&fleet), Gateway::new(&fleet)];
    let mut relay = Relay::default();
    let gateway = &mut gateways[0];
    for n in 0..200u32 {
        gateway.bench.host.advance_ms(50);
        if n % 10 == 0 {
            let (_, mut request) = gateway.first_of_chat(&text(n));
            let b = &mut gateway.bench;
            request.on_end(&mut b.vm, &b.host);
        }
        gateway.tick(&mut relay);
        gateway.hear(&relay, n % 20 == 19);
    }
    assert!((9..=11).contains(&gateway.sent), "{} calls", gateway.sent);
    assert!(gateway.bench.host.shared(OUTBOX_KEY).bytes.is_empty());
    assert!(relay.claims.is_empty());
}

#[test]
fn a_control_plane_that_fails_or_knows_no_news_is_not_pressed() {
    let fleet = Fleet::new(1, 8, 3);
    for (status, calls) in [(Some(500), 18..=21), (None, 18..=21), (Some(404), 1..=1)] {
        let mut gateway = Gateway::new(&fleet);
        let mut relay = Relay::default();
        for _ in 0..400 {
            gateway.bench.host.advance_ms(50);
            gateway.tick(&mut relay);
            let b = &mut gateway.bench;
            for (call, _) in std::mem::take(&mut gateway.open) {
                *b.host.answer.borrow_mut() = CallAnswer {
                    status,
                    body: b"no".to_vec(),
                };
                let call = (1, call.token);
                crate::sync::answered(&mut b.vm, &b.host, &b.config, call, (1, 2));
            }
        }
        assert!(
            calls.contains(&gateway.sent),
            "{status:?}: {}",
            gateway.sent
        );
        assert!(gateway.bench.host.metric("news_failures_total") > 0);
    }
    let config = config::parse(br#"{"control_plane": {"cluster": "cp", "token": "t"}}"#).unwrap();
    let gateway = &mut Gateway::new(&fleet).bench;
    gateway.host.refuse_calls.set(true);
    for _ in 0..100 {
        gateway.host.advance_ms(50);
        crate::sync::tick(&mut gateway.vm, &gateway.host, &config, 1);
    }
    assert!((1..=6).contains(&gateway.host.metric("news_failures_total")));
}
