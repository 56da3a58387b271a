//! The control plane: hears what engines say about their caches, keeps which replica holds which
//! prefix, and tells the gateways.
//!
//! | module | what it does |
//! |---|---|
//! | [`events`] | ZMQ frames -> KV events |
//! | [`vocab`] | token ids -> bytes |
//! | [`profiles`] | a model's folder -> prompt profile and vocabulary |
//! | [`block_hash`] | vLLM's own block hash, recomputed |
//! | [`subscriber`] | follows one engine's events: order, replay, restarts |
//! | [`config`] | the configuration file |
//! | [`cli`] | the command line |

pub mod block_hash;
pub mod cli;
pub mod config;
pub mod events;
pub mod profiles;
pub mod subscriber;
pub mod vocab;
