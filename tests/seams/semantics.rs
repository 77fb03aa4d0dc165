//! Presets go down the tree of agents.
