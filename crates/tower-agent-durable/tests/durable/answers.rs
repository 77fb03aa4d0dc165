//! One question, answered on each way, wherever its run is kept: the tool is called once or not at
//! all, for the right user, and the question is open for nobody afterwards.

use std::sync::Arc;

use axum::http;
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use test_support::store::EndedLeases;
use tokio::sync::Notify;
use tower::{Layer, ServiceExt};
use tower_agent::agent::BoxAgent;
use tower_agent::error::ResolutionOutcome;
use tower_agent::{Agent, AgentRequest, Checkpoint, Resolution};
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_conversations::{
    Continuation, ConversationKey, ConversationQuery, Inbox, InboxService, Inboxes, Question,
    QuestionPage, Refusal, Roles, Session, SessionLayer,
};
use tower_agent_durable::journal::{Durable, RunKey, RunQuery, RunStatus, UnfinishedStep};
use tower_agent_durable::{AgentInbox, Sqlite};

use crate::kept::{Kept, key};
use crate::support::answers::{Case, Paid, Payment};
use crate::support::folder::Folder;
use crate::support::stops::Stops;

/// The way of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// The next request of the conversation.
    Request,
    Inbox,
    /// The inbox over HTTP.
    InboxHttp,
    /// The thread's own server over HTTP.
    ThreadHttp,
    /// The request that the list of runs has.
    Runs,
}

impl Way {
    pub(crate) const ALL: [Self; 5] = [
        Self::Request,
        Self::Inbox,
        Self::InboxHttp,
        Self::ThreadHttp,
        Self::Runs,
    ];

    /// Returns whether a run that is kept so has this way.
    pub(crate) fn knows(self, kept: Kept) -> bool {
        match self {
            // A thread's run goes on in the thread alone, and one without a journal is in no list.
            Self::Runs => kept.in_journal() && !kept.in_thread(),
            Self::ThreadHttp => kept.in_thread(),
            Self::Request | Self::Inbox | Self::InboxHttp => true,
        }
    }
}

pub(crate) fn run() -> RunKey {
    RunKey::new("run 1").of("ada")
}

/// A process.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) kept: Kept,
    pub(crate) case: Case,
    pub(crate) database: Sqlite,
    /// What a callback makes of the amount.
    pub(crate) factor: i64,
    pub(crate) stops: Stops,
}

impl Program {
    pub(crate) fn agent(&self) -> Agent {
        let mut agent = self.stops.agent(self.case, self.factor);
        if self.kept.in_journal() {
            agent = agent.global_callbacks(Durable::new(self.database.clone()));
        }
        agent.build().unwrap()
    }

    /// The process before may have been killed, and then its lease has ended.
    fn store(&self) -> EndedLeases<Sqlite> {
        EndedLeases(self.database.clone())
    }

    pub(crate) fn around(&self, agent: Agent) -> BoxAgent {
        if self.kept.in_session() {
            BoxAgent::new(SessionLayer::new(self.store()).layer(agent))
        } else {
            BoxAgent::new(agent)
        }
    }

    pub(crate) fn server(&self, agent: Agent) -> AgUi {
        let server = AgUi::builder(agent).name("shop").allow_partial_history();
        server.threads(self.store()).build()
    }

    /// Asks support. Returns where a run without a conversation goes on.
    pub(crate) async fn ask(&self) -> Checkpoint {
        let agent = self.agent();
        if self.kept.in_thread() {
            let input = RunAgentInput::new("1", "r1", [Message::user("m1", "Pay.")]);
            let run = self.server(agent).run_for("ada", input).await.unwrap();
            drop(run.collect::<Vec<_>>().await);
            return Checkpoint::default();
        }
        let request = match self.kept {
            Kept::Journal => run().request("Pay."),
            _ => key().request(AgentRequest::new("Pay.").with_run_id("run 1")),
        };
        let asked = self.around(agent).oneshot(request).await.unwrap();
        asked.checkpoint()
    }

