//! Endings of a run that nothing undoes: abort, interrupt, end of the invocation, cancellation.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use tower::util::MapResponseLayer;
use tower_agent::callback::{
    Outcome, after_agent, after_model, after_tool, before_agent, before_model, before_tool,
    on_agent_error, on_tool_error, wrap_agent, wrap_model, wrap_tool,
};
use tower_agent::message::Messages;
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Callback, EndReason, Error, ErrorKind, Interrupt,
    Message, ModelResponse, Recovery, Request, Result, Role, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::log::Log;

/// A tool that counts its calls.
fn counter() -> (Tool, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let tool = Tool::function("count", "Counts.", {
        let calls = calls.clone();
        move |_: Value| calls.fetch_add(1, Ordering::SeqCst) + 1
    });
    (tool, calls)
}

fn calls_count() -> Turn {
    Turn::tool("count", json!(null))
}

/// Writes down how each call ended.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<String>>>);

impl<R: Request> Callback<R> for Ends {
    fn on_end(&self, _: &R, outcome: Outcome<'_, R::Response>) {
        let how = match outcome {
            Outcome::Done(_) => "done".to_owned(),
            Outcome::Failed(error) => error.kind().to_string(),
            _ => "dropped".to_owned(),
        };
        self.0.lock().unwrap().push(format!("{}: {how}", R::CALL));
    }
}

impl Ends {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[tokio::test]
async fn an_abort_ends_the_run_whatever_is_around_it() {
    let (count, calls) = counter();
    let model = ScriptedModel::new([calls_count()]);
    let asked = Arc::new(AtomicU32::new(0));
    let agent = Agent::builder(model.clone())
        .name("outer")
        .tool(count)
        .on_agent(on_agent_error({
            let asked = asked.clone();
            move |_, _| {
                asked.fetch_add(1, Ordering::SeqCst);
                Recovery::Fallback(AgentResponse::new([Message::assistant("all is well")]))
            }
        }))
        .agent_layer(wrap_agent(|request, mut next| async move {
            let _ = next.run(request.clone()).await;
            let _ = next.run(request).await;
            Ok(AgentResponse::new([Message::assistant("all is well")]))
        }))
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new("fine"))
        }))
        .tool_layer(wrap_tool(|request, mut next| async move {
            let _ = next.run(request.clone()).await;
            let _ = next.run(request).await;
            Ok(ToolResponse::new("fine"))
        }))
        .on_tool(before_tool(|_| Result::<()>::Err(Error::abort("out of budget"))).named("budget"))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    model.assert_done();
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "out of budget")
    );
    let by = error.raised_by().unwrap();
    assert_eq!((&*by.callback, &*by.hook), ("budget", "before"));
    assert_eq!(&*error.call().unwrap().agent, "outer");
    assert_eq!(
        error.to_string(),
        "tool call `count` of agent `outer`: aborted: out of budget \
         (raised by `budget` in before)"
    );
}

#[tokio::test]
async fn an_abort_is_not_retried_by_a_layer_around_the_agent() {
    let model = ScriptedModel::new([Turn::from_text("too long")]);
    let agent = Agent::builder(model.clone())
        .on_model(after_model(|_, _| {
            Result::<()>::Err(Error::abort("too long"))
        }))
        .build()
        .unwrap();

    let request = AgentRequest::new("?");
    for _ in 0..2 {
        let error = agent.clone().oneshot(request.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted);
    }
    model.assert_done();
}

#[tokio::test(start_paused = true)]
async fn an_abort_drops_the_calls_beside_it() {
    let ends = Ends::default();
    let model =
        ScriptedModel::new([Turn::tool("sleep", json!(null)).and_tool("stop", json!(null))]);
    let agent = Agent::builder(model)
        .tool(Tool::function("sleep", "", async |_: Value| {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }))
        .tool(Tool::function("stop", "", |_: Value| {
            Err::<(), _>(Error::abort("enough"))
        }))
        .on_agent(ends.clone())
        .on_tool(ends.clone())
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);

    assert_eq!(
        ends.take(),
        ["tool: aborted", "tool: dropped", "agent: aborted"]
    );
}

