//! Two versions of a program beside each other: what one has begun, the other goes on with or
//! leaves as it was. The table of the deployment guide says which.

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::store::EndedLeases;
use tower::{Layer, ServiceExt};
use tower_agent::agent::BoxAgent;
use tower_agent::callback::before_model;
use tower_agent::{Agent, AgentRequest, Effect, ModelRequest, Resolution, Tool};
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_conversations::{ConversationQuery, Inbox, Inboxes, Question, Roles, SessionLayer};
use tower_agent_durable::journal::{Durable, RunQuery, RunStatus};
use tower_agent_durable::{AgentInbox, Sqlite};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use crate::aged::Aged;
use crate::kept::{Kept, key};
use crate::support::Count;

/// What the later version has changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    Instructions,
    /// The description of the tool.
    Description,
    AnotherTool,
    AnotherCallback,
    /// The tool has another name.
    ToolRenamed,
    AgentRenamed,
    /// Nobody is asked any more.
    NoApproval,
}

impl Change {
    const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Instructions,
        Self::Description,
        Self::AnotherTool,
        Self::AnotherCallback,
        Self::ToolRenamed,
        Self::AgentRenamed,
        Self::NoApproval,
    ];

    /// Returns whether the later version goes on with what waits for an answer.
    fn may_answer(self) -> bool {
        !matches!(
            self,
            Self::ToolRenamed | Self::AgentRenamed | Self::NoApproval
        )
    }

    /// Returns whether the later version goes on with a journaled run whose process was killed.
    fn may_go_on(self) -> bool {
        matches!(
            self,
            Self::Nothing | Self::AnotherCallback | Self::NoApproval
        )
    }

    fn version(self) -> &'static str {
        if self == Self::Nothing { "1" } else { "2" }
    }
}

fn saying(text: &str) -> ScriptedModel {
    ScriptedModel::new([Turn::from_text(text)])
}

/// The parts of one version of the program, and what it shares with the other.
struct Program<'a> {
    change: Change,
    kept: Kept,
    /// Support is asked before each payment.
    asks: bool,
    database: &'a Sqlite,
    paid: &'a Count,
}

impl Program<'_> {
    fn agent(&self, model: &ScriptedModel) -> Agent {
        let name = match self.change {
            Change::ToolRenamed => "transfer",
            _ => "pay",
        };
        let description = match self.change {
            Change::Description => "Pays the customer.",
            _ => "Pays.",
        };
        let counted = self.paid.clone();
        let pay = Tool::function(name, description, move |_: Value| {
            counted.one();
            "paid"
        });
        let agent = match self.change {
            Change::AgentRenamed => "payer",
            _ => "clerk",
        };
        let mut agent = Agent::builder(model.clone())
            .name(agent)
            .tool(pay.effect(Effect::Mutating));
        if self.asks && self.change != Change::NoApproval {
            agent = agent.on_tool(Approval::of_tools([name]).by_role("support"));
        }
        match self.change {
            Change::Instructions => agent = agent.instructions("Be kind."),
            Change::AnotherTool => {
                agent = agent.tool(Tool::function("look", "Looks.", |_: Value| "seen"));
            }
            Change::AnotherCallback => {
                let quiet = |request: &mut ModelRequest| {
                    request.settings_mut().temperature = Some(0.0);
                };
                agent = agent.on_model(before_model(quiet));
            }
            _ => {}
        }
        if self.kept.in_journal() {
            let journal = Durable::new(self.database.clone()).version(self.change.version());
            agent = agent.global_callbacks(journal);
        }
        agent.build().unwrap()
    }

    /// Returns the agent in its session, if it has one.
    fn around(&self, agent: Agent) -> BoxAgent {
        if self.kept.in_session() {
            let store = EndedLeases(self.database.clone());
            BoxAgent::new(SessionLayer::new(store).layer(agent))
        } else {
            BoxAgent::new(agent)
        }
    }

    fn server(&self, model: &ScriptedModel) -> AgUi {
        let server = AgUi::builder(self.agent(model)).name("shop");
        server.threads(self.database.clone()).build()
    }

    /// Asks support.
    async fn ask(&self) {
        let model = ScriptedModel::new([Turn::tool("pay", json!({}))]);
        let first = AgentRequest::new("Pay.").with_run_id("run 1");
        if self.kept.in_thread() {
            let message = Message::user("m1", "Pay.");
            let input = RunAgentInput::new("1", "run 1", [message]);
            let run = self.server(&model).run_for("ada", input).await.unwrap();
            drop(run.collect::<Vec<_>>().await);
            return;
        }
        let request = match self.kept {
            Kept::Journal => first,
            _ => key().request(first),
        };
        let agent = self.around(self.agent(&model));
        let asked = agent.oneshot(request).await.unwrap();
        assert_eq!(asked.interrupts().len(), 1);
    }

    fn inbox(&self) -> Inboxes {
        let model = saying("It is paid.");
        let inboxes = Inboxes::default();
        if self.kept.in_thread() {
            inboxes.with(self.server(&model))
        } else if self.kept.in_session() {
            let layer = SessionLayer::new(self.database.clone());
            inboxes.with(AgentInbox::sessions(layer, "shop", self.agent(&model)))
        } else {
            let agent = self.agent(&model);
            inboxes.with(AgentInbox::runs(self.database.runs(), "clerk", agent))
        }
    }

    async fn open(&self) -> Vec<Question> {
        let support = Roles::new(["support"]);
        let inbox = self.inbox();
        let query = ConversationQuery::new();
        inbox.questions(&query, &support).await.unwrap().questions
    }

    /// Gives support's yes to the open question. A program may refuse it before or after it says
    /// that it has it.
    async fn answer(&self) {
        let support = Roles::new(["support"]);
        let question = self.open().await.remove(0);
        let yes = Resolution::resolved(&*question.id, Decision::Approve);
        if let Ok(run) = self.inbox().answer(question.key, support, yes).await {
            run.await;
        }
    }
}

