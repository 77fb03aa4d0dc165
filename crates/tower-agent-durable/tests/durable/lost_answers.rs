//! A process is lost in a call whose questions were answered. Whoever goes on with the run, and in
//! whatever way: the operator is asked about the call, and nobody is asked again who has answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use test_support::property::sample;
use test_support::store::EndedLeases;
use tower::{Layer, ServiceExt, service_fn};
use tower_agent::agent::{AgentService, BoxAgent};
use tower_agent::callback::{after_tool, wrap_agent};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, BoxError, Effect, ErrorKind, Message, ModelRequest,
    ModelResponse, Resolution, Tool, ToolRequest, ToolResponse,
};
use tower_agent_conversations::SessionLayer;
use tower_agent_durable::journal::{Durable, RunQuery, RunStatus, UnfinishedStep};
use tower_agent_middleware::approval::{Approval, Decision};

use crate::aged::Aged;
use crate::kept::{Kept, key};
use crate::memory::Memory;

/// What support has said.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    Yes,
    /// With another amount.
    Edited,
    No,
    /// Two of them, one after the other.
    TwoYes,
}

impl Said {
    const ALL: [Self; 4] = [Self::Yes, Self::Edited, Self::No, Self::TwoYes];

    fn answers(self) -> Vec<(&'static str, Decision)> {
        match self {
            Self::Yes => vec![("sam", Decision::Approve)],
            Self::Edited => vec![("sam", Decision::Edit(json!({ "cents": 5 })))],
            Self::No => vec![("sam", Decision::reject("no"))],
            Self::TwoYes => vec![("sam", Decision::Approve), ("sue", Decision::Approve)],
        }
    }

    /// Returns what each attempt of the call pays.
    fn pays(self) -> Option<i64> {
        match self {
            Self::Yes | Self::TwoYes => Some(7),
            Self::Edited => Some(5),
            Self::No => None,
        }
    }
}

/// How the operator's answer goes on with the run.
#[derive(Clone, Copy, Debug)]
enum By {
    Id,
    /// As a request with an id of its own.
    AnotherId,
    List,
}

/// The parts of a program. The session is in another store than the journal.
struct Program {
    kept: Kept,
    said: Said,
    place: Aged,
    store: Memory,
    paid: Arc<Mutex<Vec<i64>>>,
    /// The process has come to the end of the call, and stops there.
    has_stopped: Arc<AtomicBool>,
}

impl Program {
    async fn new(name: &str, kept: Kept, said: Said) -> Self {
        Self {
            kept,
            said,
            place: Aged::new(name).await,
            store: Memory::default(),
            paid: Arc::default(),
            has_stopped: Arc::default(),
        }
    }

    /// Returns the agent as callers have it.
    fn agent(&self) -> BoxAgent {
        let clerk = self.clerk();
        if self.kept == Kept::Journal {
            return BoxAgent::new(clerk);
        }
        self.in_session(clerk)
    }

    fn in_session(&self, clerk: impl AgentService) -> BoxAgent {
        let store = EndedLeases(self.store.clone());
        BoxAgent::new(SessionLayer::new(store).layer(clerk))
    }

