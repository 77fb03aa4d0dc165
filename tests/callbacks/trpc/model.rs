//! Callbacks around model calls.

use futures::StreamExt;
use serde_json::json;
use tower_agent::call::Origin;
use tower_agent::callback::{after_model, after_tool, before_model, before_tool, on_model_error};
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, BoxError, Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Recovery,
    Request, Role, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::deltas;

use super::{act, agent, texts, told};
use test_support::log::Log;

fn last_text(request: &ModelRequest) -> String {
    request
        .messages()
        .last()
        .map(Message::text)
        .unwrap_or_default()
}

/// The same answer with more text.
fn annotated(response: &ModelResponse, more: &str) -> ModelResponse {
    let mut response = response.clone();
    response
        .message_mut()
        .parts_mut()
        .push(Part::from_text(more));
    response
}

#[tokio::test]
async fn ping_is_answered_without_the_model() {
    let model = ScriptedModel::new([Turn::from_text("a long answer")]);
    let agent = agent(model.clone())
        .on_model(before_model(|request| {
            if last_text(request).contains("/ping") {
                Action::Respond(ModelResponse::from_text("pong"))
            } else {
                Action::Continue
            }
        }))
        .build()
        .unwrap();

    assert_eq!(agent.run("/ping").await.unwrap().text(), "pong");
    assert_eq!(model.requests().len(), 0);
    assert_eq!(agent.run("hello").await.unwrap().text(), "a long answer");
    model.assert_done();
}

#[tokio::test]
async fn answers_are_annotated_and_errors_left_alone() {
    let broken = Error::new(ErrorKind::Provider, "broken");
    let model = ScriptedModel::new([
        Turn::from_text("four").usage(Usage::new(10, 1)),
        Turn::error(broken),
    ]);
    let agent = agent(model)
        .on_model(after_model(|_, response| {
            Action::Respond(annotated(response, " -- checked"))
        }))
        .on_model(on_model_error(|_, error| Recovery::Fail(error.clone())))
        .build()
        .unwrap();

    let response = agent.run("2 + 2?").await.unwrap();
    assert_eq!(response.text(), "four -- checked");
    assert_eq!(response.usage(), Usage::new(10, 1));
    let error = agent.run("2 + 2?").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Provider, "broken")
    );
}

#[tokio::test]
async fn after_model_is_asked_about_an_answer_that_before_model_gave() {
    let model = ScriptedModel::new([]);
    let agent = agent(model.clone())
        .on_model(before_model(|_| {
            Action::Respond(ModelResponse::from_text("pong"))
        }))
        .on_model(after_model(|_, response| {
            assert_eq!(response.origin(), Origin::Before);
            Action::Respond(annotated(response, "!"))
        }))
        .build()
        .unwrap();

    assert_eq!(agent.run("/ping").await.unwrap().text(), "pong!");
    model.assert_done();
}

