//! Teams of agents.

mod builder;
mod config;
mod parallel;
mod sequence;
mod service;

pub use self::builder::TeamBuilder;
