//! The protocols of the table.

pub mod chat;
pub mod responses;
