//! Arrivals: who asks what, and when, drawn before anything is simulated, so that every policy meets
//! the very same requests.
//!
//! A prompt is a chain of segments: a group's shared beginning, a conversation's turns, a unique end.
//! Two prompts share exactly the segments that their chains begin with.

use crate::regime::{Family, Regime};
use crate::rng::{Rng, Zipf};

/// A segment's number.
pub type Segment = u32;

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// When it comes, in units of the mean time between requests.
    pub at: f64,
    /// Its prompt.
    pub chain: Box<[Segment]>,
    /// The prompt's length in tokens.
    pub prompt: u32,
    /// The answer's length in tokens, at least 1.
    pub output: u32,
    /// The segment that the answer becomes in the conversation's next turn, of its very length.
    pub answer: Option<Segment>,
    /// What a gateway would hash of the prompt's beginning.
    pub key: u64,
}

/// All requests of a run.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Length of each segment in tokens.
    pub segments: Vec<u32>,
    /// By time.
    pub requests: Vec<Request>,
}

/// Lengths are whole engine blocks of this many tokens.
pub const BLOCK: u32 = 16;

impl Trace {
    /// Draws `count` requests.
    #[must_use]
    pub fn draw(regime: &Regime, count: usize, seed: u64) -> Self {
        let mut draft = Draft {
            trace: Self::default(),
            rng: Rng::new(seed),
            regime: *regime,
        };
        match regime.family {
            Family::Groups { per_replica } => draft.groups(count, per_replica, 0),
            Family::Mixed { per_replica } => draft.groups(count, per_replica, 30),
            Family::Sessions { per_replica } => draft.sessions(count, per_replica),
        }
        draft.trace
    }
}

struct Draft {
    trace: Trace,
    rng: Rng,
    regime: Regime,
}

fn blocks(tokens: f64) -> u32 {
    ((tokens / f64::from(BLOCK)).round() as u32).max(1) * BLOCK
}

/// The longest prompt where the mean is that: contexts end somewhere.
fn longest(mean: f64) -> f64 {
    (mean * 3.9).min(mean.max(240_000.0))
}

impl Draft {
    fn segment(&mut self, tokens: u32) -> Segment {
        self.trace.segments.push(tokens);
        (self.trace.segments.len() - 1) as Segment
    }

    /// Around a mean, a quarter of it at least and four times at most.
    fn length(&mut self, mean: f64, sigma: f64) -> u32 {
        let drawn = self.rng.lognormal(mean, sigma);
        blocks(drawn.clamp(mean / 4.0, longest(mean)))
    }

    fn request(&mut self, at: f64, chain: Vec<Segment>, answer: Option<Segment>, output: u32) {
        let lengths = |n: usize| -> u32 {
            let chain = chain.iter().take(n);
            chain.map(|&s| self.trace.segments[s as usize]).sum()
        };
        let deep = (1..=chain.len()).find(|&n| lengths(n) >= 512);
        let deep = deep.unwrap_or(chain.len());
        let key = chain
            .iter()
            .take(deep)
            .fold(7, |key, &s| Rng::new(key ^ u64::from(s)).next());
        let prompt = lengths(chain.len());
        self.trace.requests.push(Request {
            at,
            chain: chain.into_boxed_slice(),
            prompt,
            output,
            answer,
            key,
        });
    }

    /// One request in `long_every` is unique and 20 times as long; 0: none.
    fn groups(&mut self, count: usize, per_replica: f64, long_every: usize) {
        let Regime {
            reuse,
            replicas,
            skew,
            ..
        } = self.regime;
        let (mean, output) = (f64::from(self.regime.prompt), f64::from(self.regime.output));
        let groups = ((per_replica * replicas as f64).round() as usize).max(1);
        let shared: Vec<Segment> = (0..groups)
            .filter(|_| reuse > 0.0)
            .map(|_| {
                let tokens = self.length(mean * reuse, 0.4);
                self.segment(tokens)
            })
            .collect();
        let zipf = Zipf::new(shared.len(), skew);
        let mut at = 0.0;
        for _ in 0..count {
            at += self.rng.exponential(1.0);
            let output = self.length(output, 0.6);
            if long_every > 0 && self.rng.below(long_every) == 0 {
                let tokens = self.length((mean * 20.0).min(100_000.0), 0.3);
                let long = self.segment(tokens);
                self.request(at, vec![long], None, output);
                continue;
            }
            let tail = self.length((mean * (1.0 - reuse)).max(16.0), 0.6);
            let tail = self.segment(tail);
            let chain = if shared.is_empty() {
                vec![tail]
            } else {
                vec![shared[zipf.draw(&mut self.rng)], tail]
            };
            self.request(at, chain, None, output);
        }
    }

