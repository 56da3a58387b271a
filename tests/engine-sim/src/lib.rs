//! Simulated engine.
