use std::sync::Arc;

use serde_json::{Map, Value};
use tower_agent::error::Interrupt;

use super::interrupt_ids::InterruptIds;
use super::shown::ShownMessage;

/// A stored thread, for another device of its user or after a reload; created by
/// [`Threads::show`](crate::Threads::show).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShownThread {
    /// The messages that its client has, oldest first.
    pub messages: Vec<ShownMessage>,
    /// The state of the latest run.
    pub state: Map<String, Value>,
    /// The open interrupts: those that the reader may [answer](crate::Roles::may_answer), and those
    /// of others.
    pub interrupts: Vec<Interrupt>,
    /// The ids under which the interrupts are answered.
    pub interrupt_ids: InterruptIds,
    /// The id of the latest run.
    pub run_id: Arc<str>,
    /// The mark of the device that receives this, which it passes with its
    /// [input](crate::ClientInput::reader).
    pub reader: String,
}
