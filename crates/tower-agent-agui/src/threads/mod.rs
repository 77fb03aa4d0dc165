//! `ThreadStore: load, save`
//!
//! What the server knows of its threads, and where it is kept: see
//! [who may say what](crate#who-may-say-what).

mod account;
mod claim;
mod keeper;
mod memory;
mod seal;
mod store;
mod take;
mod thread;
mod told;

pub use self::memory::MemoryThreads;
pub use self::seal::{SealKey, SealKeys};
pub use self::store::{ThreadKey, ThreadStore};
pub use self::thread::Thread;

pub(super) use self::claim::finish;
pub(super) use self::keeper::{Begun, Keeper, Keeping, Kept, Progress, begin};
pub(super) use self::store::BoxStore;
