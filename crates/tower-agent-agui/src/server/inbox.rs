use std::future::ready;
use std::sync::Arc;

use futures_util::StreamExt;

use super::agui::AgUi;
use tower_agent::error::Resolution;
use tower_agent_conversations::{
    Continuation, ConversationKey, ConversationQuery, Inbox, QuestionPage, Refusal, Roles,
};

/// The questions of the server's threads. The client of a thread receives what the agent does next
/// with its next run.
impl Inbox for AgUi {
    async fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> Result<QuestionPage, Refusal> {
        let is_of_other = |server: &Arc<str>| **server != *self.name;
        if query.app.as_ref().is_some_and(is_of_other) {
            return Ok(QuestionPage::default());
        }
        Ok(AgUi::questions(self, query, roles).await?)
    }

    async fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> Result<Continuation, Refusal> {
        let run = AgUi::answer(self, key, roles, answer).await?;
        Ok(Continuation::new(run.for_each(|_| ready(()))))
    }

    async fn answer_expired(&self) -> Result<usize, Refusal> {
        Ok(AgUi::answer_expired(self).await?)
    }
}
