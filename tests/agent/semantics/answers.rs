//! Responses that callbacks give: of the model, and of the agent.

use serde_json::json;
use tower_agent::call::Origin;
use tower_agent::callback::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, after_agent, after_model,
    before_agent, before_model, on_model_error,
};
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, EndReason, Error, ErrorKind, Message,
    ModelResponse, Recovery, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::semantics::{asks, echo, results, texts, with};

// Tool calls in a response that a callback gave

fn answered(model: &ScriptedModel, hook: &str, semantics: Semantics) -> AgentBuilder {
    let builder = Agent::builder(model.clone())
        .tool(echo())
        .semantics(semantics);
    match hook {
        "before" => builder.on_model(before_model(|request| match request.messages().len() {
            1 => Action::Respond(asks("Let me see.", "echo")),
            _ => Action::Continue,
        })),
        _ => builder.on_model(on_model_error(|_, _| {
            Recovery::Fallback(asks("Oh.", "echo"))
        })),
    }
}

#[tokio::test]
async fn tool_calls_that_a_callback_answers_with_are_run() {
    let semantics = with(|run| run.answered_tool_calls = AnsweredToolCalls::Run);
    assert_eq!(semantics, Semantics::default());
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    for (hook, first) in [("before", vec![]), ("on_error", vec![down])] {
        let model = ScriptedModel::new(first.into_iter().chain([Turn::from_text("done")]));
        let agent = answered(&model, hook, semantics).build().unwrap();
        let response = agent.run("?").await.unwrap();
        model.assert_done();
        assert_eq!(
            (response.text().as_str(), response.iterations()),
            ("done", 2),
            "{hook}"
        );
        assert_eq!(results(&response), ["hi"], "{hook}");
    }
}

#[tokio::test]
async fn tool_calls_that_a_callback_answers_with_are_dropped_and_the_answer_is_final() {
    let semantics = with(|run| run.answered_tool_calls = AnsweredToolCalls::Drop);
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    for (hook, turns, text) in [
        ("before", vec![], "Let me see."),
        ("on_error", vec![down], "Oh."),
    ] {
        let model = ScriptedModel::new(turns);
        let agent = answered(&model, hook, semantics).build().unwrap();
        let response = agent.run("?").await.unwrap();
        model.assert_done();
        assert_eq!(
            (response.text().as_str(), response.end_reason()),
            (text, &EndReason::Completed),
            "{hook}"
        );
        let left = response
            .new_messages()
            .flat_map(Message::tool_calls)
            .count();
        assert_eq!((left, response.new_messages().len()), (0, 1), "{hook}");
    }
}

#[tokio::test]
async fn tool_calls_that_the_model_asks_for_itself_are_never_dropped() {
    let model = ScriptedModel::new([Turn::tool("echo", json!("hi")), Turn::from_text("done")]);
    let semantics = with(|run| run.answered_tool_calls = AnsweredToolCalls::Drop);
    let agent = Agent::builder(model.clone())
        .tool(echo())
        .semantics(semantics)
        .build()
        .unwrap();
    assert_eq!(results(&agent.run("?").await.unwrap()), ["hi"]);
    model.assert_done();
}

// A response given by `after_model`

fn replaced(model: &ScriptedModel, semantics: Semantics) -> Agent {
    Agent::builder(model.clone())
        .tool(echo())
        .semantics(semantics)
        .on_model(after_model(|_, response| {
            match response.message().text().as_str() {
                "plan" => Action::Respond(asks("replaced", "echo")),
                _ => Action::Continue,
            }
        }))
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_response_of_after_model_replaces_the_models_and_the_loop_continues() {
    for respond in [AfterModelRespond::KeepToolCalls, AfterModelRespond::Replace] {
        let semantics = with(|run| run.after_model_respond = respond);
        assert_eq!(
            semantics == Semantics::default(),
            respond == AfterModelRespond::KeepToolCalls
        );
        let model = ScriptedModel::new([Turn::from_text("plan"), Turn::from_text("done")]);
        let response = replaced(&model, semantics).run("?").await.unwrap();
        model.assert_done();
        assert_eq!(texts(&response), ["?", "replaced", "", "done"]);
        assert_eq!(results(&response), ["hi"]);
    }
}

#[tokio::test]
async fn a_response_of_after_model_ends_the_run_with_its_text() {
    let semantics = with(|run| run.after_model_respond = AfterModelRespond::EndRun);
    let model = ScriptedModel::new([Turn::tool("echo", json!("first")), Turn::from_text("plan")]);
    let response = replaced(&model, semantics).run("?").await.unwrap();
    model.assert_done();
    assert_eq!(
        (response.text().as_str(), response.end_reason()),
        ("replaced", &EndReason::Completed)
    );
    assert_eq!(
        results(&response),
        ["first"],
        "the calls it asks for are not run"
    );
    assert_eq!(response.iterations(), 2);
}

#[tokio::test]
async fn an_answer_in_the_models_place_does_not_end_the_run_where_one_of_after_model_does() {
    let semantics = with(|run| run.after_model_respond = AfterModelRespond::EndRun);
    let model = ScriptedModel::new([Turn::from_text("done")]);
    let agent = answered(&model, "before", semantics).build().unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "done");
    model.assert_done();
}

