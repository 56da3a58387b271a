//! One engine, after vLLM's scheduler: continuous batching, prefill in chunks beside decodes, a queue
//! that is first come first served, and a step time that grows with all of it.
//!
//! Steps in which nothing but decoding happens are simulated in one go, up to the next answer's end
//! or arrival. An engine does not know the time: it is told, and says when it wants to be told again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::cache::Cache;
use crate::regime::Hardware;
use crate::workload::{Request, Trace};

/// Tokens computed in a step at most.
const BUDGET: u32 = 8_192;
/// Requests in the batch at most.
const SEATS: usize = 256;

/// Something that a client sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request's first token; of its prompt, so many tokens had been cached.
    First(usize, u32),
    /// A request's last token.
    Last(usize),
}

#[derive(Clone, Copy, Debug)]
struct Prefilling {
    id: usize,
    hit: u32,
    done: u32,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Idle,
    /// One step with prefill.
    Mixed,
    /// Many steps of decoding: from when, how many, how long the first takes, how much longer each is.
    Decode {
        since: f64,
        steps: u64,
        first: f64,
        growth: f64,
    },
}

/// One engine.
#[derive(Debug)]
pub struct Engine {
    hardware: Hardware,
    cache: Cache,
    waiting: VecDeque<usize>,
    prefilling: VecDeque<Prefilling>,
    /// Decoding requests by the step in which they end.
    decoding: BinaryHeap<Reverse<(u64, usize)>>,
    /// Tokens of the decoding requests' contexts.
    context: u64,
    step: u64,
    mode: Mode,
}

fn time_of(steps: u64, first: f64, growth: f64) -> f64 {
    let n = steps as f64;
    n * first + growth * n * (n - 1.0) / 2.0
}

impl Engine {
    /// Idle and empty.
    #[must_use]
    pub fn new(hardware: Hardware, kv_tokens: u64, segments: usize) -> Self {
        Self {
            hardware,
            cache: Cache::new(kv_tokens, segments),
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            decoding: BinaryHeap::new(),
            context: 0,
            step: 0,
            mode: Mode::Idle,
        }
    }

    /// Its cache.
    pub fn cache(&mut self) -> &mut Cache {
        &mut self.cache
    }

    /// Requests in its queue.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Share of KV memory in use, in thousandths.
    #[must_use]
    pub fn kv_usage_permille(&self) -> u16 {
        self.cache.usage_permille()
    }

    /// A request comes. Says when to be told next, if that changes.
    pub fn arrive(&mut self, id: usize, now: f64, trace: &Trace) -> Option<f64> {
        self.waiting.push_back(id);
        match self.mode {
            Mode::Idle => self.plan(now, trace),
            Mode::Mixed => None,
            // Somebody waits already, and for an answer to end.
            Mode::Decode { .. } if self.waiting.len() > 1 => None,
            Mode::Decode {
                since,
                first,
                growth,
                steps,
            } => {
                // After the step that is under way.
                let passed = now - since;
                let guess = (passed / (first + growth * passed / first / 2.0)) as u64;
                let mut n = guess.saturating_sub(1).max(1);
                while n < steps && time_of(n, first, growth) < passed {
                    n += 1;
                }
                self.mode = Mode::Decode {
                    since,
                    steps: n,
                    first,
                    growth,
                };
                Some(since + time_of(n, first, growth))
            }
        }
    }

    /// The time that it asked for has come. Says when to be told next.
    pub fn advance(&mut self, now: f64, trace: &Trace, outcomes: &mut Vec<Outcome>) -> Option<f64> {
        let steps = match self.mode {
            Mode::Idle => return None,
            Mode::Mixed => 1,
            Mode::Decode { steps, .. } => steps,
        };
        self.step += steps;
        self.context += steps * self.decoding.len() as u64;
        while let Some(&Reverse((step, id))) = self.decoding.peek() {
            if step > self.step {
                break;
            }
            self.decoding.pop();
            let request = &trace.requests[id];
            self.context -= u64::from(request.prompt + request.output);
            self.end(id, request, outcomes);
        }
        while let Some(&p) = self.prefilling.front() {
            let request = &trace.requests[p.id];
            if p.done < request.prompt {
                break;
            }
            self.prefilling.pop_front();
            outcomes.push(Outcome::First(p.id, p.hit));
            if request.output > 1 {
                self.context += u64::from(request.prompt) + 1;
                let last = self.step + u64::from(request.output) - 1;
                self.decoding.push(Reverse((last, p.id)));
            } else {
                self.end(p.id, request, outcomes);
            }
        }
        self.plan(now, trace)
    }

    fn end(&mut self, id: usize, request: &Request, outcomes: &mut Vec<Outcome>) {
        self.cache
            .release(&request.chain, request.output, request.answer);
        outcomes.push(Outcome::Last(id));
    }

    /// Composes the next step.
    fn plan(&mut self, now: f64, trace: &Trace) -> Option<f64> {
        let running = self.decoding.len();
        let mut budget = BUDGET.saturating_sub(running as u32);
        let mut work = 0.0;
        for at in 0..self.prefilling.len() {
            work += self.chunk(at, &mut budget, trace);
        }
        while budget > 0 && running + self.prefilling.len() < SEATS {
            let Some(&id) = self.waiting.front() else {
                break;
            };
            let request = &trace.requests[id];
            let hit = self.cache.hit(&request.chain, &trace.segments);
            if !self
                .cache
                .pin(&request.chain, &trace.segments, request.output)
            {
                break;
            }
            self.waiting.pop_front();
            self.prefilling.push_back(Prefilling { id, hit, done: hit });
            work += self.chunk(self.prefilling.len() - 1, &mut budget, trace);
        }
        let h = &self.hardware;
        let growth = running as f64 * h.per_context_token;
        let first =
            h.step + running as f64 * h.per_request + self.context as f64 * h.per_context_token;
        if !self.prefilling.is_empty() {
            self.mode = Mode::Mixed;
            return Some(now + first + work * h.per_prompt_token);
        }
        let Some(&Reverse((ends, _))) = self.decoding.peek() else {
            self.mode = Mode::Idle;
            return None;
        };
        let steps = (ends - self.step).max(1);
        self.mode = Mode::Decode {
            since: now,
            steps,
            first,
            growth,
        };
        Some(now + time_of(steps, first, growth))
    }

    /// Schedules what the budget allows of one prompt; its work, in tokens at the start of a prompt.
    fn chunk(&mut self, at: usize, budget: &mut u32, trace: &Trace) -> f64 {
        let Some(p) = self.prefilling.get_mut(at) else {
            return 0.0;
        };
        let request = &trace.requests[p.id];
        let from = p.done;
        let tokens = (request.prompt - from).min(*budget);
        if tokens == 0 {
            return 0.0;
        }
        *budget -= tokens;
        p.done += tokens;
        self.cache
            .computed(&request.chain, &trace.segments, from, from + tokens);
        let context = f64::from(from) + f64::from(tokens) / 2.0;
        f64::from(tokens) * (1.0 + context / self.hardware.attention_tokens)
    }
}

#[cfg(test)]
mod tests;
