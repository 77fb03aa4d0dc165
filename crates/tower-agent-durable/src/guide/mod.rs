//! Guides: how to keep a conversation, and how to survive a crash.

#[doc = include_str!("keeping.md")]
#[doc = "# A complete program: a checkpoint by hand"]
#[doc = "```"]
#[doc = include_str!("../../examples/checkpoint_file.rs")]
#[doc = "```"]
#[doc = "# A complete program: sessions"]
#[cfg_attr(feature = "sqlite", doc = "```")]
#[cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
#[doc = include_str!("../../examples/session_store.rs")]
#[doc = "```"]
pub mod keeping {}
