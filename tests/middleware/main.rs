//! Guards and tower's layers, alone and in stacks.

mod guard_stacks;
mod guards;
#[path = "../support/mod.rs"]
mod support;
mod tower_layers;
