//! Longer texts: how to come from another framework, and what is proven of each.

#[doc = include_str!("migration.md")]
#[doc = include_str!("migration/potato.md")]
#[doc = include_str!("migration/adk_elixir.md")]
pub mod migration {}

#[doc = include_str!("conformance.md")]
#[doc = include_str!("conformance/potato.md")]
#[doc = include_str!("conformance/adk_elixir.md")]
pub mod conformance {}
