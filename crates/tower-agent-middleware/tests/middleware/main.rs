//! Each middleware alone, and in stacks.

mod conversations;
mod guard_stacks;
mod guards;
mod probes;
