//! Guides: conversations, trust, content that gives orders, who the user is, limits per user,
//! middleware, tower's layers, which layer did what, and migration from other frameworks.

#[doc = include_str!("migration.md")]
#[doc = include_str!("migration/potato.md")]
#[doc = include_str!("migration/adk_elixir.md")]
#[doc = include_str!("migration/trpc.md")]
#[doc = include_str!("migration/adk_python.md")]
#[doc = include_str!("migration/langchain.md")]
#[doc = include_str!("migration/openai_agents.md")]
#[doc = include_str!("migration/pydantic_ai.md")]
#[doc = include_str!("migration/rig.md")]
pub mod migration {}

#[doc = include_str!("conformance.md")]
#[doc = include_str!("conformance/potato.md")]
#[doc = include_str!("conformance/adk_elixir.md")]
#[doc = include_str!("conformance/trpc.md")]
#[doc = include_str!("conformance/adk_python.md")]
#[doc = include_str!("conformance/langchain.md")]
pub mod conformance {}

#[doc = include_str!("tower_layers.md")]
pub mod tower_layers {}

#[doc = include_str!("guards.md")]
pub mod guards {}

#[doc = include_str!("which_layer.md")]
pub mod which_layer {}

#[doc = include_str!("flow.md")]
pub mod flow {}

#[doc = include_str!("trust.md")]
pub mod trust {}

#[doc = include_str!("who_is_the_user.md")]
pub mod who_is_the_user {}

#[doc = include_str!("limits_per_user.md")]
pub mod limits_per_user {}

#[doc = include_str!("conversations.md")]
#[doc = "```"]
#[doc = include_str!("../../examples/sessions.rs")]
#[doc = "```"]
pub mod conversations {}
