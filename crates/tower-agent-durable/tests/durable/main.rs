//! Sessions and durable runs, against real databases.

mod aged;
mod answers;
mod composed;
mod conformance;
mod console;
mod database;
mod disk;
mod faults;
mod flow;
mod growth;
mod inbox;
mod journal;
mod kept;
mod killed_answers;
mod killed_forks;
mod listed;
mod lost_answers;
mod memory;
mod paused;
mod pooler;
mod proxy;
mod rate_limit;
mod rolling;
mod served;
mod sessions;
mod stored;
#[path = "../support/mod.rs"]
mod support;
mod thread_stores;
mod threads;
mod upgrades;
mod user_data;
mod watched;
mod writers;