    fn sessions(&mut self, count: usize, per_replica: f64) {
        let regime = self.regime;
        let live = (per_replica * regime.replicas as f64).max(2.0);
        let (mean, output) = (f64::from(regime.prompt), f64::from(regime.output));
        // Of a mean prompt, a quarter is a system prompt and the rest grew in as many turns as give
        // the wanted reuse: the last turn is what is new.
        let turns = (1.0 / (1.0 - regime.reuse).max(0.02)).clamp(1.0, 40.0);
        let systems = ((regime.replicas as f64 / 2.0).ceil() as usize).max(2);
        let systems: Vec<Segment> = (0..systems)
            .map(|_| {
                let tokens = self.length(mean * 0.25, 0.4);
                self.segment(tokens)
            })
            .collect();
        let zipf = Zipf::new(systems.len(), regime.skew);
        let said = (mean * 1.5 / turns - output).max(mean * 0.05);
        let mut begun = -4.0 * live * turns;
        let mut drawn: Vec<(f64, Vec<Segment>, Option<Segment>, u32)> = Vec::new();
        while begun < 2.0 * count as f64 {
            begun += self.rng.exponential(turns);
            let mut chain = vec![systems[zipf.draw(&mut self.rng)]];
            let mut at = begun;
            let mut left = 1 + self.rng.exponential(turns - 1.0).round() as usize;
            let longest = longest(mean);
            while left > 0 {
                left -= 1;
                let tokens = self.length(said, 0.5);
                chain.push(self.segment(tokens));
                let answer = self.length(output, 0.6);
                let long: u32 = chain.iter().map(|&s| self.trace.segments[s as usize]).sum();
                if f64::from(long + answer) > longest {
                    break;
                }
                let segment = self.segment(answer);
                if at >= 0.0 {
                    drawn.push((at, chain.clone(), Some(segment), answer));
                }
                chain.push(segment);
                at += live * (0.3 + self.rng.exponential(0.7));
            }
        }
        drawn.sort_by(|a, b| a.0.total_cmp(&b.0));
        drawn.truncate(count);
        // Conversations that were cut short leave fewer turns than asked for.
        let scale = count as f64 / drawn.last().map_or(1.0, |last| last.0);
        for (at, chain, answer, output) in drawn {
            self.request(at * scale, chain, answer, output);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regime::SMALL;

    fn regime(family: Family, reuse: f64) -> Regime {
        Regime {
            family,
            replicas: 8,
            prompt: 4_000,
            output: 100,
            reuse,
            skew: 0.9,
            load: 0.5,
            cache: 1.0,
            hardware: SMALL,
        }
    }

    /// Tokens of each prompt that an endless cache would hold, over all tokens.
    fn ideal_reuse(trace: &Trace) -> f64 {
        let mut seen = vec![false; trace.segments.len()];
        let (mut hit, mut all) = (0u64, 0u64);
        for request in &trace.requests {
            for &s in &request.chain {
                let tokens = u64::from(trace.segments[s as usize]);
                all += tokens;
                hit += if seen[s as usize] { tokens } else { 0 };
                seen[s as usize] = true;
            }
            if let Some(answer) = request.answer {
                seen[answer as usize] = true;
            }
        }
        hit as f64 / all as f64
    }

    #[test]
    fn prompts_share_as_much_as_asked() {
        for reuse in [0.0, 0.5, 0.9, 0.99] {
            let groups = regime(Family::Groups { per_replica: 2.0 }, reuse);
            let found = ideal_reuse(&Trace::draw(&groups, 4_000, 1));
            assert!((found - reuse).abs() < 0.06, "{reuse}: {found}");
        }
        for reuse in [0.5, 0.9] {
            let sessions = regime(Family::Sessions { per_replica: 10.0 }, reuse);
            let found = ideal_reuse(&Trace::draw(&sessions, 4_000, 1));
            assert!((found - reuse).abs() < 0.25, "{reuse}: {found}");
        }
    }

    #[test]
    fn arrivals_come_at_the_unit_rate_and_in_order() {
        for family in [
            Family::Groups { per_replica: 2.0 },
            Family::Mixed { per_replica: 2.0 },
            Family::Sessions { per_replica: 10.0 },
        ] {
            let trace = Trace::draw(&regime(family, 0.8), 4_000, 5);
            assert_eq!(trace.requests.len(), 4_000);
            assert!(trace.requests.is_sorted_by(|a, b| a.at <= b.at));
            let last = trace.requests[3_999].at;
            assert!((3_700.0..4_300.0).contains(&last), "{family:?}: {last}");
            let longest = trace.requests.iter().map(|r| r.prompt + r.output).max();
            let room = regime(family, 0.8).kv_tokens();
            assert!(u64::from(longest.unwrap()) < room);
        }
    }
}