    /// Returns the agent, which stops once after the call and whatever guards it.
    fn clerk(&self) -> Agent {
        let paid = self.paid.clone();
        let pay = move |arguments: Value| {
            paid.lock()
                .unwrap()
                .push(arguments["cents"].as_i64().unwrap());
            "paid"
        };
        let has_stopped = self.has_stopped.clone();
        let stops = after_tool(move |_: &ToolRequest, _: &ToolResponse| {
            let is_first = !has_stopped.swap(true, Ordering::SeqCst);
            async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
            }
        });
        let day = Duration::from_secs(24 * 60 * 60);
        let approval = Approval::of_tools(["pay"]).by_role("support");
        let mut approval = approval.allow_edits().deny_after(day);
        if self.said == Said::TwoYes {
            approval = approval.by_two();
        }
        let model = service_fn(|request: ModelRequest| async move {
            let mut results = request.messages().iter().flat_map(Message::tool_results);
            Ok::<_, BoxError>(match results.next() {
                None => {
                    let call = ToolCall::new("c", "pay", json!({ "cents": 7 }));
                    ModelResponse::from_tool_calls([call])
                }
                Some(_) => ModelResponse::from_text("Well."),
            })
        });
        Agent::builder(model)
            .name("clerk")
            .tool(Tool::function("pay", "Pays.", pay).effect(Effect::Mutating))
            .on_tool(stops)
            .on_tool(approval)
            .global_callbacks(Durable::new(self.place.database.clone()))
            .build()
            .unwrap()
    }

    /// Returns the request that goes on after this one.
    async fn next(&self, by: By, last: &AgentResponse) -> AgentRequest {
        let runs = self.place.runs();
        let request = match (by, self.kept) {
            (By::List, _) => {
                let waiting = RunQuery::new().status(RunStatus::Waiting);
                let waiting = runs.list(&waiting).await.unwrap().remove(0);
                return runs.request(&waiting).await.unwrap();
            }
            (_, Kept::Journal) => AgentRequest::resume(last.checkpoint()),
            _ => key().request(AgentRequest::default()),
        };
        match by {
            By::AnotherId => request,
            _ => request.with_run_id("run 1"),
        }
    }

    /// Gives support's answers, and is lost in the call after the last one. Returns the last one.
    async fn is_lost(&self) -> Resolution {
        let agent = self.agent();
        let first = AgentRequest::new("Pay.").with_run_id("run 1");
        let first = match self.kept {
            Kept::Journal => first,
            _ => key().request(first),
        };
        let mut asked = agent.clone().oneshot(first).await.unwrap();
        let mut answers = self.said.answers();
        let (name, last) = answers.pop().unwrap();
        for (name, decision) in answers {
            let next = self.answer(By::Id, &asked, name, decision).await;
            asked = agent.clone().oneshot(next).await.unwrap();
        }
        let given = resolution(&asked, name, last);
        let next = self.next(By::Id, &asked).await;
        self.is_lost_with(next.with_resolutions([given.clone()]))
            .await;
        given
    }

    /// Returns the request that answers the open question.
    async fn answer(
        &self,
        by: By,
        asked: &AgentResponse,
        name: &str,
        answer: impl Into<Value>,
    ) -> AgentRequest {
        let answer = resolution(asked, name, answer);
        self.next(by, asked).await.with_resolutions([answer])
    }

    /// Is lost in the call of this request.
    async fn is_lost_with(&self, request: AgentRequest) {
        self.has_stopped.store(false, Ordering::SeqCst);
        let mut run = Box::pin(self.agent().oneshot(request));
        while !self.has_stopped.load(Ordering::SeqCst) {
            assert!(futures::poll!(&mut run).is_pending());
            tokio::task::yield_now().await;
        }
        // Neither dropped nor polled any more: a process that is killed writes nothing more.
        std::mem::forget(run);
        self.place.a_minute_later().await;
    }

    /// Goes on with the lost run, and returns how it waits for the operator alone.
    async fn resume(&self, what: &str) -> AgentResponse {
        let runs = self.place.runs();
        let lost = RunQuery::of_agent("clerk");
        let resumed = runs.resume_lost(&lost, self.agent()).await.unwrap();
        let asks = resumed.into_iter().next().expect(what).1.unwrap();
        waits_for_operator(&asks, what);
        asks
    }
}

/// Returns the answer to the open question.
fn resolution(asked: &AgentResponse, name: &str, answer: impl Into<Value>) -> Resolution {
    Resolution::resolved(&asked.interrupts()[0].id, answer).with_name(name)
}

fn waits_for_operator(asks: &AgentResponse, what: &str) {
    let open = asks.interrupts();
    assert_eq!(open.len(), 1, "{what}: {open:?}");
    assert_eq!(open[0].reason, UnfinishedStep::REASON, "{what}");
}

