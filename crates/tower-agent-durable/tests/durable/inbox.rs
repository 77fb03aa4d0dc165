//! The open questions of sessions, durable runs and threads of one database in one list, answered
//! by the same call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::callback::before_tool;
use tower_agent::message::Messages;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, Error, Interrupt, Request, Resolution, Tool, ToolRequest,
};
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_conversations::{
    ConversationKey, ConversationQuery, Inbox, Inboxes, Question, Refusal, RefusalKind, Roles,
    Session, SessionLayer,
};
use tower_agent_durable::journal::{Durable, RunQuery, RunStatus};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::{AgentInbox, Sqlite};
use tower_agent_middleware::approval::{Approval, Decision};

use crate::support::Count;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Session,
    Run,
}

/// One conversation that waits for support, and the inbox that has it.
struct Waiting {
    database: Sqlite,
    inbox: AgentInbox,
    paid: Count,
    key: ConversationKey,
}

fn support() -> Roles {
    Roles::new(["support"])
}

fn agent(approval: Approval, paid: &Count, journal: Option<&Sqlite>) -> Agent {
    agent_with(approval, paid, journal, |agent| agent)
}

fn agent_with(
    approval: Approval,
    paid: &Count,
    journal: Option<&Sqlite>,
    change: impl FnOnce(AgentBuilder) -> AgentBuilder,
) -> Agent {
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({ "cents": 50 })),
        Turn::from_text("It is done."),
    ]);
    let counted = paid.clone();
    let pay = Tool::function("pay", "Pays.", move |arguments: Value| {
        counted.one();
        format!("paid {}", arguments["cents"])
    });
    let agent = Agent::builder(model).name("payer").tool(pay);
    let mut agent = change(agent).on_tool(approval);
    if let Some(journal) = journal {
        agent = agent.global_callbacks(Durable::new(journal.clone()));
    }
    agent.build().unwrap()
}

fn approval(time: Duration) -> Approval {
    let approval = Approval::of_tools(["pay"]).by_role("support");
    approval.allow_edits().deny_after(time)
}

async fn waiting(place: Place, approval: Approval) -> Waiting {
    let (database, paid) = (Sqlite::in_memory().await.unwrap(), Count::default());
    let (inbox, key) = match place {
        Place::Session => {
            let agent = agent(approval, &paid, None);
            let layer = SessionLayer::new(database.clone());
            let asks = ConversationKey::new("shop", "ada", "1").request("Pay.");
            layer.layer(agent.clone()).oneshot(asks).await.unwrap();
            let key = ConversationKey::new("shop", "ada", "1");
            (AgentInbox::sessions(layer, "shop", agent), key)
        }
        Place::Run => {
            let agent = agent(approval, &paid, Some(&database));
            let asks = AgentRequest::new("Pay.").with_run_id("run 1");
            agent.run(asks).await.unwrap();
            let inbox = AgentInbox::runs(database.runs(), "payer", agent);
            (inbox, ConversationKey::new("payer", "", "run 1"))
        }
    };
    Waiting {
        database,
        inbox,
        paid,
        key,
    }
}

impl Waiting {
    /// Returns the open questions, for whomever they are.
    async fn open(&self, place: Place) -> Vec<Interrupt> {
        match place {
            Place::Session => {
                let key = ConversationKey::new("shop", "ada", "1");
                let session = Session::load(&self.database, &key).await.unwrap().unwrap();
                session.checkpoint.head.interrupts
            }
            Place::Run => {
                let run = self.database.runs().get("run 1").await.unwrap();
                run.interrupts
            }
        }
    }

    /// Returns who has answered about the call, by its result.
    async fn signed(&self, place: Place) -> Vec<String> {
        let messages = self.messages(place).await;
        let mut results = messages.iter().flat_map(|message| message.tool_results());
        results.next().unwrap().answered_by().to_vec()
    }