// A response given by `after_agent`, and by `before_agent`

fn with_history() -> AgentRequest {
    AgentRequest::new("And now?").with_history([Message::user("Hi."), Message::assistant("Hello.")])
}

fn after_agent_responds(semantics: Semantics) -> Agent {
    let turn =
        Turn::response(ModelResponse::from_text("Let me see.")).and_tool("echo", json!("hi"));
    let last = Turn::from_text("last").usage(Usage::new(7, 3));
    Agent::builder(ScriptedModel::new([turn, last]))
        .tool(echo())
        .semantics(semantics)
        .on_agent(after_agent(|_, _| {
            Action::Respond(AgentResponse::new([Message::assistant("given")]))
        }))
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_response_of_after_agent_replaces_the_final_message() {
    let semantics = with(|run| run.after_agent_respond = AfterAgentRespond::Replace);
    assert_eq!(semantics, Semantics::default());
    let response = after_agent_responds(semantics)
        .run(with_history())
        .await
        .unwrap();
    assert_eq!(
        texts(&response),
        ["Hi.", "Hello.", "And now?", "Let me see.", "", "given"],
        "the history and what was said before stay"
    );
    assert_eq!(
        (response.text().as_str(), response.origin()),
        ("given", Origin::After)
    );
    assert_eq!(response.new_messages().len(), 3);
    assert_eq!(
        (response.usage().total(), response.iterations()),
        (10, 2),
        "it took no less"
    );
}

#[tokio::test]
async fn a_response_of_after_agent_is_all_that_the_agent_has_said() {
    let semantics = with(|run| run.after_agent_respond = AfterAgentRespond::Transform);
    let response = after_agent_responds(semantics)
        .run(with_history())
        .await
        .unwrap();
    assert_eq!(texts(&response), ["Hi.", "Hello.", "And now?", "given"]);
    let said: Vec<_> = response.new_messages().map(Message::text).collect();
    assert_eq!(said, ["given"]);
    assert_eq!(
        (response.usage().total(), response.iterations()),
        (10, 2),
        "it took no less"
    );
}

#[tokio::test]
async fn an_answer_that_no_callback_gave_is_not_transformed() {
    let semantics = with(|run| run.after_agent_respond = AfterAgentRespond::Transform);
    let turns = [Turn::tool("echo", json!("hi")), Turn::from_text("done")];
    let agent = Agent::builder(ScriptedModel::new(turns));
    let agent = agent.tool(echo()).semantics(semantics).build().unwrap();
    assert_eq!(agent.run("?").await.unwrap().new_messages().len(), 3);
}

#[tokio::test]
async fn a_response_of_before_agent_continues_the_history() {
    for semantics in [
        Semantics::default(),
        Semantics::adk_python(),
        Semantics::adk_elixir(),
    ] {
        let model = ScriptedModel::new([]);
        let agent = Agent::builder(model.clone())
            .semantics(semantics)
            .on_agent(before_agent(|_| {
                Action::Respond(AgentResponse::new([Message::assistant("given")]))
            }))
            .build()
            .unwrap();
        let response = agent.run(with_history()).await.unwrap();
        model.assert_done();
        assert_eq!(texts(&response), ["Hi.", "Hello.", "And now?", "given"]);
        assert_eq!(
            (response.new_messages().len(), response.origin()),
            (1, Origin::Before)
        );
    }
}
