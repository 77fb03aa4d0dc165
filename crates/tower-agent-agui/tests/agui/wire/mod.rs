//! AG-UI 1.0: what travels, in which order, and what it becomes.

mod conversation;
mod events;
mod history;
mod input;
mod order;
mod properties;
mod sse;
