//! Presets go down the tree of agents, and mean there what they mean at its root.

mod endings;
mod globals;
mod tree;
