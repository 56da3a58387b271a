//! Pure logic that the Envoy filter and the control plane share.
//!
//! Nothing here touches the world: no I/O, no clock, no randomness, no logging. Time and random
//! numbers are arguments. The same code runs natively in the control plane and as WebAssembly in
//! Envoy, which is what makes their block hashes equal.
//!
//! | module | what it turns into what |
//! |---|---|
//! | [`prompt`] | request body -> the text (or token ids) that the engine will see |
//! | [`blocks`] | text -> chained hashes of token-aligned blocks |
//! | [`table`] | which replica holds which prefix -> pages, and pages -> matches |
//! | [`sync`] | the bytes that a gateway and a control plane exchange |
//! | [`pick`] | matches and load -> endpoints in order, with a reason |
//! | [`reasons`] | a reason's name -> the byte that stands for it between programs, and back |
//! | [`recent`] | what was sent where a moment ago, in buckets of fixed size |
//! | [`usage`] | a response, as it streams by -> how much of the prompt the engine found cached |

pub mod blocks;
pub mod checksum;
pub mod ids;
pub mod pick;
pub mod prompt;
pub mod reasons;
pub mod recent;
pub mod sync;
pub mod table;
pub mod usage;