    pub(crate) fn inbox(&self) -> Inboxes {
        let inboxes = Inboxes::default();
        if self.kept.in_thread() {
            inboxes.with(self.server(self.agent()))
        } else if self.kept.in_session() {
            let layer = SessionLayer::new(self.store());
            inboxes.with(AgentInbox::sessions(layer, "shop", self.agent()))
        } else {
            inboxes.with(AgentInbox::runs(
                self.database.runs(),
                "clerk",
                self.agent(),
            ))
        }
    }

    pub(crate) async fn open(&self) -> Vec<Question> {
        let inbox = self.inbox();
        let query = ConversationQuery::new();
        let support = Roles::new(["support", UnfinishedStep::ROLE]);
        inbox.questions(&query, &support).await.unwrap().questions
    }

    /// Gives an answer. Returns whether it was taken.
    pub(crate) async fn answer(&self, way: Way, question: &Question, from: &Checkpoint) -> bool {
        let role = match self.case {
            Case::WrongRole => "audit",
            _ => "support",
        };
        let name = self.case.name();
        let roles = Roles::new([role]).named(name);
        let answer = self.case.answer(&question.id, &question.interrupt);
        match way {
            Way::Inbox => match self
                .inbox()
                .answer(question.key.clone(), roles, answer)
                .await
            {
                Ok(run) => {
                    run.await;
                    true
                }
                Err(_) => false,
            },
            Way::InboxHttp => {
                let ended = Arc::<Notify>::default();
                let inbox = ToldInbox(self.inbox(), ended.clone());
                let service = InboxService::new(inbox, move |_| roles.clone());
                let ConversationKey { app, user, id, .. } = &question.key;
                let body = json!({
                    "key": { "app": app, "user": user, "id": id },
                    "id": question.id,
                    "answer": payload(&answer),
                });
                let response = service.oneshot(post(&body)).await.unwrap();
                let is_taken = response.status().is_success();
                if is_taken {
                    ended.notified().await;
                }
                is_taken
            }
            Way::ThreadHttp if self.kept.in_thread() => {
                let server = AgUi::builder(self.agent())
                    .name("shop")
                    .allow_partial_history()
                    .threads(self.store())
                    .principal(|_| Some("ada"))
                    .roles(move |_| roles.clone())
                    .build();
                let body = serde_json::to_value(answering(question, &answer)).unwrap();
                let response = server.oneshot(post(&body)).await.unwrap();
                let is_taken = response.status().is_success();
                drop(response.into_body().collect().await.unwrap());
                is_taken
            }
            Way::ThreadHttp => false,
            Way::Request if self.kept.in_thread() => {
                let input = answering(question, &answer);
                let server = self.server(self.agent());
                match server.run_with_roles("ada", roles, input).await {
                    Ok(run) => {
                        drop(run.collect::<Vec<_>>().await);
                        true
                    }
                    Err(_) => false,
                }
            }
            Way::Request => {
                let request = match self.kept {
                    Kept::Journal => run().request(AgentRequest::resume(from.clone())),
                    _ => key().request(AgentRequest::default()),
                };
                let agent = self.around(self.agent());
                agent
                    .oneshot(request.with_resolutions([answer]))
                    .await
                    .is_ok()
            }
            Way::Runs => {
                let waiting = RunQuery::new().status(RunStatus::Waiting);
                let runs = self.database.runs();
                let Some(run) = runs.list(&waiting).await.unwrap().into_iter().next() else {
                    return false;
                };
                let Ok(request) = runs.request(&run).await else {
                    return false;
                };
                let agent = self.around(self.agent());
                agent
                    .oneshot(request.with_resolutions([answer]))
                    .await
                    .is_ok()
            }
        }
    }
}

/// Returns the input of a client that answers.
fn answering(question: &Question, answer: &Resolution) -> RunAgentInput {
    let entry = json!({
        "interruptId": question.id, "status": "resolved", "payload": payload(answer),
    });
    let mut input = RunAgentInput::new("1", "r2", []);
    input.resume = vec![serde_json::from_value(entry).unwrap()];
    input
}

