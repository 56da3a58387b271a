//! Simulated engine.
fn main() {}