    /// Returns what the tool has returned, and the agent's last words.
    async fn ends(&self, place: Place) -> [String; 2] {
        let messages = self.messages(place).await;
        let result = messages
            .iter()
            .find_map(|message| message.tool_results().next());
        let last = &messages[messages.len() - 1];
        [result.unwrap().text(), last.text()]
    }

    async fn messages(&self, place: Place) -> Messages {
        match place {
            Place::Session => {
                let key = ConversationKey::new("shop", "ada", "1");
                let session = Session::load(&self.database, &key).await.unwrap().unwrap();
                session.checkpoint.messages
            }
            Place::Run => {
                let runs = self.database.runs();
                let status = runs.get("run 1").await.unwrap().status;
                assert_eq!(status, RunStatus::Completed);
                let agent = agent(approval(DAY), &self.paid, Some(&self.database));
                let again = runs.request("run 1").await.unwrap();
                agent.run(again).await.unwrap().messages().clone()
            }
        }
    }

    async fn answer(&self, id: &str, roles: Roles, decision: Decision) -> Result<(), Refusal> {
        let answer = Resolution::resolved(id, decision);
        let run = self.inbox.answer(self.key.clone(), roles, answer).await?;
        run.await;
        Ok(())
    }
}

async fn questions(inbox: &impl Inbox, roles: &Roles) -> Vec<Question> {
    let query = ConversationQuery::new();
    inbox.questions(&query, roles).await.unwrap().questions
}

#[tokio::test]
async fn staff_see_the_exact_arguments_and_the_agent_goes_on_with_their_own() {
    for place in [Place::Session, Place::Run] {
        let waiting = waiting(place, approval(DAY)).await;
        assert!(
            questions(&waiting.inbox, &Roles::new(["audit"]))
                .await
                .is_empty()
        );
        let open = questions(&waiting.inbox, &support()).await;
        let [question] = &open[..] else {
            panic!("{place:?}: {open:?}")
        };
        assert_eq!(question.key, waiting.key);
        let call = json!({ "tool": "pay", "arguments": { "cents": 50 } });
        assert_eq!(question.interrupt.payload, call);
        let id = &*question.id;

        let refused = waiting
            .answer(id, Roles::new(["audit"]), Decision::Approve)
            .await;
        assert_eq!(
            refused.unwrap_err().kind,
            RefusalKind::Forbidden,
            "{place:?}"
        );
        let mut others = vec![ConversationKey::new("other", "", waiting.key.id.clone())];
        others.push(ConversationKey::new(
            waiting.key.app.clone(),
            "bob",
            waiting.key.id.clone(),
        ));
        others.push(ConversationKey::new(waiting.key.app.clone(), "", "another"));
        for key in others {
            let yes = Resolution::resolved(id, Decision::Approve);
            let refused = waiting.inbox.answer(key, support(), yes).await;
            assert_eq!(refused.unwrap_err().kind, RefusalKind::NotOpen, "{place:?}");
        }
        assert_eq!(waiting.paid.get(), 0);

        let edit = Decision::Edit(json!({ "cents": 40 }));
        waiting.answer(id, support(), edit).await.unwrap();
        let [result, last] = waiting.ends(place).await;
        assert!(result.starts_with("paid 40\n"), "{place:?}: {result}");
        assert_eq!((&*last, waiting.paid.get()), ("It is done.", 1));
        let again = waiting.answer(id, support(), Decision::Approve).await;
        assert_eq!(again.unwrap_err().kind, RefusalKind::NotOpen);
        assert!(questions(&waiting.inbox, &support()).await.is_empty());
    }
}

#[tokio::test]
async fn of_two_who_answer_at_once_one_counts_and_the_other_is_refused() {
    for place in [Place::Session, Place::Run] {
        for second in [Decision::Approve, Decision::reject("no")] {
            let waiting = waiting(place, approval(DAY)).await;
            let id = questions(&waiting.inbox, &support()).await[0].id.clone();
            let answer = |decision: Decision| {
                let answer = Resolution::resolved(&*id, decision);
                waiting.inbox.answer(waiting.key.clone(), support(), answer)
            };
            let (one, other) = tokio::join!(answer(Decision::Approve), answer(second));
            let (run, refused) = match (one, other) {
                (Ok(run), Err(refused)) => (run, refused),
                (Err(refused), Ok(run)) => (run, refused),
                both => panic!("{place:?}: {both:?}"),
            };
            let kinds = [RefusalKind::NotOpen, RefusalKind::Busy];
            assert!(kinds.contains(&refused.kind), "{place:?}: {refused:?}");
            run.await;
            let [_, last] = waiting.ends(place).await;
            assert_eq!(last, "It is done.");
        }
    }
}

