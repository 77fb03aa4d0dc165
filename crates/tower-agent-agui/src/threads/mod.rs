//! `ThreadStore: load, save`
//!
//! The server's data about its threads, and the stores for it: see [trust](crate#trust).

mod account;
mod claim;
mod keeper;
mod memory;
mod seal;
mod store;
mod take;
mod thread;

pub use self::memory::MemoryThreads;
pub use self::seal::{SealKey, SealKeys};
pub use self::store::{ThreadKey, ThreadStore};
pub use self::thread::{Thread, ThreadEntries, ThreadEntry};

pub(super) use self::claim::finish;
pub(super) use self::keeper::{Begun, Keeper, Keeping, Kept, Progress, begin};
pub(super) use self::store::BoxStore;
pub(super) use self::take::Allowed;
