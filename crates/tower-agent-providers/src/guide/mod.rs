//! Guides.

#[doc = include_str!("write_a_protocol.md")]
#[doc = "```"]
#[doc = include_str!("../../examples/cohere/protocol.rs")]
#[doc = "```"]
pub mod write_a_protocol {}
