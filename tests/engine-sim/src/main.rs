//! `engine-sim`: one simulated vLLM engine. See the README beside it.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use engine_sim::{Config, Lora, WireVersion};

/// What the model does, as vLLM's `--runner`.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Runner {
    Generate,
    Pooling,
}

/// A simulated vLLM engine: OpenAI API, prefix cache, KV events over ZMQ, metrics, faults on command.
///
/// Example: engine-sim --listen 127.0.0.1:8101 --events 'tcp://*:5557' --replay 'tcp://*:5558'
#[derive(Parser)]
#[command(
    version,
    about,
    after_help = "Faults: curl -d '{\"kind\":\"restart\"}' http://127.0.0.1:8101/sim/fault   State: curl http://127.0.0.1:8101/sim/state"
)]
struct Cli {
    /// HTTP address.
    #[arg(long, default_value = "127.0.0.1:8101")]
    listen: SocketAddr,
    /// Name told to clients in the x-engine header [default: the listen address].
    #[arg(long)]
    name: Option<String>,
    /// ZMQ endpoint of KV events (bound if it holds `*`, else connected to); "" for none.
    #[arg(long, default_value = "tcp://*:5557")]
    events: String,
    /// ZMQ endpoint of the replay socket; "" for none.
    #[arg(long, default_value = "tcp://*:5558")]
    replay: String,
    /// First frame of event messages.
    #[arg(long, default_value = "")]
    topic: String,
    /// Served model name.
    #[arg(long, default_value = "sim")]
    model: String,
    /// Answers chats and completions, or gives embeddings.
    #[arg(long, value_enum, default_value_t = Runner::Generate)]
    runner: Runner,
    /// LoRA adapter NAME=PATH (may be repeated).
    #[arg(long)]
    lora: Vec<Lora>,
    /// Tokens per KV block.
    #[arg(long, default_value_t = 16)]
    block_size: u32,
    /// KV blocks; one of them is never used, as in vLLM.
    #[arg(long, default_value_t = 4096)]
    blocks: u32,
    /// Longest prompt plus answer, in tokens [default: what the blocks hold, at most 131072].
    #[arg(long)]
    max_model_len: Option<u32>,
    /// Requests running at once.
    #[arg(long, default_value_t = 256)]
    max_num_seqs: u32,
    /// Tokens scheduled per step.
    #[arg(long, default_value_t = 8192)]
    max_num_batched_tokens: u32,
    /// Refuse with 503 above this many waiting and running requests.
    #[arg(long)]
    max_num_queued_reqs: Option<u32>,
    /// Refuse with 503 above this many prompt tokens still to prefill.
    #[arg(long)]
    max_num_queued_tokens: Option<u64>,
    /// vLLM version whose wire form is spoken: 0.10 to 0.33.
    #[arg(long, default_value = "0.32")]
    wire_version: WireVersion,
    /// Block hashes on the wire as 32 raw bytes (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0).
    #[arg(long)]
    bytes_hashes: bool,
    /// Times faster than a real engine (20,000 prompt tokens/s, 8 ms a step); 0: no waiting at all.
    #[arg(long, default_value_t = 4.0)]
    speed: f64,
    /// Share of generated words whose tokens differ from what re-tokenising gives, 0 to 1.
    #[arg(long, default_value_t = 0.001)]
    noncanonical_rate: f64,
    /// Event batches kept for replay.
    #[arg(long, default_value_t = 10_000)]
    buffer_steps: usize,
    /// Data-parallel ranks, each with a cache of its own; events and replay of rank N at PORT + N.
    #[arg(long, default_value_t = 1)]
    data_parallel_size: u16,
    /// No prefix caching: nothing is found again, and no events.
    #[arg(long)]
    no_enable_prefix_caching: bool,
    /// `usage` does not tell cached tokens, as vLLM without --enable-prompt-tokens-details.
    #[arg(long)]
    no_prompt_tokens_details: bool,
    /// Streams end with `usage`, asked or not.
    #[arg(long)]
    enable_force_include_usage: bool,
    /// As the variable PYTHONHASHSEED: what hash chains begin with.
    #[arg(long)]
    python_hash_seed: Option<String>,
    /// Tell of a NIXL connector in this role: kv_producer, kv_consumer or kv_both.
    #[arg(long)]
    kv_role: Option<String>,
    /// Changes the answers.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Cli {
    fn config(self) -> Config {
        let endpoint = |s: String| Some(s).filter(|s| !s.is_empty());
        Config {
            name: self.name.unwrap_or_else(|| self.listen.to_string()),
            listen: self.listen,
            model: self.model,
            lora: self.lora,
            events: endpoint(self.events),
            replay: endpoint(self.replay),
            topic: self.topic,
            block_size: self.block_size,
            blocks: self.blocks,
            max_model_len: self.max_model_len,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            max_num_queued_reqs: self.max_num_queued_reqs,
            max_num_queued_tokens: self.max_num_queued_tokens,
            wire: self.wire_version,
            bytes_hashes: self.bytes_hashes,
            speed: self.speed,
            noncanonical_rate: self.noncanonical_rate,
            buffer_steps: self.buffer_steps,
            seed: self.seed,
            data_parallel_size: self.data_parallel_size,
            pooling: self.runner == Runner::Pooling,
            prefix_caching: !self.no_enable_prefix_caching,
            prompt_tokens_details: !self.no_prompt_tokens_details,
            force_include_usage: self.enable_force_include_usage,
            python_hash_seed: self.python_hash_seed,
            kv_role: self.kv_role,
            ..Config::default()
        }
    }
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info")),
        )
        .with_writer(std::io::stderr)
        .init();
    let config = Cli::parse().config();
    if let Err(wrong) = config.validate() {
        eprintln!("{wrong}");
        return ExitCode::from(2);
    }
    match engine_sim::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
