//! Approvals, sub-agents, dropped streams and several calls at once, in one durable run.

use futures::StreamExt;
use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_agent::message::ToolCall;
use tower_agent::stream::EventKind;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, BoxError, Effect, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Resolution, RunStream, Tool,
};
use tower_agent_conversations::{ConversationKey, MemoryConversations, SessionLayer};
use tower_agent_durable::journal::{RunKey, RunStatus, UnfinishedStep};

use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::{Approval, Decision};

use crate::support::{Count, calling, counting, durable, request};
use crate::support::{waiting, waiting_as};

/// The results of the tools, in order.
fn results(response: &AgentResponse) -> Vec<String> {
    response
        .messages()
        .iter()
        .flat_map(Message::tool_results)
        .map(|result| result.text())
        .collect()
}

/// The program: a boss whose worker pays, if it may.
fn boss(database: &Sqlite, pay: Tool) -> Agent {
    let worker = Agent::builder(calling(&["pay"], &Count::default()))
        .name("worker")
        .tool(pay);
    let worker = worker.on_tool(Approval::of_tools(["pay"])).build().unwrap();
    let boss = durable(calling(&["worker"], &Count::default()), database.clone());
    boss.tool(worker.into_tool("Works.")).build().unwrap()
}

/// The request with which the run goes on, with these answers.
async fn next(database: &Sqlite, answers: Vec<Resolution>) -> AgentRequest {
    database
        .runs()
        .request("run 1")
        .await
        .unwrap()
        .with_resolutions(answers)
}

#[tokio::test]
async fn an_approval_in_a_sub_agent_survives_a_crash() {
    for answer in [
        UnfinishedStep::RunAgain,
        UnfinishedStep::Done(json!("paid")),
    ] {
        let (database, pay) = (Sqlite::in_memory().await.unwrap(), Count::default());
        let paused = boss(&database, counting("pay", Effect::Mutating, &pay))
            .run(request())
            .await;
        let yes = Resolution::resolved(&paused.unwrap().interrupts()[0].id, Decision::Approve);
        let (tool, _, has_begun) = waiting(&pay);
        let dies = tokio::spawn(boss(&database, tool).run(next(&database, vec![yes]).await));
        has_begun.await.unwrap();
        dies.abort();
        dies.await.unwrap_err();

        let boss = boss(&database, counting("pay", Effect::Mutating, &pay));
        let again = database.runs().request("run 1").await.unwrap();
        let asked = boss.run(again).await.unwrap();
        let [question] = asked.interrupts() else {
            panic!("{:?}", asked.interrupts())
        };
        assert_eq!((&*question.reason, pay.get()), (UnfinishedStep::REASON, 1));
        let paid = if answer == UnfinishedStep::RunAgain {
            2
        } else {
            1
        };
        let answer = Resolution::resolved(&question.id, answer.clone());
        let response = boss.run(next(&database, vec![answer]).await).await.unwrap();
        assert_eq!((response.text(), pay.get()), ("Done.".into(), paid));
        assert_eq!(results(&response), ["Done."]);
    }
}

/// An agent that makes two calls at once, neither of which may be made twice.
fn pair(database: &Sqlite, tools: [Tool; 2]) -> Agent {
    let model = tower::service_fn(async |request: ModelRequest| {
        let calls = ["one", "two"].map(|name| ToolCall::new(name, name, json!({})));
        Ok::<_, BoxError>(match request.messages().len() {
            1 => ModelResponse::from_tool_calls(calls),
            _ => ModelResponse::from_text("Done."),
        })
    });
    durable(model, database.clone())
        .tools(tools)
        .build()
        .unwrap()
}

