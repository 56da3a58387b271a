//! Everything that can happen to requests, at random and in any order; in the end nothing is left.

use prefix_picker_core::ids::ReplicaIndex;

use super::bench::{Bench, bench};
use crate::host::Host;
use crate::load::Work;
use crate::pools::View;
use crate::router::Request;
use crate::testing::fleet::Fleet;
use crate::vm::Vm;

const REPLICAS: u16 = 5;
const WORKERS: usize = 4;
const REQUESTS: u32 = 100_000;
/// A VM that is gone counts for so long at most: silent for that time, as seen at a tick.
const GONE_MS: u64 = 5_100;

struct World {
    b: Bench,
    workers: Vec<Vm>,
    open: Vec<(usize, Request)>,
    started: u32,
    epoch: u64,
    chance: u64,
    last_loss_ms: Option<u64>,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        let b = bench();
        let workers = (0..WORKERS).map(|_| Vm::new(&b.host)).collect();
        let mut world = Self {
            b,
            workers,
            open: Vec::new(),
            started: 0,
            epoch: 0,
            chance: 1,
            last_loss_ms: None,
            now_ms: 0,
        };
        world.another_epoch();
        world
    }

    /// splitmix64, below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.chance;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n
    }

    fn pick(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }

    /// The same endpoints under other numbers.
    fn another_epoch(&mut self) {
        self.epoch += 1;
        let mut fleet = Fleet::new(self.epoch, 1, REPLICAS);
        let shift = u16::try_from(self.epoch % 7).unwrap();
        for replica in &mut fleet.head.replicas {
            replica.index = ReplicaIndex(replica.index.0 + shift);
        }
        fleet.head.pools[0].block_size = 16;
        self.b.publish(&fleet);
    }

    /// Does something in a worker's VM.
    fn within<R>(&mut self, worker: usize, work: impl FnOnce(&mut Bench) -> R) -> R {
        std::mem::swap(&mut self.b.vm, &mut self.workers[worker]);
        let result = work(&mut self.b);
        std::mem::swap(&mut self.b.vm, &mut self.workers[worker]);
        result
    }

    fn start(&mut self) {
        let worker = self.pick(WORKERS);
        let (content, stream) = (self.below(50), self.below(2) == 0);
        let body = format!(
            r#"{{"model": "m", "stream": {stream}, "messages": [{{"role": "user", "content": "{content} {}"}}]}}"#,
            "words of some length ".repeat(20)
        );
        let body = if self.below(20) == 0 {
            "{\"model".to_owned()
        } else {
            body
        };
        let request = self.within(worker, |b| {
            b.headers(
                "POST",
                "/v1/chat/completions",
                Some("application/json"),
                Some(100),
            );
            b.send(&body)
        });
        self.started += 1;
        self.open.push((worker, request));
    }

    /// Headers of a response, from whoever and with whatever status.
    fn answer(&mut self) {
        let at = self.pick(self.open.len());
        let status = ["200", "200", "200", "404", "429", "500", "503"][self.pick(7)];
        let kind = ["application/json", "text/event-stream"][self.pick(2)];
        let by = match self.below(12) {
            0 => "10.9.9.9:1".to_owned(),
            1 => String::new(),
            n => format!("10.0.0.{}:8000", n % u64::from(REPLICAS) + 1),
        };
        let attempt = 1 + self.below(3);
        let end = self.below(8) == 0;
        let (worker, mut request) = self.open.swap_remove(at);
        self.within(worker, |b| {
            b.property("upstream.address", by.as_bytes());
            b.property("upstream.request_attempt_count", &attempt.to_le_bytes());
            let headers = [(":status", status), ("content-type", kind)];
            let headers = headers.map(|(n, v)| (n.to_owned(), v.to_owned()));
            *b.host.response_headers.borrow_mut() = headers.into();
            request.on_response_headers(&mut b.vm, &b.host, end);
        });
        self.open.push((worker, request));
    }

    fn body(&mut self) {
        let at = self.pick(self.open.len());
        let (bytes, end) = (self.pick(3) * 10, self.below(4) == 0);
        let (worker, mut request) = self.open.swap_remove(at);
        self.within(worker, |b| {
            *b.host.response_body.borrow_mut() = vec![b' '; bytes];
            request.on_response_body(&mut b.vm, &b.host, bytes, end);
        });
        self.open.push((worker, request));
    }

    /// The end, whatever came before: complete, reset, disconnected, timed out.
    fn end(&mut self, at: usize) {
        let (worker, mut request) = self.open.swap_remove(at);
        self.within(worker, |b| {
            request.on_end(&mut b.vm, &b.host);
            request.on_end(&mut b.vm, &b.host);
        });
    }

    fn tick(&mut self, ms: u64) {
        self.b.host.advance_ms(ms);
        self.now_ms += ms;
        for worker in 0..WORKERS {
            self.within(worker, |b| {
                let now_us = b.host.monotonic_us();
                let view = b.vm.heads.read(&b.host);
                b.vm.loads.beat(&b.host, view.as_deref(), now_us);
            });
        }
    }

    /// A worker's VM traps: its streams are reset, and nobody gives their load back.
    fn lose(&mut self) {
        let worker = self.pick(WORKERS);
        self.workers[worker] = Vm::new(&self.b.host);
        self.open.retain(|(of, _)| *of != worker);
        self.last_loss_ms = Some(self.now_ms);
    }

    /// What a worker believes to be in flight, all replicas together.
    fn seen_by(&mut self, worker: usize) -> Work {
        self.b.host.advance_ms(3);
        self.now_ms += 3;
        self.within(worker, |b| {
            let view = b.vm.heads.read(&b.host).unwrap();
            b.vm.loads.refresh(&b.host, &view);
            let view: &View = &view;
            let on = view
                .head
                .replicas
                .iter()
                .map(|r| b.vm.loads.on(r.index, &r.endpoint));
            on.fold(Work::default(), |sum, work| Work {
                requests: sum.requests + work.requests,
                tokens: sum.tokens + work.tokens,
                context: sum.context + work.context,
            })
        })
    }

    fn step(&mut self) {
        let chance = self.below(1_000);
        match chance {
            0 => self.another_epoch(),
            1 if self.below(8) == 0 => self.lose(),
            1..100 => {
                let ms = 1 + self.below(60);
                self.tick(ms);
            }
            _ if self.open.len() < 40 || (chance < 400 && self.open.len() < 200) => self.start(),
            400..600 => self.answer(),
            600..750 => self.body(),
            _ => {
                let at = self.pick(self.open.len());
                self.end(at);
            }
        }
    }
}

#[test]
fn all_counters_return_to_zero() {
    let mut world = World::new();
    while world.started < REQUESTS {
        world.step();
        // Never more than there are, with what a lost VM leaves behind for a while.
        let settled = world
            .last_loss_ms
            .is_none_or(|at| world.now_ms > at + 2 * GONE_MS);
        if world.started.is_multiple_of(1_000) && settled {
            let worker = world.pick(WORKERS);
            let seen = world.seen_by(worker).requests;
            assert!(seen as usize <= world.open.len(), "{seen}");
        }
    }
    while !world.open.is_empty() {
        world.end(0);
    }
    for _ in 0..2 * GONE_MS / 50 {
        world.tick(50);
        for worker in 0..WORKERS {
            world.seen_by(worker);
        }
    }
    for worker in 0..WORKERS {
        assert_eq!(world.seen_by(worker), Work::default(), "worker {worker}");
    }
    // What others say of places is over too, and shared data has not grown with the requests.
    let shared = world.b.host.shared.borrow();
    assert!(shared.len() < 3 * 1_024 + 300, "{}", shared.len());
}
