//! Faults of foreign code: panics, and agents inside agents without end.

use std::future::Future;
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::json;
use tower::Service;
use tower_agent::call::CallKind;
use tower_agent::callback::{
    Next, after_agent, after_tool_async, before_model, on_model_error, wrap_tool,
};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentBuilder, AgentResponse, Error, ErrorKind, ModelRequest, ModelResponse, Recovery,
    Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{ScriptedModel, Turn};

/// A model that panics at one stage.
#[derive(Clone, Copy)]
struct Panics(&'static str);

impl Service<ModelRequest> for Panics {
    type Response = ModelResponse;
    type Error = Error;
    type Future = futures::future::BoxFuture<'static, Result<ModelResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        assert_ne!(self.0, "poll_ready", "boom");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: ModelRequest) -> Self::Future {
        assert_ne!(self.0, "call", "boom");
        Box::pin(async {
            tokio::task::yield_now().await;
            panic!("boom")
        })
    }
}

const STAGES: [&str; 3] = ["poll_ready", "call", "poll"];

#[tokio::test]
async fn a_models_panic_is_the_error_of_its_call() {
    for stage in STAGES {
        for is_streamed in [false, true] {
            let agent = Agent::builder(Panics(stage)).name("poet").build().unwrap();
            let result = if is_streamed {
                agent.stream("?").response().await
            } else {
                agent.run("?").await
            };
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Provider, "{stage}");
            let message = error.message();
            assert!(
                message.starts_with("the model panicked: "),
                "{stage}: {message}"
            );
            assert!(message.contains("boom"), "{stage}: {message}");
            let call = error.call().unwrap();
            assert_eq!(
                (call.kind, &*call.agent),
                (CallKind::Model, "poet"),
                "{stage}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn callbacks_retries_and_fallbacks_see_a_models_panic() {
    for stage in STAGES {
        let agent = Agent::builder(Panics(stage))
            .on_model(on_model_error(|_, error| {
                if error.message().contains("panicked") {
                    Recovery::Fallback(ModelResponse::from_text("recovered"))
                } else {
                    Recovery::Propagate
                }
            }))
            .build()
            .unwrap();
        assert_eq!(agent.run("?").await.unwrap().text(), "recovered", "{stage}");

        let second = ScriptedModel::new([Turn::from_text("second")]);
        let models = Fallback::new(Panics(stage)).or(second);
        let agent = Agent::builder(models).build().unwrap();
        assert_eq!(agent.run("?").await.unwrap().text(), "second", "{stage}");

        let record = tower_agent_test::RecordLayer::new();
        let agent = Agent::builder(Panics(stage))
            .model_layer(CallRetryLayer::new().max_attempts(3))
            .model_layer(record.clone())
            .build()
            .unwrap();
        let error = agent.run("?").await.unwrap_err();
        assert!(error.message().contains("panicked"), "{stage}: {error}");
        assert_eq!(record.calls().len(), 3, "{stage}");
    }
}

#[tokio::test]
async fn a_panic_in_until_is_an_error_that_names_it() {
    let member = || {
        let model = ScriptedModel::new([Turn::from_text("done")]);
        Agent::builder(model).name("member").build().unwrap()
    };
    let teams = [
        Agent::sequential("team"),
        Agent::parallel("team"),
        Agent::repeat("team", 2),
    ];
    for team in teams {
        let team = team
            .agent(member())
            .until(|_| panic!("boom"))
            .build()
            .unwrap();
        let error = team.run("?").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Callback, "`until` panicked: boom")
        );
        assert_eq!(&*error.call().unwrap().agent, "team");
    }
}

#[tokio::test]
async fn a_panic_in_tool_result_messages_names_its_stage() {
    let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(Tool::function(
            "look",
            "Looks.",
            |_: serde_json::Value| "seen",
        ))
        .tool_result_messages(|_| -> Option<Vec<tower_agent::Message>> { panic!("boom") })
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    let told: String = response
        .new_messages()
        .flat_map(|m| m.tool_results())
        .map(|r| r.text())
        .collect();
    assert_eq!(
        told,
        "callback failed: `tool_result_messages` panicked: boom"
    );
}

// Agents inside agents

/// Runs on a thread with the stack that threads have unless they ask for more.
fn on_a_small_stack<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::Builder::new().stack_size(2 << 20);
    thread.spawn(run).unwrap().join().unwrap()
}

fn block_on<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run)
}

/// How one agent stands inside the next.
#[derive(Clone, Copy, Debug)]
enum Link {
    Tool,
    Member,
    SubAgent,
}

/// A model that calls the agent in it, and responds with its answer.
fn passes_on(link: Link, level: usize) -> ScriptedModel {
    ScriptedModel::always(Turn::function(move |request| {
        let answers = request
            .messages()
            .iter()
            .flat_map(|message| message.tool_results());
        let inside = format!("level{}", level - 1);
        match (answers.last(), link) {
            (_, Link::SubAgent) => {
                let call = ToolCall::new("c", "transfer_to_agent", json!({ "agent_name": inside }));
                Ok(ModelResponse::from_tool_calls([call]))
            }
            (Some(answer), _) => Ok(ModelResponse::from_text(answer.text())),
            (None, _) => {
                let call = ToolCall::new("c", inside, json!({ "request": "?" }));
                Ok(ModelResponse::from_tool_calls([call]))
            }
        }
    }))
}

