use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join_all};
use tower_agent::error::Resolution;

use super::{Continuation, Inbox};
use crate::key::ConversationKey;
use crate::query::{ConversationInfo, ConversationQuery};
use crate::question::{Question, QuestionPage};
use crate::refusal::{InputPart, Refusal, RefusalKind};
use crate::roles::Roles;

/// Several inboxes as one.
///
/// The servers in the [keys](ConversationKey::app) of their conversations have to differ.
///
/// ```
/// use tower_agent_conversations::{Inbox, Inboxes};
///
/// fn of_the_shop(support: impl Inbox, billing: impl Inbox) -> impl Inbox {
///     Inboxes::default().with(support).with(billing)
/// }
/// ```
#[derive(Clone, Default)]
pub struct Inboxes(Vec<Arc<dyn ErasedInbox>>);

trait ErasedInbox: Send + Sync {
    fn questions<'a>(
        &'a self,
        query: &'a ConversationQuery,
        roles: &'a Roles,
    ) -> BoxFuture<'a, Result<QuestionPage, Refusal>>;
    fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> BoxFuture<'_, Result<Continuation, Refusal>>;
    fn answer_expired(&self) -> BoxFuture<'_, Result<usize, Refusal>>;
}

impl<I: Inbox> ErasedInbox for I {
    fn questions<'a>(
        &'a self,
        query: &'a ConversationQuery,
        roles: &'a Roles,
    ) -> BoxFuture<'a, Result<QuestionPage, Refusal>> {
        Box::pin(Inbox::questions(self, query, roles))
    }

    fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> BoxFuture<'_, Result<Continuation, Refusal>> {
        Box::pin(Inbox::answer(self, key, roles, answer))
    }

    fn answer_expired(&self) -> BoxFuture<'_, Result<usize, Refusal>> {
        Box::pin(Inbox::answer_expired(self))
    }
}

impl Inboxes {
    /// Adds an inbox.
    #[must_use]
    pub fn with(mut self, inbox: impl Inbox) -> Self {
        self.0.push(Arc::new(inbox));
        self
    }
}

impl Inbox for Inboxes {
    async fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> Result<QuestionPage, Refusal> {
        let pages = self.0.iter().map(|inbox| inbox.questions(query, roles));
        let mut questions = Vec::new();
        let mut ends = Vec::new();
        for page in try_join_all(pages).await? {
            questions.extend(page.questions);
            ends.extend(page.next.and_then(|next| next.after));
        }
        // A page ends where the first of the pages does: behind that, the others may lack some.
        let end = ends
            .into_iter()
            .max_by(|a, b| a.position().cmp(&b.position()));
        if let Some(end) = &end {
            questions.retain(|question| position(question) >= end.position());
        }
        questions.sort_by(|a, b| Reverse(position(a)).cmp(&Reverse(position(b))));
        let next = end.map(|end: ConversationInfo| query.clone().after(&end));
        Ok(QuestionPage { questions, next })
    }

    async fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> Result<Continuation, Refusal> {
        for inbox in &self.0 {
            match inbox
                .answer(key.clone(), roles.clone(), answer.clone())
                .await
            {
                Err(refusal) if refusal.kind == RefusalKind::NotOpen => {}
                answered => return answered,
            }
        }
        let why = "the question is not open: it was answered, has changed or was never asked";
        Err(Refusal::new(
            RefusalKind::NotOpen,
            InputPart::Answer(0),
            why,
        ))
    }

    async fn answer_expired(&self) -> Result<usize, Refusal> {
        let inboxes = self.0.iter().map(|inbox| inbox.answer_expired());
        Ok(try_join_all(inboxes).await?.into_iter().sum())
    }
}

/// Returns the place of a question in a list, as [`ConversationInfo::position`] does.
fn position(question: &Question) -> (std::time::SystemTime, &ConversationKey) {
    (question.asked_at, &question.key)
}

impl fmt::Debug for Inboxes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inboxes")
            .field("number", &self.0.len())
            .finish_non_exhaustive()
    }
}
