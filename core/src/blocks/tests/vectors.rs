//! Frozen hashes.
