//! An agent as a whole: its loop, its teams, its tools, its data, its endings and its stream.

mod agent_loop;
mod agents_as_tools;
mod approval;
mod data;
mod endings;
mod errors;
mod explain;
mod faults;
mod finish_reasons;
mod no_answers;
mod observers;
mod own_calls;
mod prefix_notes;
mod probes;
mod semantics;
mod serve;
mod stack;
mod steps;
mod streams;
mod tasks;
mod teams;
mod tool_answers;
mod tools;
mod transfers;
mod typed;
mod warnings;
