//! `RateQueue: update, update_later, close`
//!
//! Rate limits in PostgreSQL: changes wait in a line for each limit, and one task a line writes
//! them.

mod lines;
mod queue;
mod table;
mod writer;

pub(super) use self::lines::short;
pub(super) use self::queue::RateQueue;
