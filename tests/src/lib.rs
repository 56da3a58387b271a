//! The end-to-end harness: starts the real programs (engine simulators, control plane, Envoy) on
//! free ports from the shipped configuration files, drives them, and reads what they say.
//!
//! Nothing here knows how prompts are hashed or endpoints picked: a test compares what the filter
//! predicted (Envoy's access log) with what the engine reports (`cached_tokens`).

pub mod access_log;
pub mod bodies;
pub mod client;
pub mod open_loop;
pub mod ports;
pub mod process;
pub mod stack;
pub mod stats;
pub mod trap;
pub mod workload;
