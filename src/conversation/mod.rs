//! A conversation: what was said, by whom, in which order, what is open, and what is saved.
//!
//! [`ConversationRecord`] is a conversation while agents work on it, and [`Transcript`] one to
//! which the loop of an agent writes; [`Checkpoint`] is one that is saved, as a [`CheckpointHead`]
//! and messages. Each holds the conversations of agents that work inside a tool call or in
//! parallel, each in its own.
//!
//! # Messages
//!
//! A conversation is one list. Whoever looks at it knows a part of it by an index: the caller has
//! the messages [before](ConversationRecord::shared_with_caller) one, a run has added those from
//! one on, and a saved head says for [how many](Head) messages it was made. Only two things are
//! lists of their own, because their contents differ:
//!
//! | list | differs from the conversation |
//! |---|---|
//! | the request of the agent that opened it | callbacks may change the request before the agent's loop gets it |
//! | the messages of a loop | an agent that joins has a request of its own in place of the messages before it; a loop whose agent has ended goes on with the messages that it had |
//!
//! Each but the request has [two orders](OrderedMessages), which are the same unless a turn gets
//! its results in parts: that of arrival, by which indices count, and that of the calls.
//!
//! | returns | list | order | method |
//! |---|---|---|---|
//! | what is saved | the conversation, with the running turn closed | calls | [`save`](ConversationRecord::save), [`head`](ConversationRecord::head) |
//! | the agent's request | the request | arrival | [`request`](ConversationRecord::request) |
//! | the conversation of an agent or a team that begins | its own request, and the messages since | both | [`begin`](ConversationRecord::begin) |
//! | what the model receives | the messages of the loop | calls | [`messages`](Transcript::messages), [`read`](Transcript::read) |
//! | the response of the loop | the messages of the loop | both | [`ordered`](Transcript::ordered) |
//! | the response that an agent gave before | the conversation | calls | [`take_answer`](ConversationRecord::take_answer) |
//!
//! # Phases
//!
//! | phase | works on it | `open` | `write` | its loop ends | its agent responds | its agent ends |
//! |---|---|---|---|---|---|---|
//! | Idle | nobody | Open | Detached | | Over | |
//! | Open | an agent | another record | Writing | | Answered | Idle |
//! | Writing | an agent and its loop | another record | another record | Open or Answered | Writing | Detached |
//! | Detached | a loop whose agent has ended | another record | another record | Idle or Over | Detached | |
//! | Answered | an agent that has responded | another record | Writing | | Answered | Over |
//! | Over | nobody: it has its response | Open, as a new conversation | Detached | | Over | |

mod call_name;
mod checkpoint;
mod held;
mod ids;
mod interrupt;
mod millis;
mod open_calls;
mod order;
mod ordered_messages;
mod phase;
mod record;
mod repair;
mod saved;
pub(crate) mod saved_with;
mod slot;
mod step;
mod transcript;
mod unique;

pub(crate) use self::call_name::CallName;
pub use self::checkpoint::{Checkpoint, CheckpointHead};
pub use self::interrupt::{
    AnswerError, Answerer, Expiry, Interrupt, Resolution, ResolutionOutcome,
};
pub(crate) use self::ordered_messages::OrderedMessages;
pub(crate) use self::record::{ConversationRecord, Open};
pub(crate) use self::repair::{make_whole, refusal};
pub(crate) use self::saved::{Head, Paused};
pub(crate) use self::slot::Slot;
pub(crate) use self::step::{NextStep, PendingCalls, next_step, step_after};
pub(crate) use self::transcript::Transcript;
