//! `Hooks`: one object with every hook.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tower_agent::callback::{Bundle, Outcome};
use tower_agent::compat::Hooks;
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Callback, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Recovery, Request, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::bundles::echo;
use test_support::trace::Trace;

/// Writes down every hook by its name.
struct Every(Trace);

impl Every {
    fn end<T>(&self, hook: &str, outcome: Outcome<'_, T>) {
        let how = match outcome {
            Outcome::Done(_) => "done",
            Outcome::Failed(_) => "failed",
            _ => "dropped",
        };
        self.0.push(format!("{hook}={how}"));
    }
}

impl Hooks for Every {
    async fn before_agent(&self, _: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        self.0.push("before_agent");
        Ok(Action::Continue)
    }

    async fn after_agent(
        &self,
        _: &AgentRequest,
        _: &AgentResponse,
    ) -> Result<Action<AgentResponse>> {
        self.0.push("after_agent");
        Ok(Action::Continue)
    }

    async fn on_agent_error(
        &self,
        _: &mut AgentRequest,
        _: &Error,
    ) -> Result<Recovery<AgentResponse>> {
        self.0.push("on_agent_error");
        Ok(Recovery::Propagate)
    }

    fn on_agent_end(&self, _: &AgentRequest, outcome: Outcome<'_, AgentResponse>) {
        self.end("agent", outcome);
    }

    async fn before_model(&self, _: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        self.0.push("before_model");
        Ok(Action::Continue)
    }

    async fn after_model(
        &self,
        _: &ModelRequest,
        _: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        self.0.push("after_model");
        Ok(Action::Continue)
    }

    async fn on_model_error(
        &self,
        _: &mut ModelRequest,
        _: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        self.0.push("on_model_error");
        Ok(Recovery::Propagate)
    }

    fn on_model_end(&self, _: &ModelRequest, outcome: Outcome<'_, ModelResponse>) {
        self.end("model", outcome);
    }

    async fn before_tool(&self, _: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.0.push("before_tool");
        Ok(Action::Continue)
    }

    async fn after_tool(&self, _: &ToolRequest, _: &ToolResponse) -> Result<Action<ToolResponse>> {
        self.0.push("after_tool");
        Ok(Action::Continue)
    }

    async fn on_tool_error(
        &self,
        _: &mut ToolRequest,
        _: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        self.0.push("on_tool_error");
        Ok(Recovery::Propagate)
    }

    fn on_tool_end(&self, _: &ToolRequest, outcome: Outcome<'_, ToolResponse>) {
        self.end("tool", outcome);
    }
}

#[tokio::test]
async fn each_hook_fires_in_its_place_and_each_call_ends_once() {
    let trace = Trace::default();
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    let turn = Turn::tool("echo", json!(1)).and_tool("fail", json!(1));
    let agent = Agent::builder(ScriptedModel::new([turn, down]))
        .tool(echo())
        .tool(Tool::function("fail", "", |_: Value| {
            Err::<(), _>("disk full")
        }))
        .tool_concurrency(1)
        .callbacks(Every(trace.clone()))
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    let words = trace.take();
    let seen: Vec<_> = words.split_whitespace().collect();
    assert_eq!(
        seen,
        [
            "before_agent",
            "before_model",
            "after_model",
            "model=done",
            "before_tool",
            "after_tool",
            "tool=done",
            "before_tool",
            "on_tool_error",
            "tool=failed",
            "before_model",
            "on_model_error",
            "model=failed",
            "on_agent_error",
            "agent=failed",
        ]
    );
}

#[tokio::test]
async fn after_agent_and_the_end_of_an_agent_that_is_done_fire_too() {
    let trace = Trace::default();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]));
    let agent = agent.callbacks(Every(trace.clone())).build().unwrap();
    agent.run("?").await.unwrap();
    let expected = "before_agent before_model after_model model=done after_agent agent=done";
    assert_eq!(trace.take(), expected);
}

struct Idle;

impl Hooks for Idle {}

