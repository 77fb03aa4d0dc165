//! What several tests share; each uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod call;
pub mod logger;
pub mod trace;
