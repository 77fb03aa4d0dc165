//! The most that a client may say: who it is, and where, and what it sends to an inbox.
//!
//! The server of a protocol bounds everything else that its clients say.

#[cfg(feature = "http")]
use std::time::Duration;

/// The length of the name of an application or a user, in bytes.
pub(crate) const NAME: usize = 512;

/// The length of the id of a conversation, in bytes.
pub(crate) const ID: usize = 1024;

/// The devices of a thread that are told apart. Of more, the oldest is forgotten.
pub(crate) const DEVICES: usize = 32;

/// The size of the body of an answer, in bytes.
#[cfg(feature = "http")]
pub(crate) const BODY: usize = 1 << 20;

/// The time in which it has to arrive.
#[cfg(feature = "http")]
pub(crate) const BODY_TIME: Duration = Duration::from_secs(30);

/// The number of conversations on one page, if the request names none, and the maximum.
#[cfg(feature = "http")]
pub(crate) const PAGE: u32 = 100;
