//! An agent as a whole: its loop, its teams, its data and its stream.

mod agent_loop;
mod agents_as_tools;
mod data;
mod endings;
mod endings_kept;
mod known_failures;
mod message_ids;
mod own_calls;
mod recordings;
mod semantics;
mod stable_prefix;
mod stack;
mod steps;
mod stored;
mod streams;
mod team_endings;
mod teams;
mod testing;
mod trajectories;
mod typed;
mod vocabulary;
mod written;
