//! The open questions of sessions and durable runs, as an inbox.

mod place;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::StreamExt;
use futures_util::future::{Either, ready, select};
use futures_util::stream;
use tokio::sync::Mutex;
use tower::ServiceExt;
use tower_agent::agent::{AgentService, BoxAgent};
use tower_agent::error::{AnswerError, Error, ErrorKind, Interrupt, Resolution};
use tower_agent::{AgentRequest, Request};
use tower_agent_conversations::{
    Accepted, Continuation, ConversationKey, ConversationQuery, Inbox, InputPart, Question,
    QuestionPage, Refusal, RefusalKind, Roles, SessionLayer,
};
use tower_layer::Layer;

use self::place::{Place, Sessions};
use crate::journal::JournalError;

/// The number of conversations with expired questions whose agents go on at once.
const EXPIRED_AT_ONCE: usize = 8;

/// The open questions of an agent's sessions, or of its durable runs, as an
/// [`Inbox`](tower_agent_conversations::Inbox). Cloning is O(1).
///
/// The [key](ConversationKey) of a session has its application, user and name; that of a run has
/// its agent, user and id. A question is answered under the id of its
/// [interrupt](tower_agent::Interrupt::id).
///
/// ```
/// use tower_agent::{Agent, BoxError};
/// use tower_agent_durable::{AgentInbox, Sqlite};
/// use tower_agent_conversations::{ConversationQuery, Inbox, Inboxes, Roles, SessionLayer};
/// # use tower_agent_test::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
/// # let payer = agent.clone();
/// let database = Sqlite::in_memory().await?;
/// let sessions = AgentInbox::sessions(SessionLayer::new(database.clone()), "shop", agent);
/// let runs = AgentInbox::runs(database.runs(), "payer", payer);
/// // With `AgUi` as a third, and `InboxService` around them.
/// let inbox = Inboxes::default().with(sessions).with(runs);
/// let page = inbox.questions(&ConversationQuery::new(), &Roles::new(["support"])).await?;
/// assert!(page.questions.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// A durable run in a session has its question in the inbox of the sessions alone.
#[derive(Clone)]
pub struct AgentInbox {
    place: Arc<dyn Place>,
    agent: BoxAgent,
    /// Held until an answer is accepted: a journal takes the same answer, given twice at once, for
    /// that of a process which takes the run over.
    answering: Arc<Mutex<()>>,
}

impl AgentInbox {
    /// Creates the inbox of the sessions that this layer stores for an application. The layer is
    /// put around the agent.
    pub fn sessions(
        layer: SessionLayer,
        app: impl Into<Arc<str>>,
        agent: impl AgentService,
    ) -> Self {
        let place = Sessions {
            layer: layer.clone(),
            app: app.into(),
        };
        Self::new(place, layer.layer(agent))
    }

    /// Creates the inbox of the durable runs of the agent with this name. The agent has the journal
    /// in its callbacks.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub fn runs(
        runs: crate::journal::Runs,
        name: impl Into<Arc<str>>,
        agent: impl AgentService,
    ) -> Self {
        let agent_name = name.into();
        Self::new(
            place::DurableRuns {
                runs,
                agent: agent_name,
            },
            agent,
        )
    }

    fn new(place: impl Place + 'static, agent: impl AgentService) -> Self {
        Self {
            place: Arc::new(place),
            agent: BoxAgent::new(agent),
            answering: Arc::default(),
        }
    }

    /// Runs the agent until its request is accepted. Returns what it does then.
    async fn begin(&self, request: AgentRequest) -> Result<Continuation, Refusal> {
        let (signal, accepted) = Accepted::new();
        let context = request.context().clone();
        let run = self.agent.clone().oneshot(request.with_extension(signal));
        let run = match select(Box::pin(run), accepted).await {
            Either::Left((ended, _)) => {
                return match ended {
                    Ok(_) => Ok(Continuation::new(ready(()))),
                    Err(error) => Err(refused(&error)),
                };
            }
            Either::Right((_, run)) => run,
        };
        Ok(Continuation::new(async move {
            if let Err(error) = run.await {
                let error = error.to_string();
                let run_id = context.run_id();
                tracing::warn!(run_id, error = %error.escape_debug(), "a run that was answered has failed");
            }
        }))
    }

    /// Lets the agent go on in a conversation with expired questions. Returns whether it did.
    async fn run_expired(&self, key: ConversationKey) -> bool {
        let begun = async {
            let _answering = self.answering.lock().await;
            let open = self.open(&key).await?;
            if !has_expired(&open) {
                return Err(not_open());
            }
            let request = self.place.request(&key).await;
            self.begin(request.map_err(|error| broken(&*error))?).await
        };
        match begun.await {
            Ok(run) => {
                run.await;
                true
            }
            Err(refusal) => {
                tracing::debug!(%refusal, "an expired question stays open for now");
                false
            }
        }
    }

    /// Returns the open interrupts of a conversation that waits.
    async fn open(&self, key: &ConversationKey) -> Result<Vec<Interrupt>, Refusal> {
        let open = self.place.open(key).await;
        open.map_err(|error| broken(&*error))
    }
}

