//! Scripted models, recordings, assertions and layers for tests, tested themselves.

mod doubles;
mod recordings;
mod stable_prefix;
mod trajectories;
