//! What this crate gives to tests, tested.

mod doubles;
mod recordings;
mod stable_prefix;
mod trajectories;
