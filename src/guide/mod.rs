//! Longer texts: how to come from another framework, and what is proven of each.

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("conformance.md")]
pub mod conformance {}
