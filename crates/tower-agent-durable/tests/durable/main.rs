//! Sessions and durable runs, against real databases.

mod conformance;
mod database;
mod journal;
mod faults;
mod server;
mod sessions;
mod writers;
