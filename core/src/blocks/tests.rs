//! Tests of the cutter and the hash.