#[tokio::test]
async fn the_request_may_be_changed_in_every_part_and_after_model_sees_it_as_sent() {
    let model = ScriptedModel::new([Turn::from_text("ok")]);
    let seen = Log::default();
    let agent = agent(model.clone())
        .tool(act())
        .on_model(before_model(|request| {
            request.add_instructions("Be brief.");
            request.messages_mut().push(Message::user("and politely"));
            request.settings_mut().temperature = Some(0.5);
            request.tools_mut().clear();
        }))
        .on_model(after_model({
            let seen = seen.clone();
            move |request, _| seen.push((last_text(request), request.tools().len()))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let sent = &model.requests()[0];
    assert_eq!(sent.instructions(), Some("Be brief."));
    assert_eq!(
        (last_text(sent), sent.tools().len()),
        ("and politely".to_owned(), 0)
    );
    assert_eq!(sent.settings().temperature, Some(0.5));
    assert_eq!(seen.take(), [("and politely".to_owned(), 0)]);
    assert_eq!(
        response.messages().len(),
        2,
        "the transcript keeps what was said"
    );
}

#[tokio::test]
async fn tools_in_an_answer_of_before_model_are_run() {
    let model = ScriptedModel::new([Turn::from_text("done")]);
    let agent = agent(model.clone())
        .tool(act())
        .on_model(before_model(|request| {
            match request.context().iteration() {
                0 => {
                    let call = ToolCall::new("mine", "act", json!("go"));
                    let message = Message::new(Role::Assistant, [Part::from(call)]);
                    Action::Respond(ModelResponse::new(message))
                }
                _ => Action::Continue,
            }
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(texts(&told(&response)), ["go"]);
    assert_eq!(&*told(&response)[0].call_id, "mine");
}

#[tokio::test]
async fn tools_in_an_answer_of_after_model_are_run_instead_of_the_models() {
    let model = ScriptedModel::new([
        Turn::tool("act", json!("as the model says")),
        Turn::from_text("done"),
    ]);
    let agent = agent(model)
        .tool(act())
        .on_model(after_model(|request, _| {
            match request.context().iteration() {
                0 => {
                    let call = ToolCall::new("mine", "act", json!("as I say"));
                    let message = Message::new(Role::Assistant, [Part::from(call)]);
                    Action::Respond(ModelResponse::new(message))
                }
                _ => Action::Continue,
            }
        }))
        .build()
        .unwrap();

    assert_eq!(texts(&told(&agent.run("?").await.unwrap())), ["as I say"]);
}

#[tokio::test]
async fn an_answer_without_tool_calls_ends_the_loop_with_no_flag_to_set() {
    let model = ScriptedModel::new([]);
    let agent = agent(model.clone())
        .on_model(before_model(|_| {
            Action::Respond(ModelResponse::from_text("enough"))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(
        (response.text(), response.iterations()),
        ("enough".to_owned(), 1)
    );
}

#[tokio::test]
async fn an_answered_call_counts_towards_the_limit() {
    let model = ScriptedModel::new([]);
    let agent = agent(model.clone())
        .tool(act())
        .max_iterations(2)
        .on_model(before_model(|_| {
            let call = ToolCall::new("", "act", json!(null));
            let message = Message::new(Role::Assistant, [Part::from(call)]);
            Action::Respond(ModelResponse::new(message))
        }))
        .build()
        .unwrap();

    assert_eq!(
        agent.run("?").await.unwrap_err().kind(),
        ErrorKind::MaxIterations
    );
    model.assert_done();
}

#[tokio::test]
async fn the_error_half_sees_failures_that_came_without_any_response() {
    #[derive(Debug, thiserror::Error)]
    #[error("connection reset")]
    struct Reset;

    let model =
        tower::service_fn(|_: ModelRequest| async { Err::<ModelResponse, BoxError>(Reset.into()) });
    let seen = Log::default();
    let agent = agent(model)
        .on_model(on_model_error({
            let seen = seen.clone();
            move |_, error| {
                seen.push(error.downcast_ref::<Reset>().is_some());
                Recovery::Fallback(ModelResponse::from_text("later, perhaps"))
            }
        }))
        .on_model(after_model({
            let seen = seen.clone();
            move |_, _| seen.push(false)
        }))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "later, perhaps");
    assert_eq!(
        seen.take(),
        [true],
        "one pass: the answer to an error is not asked about again"
    );
}

#[tokio::test]
async fn a_streamed_answer_is_seen_once_and_whole() {
    let model = ScriptedModel::new([Turn::from_text("a rather long answer")]).chunk_size(3);
    let seen = Log::default();
    let agent = agent(model)
        .on_model(after_model({
            let seen = seen.clone();
            move |_, response| seen.push(response.message().text())
        }))
        .build()
        .unwrap();

    let mut run = agent.stream("?");
    let events: Vec<_> = run.by_ref().collect().await;

    assert_eq!(run.response().await.unwrap().text(), "a rather long answer");
    assert!(deltas(events).len() > 2);
    assert_eq!(seen.take(), ["a rather long answer"]);
}

#[derive(Debug, PartialEq)]
struct Asked(usize);

#[tokio::test]
async fn after_model_finds_what_before_model_stored_for_the_same_call() {
    let model = ScriptedModel::new([Turn::tool("act", json!(null)), Turn::from_text("done")]);
    let seen = Log::default();
    let agent = agent(model)
        .tool(act())
        .on_model(before_model(|request| {
            assert_eq!(request.extensions().get::<Asked>(), None);
            let messages = request.messages().len();
            request.extensions_mut().insert(Asked(messages));
        }))
        .on_model(after_model({
            let seen = seen.clone();
            move |request, _| seen.push(request.extensions().get::<Asked>().map(|asked| asked.0))
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(seen.take(), [Some(1), Some(3)]);
}

#[tokio::test]
async fn values_that_model_callbacks_set_reach_the_tools_of_that_turn() {
    let model = ScriptedModel::new([Turn::tool("act", json!(null)), Turn::from_text("done")]);
    let seen = Log::default();
    let note = |seen: &Log<String>, context: &tower_agent::RunContext| {
        let route = context.values().get::<String>("route").unwrap();
        seen.push(route.map(|route| (*route).clone()).unwrap_or_default());
    };
    let agent = agent(model)
        .tool(act())
        .on_model(before_model(|request| {
            let route = format!("turn {}", request.context().iteration());
            request.context().values().set("route", route);
        }))
        .on_tool(before_tool({
            let seen = seen.clone();
            move |request| note(&seen, request.context())
        }))
        .on_tool(after_tool({
            let seen = seen.clone();
            move |request, _| note(&seen, request.context())
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(seen.take(), ["turn 0", "turn 0"]);
}
