//! The engine's step loop without time or I/O: continuous batching over the block pool, in vLLM's order.
//!
//! A step first serves the running requests, then admits waiting ones while tokens, seats and blocks last.
//! A prompt's full blocks become findable in the step that schedules them; generated tokens are stored when
//! the step that computes them fills a block (so the last generated token never is). What a caller gets
//! per step is one batch of events, exactly as vLLM publishes it.

use std::collections::VecDeque;

use crate::block_pool::{BlockId, BlockPool};
use crate::event::{KvEvent, Stored};
use crate::hash::{BlockDigest, Hasher};

/// A request's identity within the engine.
pub(crate) type RequestId = u64;

/// A prompt to compute and the tokens that will be "generated" for it.
#[derive(Debug, Clone)]
pub(crate) struct NewRequest {
    pub(crate) id: RequestId,
    pub(crate) prompt: Vec<u32>,
    /// At least one token.
    pub(crate) output: Vec<u32>,
    pub(crate) hasher: Hasher,
    pub(crate) lora: Option<(u32, String)>,
    pub(crate) salt: Option<String>,
    pub(crate) session: Option<String>,
    /// `prompt_logprobs`: the cache is not read, only written.
    pub(crate) skip_read: bool,
    /// `kv_cache_report_mode: full`: blocks that are hit are announced again.
    pub(crate) report_full: bool,
}

/// One generated token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) id: RequestId,
    pub(crate) token: u32,
    /// Prompt tokens that were found in the cache.
    pub(crate) cached_tokens: u32,
    pub(crate) finished: bool,
}

/// What one step did.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub(crate) events: Vec<KvEvent>,
    pub(crate) outputs: Vec<Output>,
    /// Prompt tokens computed.
    pub(crate) prefill_tokens: u32,
    /// Requests that computed a generated token.
    pub(crate) decodes: u32,
}

/// Counters since the start.
#[derive(Debug, Default, Clone)]
pub(crate) struct Counters {
    /// Tokens looked up and found in the prefix cache.
    pub(crate) queries: u64,
    pub(crate) hits: u64,
    pub(crate) preemptions: u64,
}

#[derive(Debug)]
struct Request {
    new: NewRequest,
    /// Prompt, then what has been generated.
    tokens: Vec<u32>,
    generated: usize,
    /// Tokens whose KV is computed.
    computed: usize,
    blocks: Vec<BlockId>,
    digests: Vec<BlockDigest>,
    /// Leading blocks that are findable.
    stored: usize,
    cached_tokens: Option<u32>,
}

/// Limits of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) block_size: u32,
    pub(crate) max_num_seqs: u32,
    pub(crate) max_num_batched_tokens: u32,
}

