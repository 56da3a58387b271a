//! Engines behind the picker, simulated event by event: where affinity helps, and that it never hurts.
//!
//! | module | what |
//! |---|---|
//! | [`rng`] | seeded chance |
//! | [`regime`] | hardware, fleet, prompts, load |
//! | [`workload`] | requests, drawn once and met by every policy |
//! | [`cache`] | an engine's KV cache by segments |
//! | [`engine`] | an engine after vLLM's scheduler |
//! | [`gateway`] | what a gateway knows: late events, old metrics, its own books |
//! | [`policy`] | who gets a request: `core::pick` itself, and what it is compared with |
//! | [`sim`] | one run |
//! | [`grid`] | many runs: the table of `docs/picking.md` |
//! | [`report`] | its Markdown |

pub mod cache;
pub mod engine;
pub mod gateway;
pub mod grid;
pub mod policy;
pub mod regime;
pub mod report;
pub mod rng;
pub mod sim;
pub mod workload;