#[tokio::test]
async fn an_interrupted_run_tells_what_it_waits_for_and_resumes_there() {
    let (count, calls) = counter();
    let model = ScriptedModel::new([
        Turn::tool("wipe", json!("disk"))
            .and_tool("count", json!(null))
            .and_tool("wipe", json!("tape")),
        Turn::from_text("done"),
    ]);
    let wiped = Arc::new(Mutex::new(Vec::new()));
    let wipe = Tool::function("wipe", "", {
        let wiped = wiped.clone();
        move |what: String| wiped.lock().unwrap().push(what)
    });
    let approved = Arc::new(Mutex::new(false));
    let ends = Ends::default();
    let agent = Agent::builder(model.clone())
        .tools([count, wipe])
        // The calls beside an interrupted one still run.
        .on_agent(ends.clone())
        .on_agent(after_agent(|_, _| {
            Action::Respond(AgentResponse::new([Message::assistant("after")]))
        }))
        .on_tool(before_tool({
            let approved = approved.clone();
            move |request| {
                if request.name() == "wipe" && !*approved.lock().unwrap() {
                    let pending = Interrupt::new(format!("approve-{}", request.id()), "tool_call")
                        .with_message(format!("wipe {}?", request.arguments()));
                    return Err(Error::interrupt(pending));
                }
                Ok(())
            }
        }))
        .build()
        .unwrap();

    let first = agent.run("?").await.unwrap();

    let EndReason::Interrupted(pending) = first.end_reason() else {
        panic!("{:?}", first.end_reason())
    };
    let waits: Vec<_> = pending
        .iter()
        .map(|p| (&*p.name, p.tool_call_id.as_deref()))
        .collect();
    assert_eq!(
        waits,
        [
            ("approve-call_1", Some("call_1")),
            ("approve-call_3", Some("call_3"))
        ]
    );
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert!(wiped.lock().unwrap().is_empty());
    assert_eq!(ends.take(), ["agent: done"]);

    // In another process, if need be.
    let saved = serde_json::to_string(first.messages()).unwrap();
    *approved.lock().unwrap() = true;
    let conversation: Messages = serde_json::from_str(&saved).unwrap();
    let second = agent.run(conversation).await;

    model.assert_done();
    assert_eq!(second.unwrap().text(), "after");
    assert_eq!(*wiped.lock().unwrap(), ["disk", "tape"]);
    assert_eq!(
        calls.load(Ordering::SeqCst),
        1,
        "what had finished is not run again"
    );
    let transcript = model.requests()[1].messages().clone();
    let answered: Vec<_> = transcript.iter().flat_map(Message::tool_results).collect();
    let ids: Vec<_> = answered.iter().map(|result| &*result.call_id).collect();
    assert_eq!(ids, ["call_1", "call_2", "call_3"]);
}

