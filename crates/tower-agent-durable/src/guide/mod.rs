//! Guides: how to keep a conversation, how to survive a crash, and how to deploy a server.

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

#[cfg_attr(feature = "sqlite", doc = include_str!("deployment.md"))]
#[cfg_attr(not(feature = "sqlite"), doc = "Needs the feature `sqlite`.")]
#[cfg_attr(
    feature = "sqlite",
    doc = concat!(
        "# A complete program\n\n```\n",
        include_str!("../../examples/deployment.rs"),
        "\n```"
    )
)]
pub mod deployment {}
