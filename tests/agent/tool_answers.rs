//! Tools whose result is the run's answer, words after a run that has none, and tools that the
//! model must call.

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::agent::AtNoAnswer;
use tower_agent::callback::after_agent;
use tower_agent::model::ToolChoice;
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, EndReason, Error, ErrorKind, Interrupt, Message,
    Resolution, Role, Settings, Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

/// A tool that gives the answer, and one of a sub-agent.
fn delegates(model: &ScriptedModel, worker: ScriptedModel) -> Agent {
    let worker = Agent::builder(worker).name("worker").build().unwrap();
    Agent::builder(model.clone())
        .tool(worker.into_tool("Works.").gives_answer())
        .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
        .max_iterations(1)
        .build()
        .unwrap()
}

#[tokio::test]
async fn the_result_of_a_tool_is_the_answer_in_a_history_that_goes_on() {
    for is_streamed in [false, true] {
        let turn = Turn::tool("look", json!({})).and_tool("worker", json!({ "request": "Work." }));
        let model = ScriptedModel::new([turn, Turn::from_text("You are welcome.")]);
        let agent = delegates(&model, ScriptedModel::new([Turn::from_text("Worked.")]));
        let response = if is_streamed {
            let mut run = agent.stream("Do it.");
            let events: Vec<_> = run.by_ref().collect().await;
            let response = run.response().await.unwrap();
            test_support::runs::check(&events, Ok(response.clone())).unwrap();
            response
        } else {
            agent.run("Do it.").await.unwrap()
        };
        // The limit of model calls allows no more of them.
        assert_eq!(
            (response.text(), response.iterations()),
            ("Worked.".into(), 1)
        );
        assert_eq!(response.end_reason(), &EndReason::Completed);

        let request = AgentRequest::resume(response.checkpoint()).with_message("Thanks.");
        agent.run(request).await.unwrap();
        let sent = &model.requests()[1];
        let roles: Vec<_> = sent.messages().iter().map(Message::role).collect();
        let [user, assistant, tool] = [Role::User, Role::Assistant, Role::Tool];
        assert_eq!(roles, [user, assistant, tool, tool, assistant, user]);
        assert_eq!(sent.messages()[4].text(), "Worked.");
    }
}

#[tokio::test]
async fn a_tool_that_fails_gives_no_answer() {
    let ask = Turn::tool("worker", json!({ "request": "Work." }));
    let model = ScriptedModel::new([ask, Turn::from_text("It cannot be done.")]);
    let down = Turn::error(Error::new(ErrorKind::Connection, "no route"));
    let worker = Agent::builder(ScriptedModel::new([down])).name("worker");
    let worker = worker.build().unwrap().into_tool("Works.").gives_answer();
    let agent = Agent::builder(model).tool(worker).build().unwrap();
    assert_eq!(
        agent.run("Do it.").await.unwrap().text(),
        "It cannot be done."
    );
}

/// The answer of a tool is judged like one of the model.
#[tokio::test]
async fn an_empty_result_is_no_answer() {
    let ask = Turn::tool("worker", json!({ "request": "Work." }));
    let model = ScriptedModel::new([ask, Turn::from_text("Nothing came of it.")]);
    let quiet = Tool::function("worker", "Works.", |_: Value| "").gives_answer();
    let agent = Agent::builder(model)
        .tool(quiet)
        .at_no_answer(AtNoAnswer::AskAgain(1))
        .build()
        .unwrap();
    let response = agent.run("Do it.").await.unwrap();
    assert_eq!(response.text(), "Nothing came of it.");
}

#[tokio::test]
async fn words_in_place_of_a_missing_answer_follow_the_results() {
    let turn = Turn::tool("submit", json!({})).and_tool("look", json!({}));
    let model = ScriptedModel::new([turn, Turn::from_text("You are welcome.")]);
    let agent = Agent::builder(model.clone())
        .tool(Tool::function("submit", "Submits.", |_: Value| "received"))
        .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
        .stop_when(|turn| turn.has_called("submit"))
        .on_agent(after_agent(|_, response: &AgentResponse| {
            if !response.text().is_empty() {
                return Action::Continue;
            }
            let words = Message::assistant("Submitted.");
            Action::Respond(response.clone().with_message(words))
        }))
        .build()
        .unwrap();
    let response = agent.run("Submit it.").await.unwrap();
    let request = AgentRequest::resume(response.checkpoint()).with_message("Thanks.");
    agent.run(request).await.unwrap();
    let sent = model.requests()[1].clone();
    let said: Vec<_> = sent.messages().iter().map(Message::text).collect();
    assert_eq!(said, ["Submit it.", "", "", "", "Submitted.", "Thanks."]);
    assert_eq!(sent.messages()[1].tool_calls().count(), 2);
}

fn choices(model: &ScriptedModel) -> Vec<Option<ToolChoice>> {
    let requests = model.requests();
    let settings = requests.iter().map(|request| request.settings());
    settings
        .map(|settings| settings.tool_choice.clone())
        .collect()
}

/// A model that must call a tool in each step would never answer.
#[tokio::test]
async fn a_tool_is_forced_until_one_was_called() {
    for choice in [ToolChoice::Required, ToolChoice::Tool("look".into())] {
        let look = Tool::function_with("look", "Looks.", |_: Value, call: ToolRequest| {
            call.ask(Interrupt::new("sure", "confirmation"))
                .map(|_| "seen")
        });
        let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("Done.")]);
        let agent = Agent::builder(model.clone()).tool(look).build().unwrap();
        let mut request = AgentRequest::new("?");
        request.settings_mut().tool_choice = Some(choice.clone());
        let paused = agent.run(request).await.unwrap();
        // A run that goes on is the same run, whatever its settings say anew.
        let answer = [Resolution::resolved(&paused.interrupts()[0].id, json!(1))];
        let mut request = AgentRequest::resume(paused.checkpoint()).with_resolutions(answer);
        request.settings_mut().tool_choice = Some(choice.clone());
        assert_eq!(agent.run(request).await.unwrap().text(), "Done.");
        assert_eq!(choices(&model), [Some(choice), None]);
    }
}

#[tokio::test]
async fn a_tool_stays_forced_where_a_condition_ends_the_run() {
    let turn = || Turn::tool("look", json!({}));
    let model = ScriptedModel::new([turn(), turn()]);
    let mut settings = Settings::default();
    settings.tool_choice = Some(ToolChoice::Required);
    let agent = Agent::builder(model.clone())
        .settings(settings)
        .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
        .stop_when(|turn| turn.iterations() == 2)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(
        choices(&model),
        [Some(ToolChoice::Required), Some(ToolChoice::Required)]
    );
}
