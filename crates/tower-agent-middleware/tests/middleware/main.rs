//! Each middleware alone, and in stacks.

mod guard_stacks;
mod guards;
