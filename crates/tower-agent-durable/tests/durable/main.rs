//! Sessions and durable runs, against real databases.

mod composed;
mod conformance;
mod database;
mod dbos;
mod disk;
mod faults;
mod journal;
mod memory;
mod proxy;
mod restate;
mod served;
mod server;
mod sessions;
mod stored;
mod threads;
mod writers;
