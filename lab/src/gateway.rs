//! What a gateway knows when it must decide: its own requests at once, what engines hold a little
//! late, what engines measure later still.

use std::collections::VecDeque;

use prefix_picker_core::pick::Rates;
use prefix_picker_core::pick::cost::prefill_work;
use prefix_picker_core::pick::learn::RateLearner;

use crate::engine::Engine;
use crate::workload::{Request, Segment};

/// How imperfect the knowledge is. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knowledge {
    /// From an engine's event to a table that shows it.
    pub event_delay: f64,
    /// Between two scrapes; what is known is that of the scrape before the last.
    pub scrape_every: f64,
    /// How long a request that was sent counts as held where it was sent, beyond what its prefill and
    /// the backlog before it are thought to take.
    pub predicted_for: f64,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self {
            event_delay: 0.010,
            scrape_every: 0.150,
            predicted_for: 10.0,
        }
    }
}

/// One replica in the gateway's books.
#[derive(Clone, Copy, Debug, Default)]
pub struct Book {
    /// Requests in flight.
    pub requests: u32,
    /// Work whose first token has not come.
    pub backlog_tokens: u64,
    /// Prompts and answers, so far, of requests in flight; answers are not counted, only prompts.
    pub context_tokens: u64,
    /// The engine's queue, scraped.
    pub waiting: u32,
    /// The engine's memory, scraped.
    pub kv_usage_permille: u16,
    /// How fast it is found to be.
    pub rates: Rates,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    replica: usize,
    sent: f64,
    work: u64,
    /// Its work and the backlog that it found.
    ahead: u64,
    first: f64,
}

/// One gateway.
#[derive(Debug)]
pub struct Gateway {
    knowledge: Knowledge,
    replicas: usize,
    /// Tokens held, by segment and replica, as events told.
    held: Vec<u32>,
    /// Until when a segment counts as held in full because it was sent.
    predicted: Vec<f64>,
    events: VecDeque<(f64, usize, u32)>,
    /// What it knows of each replica.
    pub books: Vec<Book>,
    scraped: Vec<(u32, u16)>,
    next_scrape: f64,
    learners: Vec<RateLearner>,
    pool: RateLearner,
    flights: Vec<Flight>,
}

impl Gateway {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(knowledge: Knowledge, replicas: usize, segments: usize, requests: usize) -> Self {
        Self {
            knowledge,
            replicas,
            held: vec![0; segments * replicas],
            predicted: vec![0.0; segments * replicas],
            events: VecDeque::new(),
            books: vec![Book::default(); replicas],
            scraped: vec![(0, 0); replicas],
            next_scrape: 0.0,
            learners: vec![RateLearner::new(); replicas],
            pool: RateLearner::new(),
            flights: vec![Flight::default(); requests],
        }
    }

    /// An engine says what has changed in its cache.
    pub fn hear(&mut self, replica: usize, engine: &mut Engine, now: f64) {
        let at = now + self.knowledge.event_delay;
        for (segment, ready) in engine.cache().changes.drain(..) {
            let index = segment as usize * self.replicas + replica;
            self.events.push_back((at, index, ready));
        }
    }

    /// Time passes: events arrive, metrics are scraped.
    pub fn tick(&mut self, now: f64, engines: &[Engine]) {
        while let Some(&(at, index, ready)) = self.events.front() {
            if at > now {
                break;
            }
            self.events.pop_front();
            self.held[index] = ready;
        }
        if now >= self.next_scrape {
            self.next_scrape = now + self.knowledge.scrape_every;
            for ((book, scraped), engine) in
                self.books.iter_mut().zip(&mut self.scraped).zip(engines)
            {
                (book.waiting, book.kv_usage_permille) = *scraped;
                *scraped = (engine.waiting() as u32, engine.kv_usage_permille());
            }
        }
        for (book, learner) in self.books.iter_mut().zip(&self.learners) {
            book.rates = learner.rates_in(&self.pool);
        }
    }

    /// Tokens of a prompt that each replica is thought to hold, and those of them that it announced.
    pub fn matched(
        &self,
        chain: &[Segment],
        lengths: &[u32],
        now: f64,
        matched: &mut Vec<(u32, u32)>,
    ) {
        matched.clear();
        matched.resize(self.replicas, (0, 0));
        let mut start = 0;
        for &s in chain {
            let length = lengths[s as usize];
            let row = s as usize * self.replicas;
            let mut any = false;
            for (r, (thought, announced)) in matched.iter_mut().enumerate() {
                let held = self.held[row + r];
                if *announced == start {
                    *announced += held;
                }
                if *thought < start {
                    continue;
                }
                let sent = self.predicted[row + r] > now;
                *thought += if sent { length } else { held };
                any |= *thought == start + length;
            }
            start += length;
            if !any {
                break;
            }
        }
    }

    /// A request is sent.
    pub fn sent(&mut self, id: usize, request: &Request, replica: usize, matched: u32, now: f64) {
        let hit = matched.min(request.prompt.saturating_sub(1));
        let work = prefill_work(hit, request.prompt);
        let book = &mut self.books[replica];
        book.requests += 1;
        book.backlog_tokens += work;
        book.context_tokens += u64::from(request.prompt);
        self.flights[id] = Flight {
            replica,
            sent: now,
            work,
            ahead: book.backlog_tokens,
            first: 0.0,
        };
        let queued = book.rates.prefill_us(book.backlog_tokens) as f64 / 1e6;
        let until = now + queued + self.knowledge.predicted_for;
        for &s in &request.chain {
            self.predicted[s as usize * self.replicas + replica] = until;
        }
    }

    /// Its first token came.
    pub fn first(&mut self, id: usize, now: f64) -> f64 {
        let flight = &mut self.flights[id];
        flight.first = now;
        let taken = now - flight.sent;
        self.books[flight.replica].backlog_tokens -= flight.work;
        for learner in [&mut self.learners[flight.replica], &mut self.pool] {
            learner.observe_first_token(flight.ahead, (taken * 1e6) as u64);
        }
        taken
    }

    /// Its last token came; how long it took.
    pub fn last(&mut self, id: usize, request: &Request, now: f64) -> f64 {
        let flight = self.flights[id];
        let book = &mut self.books[flight.replica];
        let took = ((now - flight.first) * 1e6) as u64;
        for learner in [&mut self.learners[flight.replica], &mut self.pool] {
            learner.observe_answer(request.output - 1, took, book.requests);
        }
        book.requests -= 1;
        book.context_tokens -= u64::from(request.prompt);
        now - flight.sent
    }

    /// How fast a replica is found to be.
    #[must_use]
    pub fn rates(&self, replica: usize) -> Rates {
        self.learners[replica].rates_in(&self.pool)
    }
}
