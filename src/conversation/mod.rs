//! A conversation: what was said, by whom, in which order, what is open, and what is saved.
//!
//! [`Record`] is a conversation while agents work on it; [`Checkpoint`] is one that is saved, as
//! a [`CheckpointHead`] and messages. Both hold the conversations of agents that work inside a tool call or
//! in parallel, each in its own.
//!
//! | returns | method |
//! |---|---|
//! | all messages, with the running turn closed | `save`, `head` |
//! | the messages as the model receives them: the loop's own request, results in the order of their calls | `messages`, `read`, `ordered` |
//! | the same in the order in which they came | `chronological` |
//! | the request of the agent that opened it | `request` |
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
mod interrupt;
mod millis;
mod open_calls;
mod order;
mod paused_turn;
mod record;
mod repair;
mod saved;
mod slot;
mod step;
mod unique;

pub(crate) use self::call_name::CallName;
pub(crate) use self::checkpoint::CALLS;
pub use self::checkpoint::{Checkpoint, CheckpointHead};
pub use self::interrupt::{Answerer, Expiry, Interrupt, Resolution, ResolutionOutcome};
pub(crate) use self::record::{Open, Record, Transcript};
pub(crate) use self::repair::{make_whole, refusal};
pub(crate) use self::saved::{Head, Paused};
pub(crate) use self::slot::Slot;
pub(crate) use self::step::{PendingCalls, Step, next_step};