fn payload(answer: &Resolution) -> &Value {
    let ResolutionOutcome::Resolved(payload) = &answer.outcome else {
        panic!("{answer:?}");
    };
    payload
}

fn post(body: &Value) -> http::Request<Full<Bytes>> {
    let request = http::Request::post("/").header("content-type", "application/json");
    request.body(body.to_string().into()).unwrap()
}

/// An inbox that tells when what has followed an answer has ended.
struct ToldInbox(Inboxes, Arc<Notify>);

impl Inbox for ToldInbox {
    async fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> Result<QuestionPage, Refusal> {
        self.0.questions(query, roles).await
    }

    async fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> Result<Continuation, Refusal> {
        let run = self.0.answer(key, roles, answer).await?;
        let ended = self.1.clone();
        Ok(Continuation::new(async move {
            run.await;
            ended.notify_one();
        }))
    }

    async fn answer_expired(&self) -> Result<usize, Refusal> {
        self.0.answer_expired().await
    }
}

#[tokio::test]
async fn a_question_counts_once_on_every_way() {
    for kept in Kept::ALL {
        for way in Way::ALL {
            for case in Case::ALL {
                for is_reopened in [false, true] {
                    let what = format!("{kept:?}, {way:?}, {case:?}, reopened {is_reopened}");
                    one(kept, way, case, is_reopened, &what).await;
                }
            }
        }
    }
}

async fn one(kept: Kept, way: Way, case: Case, is_reopened: bool, what: &str) {
    let is_known = way.knows(kept);
    let folder = is_reopened.then(|| Folder::new("answers"));
    let open = async || match &folder {
        Some(folder) => Sqlite::open(folder.file("agent.db")).await.unwrap(),
        None => Sqlite::in_memory().await.unwrap(),
    };
    let paid = Paid::default();
    let process = |database, factor| Program {
        kept,
        case,
        database,
        factor,
        stops: Stops {
            paid: paid.clone(),
            ..Stops::default()
        },
    };
    let database = open().await;
    let first = process(database.clone(), 1);
    let from = first.ask().await;
    // The questions whose time is over are listed like all others.
    let question = first.open().await.into_iter().next().expect(what);

    let factor = case.factor();
    let second = if is_reopened {
        database.close().await;
        process(open().await, factor)
    } else {
        process(database, factor)
    };
    let is_taken = second.answer(way, &question, &from).await;
    // A session's caller and a journal's are trusted: they name the sender, and have no roles.
    let has_no_roles =
        case == Case::WrongRole && !kept.in_thread() && matches!(way, Way::Request | Way::Runs);
    let calls = if is_known && has_no_roles {
        1
    } else {
        case.calls()
    };
    let calls = if is_known { calls } else { 0 };
    let users = paid.lock().unwrap().clone();
    assert_eq!(
        users,
        vec![Payment("ada".to_owned(), 7); calls],
        "{what}, taken {is_taken}"
    );

    if case == Case::Twice {
        for again in Way::ALL {
            second.answer(again, &question, &from).await;
        }
        assert_eq!(paid.lock().unwrap().len(), 1, "{what}");
    }
    // Whatever is open now is another question, or this one as it was.
    let left = second.open().await;
    match case {
        Case::Once | Case::Twice | Case::Rejected | Case::Due
            if is_known || case == Case::Twice =>
        {
            assert!(left.is_empty(), "{what}: {left:?}");
        }
        Case::Changed if is_known && is_taken => {
            assert_eq!(left.len(), 1, "{what}");
            assert_ne!(left[0].id, question.id, "{what}");
        }
        Case::Own | Case::Unfit => {
            let left: Vec<_> = left.iter().map(|open| &open.id).collect();
            assert_eq!(left, [&question.id], "{what}");
        }
        _ => {}
    }
    if let Some(session) = Session::load(&second.database, &key()).await.ok().flatten() {
        assert!(!session.is_running, "{what}");
    }
}