#[tokio::test]
async fn nothing_outside_undoes_an_interrupt() {
    let (count, calls) = counter();
    let model = ScriptedModel::new([calls_count()]);
    let agent = Agent::builder(model.clone())
        .tool(count)
        .agent_layer(MapResponseLayer::new(|_| {
            AgentResponse::new([Message::assistant("well")])
        }))
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new("fine"))
        }))
        .tool_layer(wrap_tool(|request, mut next| async move {
            let _ = next.run(request.clone()).await;
            let again = next.run(request).await.unwrap_err();
            assert_eq!(
                again.kind(),
                ErrorKind::Interrupted,
                "it is not entered again"
            );
            Ok(ToolResponse::new("fine"))
        }))
        .on_tool(before_tool(|_| {
            Result::<()>::Err(Error::interrupt(Interrupt::new("1", "confirmation")))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(response.interrupts().len(), 1);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_model_call_may_be_interrupted_too() {
    let model = ScriptedModel::new([]);
    let agent = Agent::builder(model.clone())
        .on_model(before_model(|_| {
            Result::<()>::Err(Error::interrupt(Interrupt::new("1", "input_required")))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(response.interrupts()[0].reason, "input_required");
    assert_eq!(response.interrupts()[0].tool_call_id, None);
    assert_eq!(response.message(), None);
}

/// An agent with a callback on each call, one of which ends the invocation.
async fn ended_by(hook: &str) -> (AgentResponse, Vec<String>, u32) {
    let (count, calls) = counter();
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::from_text("I will count.")).and_tool("count", json!(null)),
        Turn::from_text("unreachable"),
    ]);
    let ends = |here: &'static str| {
        let chosen = here == hook;
        move || {
            if chosen {
                Err(Error::end_invocation())
            } else {
                Ok(())
            }
        }
    };
    let after = Ends::default();
    let agent = Agent::builder(model)
        .tool(count)
        .on_agent(after.clone())
        .on_agent(before_agent({
            let end = ends("before_agent");
            move |_| end()
        }))
        .on_agent(after_agent({
            let end = ends("after_agent");
            move |_, _| end()
        }))
        .on_agent(after_agent(|_, _| {
            Action::Respond(AgentResponse::new([Message::assistant("after")]))
        }))
        .on_model(before_model({
            let end = ends("before_model");
            move |_| end()
        }))
        .on_model(after_model({
            let end = ends("after_model");
            move |_, _| end()
        }))
        .on_tool(before_tool({
            let end = ends("before_tool");
            move |_| end()
        }))
        .on_tool(after_tool({
            let end = ends("after_tool");
            move |_, _| end()
        }))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    (response, after.take(), calls.load(Ordering::SeqCst))
}

#[tokio::test]
async fn end_invocation_ends_the_agent_with_what_it_has() {
    for (hook, messages, tool_calls) in [
        ("before_agent", 0, 0),
        ("before_model", 0, 0),
        // The call has succeeded: its response stays, and the tool that it called does not run.
        ("after_model", 2, 0),
        ("before_tool", 2, 0),
        ("after_tool", 2, 1),
    ] {
        let (response, ends, calls) = ended_by(hook).await;
        assert_eq!(response.end_reason(), &EndReason::EndedByCallback, "{hook}");
        assert_eq!(
            response.new_messages().len(),
            messages,
            "{hook}: {response:?}"
        );
        assert_eq!(calls, tool_calls, "{hook}");
        assert_ne!(
            response.text(),
            "after",
            "{hook}: after_agent is not called"
        );
        assert_eq!(ends.len(), 1, "{hook}");
        if messages == 2 {
            assert_eq!(response.text(), "I will count.");
            let last = response.new_messages().next_back().unwrap();
            assert_eq!(
                last.role(),
                Role::Tool,
                "{hook}: no call is left without an answer"
            );
        }
    }
}

#[tokio::test]
async fn nothing_outside_undoes_the_end_of_an_invocation() {
    let model = ScriptedModel::new([]);
    let agent = Agent::builder(model.clone())
        .on_agent(on_agent_error(|_, _| {
            Recovery::Fallback(AgentResponse::new([Message::assistant("well")]))
        }))
        .model_layer(wrap_model(|request, mut next| async move {
            let _ = next.run(request.clone()).await;
            let _ = next.run(request).await;
            Ok(ModelResponse::from_text("well"))
        }))
        .on_model(before_model(|_| Result::<()>::Err(Error::end_invocation())))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(response.end_reason(), &EndReason::EndedByCallback);
}

#[tokio::test(start_paused = true)]
async fn a_token_cancels_the_run() {
    let ends = Ends::default();
    let agent = Agent::builder(ScriptedModel::new([Turn::pending()]))
        .on_agent(ends.clone())
        .on_model(ends.clone())
        .build()
        .unwrap();
    let token = CancellationToken::new();
    let run = agent.run(AgentRequest::new("?").with_cancellation(token.clone()));

    let (result, ()) = tokio::join!(run, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        token.cancel();
    });

    assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(ends.take(), ["model: dropped", "agent: dropped"]);
}

#[tokio::test]
async fn dropping_the_run_cancels_it() {
    let ends = Ends::default();
    let model = ScriptedModel::new([Turn::pending()]);
    let agent = Agent::builder(model.clone())
        .on_model(ends.clone())
        .build()
        .unwrap();

    drop(agent.run("never polled"));
    assert_eq!((model.requests().len(), ends.take().len()), (0, 0));

    let mut run = Box::pin(agent.run("?"));
    assert!(futures::poll!(&mut run).is_pending());
    drop(run);
    assert_eq!(ends.take(), ["model: dropped"]);
}

#[tokio::test]
async fn an_abort_in_a_task_that_a_tool_has_spawned_ends_the_run() {
    let guarded = Agent::builder(ScriptedModel::new([]))
        .name("guarded")
        .on_agent(before_agent(|_| Result::<()>::Err(Error::abort("enough"))))
        .build()
        .unwrap();
    let ask = Tool::function_with("ask", "", move |_: Value, call: ToolRequest| {
        let request = AgentRequest::new("?").with_context(call.context().clone());
        let asked = tokio::spawn(guarded.run(request));
        async move {
            let error = asked.await.unwrap().unwrap_err();
            format!("all is well, but for {error}")
        }
    });
    let model = ScriptedModel::new([
        Turn::tool("ask", json!(null)),
        Turn::from_text("unreachable"),
    ]);
    let agent = Agent::builder(model.clone()).tool(ask).build().unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "enough")
    );
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_tool_that_ends_the_invocation_leaves_no_call_open_where_the_run_would_stop() {
    let (count, _) = counter();
    let exit = Tool::function("exit", "", |_: Value| Err::<(), _>(Error::end_invocation()));
    let model = ScriptedModel::new([calls_count().and_tool("exit", json!(null))]);
    let agent = Agent::builder(model)
        .tools([count, exit])
        .stop_when(|_| true)
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.end_reason(), &EndReason::EndedByCallback);
    let answered = response.new_messages().flat_map(Message::tool_results);
    let answered: Vec<_> = answered.map(|result| &*result.call_id).collect();
    assert_eq!(answered, ["call_1", "call_2"]);
}

#[tokio::test]
async fn an_abort_around_a_tool_ends_the_run_and_the_model_does_not_read_it() {
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk"))]);
    let agent = Agent::builder(model.clone())
        .tool(Log::default().tool("wipe"))
        .on_tool(before_tool(|_| Err::<(), _>(Error::abort("not here"))))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);
    model.assert_done();
}
