//! `doctor` against fleets: healthy, and broken in one way each. Engines are simulated ones that share
//! no code with the product; the control plane is a real one; gateways' pages are those of a real Envoy.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)] // a test

mod admin;
mod astray;
mod cli;
mod consequences;
mod control;
mod discovered;
mod docs;
mod engines;
mod events;
mod filters;
mod fleet;
mod gateways;
mod places;
mod polls;
mod prompts;
mod requests;
