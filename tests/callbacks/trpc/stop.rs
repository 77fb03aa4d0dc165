//! A callback stops the run: one kind of error from wherever it comes, and nothing clears it.

use serde_json::{Value, json};
use tower_agent::call::CallKind;
use tower_agent::callback::{
    after_agent, after_model, after_tool, before_agent, before_model, before_tool, on_agent_error,
    on_model_error, on_tool_error, wrap_agent, wrap_model, wrap_tool,
};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Error, ErrorKind, Message,
    ModelResponse, Recovery, Request, Result, Tool, ToolRequest, ToolResponse, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{act, agent, with_options};
use test_support::log::Log;

fn stop() -> Error {
    Error::abort("token limit reached")
}

/// Where a stop may come from, and the call that it ends first.
const ORIGINS: [(&str, CallKind); 10] = [
    ("before_agent", CallKind::Agent),
    ("after_agent", CallKind::Agent),
    ("before_model", CallKind::Model),
    ("after_model", CallKind::Model),
    ("model", CallKind::Model),
    ("before_tool", CallKind::Tool),
    ("after_tool", CallKind::Tool),
    ("tool", CallKind::Tool),
    ("tool_error", CallKind::Tool),
    ("tool_result_messages", CallKind::Tool),
];

/// An agent that is stopped at `origin`, in the middle of callbacks and layers that would rather
/// go on. They note what they see.
fn stopped_at(
    origin: &'static str,
    semantics: tower_agent::compat::Semantics,
    seen: &Log<&'static str>,
) -> Agent {
    let stops = move |here: &str| if here == origin { Err(stop()) } else { Ok(()) };
    let note = |what: &'static str| {
        let seen = seen.clone();
        move || seen.push(what)
    };
    let (agent_failed, model_failed, tool_failed) = (
        note("on_agent_error"),
        note("on_model_error"),
        note("on_tool_error"),
    );
    let model = ScriptedModel::always(Turn::function(move |request| {
        stops("model")?;
        match request.messages().len() {
            1 => {
                let call = tower_agent::message::ToolCall::new("1", "act", json!(origin));
                let message = Message::new(tower_agent::Role::Assistant, [call.into()]);
                Ok(ModelResponse::new(message))
            }
            _ => Ok(ModelResponse::from_text("done")),
        }
    }));
    let tool = Tool::function("act", "", move |_: Value| match origin {
        "tool" => Err(stop()),
        "tool_error" => Err(Error::from("disk full")),
        _ => Ok("fine"),
    });
    let well = || AgentResponse::new([Message::assistant("all is well")]);
    Agent::builder(model)
        .semantics(semantics)
        .tool(tool)
        .agent_layer(wrap_agent(move |request, mut next| async move {
            let _ = next.run(request.clone()).await;
            let _ = next.run(request).await;
            Ok(well())
        }))
        .on_agent(before_agent(move |_| stops("before_agent")))
        .on_agent(after_agent(move |_, _| stops("after_agent")))
        .on_agent(after_agent(move |_, _| Action::Respond(well())))
        .on_agent(on_agent_error(move |_, error| match error.kind() {
            ErrorKind::Aborted => {
                agent_failed();
                Recovery::Fallback(well())
            }
            _ => Recovery::Propagate,
        }))
        .model_layer(wrap_model(|request, mut next| async move {
            match next.run(request).await {
                Err(_) => Ok(ModelResponse::from_text("all is well")),
                said => said,
            }
        }))
        .on_model(before_model(move |_| stops("before_model")))
        .on_model(after_model(move |_, _| stops("after_model")))
        .on_model(on_model_error(move |_, _| {
            model_failed();
            Recovery::Fallback(ModelResponse::from_text("all is well"))
        }))
        .tool_layer(wrap_tool(|request, mut next| async move {
            let _ = next.run(request.clone()).await;
            let _ = next.run(request).await;
            Ok(ToolResponse::new("fine"))
        }))
        .on_tool(before_tool(move |_| stops("before_tool")))
        .on_tool(after_tool(move |_, _| stops("after_tool")))
        .on_tool(after_tool(|_, _| {
            Action::Respond(ToolResponse::new("better"))
        }))
        .on_tool(on_tool_error(move |_, error| {
            match (origin, error.kind()) {
                ("tool_error", ErrorKind::Tool) => Err(stop()),
                _ => {
                    tool_failed();
                    Ok(Recovery::Fallback(ToolResponse::new("fine")))
                }
            }
        }))
        .tool_result_messages(move |_| stops("tool_result_messages").map(|()| None))
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_stop_ends_the_run_with_one_kind_of_error_wherever_it_comes_from() {
    for options in [(false, false), (true, false), (false, true), (true, true)] {
        for (origin, call) in ORIGINS {
            let seen = Log::default();
            let agent = stopped_at(origin, with_options(options.0, options.1), &seen);

            let error = agent.run("?").await.expect_err(origin);

            assert_eq!(error.kind(), ErrorKind::Aborted, "{origin}");
            assert_eq!(error.message(), "token limit reached", "{origin}");
            assert!(!error.is_retryable());
            assert_eq!(error.call().map(|site| site.kind), Some(call), "{origin}");
            let by = error.raised_by().map(|by| by.callback.to_string());
            let is_hook = !matches!(origin, "model" | "tool");
            assert_eq!(by.is_some(), is_hook, "{origin}: {by:?}");
            assert!(
                seen.take().is_empty(),
                "{origin}: nobody is asked to clear it"
            );
        }
    }
}

