//! Guides.

#[doc = include_str!("hosts.md")]
#[cfg(feature = "openai")]
#[cfg_attr(docsrs, doc(cfg(feature = "openai")))]
pub mod hosts {}

#[doc = include_str!("write_a_protocol.md")]
#[doc = "```"]
#[doc = include_str!("../../examples/cohere/protocol.rs")]
#[doc = "```"]
pub mod write_a_protocol {}
