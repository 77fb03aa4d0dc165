use std::sync::Arc;
use std::time::SystemTime;

use tower_agent::error::Interrupt;

use crate::key::ConversationKey;
use crate::query::ConversationQuery;

/// An open question for an approver; found by [`Inbox::questions`](crate::Inbox::questions).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The conversation that waits, whose [server](ConversationKey::app) is the agent's.
    pub key: ConversationKey,
    /// The id under which it is answered.
    pub id: Arc<str>,
    /// The time when it was asked, or asked again.
    pub asked_at: SystemTime,
    /// The question itself. The role of those who answer is its
    /// [answerer](tower_agent::Interrupt::answerer).
    pub interrupt: Interrupt,
}

/// The questions of one page of conversations. Empty and the last one by default.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct QuestionPage {
    /// The questions, the latest first.
    pub questions: Vec<Question>,
    /// The query for the next page; `None` behind the last one.
    pub next: Option<ConversationQuery>,
}

impl Question {
    /// Creates a question, for an inbox of your own.
    pub fn new(
        key: ConversationKey,
        id: impl Into<Arc<str>>,
        asked_at: SystemTime,
        interrupt: Interrupt,
    ) -> Self {
        Self {
            key,
            id: id.into(),
            asked_at,
            interrupt,
        }
    }
}

impl QuestionPage {
    /// Creates a page, for an inbox of your own.
    #[must_use]
    pub fn new(questions: Vec<Question>, next: Option<ConversationQuery>) -> Self {
        Self { questions, next }
    }
}
