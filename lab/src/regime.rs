//! What is simulated: the hardware, the fleet, the prompts and the load.

/// How fast an engine is. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hardware {
    /// Shown in tables.
    pub name: &'static str,
    /// A step with nothing in it.
    pub step: f64,
    /// A prompt token, at the start of a prompt.
    pub per_prompt_token: f64,
    /// A decoding request.
    pub per_request: f64,
    /// A token of a decoding request's context.
    pub per_context_token: f64,
    /// Context at which a prompt token costs twice as much, in tokens.
    pub attention_tokens: f64,
}

/// About an 8 B model on one large GPU.
pub const SMALL: Hardware = Hardware {
    name: "8B",
    step: 0.007,
    per_prompt_token: 1.0 / 25_000.0,
    per_request: 40e-6,
    per_context_token: 40e-9,
    attention_tokens: 32_000.0,
};

/// About a 70 B model on four of them: slower, and dearer by weights than by attention.
pub const LARGE: Hardware = Hardware {
    name: "70B",
    step: 0.020,
    per_prompt_token: 1.0 / 7_000.0,
    per_request: 80e-6,
    per_context_token: 30e-9,
    attention_tokens: 80_000.0,
};

/// How prompts share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    /// Groups of prompts that share their beginning, `reuse` of it; the rest is unique.
    Groups {
        /// Groups per replica.
        per_replica: f64,
    },
    /// Conversations with growing context, over a few shared system prompts.
    Sessions {
        /// Conversations that are open at a time, per replica.
        per_replica: f64,
    },
    /// Groups, and one prompt in 30 that is unique and 20 times as long.
    Mixed {
        /// Groups per replica.
        per_replica: f64,
    },
}

/// One set of conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regime {
    /// How prompts share.
    pub family: Family,
    /// Engines.
    pub replicas: usize,
    /// Mean prompt length in tokens.
    pub prompt: u32,
    /// Mean answer length in tokens.
    pub output: u32,
    /// Share of a prompt that is shared with others, 0..1.
    pub reuse: f64,
    /// Zipf exponent of the groups' popularity.
    pub skew: f64,
    /// Arrivals relative to what least-request can serve.
    pub load: f64,
    /// KV memory of the whole fleet beyond what running requests need, in multiples of what is shared.
    pub cache: f64,
    /// The engines.
    pub hardware: Hardware,
}

impl Regime {
    /// Its conditions in a line.
    #[must_use]
    pub fn name(&self) -> String {
        let (family, per_replica) = match self.family {
            Family::Groups { .. } if self.reuse == 0.0 => ("unique", 0.0),
            Family::Groups { per_replica } => ("groups", per_replica),
            Family::Sessions { per_replica } => ("sessions", per_replica),
            Family::Mixed { per_replica } => ("mixed", per_replica),
        };
        format!(
            "{family} x{per_replica} reuse {:.0}% skew {} prompt {} out {} R={} cache {} {} load {}",
            self.reuse * 100.0,
            self.skew,
            self.prompt,
            self.output,
            self.replicas,
            self.cache,
            self.hardware.name,
            self.load
        )
    }

    /// KV memory of one engine, in tokens.
    #[must_use]
    pub fn kv_tokens(&self) -> u64 {
        let prompt = f64::from(self.prompt);
        let (per_replica, each, longest) = match self.family {
            Family::Groups { per_replica } => (per_replica, prompt * self.reuse, prompt * 4.0),
            Family::Sessions { per_replica } => (per_replica, prompt, prompt * 4.0),
            Family::Mixed { per_replica } => (per_replica, prompt * self.reuse, prompt * 80.0),
        };
        let output = f64::from(self.output);
        let longest = longest.min(prompt.max(260_000.0));
        let running = (16.0 * (prompt + output)).max(1.25 * (longest + 4.0 * output));
        (running + self.cache * per_replica * each) as u64 + 8_192
    }
}
