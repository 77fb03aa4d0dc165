//! Callbacks of the model call: what an answer means, what is asked about it, what fails.

use std::io;

use serde_json::json;
use tower_agent::call::Origin;
use tower_agent::callback::{after_model, before_model, on_model_error};
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, Error, ErrorKind, Message, ModelResponse, Part, Recovery, Request, Role, stream,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, adk_of, model_says, told, work};
use test_support::log::Log;

fn quota() -> Error {
    Error::new(ErrorKind::RateLimited, "quota")
}

/// An answer that asks for the tool `work`.
fn asks_for_work(text: &str) -> ModelResponse {
    let call = ToolCall::new("mine", "work", json!({ "by": "callback" }));
    ModelResponse::new(Message::new(
        Role::Assistant,
        [Part::from_text(text), Part::ToolCall(call)],
    ))
}

#[tokio::test]
async fn after_model_runs_for_a_fallback_but_not_for_a_response_before_the_model() {
    for (before, text, asked) in [(true, "before", 0), (false, "fallback", 1)] {
        let log = Log::default();
        let model = ScriptedModel::always(Turn::error(quota()));
        let agent = adk(&model)
            .on_model(before_model(move |_| {
                if before {
                    Action::Respond(model_says("before"))
                } else {
                    Action::Continue
                }
            }))
            .on_model(on_model_error(|_, _| {
                Recovery::Fallback(model_says("fallback"))
            }))
            .on_model(after_model({
                let log = log.clone();
                move |_, response| log.note(format!("{:?}", response.origin()))
            }))
            .build()
            .unwrap();

        assert_eq!(agent.run("?").await.unwrap().text(), text);
        assert_eq!(log.take(), vec![format!("{:?}", Origin::Fallback); asked]);
    }
}

#[tokio::test]
async fn tool_calls_are_run_wherever_the_response_comes_from() {
    for hook in ["before", "after", "on_error"] {
        let log = Log::default();
        // The callback acts once; then the model has the word.
        let first = |here: &'static str| move |iteration: u32| here == hook && iteration == 0;
        let (before, after, on_error) = (first("before"), first("after"), first("on_error"));
        let model = ScriptedModel::always(Turn::function(move |request| {
            match (hook, request.context().iteration()) {
                ("on_error", 0) => Err(quota()),
                _ => Ok(model_says("done")),
            }
        }));
        let agent = adk(&model)
            .tool(work(&log))
            .on_model(before_model(move |request| {
                if before(request.context().iteration()) {
                    Action::Respond(asks_for_work(""))
                } else {
                    Action::Continue
                }
            }))
            .on_model(after_model(move |request, _| {
                if after(request.context().iteration()) {
                    Action::Respond(asks_for_work(""))
                } else {
                    Action::Continue
                }
            }))
            .on_model(on_model_error(move |request, _| {
                if on_error(request.context().iteration()) {
                    Recovery::Fallback(asks_for_work(""))
                } else {
                    Recovery::Propagate
                }
            }))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(log.take(), [r#"work {"by":"callback"}"#], "{hook}");
        assert_eq!(response.text(), "done", "{hook}");
    }
}

#[tokio::test]
async fn after_model_may_take_tool_calls_away() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("work", json!({}))]);
    let agent = adk(&model)
        .tool(work(&log))
        .on_model(after_model(|_, _| {
            Action::Respond(model_says("I would rather not."))
        }))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "I would rather not.");
    assert!(log.take().is_empty());
    model.assert_done();
}

#[tokio::test]
async fn an_unrecovered_failure_reaches_the_caller_as_it_was() {
    let model = tower::service_fn(|_: tower_agent::ModelRequest| async {
        Err::<ModelResponse, _>(io::Error::new(io::ErrorKind::ConnectionReset, "line cut"))
    });
    let agent = adk_of(model)
        .on_model(on_model_error(|_, _| ()))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(error.message(), "line cut");
    let original = error.downcast_ref::<io::Error>().unwrap();
    assert_eq!(original.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn callbacks_see_what_those_before_them_changed_and_the_next_turn_does_not() {
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    let agent = adk(&model)
        .instructions("Be kind.")
        .tool(work(&Log::default()))
        .on_model(before_model(|request| {
            if request.context().iteration() == 0 {
                request.add_instructions("Be brief.");
                request.messages_mut().push(Message::user("P.S. Hurry."));
                request.settings_mut().model = Some("small".into());
            }
        }))
        .on_model(before_model(|request| {
            let words = request
                .instructions()
                .unwrap_or_default()
                .split(' ')
                .count();
            request.settings_mut().seed = Some(words as u64);
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let [first, second] = &model.requests()[..] else {
        panic!()
    };
    assert_eq!(first.instructions(), Some("Be kind.\n\nBe brief."));
    assert_eq!(first.messages().last().unwrap().text(), "P.S. Hurry.");
    assert_eq!(first.settings().model.as_deref(), Some("small"));
    assert_eq!(first.settings().seed, Some(3));
    assert_eq!(second.instructions(), Some("Be kind."));
    assert!(
        second
            .messages()
            .iter()
            .all(|message| message.text() != "P.S. Hurry.")
    );
    assert_eq!(
        (&second.settings().model, second.settings().seed),
        (&None, Some(2))
    );
}

#[tokio::test]
async fn after_model_is_asked_once_about_a_streamed_answer_and_sees_all_of_it() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::from_text("a long answer in pieces")]).chunk_size(3);
    let agent = adk(&model)
        .on_model(after_model({
            let log = log.clone();
            move |_, response| log.note(response.message().text())
        }))
        .build()
        .unwrap();

    let mut run = agent.stream("?");
    let mut count = 0;
    while let Some(event) = futures::StreamExt::next(&mut run).await {
        count += usize::from(matches!(event.kind, stream::EventKind::TextDelta { .. }));
    }

    assert_eq!(
        run.response().await.unwrap().text(),
        "a long answer in pieces"
    );
    assert!(count > 3, "{count} deltas");
    assert_eq!(log.take(), ["a long answer in pieces"]);
}

#[tokio::test]
async fn a_tool_that_a_callback_hides_from_the_model_is_still_there() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    let agent = adk(&model)
        .tool(work(&log))
        .on_model(before_model(|request| request.tools_mut().clear()))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert!(model.requests()[0].tools().is_empty());
    assert_eq!(told(&response), [r#"{"from":"tool"}"#]);
    assert_eq!(log.take().len(), 1);
}

#[tokio::test]
async fn an_answer_before_the_model_counts_as_a_turn_so_that_every_run_ends() {
    let log = Log::default();
    let model = ScriptedModel::new([]);
    let agent = adk(&model)
        .max_iterations(2)
        .tool(work(&log))
        .on_model(before_model(|_| Action::Respond(asks_for_work(""))))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::MaxIterations);
    assert_eq!(log.take().len(), 2);
    model.assert_done();
}
