//! Waiting for the first output of a run, before its stream is read.

use futures::FutureExt;
use tower_agent::callback::{before_agent, before_agent_async, before_model, before_tool};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, BoxError, Error, ErrorKind, Interrupt, Request,
    Result, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{read, words};

fn busy() -> Turn {
    Turn::error(Error::new(ErrorKind::Overloaded, "busy"))
}

fn of_turn(turn: Turn) -> Agent {
    Agent::builder(ScriptedModel::new([turn])).build().unwrap()
}

#[tokio::test]
async fn the_events_before_it_are_read_afterwards() {
    let (expected, _) = read(of_turn(Turn::from_text("one")).stream("?")).await;

    let mut run = of_turn(Turn::from_text("one")).stream("?");
    run.first_output().await.unwrap();
    // Asked again, it has been there already.
    run.first_output().now_or_never().unwrap().unwrap();
    let (events, response) = read(run).await;

    assert_eq!(words(&events), words(&expected));
    let numbers: Vec<_> = events.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(response.unwrap().text(), "one");
}

#[tokio::test]
async fn a_run_that_fails_before_it_is_an_error_and_the_stream_has_its_end() {
    let mut run = of_turn(busy()).stream("?");

    let error = run.first_output().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let (events, response) = read(run).await;
    let words = words(&events);
    assert_eq!(words.first().unwrap(), "run");
    assert_eq!(words.last().unwrap(), "failed: overloaded");
    assert_eq!(response.unwrap_err().kind(), ErrorKind::Overloaded);
}

#[tokio::test]
async fn a_run_that_fails_after_it_is_none() {
    let turn = Turn::from_text("half").failing_after(1, Error::new(ErrorKind::Connection, "cut"));
    let mut run = of_turn(turn).stream("?");

    run.first_output().await.unwrap();

    assert_eq!(
        run.response().await.unwrap_err().kind(),
        ErrorKind::Connection
    );
}

#[tokio::test]
async fn a_question_and_an_agent_that_says_nothing_are_none() {
    let model = ScriptedModel::new([Turn::tool("pay", serde_json::json!({}))]);
    let asks = before_tool(|_| Err::<(), _>(Error::interrupt(Interrupt::new("pay", "pay?"))));
    let pay = Tool::function("pay", "Pays.", |_: serde_json::Value| "paid");
    let agent = Agent::builder(model).tool(pay).on_tool(asks).build();
    let mut run = agent.unwrap().stream("?");
    run.first_output().await.unwrap();
    let (events, _) = read(run).await;
    assert_eq!(words(&events).last().unwrap(), "interrupted");

    let ends = before_agent(|_| Err::<(), _>(Error::end_invocation()));
    let agent = Agent::builder(ScriptedModel::new([])).on_agent(ends);
    let mut run = agent.build().unwrap().stream("?");
    run.first_output().await.unwrap();
    let (events, _) = read(run).await;
    assert_eq!(words(&events).last().unwrap(), "finished");
}

#[tokio::test]
async fn more_events_than_wait_for_a_consumer_come_before_it() {
    // Each reports that it has run, before the model says anything.
    let mut agent = Agent::builder(ScriptedModel::new([Turn::from_text("one")]));
    for _ in 0..100 {
        agent = agent.on_model(before_model(|_| Action::Continue));
    }
    let mut run = agent.build().unwrap().stream("?");

    run.first_output().await.unwrap();

    let (events, response) = read(run).await;
    assert!(events.len() > 100);
    assert_eq!(response.unwrap().text(), "one");
}

#[tokio::test]
async fn what_a_task_of_the_run_emits_is_output() {
    // The run itself waits for ever; a task that it has spawned reports.
    async fn spawns(request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        let context = request.context().clone();
        let told = tokio::spawn(async move { context.emit("progress", 1).await });
        told.await.map_err(BoxError::from)?;
        std::future::pending().await
    }
    let agent = Agent::builder(ScriptedModel::new([])).on_agent(before_agent_async(spawns));
    let mut run = agent.build().unwrap().stream("?");

    run.first_output().await.unwrap();
}
