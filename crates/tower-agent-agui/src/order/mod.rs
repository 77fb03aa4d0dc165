//! `(Event, &mut Vec<Event>) -> Result<(), Violation>`
//!
//! Clients reject a run whose events are out of order. [`OrderKeeper`] takes events from any source
//! and emits them in order.
//!
//! ```
//! use tower_agent_agui::{Event, OrderKeeper};
//!
//! let mut keeper = OrderKeeper::new("t1", "r1");
//! let mut out = Vec::new();
//! keeper.push(Event::text_content("m1", "Hello"), &mut out)?;
//! keeper.push(Event::run_finished("t1", "r1"), &mut out)?;
//! assert_eq!(
//!     out,
//!     [
//!         Event::run_started("t1", "r1"),
//!         Event::text_start("m1"),
//!         Event::text_content("m1", "Hello"),
//!         Event::text_end("m1"),
//!         Event::run_finished("t1", "r1"),
//!     ],
//! );
//! # Ok::<_, tower_agent_agui::Violation>(())
//! ```
//!
//! # What is repaired, and what is rejected
//!
//! | input | output |
//! |---|---|
//! | anything but `RUN_STARTED` or `RUN_ERROR` as the first event | `RUN_STARTED`, then the event |
//! | a second `RUN_STARTED` | nothing |
//! | `RUN_STARTED`, `RUN_FINISHED` of another run | [`Violation::WrongRun`] |
//! | anything after the terminal event | nothing |
//! | no terminal event, at [`finish`](OrderKeeper::finish) | `RUN_ERROR` |
//! | `RUN_FINISHED` while entities are open | their ends, the last opened first, then the event |
//! | an interrupted run without interrupts | [`Violation::EmptyInterrupt`] |
//! | a start of an open entity | nothing |
//! | content of text or reasoning that is not open | its start, then the event |
//! | arguments of a call that is not open | [`Violation::NotOpen`]: the tool is unknown |
//! | an end of an entity that is not open | nothing |
//! | a chunk | a start if needed, and content; the end follows with the owner's next event |
//! | a chunk without an id, and nothing to continue | [`Violation::Chunk`] |
//! | a step finished by an agent that did not start it | [`Violation::Owner`] |
//! | an event whose subagent is not that of its message, call or activity | [`Violation::Owner`] |
//! | a tool call whose subagent is not that of its message | [`Violation::Owner`] |
//! | a subagent id that was used before | [`Violation::SubagentReused`] |
//! | a subagent with a parent that was not started | [`Violation::UnknownParent`] |
//!
//! An event without a subagent matches any owner. All other events pass unchanged, and so does a
//! stream that is in order and has no chunks.

mod chunks;
mod ends;
mod keeper;
mod lanes;
mod owners;
mod sequence;
mod violation;

pub use self::keeper::OrderKeeper;
pub use self::violation::Violation;