/// Support answers, and the process is lost so often in the call.
async fn one(kept: Kept, said: Said, by: By, losses: usize) {
    let what = format!("{kept:?}, {said:?}, {by:?}, lost {losses} times");
    let program = Program::new("lost-answers", kept, said).await;
    program.is_lost().await;
    let mut asks = program.resume(&what).await;
    for _ in 1..losses {
        let again = program.answer(by, &asks, "olga", UnfinishedStep::RunAgain);
        program.is_lost_with(again.await).await;
        asks = program.resume(&what).await;
    }
    // Somebody else comes first, who does not know the answer.
    let next = program.next(by, &asks).await;
    asks = program.agent().oneshot(next).await.expect(&what);
    waits_for_operator(&asks, &what);
    let again = program.answer(by, &asks, "olga", UnfinishedStep::RunAgain);
    let done = program.agent().oneshot(again.await).await.expect(&what);
    assert_eq!(done.text(), "Well.", "{what}: {:?}", done.interrupts());
    let paid = program.paid.lock().unwrap().clone();
    let pays = said.pays().map(|cents| vec![cents; losses + 1]);
    assert_eq!(paid, pays.unwrap_or_default(), "{what}");
    let mut results = done.messages().iter().flat_map(Message::tool_results);
    let mut names = results.next().unwrap().answered_by().to_vec();
    names.sort();
    names.dedup();
    let support = said.answers().into_iter().map(|(name, _)| name);
    let all: Vec<_> = std::iter::once("olga").chain(support).collect();
    assert_eq!(names, all, "{what}");
}

#[tokio::test]
async fn answers_of_a_lost_run_count_when_the_operator_has_answered() {
    let mut number = 0;
    for kept in [Kept::Journal, Kept::SessionAndJournal] {
        for said in Said::ALL {
            for by in [By::Id, By::AnotherId, By::List] {
                for losses in [1, 2] {
                    // Each of them somewhere.
                    if number % sample(5, 1) == 0 {
                        one(kept, said, by, losses).await;
                    }
                    number += 1;
                }
            }
        }
    }
}

/// The process is lost a second time when the journal has the operator's question, and before the
/// session has it. Nothing is paid for an answer that the session does not know, and the run goes
/// on when its request is sent again.
#[tokio::test]
async fn a_session_that_was_lost_before_its_run_asked_says_what_to_do() {
    let program = Program::new("lost-session", Kept::SessionAndJournal, Said::Yes).await;
    let given = program.is_lost().await;
    let question = Arc::new(Mutex::new(None));
    let asked = question.clone();
    let stops = wrap_agent(move |request, mut next| {
        let asked = asked.clone();
        async move {
            let response = next.run(request).await?;
            *asked.lock().unwrap() = Some(response.interrupts()[0].id.clone());
            std::future::pending().await
        }
    });
    let stopping = program.in_session(stops.layer(program.clerk()));
    let runs = program.place.runs();
    let lost = RunQuery::of_agent("clerk");
    let mut resumed = Box::pin(runs.resume_lost(&lost, stopping));
    while question.lock().unwrap().is_none() {
        assert!(futures::poll!(&mut resumed).is_pending());
        tokio::task::yield_now().await;
    }
    std::mem::forget(resumed);
    program.place.a_minute_later().await;

    let id = question.lock().unwrap().take().unwrap();
    let again = Resolution::resolved(id, UnfinishedStep::RunAgain).with_name("olga");
    let answer = || {
        let request = key().request(AgentRequest::default());
        request.with_resolutions([again.clone()])
    };
    let error = program.agent().oneshot(answer()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let what_to_do = "run `run 1` has asked, whose process was lost, send its request again";
    assert!(error.message().contains(what_to_do), "{error}");

    let lost = key()
        .request(AgentRequest::default())
        .with_run_id("run 1")
        .with_resolutions([given]);
    let asks = program.agent().oneshot(lost).await.unwrap();
    waits_for_operator(&asks, "sent again");
    assert_eq!(*program.paid.lock().unwrap(), [7]);
    let done = program.agent().oneshot(answer()).await.unwrap();
    assert_eq!(done.text(), "Well.");
    assert_eq!(*program.paid.lock().unwrap(), [7, 7]);
}
