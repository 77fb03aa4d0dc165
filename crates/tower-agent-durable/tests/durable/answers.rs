//! One question, answered on each way, wherever its run is kept: the tool is called once or not at
//! all, for the right user, and the question is open for nobody afterwards.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::agent::BoxAgent;
use tower_agent::callback::before_tool;
use tower_agent::error::ResolutionOutcome;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentRequest, Checkpoint, Effect, Request, Resolution, Tool, ToolRequest,
};
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_conversations::{
    ConversationKey, ConversationQuery, Inbox, Inboxes, Question, Roles, Session, SessionLayer,
};
use tower_agent_durable::journal::{Durable, RunKey, RunQuery, RunStatus};
use tower_agent_durable::{AgentInbox, Sqlite};
use tower_agent_middleware::approval::{Approval, Decision};

use crate::kept::{Kept, key};
use crate::support::folder::Folder;

/// The way of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The next request of the conversation.
    Request,
    Inbox,
    /// The request that the list of runs has.
    Runs,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Once,
    /// Again on each way.
    Twice,
    Rejected,
    /// Its time was over.
    Late,
    /// The call has had other arguments when it was resumed.
    Changed,
    WrongRole,
    /// The user's own approval.
    Own,
}

impl Case {
    const ALL: [Self; 7] = [
        Self::Once,
        Self::Twice,
        Self::Rejected,
        Self::Late,
        Self::Changed,
        Self::WrongRole,
        Self::Own,
    ];

    /// Returns how often the tool is called.
    fn calls(self) -> usize {
        match self {
            Self::Once | Self::Twice => 1,
            _ => 0,
        }
    }
}

fn run() -> RunKey {
    RunKey::new("run 1").of("ada")
}

/// The user of each payment, and its amount.
type Paid = Arc<Mutex<Vec<(String, i64)>>>;

/// A process.
struct Program {
    kept: Kept,
    case: Case,
    database: Sqlite,
    paid: Paid,
    /// What a callback makes of the amount.
    factor: i64,
}

impl Program {
    fn agent(&self, turns: impl IntoIterator<Item = Turn>) -> Agent {
        let paid = self.paid.clone();
        let pay = Tool::function_with(
            "pay",
            "Pays.",
            move |arguments: Value, call: ToolRequest| {
                let context = call.context();
                let user = match ConversationKey::of(context) {
                    Some(key) => key.user.to_string(),
                    None => {
                        let run = context.extensions().get::<RunKey>();
                        let user = run.and_then(|run| run.user.as_deref());
                        user.unwrap_or_default().to_owned()
                    }
                };
                let cents = arguments["cents"].as_i64().unwrap();
                paid.lock().unwrap().push((user, cents));
                std::future::ready("paid")
            },
        );
        let time = match self.case {
            Case::Late => Duration::ZERO,
            _ => Duration::from_secs(24 * 60 * 60),
        };
        let approval = Approval::of_tools(["pay"])
            .by_role("support")
            .not_by(|_| Some("ada".to_owned()))
            .deny_after(time);
        let factor = self.factor;
        let converts = before_tool(move |call: &mut ToolRequest| {
            let cents = call.arguments()["cents"].as_i64().unwrap_or_default();
            if cents < 1000 {
                *call.arguments_mut() = json!({ "cents": cents * factor });
            }
        });
        let mut agent = Agent::builder(ScriptedModel::new(turns))
            .name("clerk")
            .tool(pay.effect(Effect::Mutating))
            .on_tool(converts)
            .on_tool(approval);
        if self.kept.in_journal() {
            agent = agent.global_callbacks(Durable::new(self.database.clone()));
        }
        agent.build().unwrap()
    }

    /// Returns the agent that goes on.
    fn next(&self) -> Agent {
        self.agent([Turn::from_text("It is done.")])
    }

    fn around(&self, agent: Agent) -> BoxAgent {
        if self.kept.in_session() {
            BoxAgent::new(SessionLayer::new(self.database.clone()).layer(agent))
        } else {
            BoxAgent::new(agent)
        }
    }

    fn server(&self, agent: Agent) -> AgUi {
        let server = AgUi::builder(agent).name("shop").allow_partial_history();
        server.threads(self.database.clone()).build()
    }

