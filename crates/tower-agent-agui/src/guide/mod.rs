//! Guides: who approves what an agent does for a user.

#[doc = include_str!("staff_approves.md")]
#[doc = "```"]
#[doc = include_str!("../../examples/staff.rs")]
#[doc = "```"]
pub mod staff_approves {}
