//! What only one protocol has.

mod cohere;
mod responses;