#[tokio::test]
async fn hooks_left_out_change_nothing() {
    let run = async |idle: usize| {
        let model = ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("done")]);
        let agent = (0..idle).fold(Agent::builder(model.clone()).tool(echo()), |a, _| {
            a.callbacks(Idle)
        });
        let request = AgentRequest::new("?").with_run_id("r");
        let response = agent.build().unwrap().run(request).await.unwrap();
        model.assert_done();
        serde_json::to_value(response.messages()).unwrap()
    };
    assert_eq!(run(0).await, run(3).await);
}

/// Ready at the first poll, all of them.
#[test]
fn hooks_left_out_never_wait() {
    use futures::FutureExt;
    let bundle = Bundle::from(Idle);
    let mut request = ModelRequest::default();
    let answer = bundle.model().run_before(&mut request).now_or_never();
    assert!(answer.unwrap().unwrap().is_none());
    let response = ModelResponse::from_text("hi");
    let after = bundle
        .model()
        .run_after(&request, response.clone())
        .now_or_never();
    assert_eq!(after.unwrap().unwrap(), response);
    let error = Error::new(ErrorKind::Auth, "no");
    let recovery = bundle
        .model()
        .run_on_error(&mut request, error)
        .now_or_never();
    assert!(matches!(recovery, Some(Recovery::Fail(error)) if error.kind() == ErrorKind::Auth));
}

struct Policy;

impl Hooks for Policy {
    async fn before_tool(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        assert_ne!(request.name(), "echo", "at the disco");
        Ok(Action::Continue)
    }

    async fn after_model(
        &self,
        _: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        match response.message().text().as_str() {
            "bad" => Err(Error::abort("refused")),
            _ => Ok(Action::Continue),
        }
    }
}

struct Renamed;

impl Hooks for Renamed {
    async fn before_agent(&self, _: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        Err(Error::new(ErrorKind::Auth, "no"))
    }

    fn name(&self) -> Cow<'static, str> {
        "doorman".into()
    }
}

#[tokio::test]
async fn an_object_is_named_in_explain_and_in_its_errors() {
    let model = ScriptedModel::new([Turn::from_text("bad")]);
    let agent = Agent::builder(model)
        .tool(echo())
        .callbacks(Policy)
        .build()
        .unwrap();
    let lines = agent.explain().to_string();
    let named: Vec<_> = lines
        .lines()
        .filter(|line| line.trim() == "Policy")
        .collect();
    assert_eq!(named.len(), 3, "once in each stack:\n{lines}");
    let error = agent.run("?").await.unwrap_err();
    let by = error.raised_by().unwrap();
    assert_eq!(
        (error.kind(), &*by.callback, &*by.hook),
        (ErrorKind::Aborted, "Policy", "after")
    );

    let agent = Agent::builder(ScriptedModel::new([]))
        .callbacks(Renamed)
        .build()
        .unwrap();
    assert!(agent.explain().to_string().contains("doorman"));
    let error = agent.run("?").await.unwrap_err();
    assert_eq!(&*error.raised_by().unwrap().callback, "doorman");
}

#[tokio::test]
async fn a_panic_in_hooks_is_named_and_the_model_reads_it() {
    let model = ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("oh")]);
    let agent = Agent::builder(model)
        .tool(echo())
        .callbacks(Policy)
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    let told = response
        .new_messages()
        .flat_map(Message::tool_results)
        .next()
        .unwrap()
        .text();
    assert!(
        told.contains("panicked") && told.contains("at the disco"),
        "{told}"
    );
}

/// Counts every call, of whichever kind.
#[derive(Default)]
struct Counter(AtomicU32);

impl<R: Request> Callback<R> for Counter {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn one_callback_in_an_arc_serves_several_calls_and_agents() {
    let counter = Arc::new(Counter::default());
    for total in [4, 8] {
        let model = ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("done")]);
        let agent = Agent::builder(model)
            .tool(echo())
            .on_agent(counter.clone())
            .on_model(counter.clone())
            .on_tool(counter.clone())
            .build()
            .unwrap();
        assert_eq!(agent.explain().to_string().matches("Counter").count(), 3);
        agent.run("?").await.unwrap();
        assert_eq!(counter.0.load(Ordering::SeqCst), total);
    }
}
