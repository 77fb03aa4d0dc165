//! Durable runs: what is replayed, what is made again, and what a kill leaves.

mod aborted;
mod alive;
mod away;
mod breaking;
mod compositions;
mod conformance;
mod crossings;
mod ended;
mod fingerprints;
mod full_disk;
mod kill;
mod kills;
mod lost;
mod lost_end;
mod messages;
mod overload;
mod program;
mod questions;
mod remembering;
mod replay;
mod rules;
mod secrets;
mod syncs;
mod takeover;
mod torn;
mod versions;
