//! A simulated vLLM engine, for tests, benches and `make run`: OpenAI's API over HTTP, a block manager that
//! behaves as vLLM's, KV events over ZMQ with replay, vLLM's metrics, a time model, and faults on command.
//!
//! It is the other side of the wire, so it shares no code with the router: its tokenizer, chat template, block
//! hashes and event encoder are its own. See the README for how each is checked.
//!
//! ```no_run
//! let engine = engine_sim::spawn(engine_sim::Config::default())?;
//! println!("{} publishes at {:?}", engine.url(), engine.events_endpoint());
//! engine.restart(std::time::Duration::from_millis(100));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_pool;
mod config;
mod core;
mod event;
mod generate;
mod hash;
mod http;
mod metrics;
mod model;
mod publisher;
mod python_json;
mod scheduler;
mod supervisor;
mod template;

pub use config::{Config, Lora, WireVersion};
pub use http::Fault;
pub use model::{Model, model_dir};
pub use publisher::Published;
pub use supervisor::{Engine, run, spawn};
