//! Frozen pages.
