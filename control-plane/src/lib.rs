//! The control plane: hears what engines say about their caches, keeps which replica holds which
//! prefix, and tells the gateways.
//!
//! | module | what it does |
//! |---|---|
//! | [`events`] | ZMQ frames -> KV events |
//! | [`cli`] | the command line |

pub mod cli;
pub mod events;
