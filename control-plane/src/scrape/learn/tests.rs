use super::*;

/// Totals of an engine that prefills `rate` tokens a second and takes `step_s` a token.
struct Sim {
    figures: Figures,
    rate: f64,
    step_s: f64,
    says_computed: bool,
}

impl Sim {
    fn new(rate: f64, step_s: f64) -> Self {
        let zero = Mean::default();
        let figures = Figures {
            prefill: Some(zero),
            between_tokens: Some(zero),
            prompt_tokens: Some(0.0),
            cache_hits: Some(0.0),
            running: Some(1.0),
            ..Figures::default()
        };
        Self {
            figures,
            rate,
            step_s,
            says_computed: true,
        }
    }

    /// A request ends whose prefill shared its steps with `others`.
    fn end(&mut self, prompt: u32, hit: u32, others: f64) {
        let f = &mut self.figures;
        let work = prefill_work(hit, prompt) as f64;
        let prefill = f.prefill.as_mut().unwrap();
        prefill.count += 1.0;
        prefill.sum += work / self.rate * (1.0 + others);
        *f.prompt_tokens.as_mut().unwrap() += f64::from(prompt);
        *f.cache_hits.as_mut().unwrap() += f64::from(hit);
        if self.says_computed {
            *f.computed_tokens.get_or_insert(0.0) += f64::from(prompt - hit);
        }
        let between = f.between_tokens.as_mut().unwrap();
        between.count += 100.0;
        between.sum += 100.0 * self.step_s;
    }
}

fn near(got: u32, wanted: f64) -> bool {
    (f64::from(got) / wanted - 1.0).abs() < 0.25
}

#[test]
fn the_rates_are_found_by_what_an_engine_counts() {
    for (rate, step_s) in [(3_000.0, 0.03), (60_000.0, 0.008)] {
        let (mut sim, mut learning) = (Sim::new(rate, step_s), Learning::default());
        assert_eq!(learning.take(&sim.figures, 0), None);
        let mut rates = None;
        for n in 1..200u32 {
            sim.end(4_000 + n * 37 % 9_000, n % 2 * 1_600, 0.0);
            rates = learning.take(&sim.figures, u64::from(n) * 200);
        }
        let rates = rates.unwrap();
        assert!(near(rates.prefill_tokens_per_s, rate), "{rates:?}");
        assert!(near(rates.step_us, step_s * 1e6), "{rates:?}");
    }
}

#[test]
fn where_an_engine_does_not_say_what_it_computed_it_is_prompts_less_hits() {
    let (mut sim, mut learning) = (Sim::new(20_000.0, 0.02), Learning::default());
    sim.says_computed = false;
    let mut rates = None;
    for n in 1..2_000u32 {
        sim.end(6_000, n % 2 * 3_200, 0.0);
        rates = learning.take(&sim.figures, u64::from(n) * 200);
    }
    assert!(near(rates.unwrap().prefill_tokens_per_s, 20_000.0));
}

#[test]
fn prompts_that_share_their_steps_do_not_make_the_engine_look_slow() {
    let (mut sim, mut learning) = (Sim::new(40_000.0, 0.02), Learning::default());
    learning.take(&sim.figures, 0);
    let mut rates = None;
    // Five at a time, each of 2,000 tokens: they take 0.25 s together, and each of them all of it.
    for n in 1..800u64 {
        for _ in 0..5 {
            sim.end(2_000, 0, 4.0);
        }
        rates = learning.take(&sim.figures, n * 258);
    }
    let rate = rates.unwrap().prefill_tokens_per_s;
    assert!((25_000..50_000).contains(&rate), "{rate}");
}

#[test]
fn a_restart_an_idle_engine_and_nonsense_teach_nothing() {
    let mut learning = Learning::default();
    let mut sim = Sim::new(10_000.0, 0.02);
    for n in 0..50 {
        assert_eq!(learning.take(&sim.figures, n * 200), None);
    }
    sim.end(5_000, 0, 0.0);
    let learned = learning.take(&sim.figures, 10_200).unwrap();
    let anew = Sim::new(10_000.0, 0.02);
    assert_eq!(learning.take(&anew.figures, 10_400), Some(learned));
    let odd = Figures {
        prefill: Some(Mean {
            sum: -5.0,
            count: 1e300,
        }),
        prompt_tokens: Some(-1.0),
        ..sim.figures
    };
    for n in 0..20 {
        learning.take(&odd, 11_000 + n);
        learning.take(&Figures::default(), 11_000 + n);
    }
}

#[test]
fn a_load_is_believed_while_it_is_read_and_moves() {
    let busy = Load {
        running: 3,
        waiting: 1,
        kv_usage_permille: 10,
    };
    let mut belief = Belief::default();
    assert_eq!(belief.take(None, None, 0), Some(Load::default()));
    assert_eq!(belief.take(Some("a 1"), Some(busy), 100), Some(busy));
    // It stays as it was for a while.
    assert_eq!(belief.take(None, None, 200), None);
    assert_eq!(belief.take(Some("no load"), None, 3_000), None);
    assert_eq!(belief.take(None, None, 3_100), Some(Load::default()));
    assert_eq!(belief.take(Some("a 2"), Some(busy), 4_000), Some(busy));
    // The same text again and again, from an engine that has work.
    assert_eq!(belief.take(Some("a 2"), Some(busy), 13_900), Some(busy));
    assert_eq!(
        belief.take(Some("a 2"), Some(busy), 14_000),
        Some(Load::default())
    );
    assert_eq!(belief.take(Some("a 3"), Some(busy), 14_100), Some(busy));
    // One that has none may well be idle.
    let idle = Load::default();
    assert_eq!(belief.take(Some("b"), Some(idle), 15_000), Some(idle));
    assert_eq!(belief.take(Some("b"), Some(idle), 99_000), Some(idle));
}