/// The scheduler.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    pool: BlockPool,
    running: Vec<Request>,
    waiting: VecDeque<Request>,
    events: Vec<KvEvent>,
    counters: Counters,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, blocks: u32) -> Self {
        Self {
            limits,
            pool: BlockPool::new(blocks),
            running: Vec::new(),
            waiting: VecDeque::new(),
            events: Vec::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    pub(crate) fn add(&mut self, new: NewRequest) {
        self.waiting.push_back(Request {
            tokens: new.prompt.clone(),
            new,
            generated: 0,
            computed: 0,
            blocks: Vec::new(),
            digests: Vec::new(),
            stored: 0,
            cached_tokens: None,
        });
    }

    /// Drops a request (its client went away). Unknown ids are ignored.
    pub(crate) fn abort(&mut self, id: RequestId) {
        self.waiting.retain(|r| r.new.id != id);
        if let Some(at) = self.running.iter().position(|r| r.new.id == id) {
            let request = self.running.remove(at);
            self.release(request);
        }
    }

    /// Forgets the cache. False while requests hold blocks. The event goes out with the next step's batch.
    pub(crate) fn reset_prefix_cache(&mut self) -> bool {
        let done = self.pool.reset();
        if done {
            self.events.push(KvEvent::Cleared);
        }
        done
    }

    /// One step. Does nothing without requests, so pending events wait.
    pub(crate) fn step(&mut self) -> Step {
        if self.is_idle() {
            return Step::default();
        }
        let mut step = Step::default();
        let mut budget = self.limits.max_num_batched_tokens as usize;
        let mut scheduled = Vec::new();
        let preempted = self.schedule_running(&mut budget, &mut scheduled);
        if !preempted {
            self.schedule_waiting(&mut budget, &mut scheduled);
        }
        self.finish(&scheduled, &mut step);
        step.events = std::mem::take(&mut self.events);
        step
    }

    /// Fills `scheduled` with tokens per running request, in order. True if one had to give way.
    fn schedule_running(&mut self, budget: &mut usize, scheduled: &mut Vec<usize>) -> bool {
        let mut preempted = false;
        let mut at = 0;
        while at < self.running.len() {
            let r = &self.running[at];
            let count = (r.tokens.len() - r.computed).min(*budget);
            if count > 0 {
                while !self.allocate(at, count, &[]) {
                    preempted = true;
                    self.preempt_last();
                    if at >= self.running.len() {
                        return true;
                    }
                }
            }
            *budget -= count;
            scheduled.push(count);
            at += 1;
        }
        preempted
    }

    fn preempt_last(&mut self) {
        if let Some(mut request) = self.running.pop() {
            self.pool
                .release(std::mem::take(&mut request.blocks).into_iter().rev());
            (request.computed, request.stored) = (0, 0);
            self.counters.preemptions += 1;
            self.waiting.push_front(request);
        }
    }

    fn schedule_waiting(&mut self, budget: &mut usize, scheduled: &mut Vec<usize>) {
        while *budget > 0 && self.running.len() < self.limits.max_num_seqs as usize {
            let Some(mut request) = self.waiting.pop_front() else {
                break;
            };
            let hit = self.find_hit(&mut request);
            let hit_tokens = hit.len() * self.limits.block_size as usize;
            request.computed = hit_tokens;
            let count = (request.tokens.len() - hit_tokens).min(*budget);
            let at = self.running.len();
            self.running.push(request);
            if !self.allocate(at, count, &hit) {
                if let Some(mut request) = self.running.pop() {
                    request.computed = 0;
                    self.waiting.push_front(request);
                }
                break;
            }
            let request = &mut self.running[at];
            if !request.new.skip_read {
                self.counters.queries += request.tokens.len() as u64;
                self.counters.hits += hit_tokens as u64;
            }
            request
                .cached_tokens
                .get_or_insert(u32::try_from(hit_tokens).unwrap_or(u32::MAX));
            *budget -= count;
            scheduled.push(count);
        }
    }

    /// The longest run of leading blocks that the pool holds, never the whole prompt.
    fn find_hit(&self, request: &mut Request) -> Vec<BlockId> {
        let size = self.limits.block_size as usize;
        request.hash_up_to(request.tokens.len() / size, size);
        if request.new.skip_read {
            return Vec::new();
        }
        let most = (request.tokens.len() - 1) / size;
        request
            .digests
            .iter()
            .take(most)
            .map_while(|d| self.pool.lookup(d))
            .collect()
    }

    /// Room for `count` more tokens of the running request `at`, which `hit` blocks precede. False, and
    /// nothing changed, if the pool lacks blocks.
    fn allocate(&mut self, at: usize, count: usize, hit: &[BlockId]) -> bool {
        let size = self.limits.block_size as usize;
        let request = &mut self.running[at];
        let total = request.computed + count;
        let wanted = total
            .div_ceil(size)
            .saturating_sub(request.blocks.len() + hit.len());
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if u64::from(wanted) + u64::from(self.pool.unreferenced(hit))
            > u64::from(self.pool.free_count())
        {
            return false;
        }
        self.pool.touch(hit);
        request.blocks.extend_from_slice(hit);
        if !hit.is_empty() {
            request.stored = hit.len();
            if request.new.report_full {
                self.events.push(request.announce(0, hit.len(), size));
            }
        }
        let events = &mut self.events;
        let Some(new) = self
            .pool
            .allocate(wanted, |digest| events.push(KvEvent::Removed(digest)))
        else {
            return false;
        };
        request.blocks.extend(new);
        let full = total.min(request.tokens.len()) / size;
        if full > request.stored {
            request.hash_up_to(full, size);
            for i in request.stored..full {
                self.pool.store(request.blocks[i], request.digests[i]);
            }
            self.events
                .push(request.announce(request.stored, full, size));
            request.stored = full;
        }
        true
    }

    /// Books what was computed, generates a token for each request that has caught up, frees the finished.
    fn finish(&mut self, scheduled: &[usize], step: &mut Step) {
        let mut done = Vec::new();
        for (request, count) in self.running.iter_mut().zip(scheduled) {
            let before = request.computed;
            request.computed += count;
            let prompt = request.new.prompt.len();
            let prefill = request.computed.min(prompt).saturating_sub(before);
            step.prefill_tokens += u32::try_from(prefill).unwrap_or(u32::MAX);
            step.decodes += u32::from(*count > 0 && request.computed > prompt);
            if *count == 0 || request.computed < request.tokens.len() {
                continue;
            }
            let Some(token) = request.new.output.get(request.generated).copied() else {
                continue;
            };
            request.tokens.push(token);
            request.generated += 1;
            let finished = request.generated == request.new.output.len();
            if finished {
                done.push(request.new.id);
            }
            let cached_tokens = request.cached_tokens.unwrap_or(0);
            step.outputs.push(Output {
                id: request.new.id,
                token,
                cached_tokens,
                finished,
            });
        }
        for id in done {
            self.abort(id);
        }
    }

    fn release(&mut self, request: Request) {
        self.pool.release(request.blocks.into_iter().rev());
    }
}

impl Request {
    fn hash_up_to(&mut self, blocks: usize, size: usize) {
        while self.digests.len() < blocks {
            let at = self.digests.len() * size;
            let digest = self
                .new
                .hasher
                .block(self.digests.last(), &self.tokens[at..at + size]);
            self.digests.push(digest);
        }
    }

    fn announce(&self, from: usize, to: usize, size: usize) -> KvEvent {
        KvEvent::Stored(Stored {
            digests: self.digests[from..to].to_vec(),
            parent: from.checked_sub(1).map(|i| self.digests[i]),
            tokens: self.tokens[from * size..to * size].to_vec(),
            block_size: u32::try_from(size).unwrap_or(u32::MAX),
            lora: self.new.lora.clone(),
            salt: self.new.salt.clone(),
            session: self.new.session.clone(),
        })
    }
}

#[cfg(test)]
mod tests;