#[tokio::test]
async fn a_question_is_answered_in_the_later_version_or_waits_for_the_earlier() {
    for kept in Kept::ALL {
        for change in Change::ALL {
            let database = Sqlite::in_memory().await.unwrap();
            let paid = Count::default();
            let program = |change| Program {
                change,
                kept,
                asks: true,
                database: &database,
                paid: &paid,
            };
            let earlier = program(Change::Nothing);
            let later = program(change);
            earlier.ask().await;
            let asked = earlier.open().await;
            // Twice: a refusal leaves nothing behind.
            for _ in 0..2 {
                if !later.open().await.is_empty() {
                    later.answer().await;
                }
            }
            let what = format!("{kept:?}, {change:?}");
            if change.may_answer() {
                assert_eq!((later.open().await.len(), paid.get()), (0, 1), "{what}");
                continue;
            }
            assert_eq!(paid.get(), 0, "{what}");
            let left = earlier.open().await;
            assert_eq!(left.len(), 1, "{what}");
            assert_eq!(left[0].id, asked[0].id, "{what}");
            earlier.answer().await;
            assert_eq!((earlier.open().await.len(), paid.get()), (0, 1), "{what}");
        }
    }
}

#[tokio::test]
async fn a_killed_run_goes_on_in_the_later_version_or_waits_for_the_earlier() {
    for kept in [Kept::Journal, Kept::SessionAndJournal] {
        for change in Change::ALL {
            let place = Aged::new("upgrade").await;
            let paid = Count::default();
            let program = |change| Program {
                change,
                kept,
                asks: false,
                database: &place.database,
                paid: &paid,
            };
            let earlier = program(Change::Nothing);
            let later = program(change);
            let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::pending()]);
            let first = AgentRequest::new("Pay.").with_run_id("run 1");
            let first = match kept {
                Kept::Journal => first,
                _ => key().request(first),
            };
            let dies = earlier.around(earlier.agent(&model));
            place.killed(dies, &model, first).await;

            let of_earlier = RunQuery::of_agent("clerk").version("1");
            let sweep = async |program: &Program<'_>| {
                let agent = program.around(program.agent(&saying("It is paid.")));
                let resumed = place.runs().resume_lost(&of_earlier, agent).await.unwrap();
                place.a_minute_later().await;
                resumed
                    .into_iter()
                    .map(|(_, result)| result.map(|response| response.text()))
                    .next()
            };
            let what = format!("{kept:?}, {change:?}");
            if !change.may_go_on() {
                sweep(&later).await.unwrap().unwrap_err();
                sweep(&later).await.unwrap().unwrap_err();
                assert_eq!(place.status("run 1").await, RunStatus::Running, "{what}");
                // The earlier version has it as before.
                let resumed = sweep(&earlier).await.unwrap();
                assert_eq!(resumed.unwrap(), "It is paid.", "{what}");
            } else {
                let resumed = sweep(&later).await.unwrap();
                assert_eq!(resumed.unwrap(), "It is paid.", "{what}");
                let of_later = RunQuery::new().version(change.version());
                assert_eq!(place.runs().list(&of_later).await.unwrap().len(), 1);
            }
            assert_eq!(paid.get(), 1, "{what}");
            assert!(sweep(&earlier).await.is_none(), "{what}");
        }
    }
}
