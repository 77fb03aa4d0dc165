//! The protocols of the table.

pub mod chat;
pub mod cohere;
pub mod responses;
