//! pick
