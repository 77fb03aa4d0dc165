//! Callbacks: their hooks and order, and what users of other frameworks expect of them.

mod adk_elixir;
mod adk_python;
mod bands;
mod bundles;
mod changes;
mod forms;
mod hook_matrix;
mod langchain;
mod ordering;
mod potato;
mod refusals;
mod trpc;
