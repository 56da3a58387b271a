//! Who gets a request.

use prefix_picker_core::ids::ReplicaIndex;
use prefix_picker_core::pick::cost::prefill_work;
use prefix_picker_core::pick::{self, Candidate, PickInput};

use crate::gateway::Book;
use crate::rng::Rng;
use crate::workload::BLOCK;

/// A way to choose. Other projects' formulas with their default weights, over the same knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// `core::pick`.
    Ours,
    /// The fewest requests in flight.
    LeastRequest,
    /// Envoy's least-request: the fewer of two drawn.
    TwoChoices,
    /// The longest match, then the fewest requests.
    PrefixOnly,
    /// Any.
    Random,
    /// Blocks to prefill plus blocks in use (Dynamo).
    Logit,
    /// Tokens to prefill times requests (vllm-router's `kv_aware`).
    Product,
    /// Weighted, normalised queue, memory and prefix scores (llm-d).
    Weighted,
    /// The best match above a ratio unless the fleet is out of balance (sglang-router).
    Threshold,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ours,
        Self::LeastRequest,
        Self::TwoChoices,
        Self::PrefixOnly,
        Self::Random,
        Self::Logit,
        Self::Product,
        Self::Weighted,
        Self::Threshold,
    ];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "prefix-picker",
            Self::LeastRequest => "least-request",
            Self::TwoChoices => "least-request of two",
            Self::PrefixOnly => "prefix-only",
            Self::Random => "random",
            Self::Logit => "logit",
            Self::Product => "product",
            Self::Weighted => "weighted",
            Self::Threshold => "threshold",
        }
    }
}

/// What there is to decide with.
pub struct Question<'a> {
    /// The prompt's length in tokens.
    pub prompt: u32,
    /// Hash of its beginning.
    pub key: u64,
    /// Tokens of it that each replica is thought to hold, and those of them that it announced.
    pub matched: &'a [(u32, u32)],
    /// What is known of each replica.
    pub books: &'a [Book],
    /// How far each replica has come since it was added.
    pub ramp_permille: &'a [u16],
}

/// The least of all, ties drawn fairly.
fn least(count: usize, rng: &mut Rng, score: impl Fn(usize) -> f64) -> usize {
    let mut best = (f64::INFINITY, 0);
    let mut equal = 0;
    for r in 0..count {
        let score = score(r);
        if score < best.0 {
            best = (score, r);
            equal = 1;
        } else if score == best.0 {
            equal += 1;
            if rng.below(equal) == 0 {
                best.1 = r;
            }
        }
    }
    best.1
}

impl Policy {
    /// The replica for a request.
    pub fn choose(self, q: &Question<'_>, rng: &mut Rng) -> usize {
        let n = q.books.len();
        let requests = |r: usize| f64::from(q.books[r].requests);
        let hit = |r: usize| f64::from(q.matched[r].0.min(q.prompt - 1) / BLOCK * BLOCK);
        let prompt = f64::from(q.prompt);
        match self {
            Self::Ours => ours(q, rng),
            Self::Random => rng.below(n),
            Self::LeastRequest => least(n, rng, requests),
            Self::TwoChoices => {
                let (a, b) = (rng.below(n), rng.below(n));
                if requests(a) <= requests(b) { a } else { b }
            }
            Self::PrefixOnly => least(n, rng, |r| requests(r) - hit(r) * 1e6),
            Self::Logit => least(n, rng, |r| {
                let prefill = (q.books[r].backlog_tokens as f64 + prompt - hit(r)).max(0.0);
                (prefill + q.books[r].context_tokens as f64) / f64::from(BLOCK)
            }),
            Self::Product => least(n, rng, |r| {
                let prefill = prompt - hit(r) + q.books[r].backlog_tokens as f64;
                prefill * (requests(r) + 1.0)
            }),
            Self::Weighted => weighted(q, rng),
            Self::Threshold => {
                let all = || q.books.iter().map(|b| b.requests);
                let (low, high) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
                let unbalanced = high - low > 64 && f64::from(high) > 1.5 * f64::from(low);
                let best = (0..n).map(hit).fold(0.0, f64::max);
                if unbalanced || best / prompt <= 0.3 {
                    return least(n, rng, requests);
                }
                least(n, rng, |r| requests(r) - hit(r) * 1e6)
            }
        }
    }
}

/// 2 × queue + 2 × free memory + 3 × prefix, each 0..1 over the candidates.
fn weighted(q: &Question<'_>, rng: &mut Rng) -> usize {
    let span = |values: &mut dyn Iterator<Item = u32>| {
        values.fold((u32::MAX, 0), |(low, high), v| (low.min(v), high.max(v)))
    };
    let queue = span(&mut q.books.iter().map(|b| b.waiting));
    let prefix = span(&mut q.matched.iter().map(|m| m.0));
    let share = |v: u32, (low, high): (u32, u32)| {
        if high > low {
            f64::from(v - low) / f64::from(high - low)
        } else {
            0.0
        }
    };
    least(q.books.len(), rng, |r| {
        let book = &q.books[r];
        let free = 1.0 - f64::from(book.kv_usage_permille) / 1_000.0;
        2.0 * share(book.waiting, queue) - 2.0 * free - 3.0 * share(q.matched[r].0, prefix)
    })
}

fn ours(q: &Question<'_>, rng: &mut Rng) -> usize {
    let candidates: Vec<Candidate> = (0u16..)
        .zip(q.books.iter().zip(q.matched.iter().zip(q.ramp_permille)))
        .map(
            |(r, (book, (&(matched, announced), &ramp_permille)))| Candidate {
                replica: ReplicaIndex(r),
                dp_rank: None,
                ramp_permille,
                kv_usage_permille: book.kv_usage_permille,
                matched_tokens: matched,
                any_tokens: matched,
                announced_tokens: announced,
                requests: book.requests,
                waiting: book.waiting,
                // As the filter: what it computes of this very prompt need not be waited for more than
                // anywhere else.
                backlog_tokens: book
                    .backlog_tokens
                    .saturating_sub(prefill_work(announced, matched)),
                context_tokens: book.context_tokens,
                rates: book.rates,
            },
        )
        .collect();
    let decision = pick::pick(&PickInput {
        prompt_tokens: q.prompt,
        block_size: BLOCK,
        candidates: &candidates,
        prefix_key: q.key,
        session: None,
        looked_up: true,
        random: rng.next(),
    });
    decision.endpoints.first().map_or(0, |r| usize::from(r.0))
}
