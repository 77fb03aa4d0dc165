//! `(Event, &mut Vec<Event>) -> Result<(), Violation>`
//!
//! A front end refuses a run whose events come in the wrong order. [`OrderKeeper`] stands between
//! whatever makes events and whatever sends them: what leaves it is in order.
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
//! # What is repaired, and what is refused
//!
//! | what comes | what leaves |
//! |---|---|
//! | anything but `RUN_STARTED` or `RUN_ERROR` first | `RUN_STARTED`, then it |
//! | a second `RUN_STARTED` | nothing |
//! | `RUN_STARTED`, `RUN_FINISHED` of another run | [`Violation::WrongRun`] |
//! | anything after the terminal | nothing |
//! | no terminal, at [`finish`](OrderKeeper::finish) | `RUN_ERROR` |
//! | `RUN_FINISHED` while something is open | the ends of all that is open, last opened first, then it |
//! | an interrupt that waits for nothing | [`Violation::EmptyInterrupt`] |
//! | a start of what is open | nothing |
//! | content of text or of thoughts that is not open | its start, then it |
//! | arguments of a call that is not open | [`Violation::NotOpen`]: nobody knows the tool |
//! | an end of what is not open | nothing |
//! | a chunk | a start if needed, and content; the end comes with the owner's next event |
//! | a chunk that names nothing, and there is nothing to go on with | [`Violation::Chunk`] |
//! | a step finished by an agent that did not start it | [`Violation::Owner`] |
//! | an event whose subagent is not that of its message, call or activity | [`Violation::Owner`] |
//! | a tool call whose subagent is not that of the message that asks | [`Violation::Owner`] |
//! | a subagent's name used a second time | [`Violation::SubagentReused`] |
//! | a subagent begun by one that was not | [`Violation::UnknownParent`] |
//!
//! An event that names no subagent agrees with any owner. What is not in the table leaves as it
//! came. A stream that was in order and had no chunks leaves as it came.

mod chunks;
mod ends;
mod keeper;
mod owners;
mod violation;

pub use self::keeper::OrderKeeper;
pub use self::violation::Violation;
