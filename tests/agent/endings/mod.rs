//! Ends of a run: who may raise one, what it keeps, and how the next run continues.

mod cancelled;
mod continued;
mod finished_calls;
mod layers;
mod pauses;
mod runs;
mod teams;
mod transcripts;
mod turns;
