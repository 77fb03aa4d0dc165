//! Sessions and durable runs, against real databases.

mod database;
mod journal;
