use std::sync::Arc;
use std::time::SystemTime;

use tower_agent::error::Interrupt;

use crate::key::ThreadKey;
use crate::query::ThreadQuery;

/// An open question of a thread, for an approver; found by
/// [`Threads::questions`](crate::Threads::questions).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The thread, whose [server](ThreadKey::server) is the agent's.
    pub key: ThreadKey,
    /// The id under which it is answered.
    pub id: Arc<str>,
    /// The time when it was asked, or asked again.
    pub asked_at: SystemTime,
    /// The question itself. The role of those who answer is its
    /// [answerer](tower_agent::Interrupt::answerer).
    pub interrupt: Interrupt,
}

/// The questions of one page of threads.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QuestionPage {
    /// The questions, the latest first.
    pub questions: Vec<Question>,
    /// The query for the next page; `None` behind the last one.
    pub next: Option<ThreadQuery>,
}
