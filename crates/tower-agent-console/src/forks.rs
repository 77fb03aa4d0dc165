//! The forks that operators begin from the page, and the questions that these wait for.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tower_agent::error::{Answerer, Interrupt, Resolution};
use tower_agent::{Agent, AgentRequest, Checkpoint};
use tower_agent_conversations::{
    Continuation, ConversationKey, ConversationQuery, Inbox, InputPart, Question, QuestionPage,
    Refusal, RefusalKind, Roles,
};

use crate::fork::Fork;
use crate::lock::lock;

/// The server in the keys of their questions.
const APP: &str = "console";

/// The number of forks that may wait at once; the oldest go first.
const WAITING: usize = 1_000;

/// The forks that wait for answers, the oldest first. They are those of this process.
#[derive(Clone, Default)]
pub(crate) struct Forks(Arc<Mutex<Vec<Waiting>>>);

#[derive(Clone)]
struct Waiting {
    key: ConversationKey,
    agent: Agent,
    fork: Fork,
    checkpoint: Checkpoint,
    at: SystemTime,
}

impl Forks {
    /// Runs a fork until it ends or waits for answers.
    pub(crate) async fn run(self, agent: Agent, fork: Fork) {
        let request = AgentRequest::from(fork.clone());
        self.go(agent, fork, request).await;
    }

    async fn go(self, agent: Agent, fork: Fork, request: AgentRequest) {
        // How it has ended is in the record of the run.
        let Ok(response) = agent.run(request).await else {
            return;
        };
        if response.interrupts().is_empty() {
            return;
        }
        let mut waiting = lock(&self.0);
        if waiting.len() >= WAITING {
            waiting.remove(0);
        }
        waiting.push(Waiting {
            key: ConversationKey::new(APP, "", fork.run_id()),
            agent,
            fork,
            checkpoint: response.checkpoint(),
            at: SystemTime::now(),
        });
    }

    /// Lets go of some of those that wait.
    pub(crate) fn forget(&self, is_meant: impl Fn(&Fork) -> bool) {
        lock(&self.0).retain(|waiting| !is_meant(&waiting.fork));
    }

    /// Takes the fork that waits for the answer to a question, if this person may give it.
    fn take(
        &self,
        key: &ConversationKey,
        roles: &Roles,
        answer: &Resolution,
    ) -> Result<Waiting, Refusal> {
        let refusal = |kind, why: &str| Refusal::new(kind, InputPart::Answer(0), why);
        let not_open = || refusal(RefusalKind::NotOpen, "no fork waits for this answer");
        let mut waiting = lock(&self.0);
        let mut all = waiting.iter();
        let index = all.position(|waiting| waiting.key == *key);
        let index = index.ok_or_else(not_open)?;
        let questions = &waiting[index].checkpoint.head.interrupts;
        let mut questions = questions.iter();
        let question = questions.find(|question| question.id == answer.id);
        let question = question.ok_or_else(not_open)?;
        if !may_answer(roles, question) {
            let why = "the question is for another role";
            return Err(refusal(RefusalKind::Forbidden, why));
        }
        let checked = question.check(answer, SystemTime::now());
        checked.map_err(|error| Refusal::unfit(InputPart::Answer(0), &error))?;
        Ok(waiting.remove(index))
    }
}

/// Returns whether these roles may answer a question. Those who may fork stand in for the user,
/// whom a fork does not have.
fn may_answer(roles: &Roles, question: &Interrupt) -> bool {
    match &question.answerer {
        Answerer::User => roles.may_answer(&Answerer::Role(Fork::ROLE.to_owned())),
        other => roles.may_answer(other),
    }
}

impl Inbox for Forks {
    async fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> Result<QuestionPage, Refusal> {
        let is_meant = |wanted: &Option<Arc<str>>, known: &Arc<str>| {
            wanted.as_ref().is_none_or(|wanted| wanted == known)
        };
        let is_behind = |waiting: &&Waiting| {
            let last = query.after.as_ref();
            last.is_none_or(|last| (waiting.at, &waiting.key) < (last.updated_at, &last.key))
        };
        let waiting = lock(&self.0);
        let waiting = waiting.iter().rev().filter(|waiting| {
            is_meant(&query.app, &waiting.key.app) && is_meant(&query.user, &waiting.key.user)
        });
        let questions = waiting.filter(is_behind).flat_map(|waiting| {
            let questions = waiting.checkpoint.head.interrupts.iter();
            let open = questions.filter(|question| may_answer(roles, question));
            open.map(|question| {
                let id = question.id.clone();
                Question::new(waiting.key.clone(), id, waiting.at, question.clone())
            })
        });
        Ok(QuestionPage::new(questions.collect(), None))
    }

    async fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        mut answer: Resolution,
    ) -> Result<Continuation, Refusal> {
        answer.by = roles.name().map(str::to_owned);
        let Waiting {
            agent,
            fork,
            checkpoint,
            ..
        } = self.take(&key, &roles, &answer)?;
        let request = fork.resume(checkpoint).with_resolutions([answer]);
        Ok(Continuation::new(self.clone().go(agent, fork, request)))
    }

    /// Nobody waits for a fork whose questions have expired.
    async fn answer_expired(&self) -> Result<usize, Refusal> {
        Ok(0)
    }
}

impl fmt::Debug for Forks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forks").finish_non_exhaustive()
    }
}