/// Much that may stand around the calls of one agent.
fn guarded(agent: AgentBuilder) -> AgentBuilder {
    let long = Duration::from_secs(60);
    agent
        .on_model(before_model(|_| {}))
        .model_layer(CallRetryLayer::new())
        .model_layer(CallTimeoutLayer::new(long))
        .on_tool(Approval::when(|_| false))
        .tool_layer(CallTimeoutLayer::new(long))
        .on_tool(after_tool_async(
            async |_: &ToolRequest, _: &ToolResponse| {
                tokio::task::yield_now().await;
            },
        ))
        .tool_layer(wrap_tool(async |request, mut next: Next<ToolRequest>| {
            next.run(request).await
        }))
        .agent_layer(tower::timeout::TimeoutLayer::new(long))
        .on_agent(after_agent(|_, _| {}))
        .callbacks(Budget::new(Limits::new().model_calls(1000)))
}

/// Agents inside one another, so many, and the outermost of them.
fn chain(link: Link, agents: usize, is_guarded: bool, limit: Option<u32>) -> Agent {
    let around = |agent| if is_guarded { guarded(agent) } else { agent };
    let leaf = Agent::builder(ScriptedModel::always(Turn::from_text("bottom"))).name("level0");
    let mut inner = around(leaf).build().unwrap();
    for level in 1..agents {
        let name = format!("level{level}");
        let is_outermost = level + 1 == agents;
        if matches!(link, Link::Member) {
            let team = match level % 2 {
                0 => Agent::sequential(name),
                _ => Agent::parallel(name),
            };
            let team = team.agent(inner).until(|_| false);
            inner = match limit.filter(|_| is_outermost) {
                Some(limit) => team.max_nesting(limit),
                None => team,
            }
            .build()
            .unwrap();
            continue;
        }
        let agent = around(Agent::builder(passes_on(link, level)).name(name));
        let agent = match link {
            Link::SubAgent => agent.sub_agent(inner),
            _ => agent.tool(inner.into_tool("Goes deeper.")),
        };
        inner = match limit.filter(|_| is_outermost) {
            Some(limit) => agent.max_nesting(limit),
            None => agent,
        }
        .build()
        .unwrap();
    }
    inner
}

fn run_chain(
    link: Link,
    agents: usize,
    is_guarded: bool,
    is_streamed: bool,
    limit: Option<u32>,
) -> Result<AgentResponse> {
    on_a_small_stack(move || {
        let agent = chain(link, agents, is_guarded, limit);
        block_on(async {
            if is_streamed {
                agent.stream("?").response().await
            } else {
                agent.run("?").await
            }
        })
    })
}

const LINKS: [Link; 3] = [Link::Tool, Link::Member, Link::SubAgent];

#[test]
fn as_many_agents_as_may_fit_inside_one_another() {
    for link in LINKS {
        for (is_guarded, is_streamed) in
            [(false, false), (false, true), (true, false), (true, true)]
        {
            // The one that is called, and ten inside it.
            let response = run_chain(link, 11, is_guarded, is_streamed, None).unwrap();
            assert_eq!(response.text(), "bottom", "{link:?}");
        }
    }
}

#[test]
fn agents_without_end_are_an_error_and_no_overflow() {
    for link in LINKS {
        for (is_guarded, is_streamed) in [(false, false), (true, true)] {
            let result = run_chain(link, 100, is_guarded, is_streamed, None);
            if matches!(link, Link::Tool) {
                let told = result.unwrap().text();
                let start = "too many nested agents: depth 11";
                assert!(told.starts_with(start), "the model is told: {told}");
            } else {
                let error = result.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::MaxNesting, "{link:?}: {error}");
                assert!(error.to_string().contains("raise `max_nesting`"), "{error}");
            }
        }
    }
}

#[test]
fn the_limit_of_the_root_holds_for_all_inside() {
    for link in LINKS {
        let run = |agents, limit| run_chain(link, agents, false, false, Some(limit));
        assert_eq!(run(4, 3).unwrap().text(), "bottom", "{link:?}");
        assert_eq!(
            run(24, 23).unwrap().text(),
            "bottom",
            "{link:?}: it may be raised"
        );
        match run(5, 3) {
            Ok(response) => assert!(response.text().starts_with("too many"), "{link:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::MaxNesting, "{link:?}"),
        }
        assert_eq!(
            run(1, 0).unwrap().text(),
            "bottom",
            "{link:?}: the agent itself does not count"
        );
    }
}

/// How far the stack goes, for a change of the default: `DEPTH=40 LINK=0 GUARDED=1 cargo test ..`.
#[test]
#[ignore = "ends the process where the stack ends"]
fn how_many_agents_the_stack_holds() {
    let depth = std::env::var("DEPTH").unwrap().parse().unwrap();
    let which: usize = std::env::var("LINK").unwrap().parse().unwrap();
    let guarded = std::env::var("GUARDED").is_ok();
    run_chain(LINKS[which], depth, guarded, true, Some(10_000)).unwrap();
}
