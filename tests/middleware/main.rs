//! Guards and tower's layers, alone and in stacks.

mod guard_stacks;
mod guards;
mod tower_layers;
