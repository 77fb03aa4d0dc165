//! A durable run in a session.

use std::time::Duration;

use serde_json::{Value, json};
use test_support::store::EndedLeases;
use tower::{Layer, ServiceExt};
use tower_agent::callback::after_agent;
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Effect, ErrorKind, Message, ModelResponse,
    Resolution,
};
use tower_agent_conversations::{
    Append, ConversationKey, ConversationStore, Session, SessionLayer,
};
use tower_agent_durable::journal::{Durable, JournalError};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::{Approval, Decision};

use crate::memory::Memory;
use crate::support::{Count, counting, journal_error};

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

/// Asks before it pays, if it `asks`.
fn agent(model: &ScriptedModel, journal: Option<&Sqlite>, paid: &Count, asks: bool) -> Agent {
    let mut agent = Agent::builder(model.clone()).tool(counting("pay", Effect::Mutating, paid));
    if let Some(journal) = journal {
        agent = agent.global_callbacks(Durable::new(journal.clone()));
    }
    if asks {
        let day = Duration::from_secs(24 * 60 * 60);
        agent = agent.on_tool(Approval::of_tools(["pay"]).deny_after(day));
    }
    agent.build().unwrap()
}

fn saying(text: &str) -> ScriptedModel {
    ScriptedModel::new([Turn::from_text(text)])
}

/// Makes a run until its last model call hangs, and returns what the store has when its process is
/// killed then.
async fn killed(
    agent: Agent,
    model: &ScriptedModel,
    store: Memory,
    request: AgentRequest,
) -> Memory {
    let layer = SessionLayer::new(store.clone());
    let mut run = Box::pin(layer.layer(agent).oneshot(request));
    while model.requests().len() < 2 {
        assert!(futures::poll!(&mut run).is_pending());
        tokio::task::yield_now().await;
    }
    let left = EndedLeases(store).load(&key(), 0).await;
    let left = left.unwrap().unwrap();
    drop(run);
    layer.finish().await;
    let store = Memory::default();
    store
        .append(&key(), 0, Append::new(left.head, 0).entries(left.entries))
        .await
        .unwrap();
    store
}

#[tokio::test]
async fn a_durable_run_goes_on_in_its_session_with_the_same_request_or_an_empty_one() {
    for again in [AgentRequest::new("Pay."), AgentRequest::default()] {
        let (journal, paid) = (Sqlite::in_memory().await.unwrap(), Count::default());
        let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::pending()]);
        let dies = agent(&model, Some(&journal), &paid, false);
        let first = key().request(AgentRequest::new("Pay.").with_run_id("run 1"));
        let store = killed(dies, &model, Memory::default(), first).await;

        let next = agent(&saying("It is paid."), Some(&journal), &paid, false);
        let next = SessionLayer::new(store.clone()).layer(next);
        let again = key().request(again.with_run_id("run 1"));
        let response = next.oneshot(again).await.unwrap();
        assert_eq!(
            (response.text(), response.messages().len()),
            ("It is paid.".into(), 4)
        );
        assert_eq!(paid.get(), 1);
        assert_eq!(
            store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
            4
        );
    }
}

/// The data of a process that died after it had the answer to an interrupt, and had paid.
struct Lost {
    store: Memory,
    journal: Sqlite,
    paid: Count,
    yes: Resolution,
}

impl Lost {
    /// The request with the answer, as another process makes it.
    fn answer(&self) -> AgentRequest {
        let request = AgentRequest::default().with_resolutions([self.yes.clone()]);
        key().request(request.with_run_id("run 1"))
    }
}

async fn lost_after_an_answer() -> Lost {
    let (journal, paid) = (Sqlite::in_memory().await.unwrap(), Count::default());
    let store = Memory::default();
    let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::pending()]);
    let asks = agent(&model, Some(&journal), &paid, true);
    let first = key().request(AgentRequest::new("Pay.").with_run_id("run 1"));
    let paused = SessionLayer::new(store.clone())
        .layer(asks.clone())
        .oneshot(first)
        .await
        .unwrap();
    let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
    let lost = Lost {
        store,
        journal,
        paid,
        yes,
    };
    let store = killed(asks, &model, lost.store.clone(), lost.answer()).await;
    assert_eq!(lost.paid.get(), 1);
    Lost { store, ..lost }
}

#[tokio::test]
async fn a_run_that_is_lost_after_an_answer_goes_on_with_the_same_request() {
    let lost = lost_after_an_answer().await;
    let Lost {
        store,
        journal,
        paid,
        ..
    } = &lost;
    let next = agent(&saying("It is paid."), Some(journal), paid, true);
    let next = SessionLayer::new(store.clone()).layer(next);
    let response = next.clone().oneshot(lost.answer()).await.unwrap();
    assert_eq!(
        (response.text(), response.messages().len()),
        ("It is paid.".into(), 4)
    );
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        4
    );
    // It was answered once.
    let error = next.oneshot(lost.answer()).await.unwrap_err();
    assert_eq!((error.kind(), paid.get()), (ErrorKind::Conflict, 1));
}

#[tokio::test]
async fn an_answer_in_time_counts_for_a_lost_run_that_is_made_again_after_that_time() {
    let lost = lost_after_an_answer().await;
    let Lost { journal, paid, .. } = &lost;
    // As if a day had passed since the answer.
    let mut left = lost.store.load(&key(), 0).await.unwrap().unwrap();
    let mut head: Value = serde_json::from_str(&left.head).unwrap();
    head["claim"]["since"] = json!(1);
    head["body"]["checkpoint"]["interrupts"][0]["expiry"]["at"] = json!(2);
    left.head = head.to_string();
    let store = Memory::default();
    let append = Append::new(left.head, 0).entries(left.entries);
    store.append(&key(), 0, append).await.unwrap();

    let next = agent(&saying("It is paid."), Some(journal), paid, true);
    let next = SessionLayer::new(store).layer(next);
    let response = next.oneshot(lost.answer()).await.unwrap();
    assert_eq!((response.text(), paid.get()), ("It is paid.".into(), 1));
}

