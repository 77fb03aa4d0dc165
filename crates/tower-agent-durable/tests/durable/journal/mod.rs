//! Durable runs: what is replayed, what is made again, and what a kill leaves.

mod kill;
mod world;