#[tokio::test]
async fn two_calls_in_flight_are_asked_about_and_answered_separately() {
    let (database, one, two) = (
        Sqlite::in_memory().await.unwrap(),
        Count::default(),
        Count::default(),
    );
    let (first, _, has_first) = waiting_as("one", &one);
    let (second, _, has_second) = waiting_as("two", &two);
    let dies = pair(&database, [first, second]);
    let dies = tokio::spawn(dies.run(request()));
    has_first.await.unwrap();
    has_second.await.unwrap();
    dies.abort();
    dies.await.unwrap_err();

    let tools = [("one", &one), ("two", &two)];
    let agent = pair(
        &database,
        tools.map(|(name, count)| counting(name, Effect::Mutating, count)),
    );
    let asked = agent.run(request()).await.unwrap();
    let ids: Vec<_> = asked
        .interrupts()
        .iter()
        .map(|interrupt| interrupt.id.clone())
        .collect();
    let names = asked.interrupts().iter().map(|interrupt| &*interrupt.name);
    let names = Vec::from_iter(names);
    assert_eq!(
        names,
        ["unfinished agent/m1.0 1", "unfinished agent/m1.1 1"]
    );
    let again = Resolution::resolved(&ids[1], UnfinishedStep::RunAgain);
    let asked = agent.run(next(&database, vec![again]).await).await.unwrap();
    assert_eq!(
        asked
            .interrupts()
            .iter()
            .map(|interrupt| &*interrupt.id)
            .collect::<Vec<_>>(),
        [&ids[0]]
    );
    // The other's entry is not written again.
    let failed = Resolution::resolved(&ids[0], UnfinishedStep::Failed("no money".into()));
    let done = agent
        .run(next(&database, vec![failed]).await)
        .await
        .unwrap();
    assert_eq!(results(&done), ["tool failed: no money", "two done"]);
    assert_eq!((one.get(), two.get()), (1, 2));
}

#[tokio::test]
async fn a_consumer_that_goes_away_in_a_session_costs_no_second_payment() {
    let (database, pay) = (Sqlite::in_memory().await.unwrap(), Count::default());
    let sessions = SessionLayer::new(MemoryConversations::new());
    let agent = |tool: Tool| {
        let agent = durable(calling(&["pay"], &Count::default()), database.clone()).tool(tool);
        let agent = agent.on_tool(Approval::of_tools(["pay"])).build().unwrap();
        sessions.layer(agent)
    };
    let key = ConversationKey::new("shop", "ada", "1");
    let pays = || agent(counting("pay", Effect::Mutating, &pay));
    let paused = pays().oneshot(key.request(request())).await.unwrap();
    let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
    let answer = || {
        let answer = AgentRequest::default().with_resolutions([yes.clone()]);
        key.request(answer.with_run_id("run 1"))
    };
    let (tool, _, has_begun) = waiting(&pay);
    let goes_away = agent(tool);
    let mut stream = RunStream::new(goes_away, answer());
    let reads = async {
        while let Some(event) = stream.next().await {
            assert!(!matches!(event.kind, EventKind::ToolResult(_)));
        }
    };
    tokio::select! {
        () = reads => panic!("it has ended"),
        begun = has_begun => begun.unwrap(),
    }
    drop(stream);

    // The same answer again, and more of the user's, under the same run and another.
    let error = pays().oneshot(answer()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let same = key.request(AgentRequest::new("Well?").with_run_id("run 1"));
    let error = pays().oneshot(same).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let other = key.request(AgentRequest::new("Well?").with_run_id("run 2"));
    let response = pays().oneshot(other).await.unwrap();
    let told = results(&response);
    assert!(
        told.len() == 1 && told[0].contains("outcome is unknown"),
        "{told:?}"
    );
    assert_eq!((response.text(), pay.get()), ("Done.".into(), 1));
    // The run itself waits for somebody who knows.
    let run = RunKey::new("run 1").of(&*key.user);
    let run = database.runs().get(run).await.unwrap();
    assert_eq!(run.status, RunStatus::Running);
}

#[tokio::test]
async fn a_layer_that_answers_for_a_run_does_not_end_it_while_it_waits() {
    let (database, pay) = (Sqlite::in_memory().await.unwrap(), Count::default());
    let says = |text: &'static str| {
        move |result: Result<AgentResponse, Error>| {
            result.map(|_| AgentResponse::new([Message::assistant(text)]))
        }
    };
    let agent = durable(calling(&["pay"], &Count::default()), database.clone())
        .tool(counting("pay", Effect::Mutating, &pay))
        .on_tool(Approval::of_tools(["pay"]))
        .agent_layer(tower::util::MapResultLayer::new(says("As you wish.")))
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    let seen = database.runs().get("run 1").await.unwrap();
    assert_eq!(seen.status, RunStatus::Waiting);
    let yes = Resolution::resolved(&seen.interrupts[0].id, Decision::Approve);
    let done = agent.run(next(&database, vec![yes]).await).await.unwrap();
    assert_eq!((done.text(), pay.get()), ("As you wish.".into(), 1));
    assert_eq!(
        database.runs().get("run 1").await.unwrap().status,
        RunStatus::Completed
    );
}