    /// Asks support. Returns where a run without a conversation goes on.
    async fn ask(&self) -> Checkpoint {
        let agent = self.agent([Turn::tool("pay", json!({ "cents": 7 }))]);
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

    fn inbox(&self) -> Inboxes {
        let inboxes = Inboxes::default();
        if self.kept.in_thread() {
            inboxes.with(self.server(self.next()))
        } else if self.kept.in_session() {
            let layer = SessionLayer::new(self.database.clone());
            inboxes.with(AgentInbox::sessions(layer, "shop", self.next()))
        } else {
            inboxes.with(AgentInbox::runs(self.database.runs(), "clerk", self.next()))
        }
    }

    async fn open(&self) -> Vec<Question> {
        let inbox = self.inbox();
        let query = ConversationQuery::new();
        let support = Roles::new(["support"]);
        inbox.questions(&query, &support).await.unwrap().questions
    }

    /// Gives an answer. Returns whether it was taken.
    async fn answer(&self, way: Way, question: &Question, from: &Checkpoint) -> bool {
        let decision = match self.case {
            Case::Rejected => Decision::reject("no"),
            _ => Decision::Approve,
        };
        let role = match self.case {
            Case::WrongRole => "audit",
            _ => "support",
        };
        let name = match self.case {
            Case::Own => "ada",
            _ => "sam",
        };
        let roles = Roles::new([role]).named(name);
        let answer = Resolution::resolved(&*question.id, decision).with_name(name);
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
            Way::Request if self.kept.in_thread() => {
                let ResolutionOutcome::Resolved(payload) = &answer.outcome else {
                    panic!("{answer:?}");
                };
                let entry = json!({
                    "interruptId": question.id, "status": "resolved", "payload": payload,
                });
                let mut input = RunAgentInput::new("1", "r2", []);
                input.resume = vec![serde_json::from_value(entry).unwrap()];
                let server = self.server(self.next());
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
                let agent = self.around(self.next());
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
                let agent = self.around(self.next());
                agent
                    .oneshot(request.with_resolutions([answer]))
                    .await
                    .is_ok()
            }
        }
    }
}

#[tokio::test]
async fn a_question_counts_once_on_every_way() {
    for kept in Kept::ALL {
        for way in [Way::Request, Way::Inbox, Way::Runs] {
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
    // A thread's run goes on in the thread alone, and one without a journal is in no list.
    let is_known = way != Way::Runs || kept.in_journal() && !kept.in_thread();
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
        paid: paid.clone(),
        factor,
    };
    let database = open().await;
    let first = process(database.clone(), 1);
    let from = first.ask().await;
    // The questions whose time is over are listed like all others.
    let question = first.open().await.into_iter().next().expect(what);

    let factor = if case == Case::Changed { 100 } else { 1 };
    let second = if is_reopened {
        database.close().await;
        process(open().await, factor)
    } else {
        process(database, factor)
    };
    let is_taken = second.answer(way, &question, &from).await;
    // A session's caller and a journal's are trusted: they name the sender, and have no roles.
    let has_no_roles = case == Case::WrongRole && !kept.in_thread() && way != Way::Inbox;
    let calls = if is_known && has_no_roles {
        1
    } else {
        case.calls()
    };
    let calls = if is_known { calls } else { 0 };
    let users = paid.lock().unwrap().clone();
    assert_eq!(
        users,
        vec![("ada".to_owned(), 7); calls],
        "{what}, taken {is_taken}"
    );

    if case == Case::Twice {
        for again in [Way::Request, Way::Inbox, Way::Runs] {
            second.answer(again, &question, &from).await;
        }
        assert_eq!(paid.lock().unwrap().len(), 1, "{what}");
    }
    // Whatever is open now is another question, or this one as it was.
    let left = second.open().await;
    match case {
        Case::Once | Case::Twice | Case::Rejected if is_known || case == Case::Twice => {
            assert!(left.is_empty(), "{what}: {left:?}");
        }
        Case::Changed if is_known && is_taken => {
            assert_eq!(left.len(), 1, "{what}");
            assert_ne!(left[0].id, question.id, "{what}");
        }
        Case::Own => {
            assert_eq!(left.len(), 1, "{what}");
        }
        _ => {}
    }
    if let Some(session) = Session::load(&second.database, &key()).await.ok().flatten() {
        assert!(!session.is_running, "{what}");
    }
}