#[tokio::test]
async fn without_a_stop_that_agent_runs_to_its_end() {
    let seen = Log::default();
    let agent = stopped_at("nowhere", tower_agent::compat::Semantics::trpc(), &seen);
    assert_eq!(agent.run("?").await.unwrap().text(), "all is well");
}

#[tokio::test]
async fn a_stop_is_found_inside_any_error() {
    #[derive(Debug, thiserror::Error)]
    #[error("the archive is closed")]
    struct Closed(#[source] Error);

    let tool = Tool::function("act", "", |_: Value| Err::<(), _>(Closed(stop())));
    let model = ScriptedModel::new([Turn::tool("act", json!(null))]);
    let error = agent(model)
        .tool(tool)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "token limit reached")
    );
}

/// Stops a run before a model call, or after an answer, that finds so many tokens used.
fn limited(model: ScriptedModel, before: u64, after: u64) -> AgentBuilder {
    agent(model)
        .tool(act())
        .on_model(before_model(move |request| -> Result<()> {
            match request.context().usage().total() {
                used if used >= before => Err(Error::abort(format!("{used} tokens before"))),
                _ => Ok(()),
            }
        }))
        .on_agent(after_agent(move |_, response| -> Result<()> {
            match response.usage().total() {
                used if used >= after => Err(Error::abort(format!("{used} tokens after"))),
                _ => Ok(()),
            }
        }))
}

#[tokio::test]
async fn a_token_limit_stops_the_run_before_a_call_or_after_the_answer() {
    let cases = [
        (25, u64::MAX, 3, Err("30 tokens before")),
        (u64::MAX, 40, 4, Err("40 tokens after")),
        (40, 41, 4, Ok("done")),
    ];
    for (before, after, calls, expected) in cases {
        let ten = |turn: Turn| turn.usage(Usage::new(8, 2));
        let turns = (0..3).map(|_| ten(Turn::tool("act", json!(null))));
        let model = ScriptedModel::new(turns.chain([ten(Turn::from_text("done"))]));

        let result = limited(model.clone(), before, after)
            .build()
            .unwrap()
            .run("?")
            .await;

        let result = result.map(|response| response.text());
        let found = result
            .as_deref()
            .map_err(|error| (error.kind(), error.message()));
        assert_eq!(
            found,
            expected.map_err(|message| (ErrorKind::Aborted, message))
        );
        assert_eq!(model.requests().len(), calls);
    }
}

#[tokio::test]
async fn the_totals_count_the_agents_below_and_a_stop_there_ends_the_tree() {
    let seen = Log::default();
    let inner = agent(ScriptedModel::new([
        Turn::from_text("42").usage(Usage::new(5, 0))
    ]))
    .on_agent(before_agent(|request| {
        match request.context().usage().total() {
            10.. => Err(stop()),
            _ => Ok(()),
        }
    }))
    .build()
    .unwrap();
    let delegate = Tool::function_with("act", "", move |_: Value, request: ToolRequest| {
        let run = inner.run(AgentRequest::new("?").with_context(request.context().clone()));
        async move { run.await.map(|response| response.text()) }
    });
    let call = || Turn::tool("act", json!(null)).usage(Usage::new(3, 0));
    let model = ScriptedModel::new([call(), call()]);
    let outer = agent(model)
        .tool(delegate)
        .on_model(before_model({
            let seen = seen.clone();
            move |request| seen.push(request.context().usage().total())
        }))
        .build()
        .unwrap();

    // 3, then 5 below, then 3: the agent below finds 11 and stops the whole tree.
    let error = outer.run("?").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Aborted);
    assert_eq!(&*error.call().unwrap().agent, "agent/agent");
    assert_eq!(seen.take(), [0, 8]);
}

#[tokio::test]
async fn an_ordinary_error_of_a_tool_is_no_stop() {
    let tool = Tool::function("act", "", |_: Value| {
        Err::<(), _>(Error::from("token limit"))
    });
    let model = ScriptedModel::new([Turn::tool("act", json!(null)), Turn::from_text("done")]);
    let response = agent(model)
        .tool(tool)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap();
    assert_eq!(response.text(), "done");
}
