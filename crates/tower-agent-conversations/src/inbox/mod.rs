//! The open questions for staff, wherever they were asked.
//!
//! [`Inbox`] lists and answers them, [`Inboxes`] joins several, and [`InboxService`] serves them
//! over HTTP.

#[cfg(feature = "http")]
mod http;
mod inboxes;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower_agent::error::Resolution;

#[cfg(feature = "http")]
pub use self::http::{InboxService, ResponseFuture};
pub use self::inboxes::Inboxes;
use crate::key::ConversationKey;
use crate::query::ConversationQuery;
use crate::question::QuestionPage;
use crate::refusal::Refusal;
use crate::roles::Roles;

/// The open questions of conversations for others than their users: those [for a
/// role](tower_agent::Interrupt::for_role).
///
/// An AG-UI server is one, and so are the sessions and the durable runs of an agent: whatever knows
/// its agent, which goes on with the answer. Each conversation has a [`ConversationKey`], whatever
/// it is.
pub trait Inbox: Send + Sync + 'static {
    /// Returns the questions that somebody with these roles can answer, in the conversations on one
    /// page of a list. A page may have no questions although there are further ones.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or there is none.
    fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> impl Future<Output = Result<QuestionPage, Refusal>> + Send;

    /// Answers a question as somebody with these roles. Returns what the agent does next. The
    /// [name](Roles::named) that the roles have is that of the answer, whatever it came with.
    ///
    /// # Errors
    ///
    /// Fails before anything has run if the question is not open or not of this inbox, has
    /// [expired](tower_agent::Interrupt::with_expiry) or is not for one of the roles, if the answer
    /// does not [fit](tower_agent::Interrupt::check) or is not for this person to give, or if
    /// another run is active in the conversation.
    fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> impl Future<Output = Result<Continuation, Refusal>> + Send;

    /// Answers the questions that have [expired](tower_agent::Interrupt::with_expiry) with the
    /// outcomes that they name, those for users too, and lets the agent go on until those runs end.
    /// Returns the number of these conversations. Call it periodically.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or there is none. A conversation that cannot go on now is
    /// left to the next call.
    fn answer_expired(&self) -> impl Future<Output = Result<usize, Refusal>> + Send;
}

impl<I: Inbox> Inbox for Arc<I> {
    fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> impl Future<Output = Result<QuestionPage, Refusal>> + Send {
        (**self).questions(query, roles)
    }

    fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> impl Future<Output = Result<Continuation, Refusal>> + Send {
        (**self).answer(key, roles, answer)
    }

    fn answer_expired(&self) -> impl Future<Output = Result<usize, Refusal>> + Send {
        (**self).answer_expired()
    }
}

/// The run that goes on with an answer, until it ends; created by [`Inbox::answer`]. It stops if it
/// is dropped: spawn it to let it go on without the one who has answered.
#[must_use = "the agent does not go on until this is awaited or spawned"]
pub struct Continuation(BoxFuture<'static, ()>);

impl Continuation {
    /// Creates it from the run, for an inbox of your own.
    pub fn new(run: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(run))
    }
}

impl Future for Continuation {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Continuation").finish_non_exhaustive()
    }
}
