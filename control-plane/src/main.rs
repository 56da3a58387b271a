//! prefix-picker.
fn main() {}