#[tokio::test]
async fn calls_of_a_lost_run_are_not_repeated_without_its_journal() {
    let lost = lost_after_an_answer().await;
    let Lost {
        store,
        journal,
        paid,
        ..
    } = &lost;
    let layer = SessionLayer::new(store.clone());
    let model = saying("It is paid.");
    // Without a journal, with one that does not start, and with one that has other plans.
    let without = layer.layer(agent(&model, None, paid, true));
    let error = without.oneshot(lost.answer()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(
        error.to_string().contains("give the agent that journal"),
        "{error}"
    );
    let broken = Sqlite::in_memory().await.unwrap();
    broken.close().await;
    let broken = layer.layer(agent(&model, Some(&broken), paid, true));
    let error = broken.oneshot(lost.answer()).await.unwrap_err();
    assert!(
        matches!(journal_error(&error), JournalError::Store(_)),
        "{error}"
    );
    let next = layer.layer(agent(&model, Some(journal), paid, true));
    let empty = AgentRequest::default().with_run_id("run 1");
    let error = next
        .clone()
        .oneshot(key().request(empty))
        .await
        .unwrap_err();
    assert!(
        matches!(journal_error(&error), JournalError::OtherRequest { .. }),
        "{error}"
    );
    let answers = tower::service_fn(|_: AgentRequest| async {
        let message = tower_agent::Message::assistant("From a cache.");
        Ok::<_, tower_agent::Error>(tower_agent::AgentResponse::new([message]))
    });
    let error = layer
        .layer(answers)
        .oneshot(lost.answer())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(model.requests().is_empty());

    // Nothing of that has cost it its place.
    let response = next.oneshot(lost.answer()).await.unwrap();
    assert_eq!((response.text(), paid.get()), ("It is paid.".into(), 1));
    let session = Session::load(store, &key()).await.unwrap().unwrap();
    assert_eq!(
        (session.checkpoint.messages.len(), session.is_running),
        (4, false)
    );
}

#[tokio::test]
async fn another_run_reads_that_the_outcome_of_a_lost_one_is_unknown() {
    let Lost {
        store,
        journal,
        paid,
        ..
    } = &lost_after_an_answer().await;
    let next = agent(&saying("Let us see."), Some(journal), paid, true);
    let next = SessionLayer::new(store.clone()).layer(next);
    let other = key().request(AgentRequest::new("And?").with_run_id("run 2"));
    let response = next.oneshot(other).await.unwrap();
    let result = response.messages()[2].tool_results().next().unwrap().text();
    assert!(result.contains("its outcome is unknown"), "{result}");
    assert_eq!((response.messages().len(), paid.get()), (5, 1));
}

#[tokio::test]
async fn a_callback_that_speaks_while_a_second_call_waits_costs_no_answer() {
    for (is_kept, is_journaled) in [(true, false), (false, true), (true, true)] {
        let (journal, done) = (Sqlite::in_memory().await.unwrap(), Count::default());
        let calls = ["pay", "send"].map(|tool| ToolCall::new(tool, tool, json!({})));
        let asks = Turn::response(ModelResponse::from_tool_calls(calls));
        let model = ScriptedModel::new([asks, Turn::from_text("Done.")]);
        let speaks = after_agent(|_, response: &AgentResponse| match response.interrupts() {
            [] => Action::Continue,
            _ => Action::Respond(AgentResponse::new([Message::assistant("One moment.")])),
        })
        .guard();
        let agent = Agent::builder(model).name("agent");
        let agent = if is_journaled {
            agent.global_callbacks(Durable::new(journal.clone()))
        } else {
            agent
        };
        let tools = ["pay", "send"].map(|tool| counting(tool, Effect::Mutating, &done));
        let agent = agent
            .tools(tools)
            .on_tool(Approval::of_tools(["pay", "send"]));
        let agent = agent.on_agent(speaks).build().unwrap();
        let store = Memory::default();
        let session = SessionLayer::new(store.clone()).layer(agent.clone());
        let run = async |request: AgentRequest| {
            if is_kept {
                session
                    .clone()
                    .oneshot(key().request(request))
                    .await
                    .unwrap()
            } else {
                agent.run(request).await.unwrap()
            }
        };

        let mut response = run(AgentRequest::new("Do it.").with_run_id("run 1")).await;
        for (answered, call) in ["pay", "send"].into_iter().enumerate() {
            assert_eq!(
                (response.interrupts().len(), done.get()),
                (2 - answered, answered as u32)
            );
            let mut asked = response.interrupts().iter();
            let asked = asked
                .find(|interrupt| interrupt.tool_call_id.as_deref() == Some(call))
                .unwrap();
            let yes = Resolution::resolved(&asked.id, Decision::Approve);
            let next = if is_kept {
                AgentRequest::default().with_run_id("run 1")
            } else {
                journal.runs().request("run 1").await.unwrap()
            };
            response = run(next.with_resolutions([yes])).await;
        }
        assert_eq!((response.text(), done.get()), ("Done.".into(), 2));
        let results: Vec<_> = response
            .messages()
            .iter()
            .flat_map(Message::tool_results)
            .map(|result| result.text())
            .collect();
        assert_eq!(
            (results, response.messages().len()),
            (vec!["pay done".into(), "send done".into()], 5)
        );
        if is_kept {
            let session = Session::load(&store, &key()).await.unwrap().unwrap();
            assert_eq!(session.checkpoint.messages, *response.messages());
        }
    }
}
