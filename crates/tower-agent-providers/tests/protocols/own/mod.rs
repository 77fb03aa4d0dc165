//! What only one protocol has.

mod anthropic;
mod cohere;
mod responses;