#[tokio::test]
async fn a_late_answer_is_refused_and_the_denial_comes_by_itself() {
    for place in [Place::Session, Place::Run] {
        let waiting = waiting(place, approval(Duration::ZERO)).await;
        let id = questions(&waiting.inbox, &support()).await[0].id.clone();
        let late = waiting.answer(&id, support(), Decision::Approve).await;
        assert_eq!(late.unwrap_err().kind, RefusalKind::Expired, "{place:?}");
        assert_eq!(waiting.inbox.answer_expired().await.unwrap(), 1);
        assert_eq!(waiting.inbox.answer_expired().await.unwrap(), 0);
        let [result, last] = waiting.ends(place).await;
        assert_eq!(
            result,
            "the approver rejected this call: nobody answered in time"
        );
        assert_eq!(
            (&*last, waiting.paid.get()),
            ("It is done.", 0),
            "{place:?}"
        );
    }
}

#[tokio::test]
async fn a_users_own_question_is_not_for_staff() {
    for place in [Place::Session, Place::Run] {
        let waiting = waiting(place, Approval::of_tools(["pay"])).await;
        assert!(questions(&waiting.inbox, &support()).await.is_empty());
        let id = waiting.open(place).await[0].id.clone();
        let refused = waiting.answer(&id, support(), Decision::Approve).await;
        assert_eq!(
            refused.unwrap_err().kind,
            RefusalKind::Forbidden,
            "{place:?}"
        );
        assert_eq!(waiting.paid.get(), 0);
    }
}

/// The question stays as it is, for somebody who answers it rightly, and the name that the server
/// knows stands beside the call.
#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused_at_once_and_a_right_one_has_its_name() {
    for place in [Place::Session, Place::Run] {
        let waiting = waiting(place, approval(DAY)).await;
        let asked = waiting.open(place).await;
        let id = &asked[0].id;
        let unfit = [
            json!({ "approved": "yes" }),
            json!({ "approved": true, "edited": {} }),
            json!({ "approved": true, "editedArgs": 40 }),
        ];
        for payload in unfit {
            let answer = Resolution::resolved(id, payload.clone());
            let refused = waiting.inbox.answer(waiting.key.clone(), support(), answer);
            let refused = refused.await.unwrap_err();
            assert_eq!(refused.kind, RefusalKind::Invalid, "{place:?}: {payload}");
            assert!(refused.message.contains("does not fit"), "{refused}");
            assert_eq!(waiting.open(place).await, asked);
        }
        // Only the server's own name counts.
        let yes = Resolution::resolved(id, Decision::Approve).with_name("the boss");
        let roles = support().named("sam");
        let run = waiting.inbox.answer(waiting.key.clone(), roles, yes);
        run.await.unwrap().await;
        assert_eq!(waiting.signed(place).await, ["sam"], "{place:?}");
    }
}

