//! Longer texts: how to come from another framework, and what is proven of each.

#[doc = include_str!("migration.md")]
#[doc = include_str!("migration/trpc.md")]
pub mod migration {}

#[doc = include_str!("conformance.md")]
#[doc = include_str!("conformance/trpc.md")]
pub mod conformance {}