impl Inbox for AgentInbox {
    async fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> Result<QuestionPage, Refusal> {
        let query = query.clone().waiting();
        let listed = self.place.list(&query).await;
        let listed = listed.map_err(|error| broken(&*error))?;
        let is_full = listed.len() >= usize::try_from(query.limit).unwrap_or(usize::MAX);
        let last = listed.last().filter(|_| is_full);
        let next = last.map(|last| query.clone().after(last));
        let mut questions = Vec::new();
        for info in listed {
            for interrupt in self.open(&info.key).await? {
                let is_for_role = interrupt.answerer.role().is_some();
                if is_for_role && roles.may_answer(&interrupt.answerer) {
                    let id = interrupt.id.clone();
                    let key = info.key.clone();
                    questions.push(Question::new(key, id, info.updated_at, interrupt));
                }
            }
        }
        Ok(QuestionPage::new(questions, next))
    }

    async fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        mut answer: Resolution,
    ) -> Result<Continuation, Refusal> {
        let _answering = self.answering.lock().await;
        let open = self.open(&key).await?;
        let asked = open.iter().find(|open| open.id == answer.id);
        let asked = asked.ok_or_else(not_open)?;
        if asked.answerer.role().is_none() || !roles.may_answer(&asked.answerer) {
            let why = "the question is for a role that its sender does not have";
            return Err(refusal(RefusalKind::Forbidden, why));
        }
        // Whatever name it came with: the server's own counts.
        answer.by = roles.name().map(str::to_owned);
        let now = SystemTime::now();
        let checked = asked.check(&answer, now);
        checked.map_err(|error| Refusal::unfit(InputPart::Answer(0), &error))?;
        // The outcome of a question whose time is over is nobody's.
        let answer = asked.answer_at(now).unwrap_or(answer);
        let request = self.place.request(&key).await;
        let request = request.map_err(|error| broken(&*error))?;
        self.begin(request.with_resolutions([answer])).await
    }

    async fn answer_expired(&self) -> Result<usize, Refusal> {
        let mut query = Some(ConversationQuery::new().waiting());
        let mut keys = Vec::new();
        while let Some(page) = query {
            let listed = self.place.list(&page).await;
            let listed = listed.map_err(|error| broken(&*error))?;
            query = listed.last().map(|last| page.after(last));
            for info in listed {
                if has_expired(&self.open(&info.key).await?) {
                    keys.push(info.key);
                }
            }
        }
        let runs = keys.into_iter().map(|key| self.run_expired(key));
        let went_on = stream::iter(runs).buffer_unordered(EXPIRED_AT_ONCE);
        Ok(went_on.filter(|went_on| ready(*went_on)).count().await)
    }
}

fn has_expired(open: &[Interrupt]) -> bool {
    let now = SystemTime::now();
    open.iter().any(|open| open.answer_at(now).is_some())
}

/// Returns the refusal of a request that was not accepted.
fn refused(error: &Error) -> Refusal {
    match error.downcast_ref::<JournalError>() {
        Some(JournalError::Unfit { why, .. }) => {
            return Refusal::unfit(InputPart::Answer(0), why);
        }
        Some(
            JournalError::EarlierRequest { .. }
            | JournalError::NotOpen { .. }
            | JournalError::UnknownRun { .. },
        ) => return not_open(),
        Some(JournalError::OtherRequest { .. } | JournalError::TakenOver { .. }) => return busy(),
        _ => {}
    }
    if let Some(why) = error.downcast_ref::<AnswerError>() {
        return Refusal::unfit(InputPart::Answer(0), why);
    }
    match error.kind() {
        ErrorKind::Conflict => busy(),
        _ => broken(error),
    }
}

fn not_open() -> Refusal {
    let why =
        "the question is not open: it was answered, abandoned, has changed or was never asked";
    refusal(RefusalKind::NotOpen, why)
}

fn busy() -> Refusal {
    let why = "another run is active in this conversation: try again when it has ended";
    refusal(RefusalKind::Busy, why)
}

fn refusal(kind: RefusalKind, why: &str) -> Refusal {
    Refusal::new(kind, InputPart::Answer(0), why)
}

fn broken(error: &(dyn std::error::Error + 'static)) -> Refusal {
    tracing::error!(error = %error.to_string().escape_debug(), "an inbox failed");
    refusal(
        RefusalKind::Store,
        "the conversation could not be loaded or stored; try again",
    )
}

impl fmt::Debug for AgentInbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentInbox").finish_non_exhaustive()
    }
}