/// Sam works in support, and is the customer.
#[tokio::test]
async fn nobody_approves_their_own_call_and_two_are_two() {
    let approvals: [fn(Approval) -> Approval; 2] = [
        |approval| approval.not_by(|_| Some("sam".to_owned())),
        |approval| approval.by_two(),
    ];
    for place in [Place::Session, Place::Run] {
        for (number, four_eyes) in approvals.into_iter().enumerate() {
            let waiting = waiting(place, four_eyes(approval(DAY))).await;
            let answer = async |name: Option<&str>| {
                let id = waiting.open(place).await[0].id.clone();
                let roles = match name {
                    Some(name) => support().named(name),
                    None => support(),
                };
                waiting.answer(&id, roles, Decision::Approve).await
            };
            if number == 1 {
                answer(Some("sam")).await.unwrap();
            }
            let asked = waiting.open(place).await;
            for name in [None, Some("sam")] {
                let refused = answer(name).await.unwrap_err();
                assert_eq!(refused.kind, RefusalKind::Forbidden, "{place:?}: {name:?}");
            }
            assert_eq!((waiting.open(place).await, waiting.paid.get()), (asked, 0));
            answer(Some("kim")).await.unwrap();
            assert_eq!(waiting.paid.get(), 1, "{place:?}");
            let expected: &[&str] = if number == 1 {
                &["sam", "kim"]
            } else {
                &["kim"]
            };
            assert_eq!(waiting.signed(place).await, expected, "{place:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_dropped_before_the_agent_goes_on_can_be_given_again() {
    for place in [Place::Session, Place::Run] {
        let waiting = waiting(place, approval(DAY)).await;
        let id = questions(&waiting.inbox, &support()).await[0].id.clone();
        let yes = Resolution::resolved(&*id, Decision::Approve);
        let first = waiting.inbox.answer(waiting.key.clone(), support(), yes);
        // Before anything is accepted.
        assert!(first.now_or_never().is_none(), "{place:?}");
        waiting
            .answer(&id, support(), Decision::Approve)
            .await
            .unwrap();
        assert_eq!(waiting.paid.get(), 1, "{place:?}");
    }
}

#[tokio::test]
async fn the_questions_of_threads_sessions_and_runs_of_one_database_are_one_list() {
    let (database, paid) = (Sqlite::in_memory().await.unwrap(), Count::default());
    let server = AgUi::builder(agent(approval(DAY), &paid, None))
        .name("web")
        .threads(database.clone())
        .build();
    let input = RunAgentInput::new("t1", "r1", [Message::user("m1", "Pay.")]);
    let run = server.run_for("ada", input).await.unwrap();
    drop(run.collect::<Vec<_>>().await);

    let clerk = agent(approval(DAY), &paid, None);
    let sessions = SessionLayer::new(database.clone());
    let asks = ConversationKey::new("shop", "bob", "s1").request("Pay.");
    sessions.layer(clerk.clone()).oneshot(asks).await.unwrap();

    let payer = agent(approval(DAY), &paid, Some(&database));
    payer
        .run(AgentRequest::new("Pay.").with_run_id("r7"))
        .await
        .unwrap();

    let inbox = Inboxes::default()
        .with(server)
        .with(AgentInbox::sessions(sessions, "shop", clerk))
        .with(AgentInbox::runs(database.runs(), "payer", payer));
    let mut seen = BTreeSet::new();
    let mut query = Some(ConversationQuery::new().limit(1));
    while let Some(page) = query {
        let page = inbox.questions(&page, &support()).await.unwrap();
        for question in page.questions {
            let at = (question.key.app.to_string(), question.key.id.to_string());
            assert!(seen.insert(at), "{question:?}");
        }
        query = page.next;
    }
    let all = [("payer", "r7"), ("shop", "s1"), ("web", "t1")];
    assert_eq!(
        seen,
        all.map(|(server, thread)| (server.into(), thread.into()))
            .into()
    );
    for question in questions(&inbox, &support()).await {
        let answer = Resolution::resolved(&*question.id, Decision::Approve);
        let run = inbox.answer(question.key, support(), answer).await.unwrap();
        run.await;
    }
    assert_eq!(paid.get(), 3);
    assert!(questions(&inbox, &support()).await.is_empty());
}

/// A run of a session, with a journal: the session and the journal have one run that waits.
#[tokio::test]
async fn an_answer_goes_on_with_the_run_that_waits_and_its_tools_know_the_user() {
    let database = Sqlite::in_memory().await.unwrap();
    let paid = Count::default();
    let users = Arc::<Mutex<Vec<String>>>::default();
    let seen = users.clone();
    let knows = before_tool(move |call: &mut ToolRequest| {
        let key = call.context().extension::<ConversationKey>()?;
        seen.lock().unwrap().push(key.user.to_string());
        Ok::<_, Error>(())
    });
    let payer = agent_with(approval(DAY), &paid, Some(&database), |agent| {
        agent.on_tool(knows)
    });
    let layer = SessionLayer::new(database.clone());
    let key = ConversationKey::new("shop", "ada", "1");
    let asks = key.request(AgentRequest::new("Pay.").with_run_id("run 1"));
    layer.layer(payer.clone()).oneshot(asks).await.unwrap();
    let inbox = AgentInbox::sessions(layer, "shop", payer);

    let question = questions(&inbox, &support()).await.remove(0);
    let yes = Resolution::resolved(&*question.id, Decision::Approve);
    let run = inbox.answer(question.key, support(), yes).await.unwrap();
    run.await;
    assert_eq!(paid.get(), 1);
    assert_eq!(*users.lock().unwrap(), ["ada"; 2]);
    let session = Session::load(&database, &key).await.unwrap().unwrap();
    assert_eq!(session.run.as_deref(), Some("run 1"));
    let runs = database.runs().list(&RunQuery::new()).await.unwrap();
    let runs: Vec<_> = runs.iter().map(|run| (&*run.id, run.status)).collect();
    assert_eq!(runs, [("run 1", RunStatus::Completed)]);
}

/// A session is stored before its journal starts, so an answer is accepted after both.
#[tokio::test]
async fn an_answer_that_the_journal_has_not_kept_is_refused_and_can_be_given_again() {
    let journal = Sqlite::in_memory().await.unwrap();
    let lost = Sqlite::in_memory().await.unwrap();
    let layer = SessionLayer::new(Sqlite::in_memory().await.unwrap());
    let paid = Count::default();
    let key = ConversationKey::new("shop", "ada", "1");
    let payer = agent(approval(DAY), &paid, Some(&journal));
    let asks = layer.layer(payer.clone()).oneshot(key.request("Pay."));
    asks.await.unwrap();
    lost.close().await;
    let cut_off = agent(approval(DAY), &paid, Some(&lost));
    let inboxes = [cut_off, payer].map(|agent| AgentInbox::sessions(layer.clone(), "shop", agent));
    let asked = questions(&inboxes[0], &support()).await.remove(0);
    let yes = || Resolution::resolved(&*asked.id, Decision::Approve);
    let refused = inboxes[0].answer(key.clone(), support(), yes()).await;
    assert_eq!(
        refused.err().map(|refused| refused.kind),
        Some(RefusalKind::Store)
    );
    let left = questions(&inboxes[0], &support()).await;
    assert_eq!(left[0].id, asked.id);
    let run = inboxes[1].answer(key, support(), yes()).await;
    run.unwrap().await;
    assert_eq!(
        (questions(&inboxes[1], &support()).await.len(), paid.get()),
        (0, 1)
    );
}

/// Another version of the program, in which the agent has another name, is refused.
#[tokio::test]
async fn a_refused_program_leaves_a_session_waiting() {
    let waiting = waiting(Place::Session, approval(DAY)).await;
    let asked = waiting.open(Place::Session).await;
    let renamed = agent_with(approval(DAY), &waiting.paid, None, |agent| {
        agent.name("clerk")
    });
    let layer = SessionLayer::new(waiting.database.clone());
    let key = ConversationKey::new("shop", "ada", "1");
    let yes = Resolution::resolved(&asked[0].id, Decision::Approve);
    for answers in [vec![], vec![yes]] {
        let request = AgentRequest::default().with_resolutions(answers);
        let run = layer.layer(renamed.clone()).oneshot(key.request(request));
        run.await.unwrap_err();
        assert_eq!(waiting.open(Place::Session).await, asked);
    }
    waiting
        .answer(&asked[0].id, support(), Decision::Approve)
        .await
        .unwrap();
    assert_eq!(waiting.paid.get(), 1);
}
