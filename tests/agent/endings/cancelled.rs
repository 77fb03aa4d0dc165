//! A run that was cancelled starts nothing more, wherever the cancellation comes from: a hook, a
//! model or a tool that has the thread to itself, before anybody polls the run again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::log::Log;
use tokio_util::sync::CancellationToken;
use tower::retry::RetryLayer;
use tower::timeout::error::Elapsed;
use tower::{ServiceBuilder, ServiceExt};
use tower_agent::callback::{before_model_async, wrap_agent, wrap_tool};
use tower_agent::compat::Semantics;
use tower_agent::context::Lease;
use tower_agent::message::ToolCall;
use tower_agent::model::BoxModel;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Callback, Error, ErrorKind, Message,
    ModelRequest, ModelResponse, Recovery, Request, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

/// Writes down what happens in a run, and cancels the run at one of these moments.
#[derive(Clone, Default)]
struct Watch {
    moments: Log,
    seen: Arc<AtomicUsize>,
    cancels_at: Option<usize>,
    token: CancellationToken,
    /// Ended instead, if there is one.
    lease: Option<Lease>,
}

impl Watch {
    fn cancelling_at(moment: usize) -> Self {
        Self {
            cancels_at: Some(moment),
            ..Self::default()
        }
    }

    fn see(&self, moment: impl ToString) {
        self.moments.note(moment);
        if Some(self.seen.fetch_add(1, Ordering::SeqCst)) == self.cancels_at {
            match &self.lease {
                Some(lease) => lease.end(),
                None => self.token.cancel(),
            }
        }
    }

    /// A model that calls these tools, and answers when it has their results.
    fn model(&self, tools: &'static [&'static str]) -> ScriptedModel {
        let watch = self.clone();
        ScriptedModel::always(Turn::function(move |request: &ModelRequest| {
            watch.see(format!("model of {}", request.context().path()));
            let results = request.messages().iter().flat_map(Message::tool_results);
            let is_answered = results
                .map(|result| &*result.name)
                .any(|n| tools.contains(&n));
            if tools.is_empty() || is_answered {
                return Ok(ModelResponse::from_text("done"));
            }
            let call = |name: &&str| ToolCall::new(*name, *name, json!({ "request": "go" }));
            Ok(ModelResponse::from_tool_calls(tools.iter().map(call)))
        }))
    }

    fn tool(&self, name: &'static str) -> Tool {
        let watch = self.clone();
        Tool::function_with(name, "", move |_: Value, request| {
            watch.see(format!("tool {name} of {}", request.context().path()));
            async { "done" }
        })
    }

    /// An agent whose every call is watched, and which pays.
    fn agent(&self, name: &str, tools: &'static [&'static str]) -> AgentBuilder {
        Agent::builder(self.model(tools))
            .name(name)
            .tools(["report", "pay"].map(|name| self.tool(name)))
            .on_agent(self.clone())
            .on_model(self.clone())
            .on_tool(self.clone())
    }
}

impl<R: Request> Callback<R> for Watch {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        self.see(format!(
            "before {} of {}",
            R::CALL,
            request.context().path()
        ));
        Ok(Action::Continue)
    }

    async fn after(&self, request: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.see(format!("after {} of {}", R::CALL, request.context().path()));
        Ok(Action::Continue)
    }

    async fn on_error(&self, request: &mut R, _: &Error) -> Result<Recovery<R::Response>> {
        self.see(format!("error {} of {}", R::CALL, request.context().path()));
        Ok(Recovery::Retry)
    }
}

/// Makes a call again after any error, so often.
#[derive(Clone)]
struct Again(u32);

impl<R: Clone, T> tower::retry::Policy<R, T, Error> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<T, Error>) -> Option<Self::Future> {
        result.as_ref().err()?;
        self.0 = self.0.checked_sub(1)?;
        Some(std::future::ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

/// The name of an agent's shape, and how to build it.
type Shape = (&'static str, fn(&Watch) -> Agent);

const PAYS: &[&str] = &["report", "pay"];
const DELEGATES: &[&str] = &["worker", "pay"];

/// An agent as a tool, by the rules of a preset.
fn delegating(watch: &Watch, semantics: fn() -> Semantics) -> Agent {
    let worker = watch.agent("worker", PAYS).semantics(semantics());
    let worker = worker.build().unwrap();
    let boss = watch.agent("boss", DELEGATES).tool_concurrency(1);
    let boss = boss.semantics(semantics()).tool(worker.into_tool("Works."));
    boss.build().unwrap()
}

/// Agents in which code stands between a call and the run that could undo its end.
fn shapes() -> Vec<Shape> {
    vec![
        ("one by one", |watch| {
            let agent = watch.agent("boss", PAYS).tool_concurrency(1);
            agent.build().unwrap()
        }),
        ("side by side", |watch| {
            watch.agent("boss", PAYS).build().unwrap()
        }),
        ("an agent as a tool", |watch| {
            let worker = watch.agent("worker", PAYS).build().unwrap();
            let boss = watch.agent("boss", DELEGATES).tool_concurrency(1);
            boss.tool(worker.into_tool("Works.")).build().unwrap()
        }),
        ("an agent as a tool, side by side", |watch| {
            let worker = watch.agent("worker", PAYS).build().unwrap();
            let boss = watch.agent("boss", DELEGATES);
            boss.tool(worker.into_tool("Works.")).build().unwrap()
        }),
        ("an agent as a tool, as in Potato", |watch| {
            delegating(watch, Semantics::potato)
        }),
        ("an agent as a tool, as in ADK Elixir", |watch| {
            delegating(watch, Semantics::adk_elixir)
        }),
        ("an agent as a tool, as in ADK Python", |watch| {
            delegating(watch, Semantics::adk_python)
        }),
        ("an agent as a tool, as in trpc", |watch| {
            delegating(watch, Semantics::trpc)
        }),
        ("one member after the other", |watch| {
            let members = ["a", "b"].map(|name| watch.agent(name, PAYS).build().unwrap());
            let team = Agent::sequential("team").agents(members);
            team.build().unwrap()
        }),
        ("members side by side", |watch| {
            let members = ["a", "b"].map(|name| watch.agent(name, PAYS).build().unwrap());
            let team = Agent::parallel("team").agents(members).allow_failures();
            team.build().unwrap()
        }),
        ("functions that answer for any error", |watch| {
            let agent = watch
                .agent("boss", PAYS)
                .agent_layer(wrap_agent(|request, mut next| async move {
                    let answer = || AgentResponse::new([Message::assistant("all is well")]);
                    Ok(next.run(request).await.unwrap_or_else(|_| answer()))
                }))
                .tool_layer(wrap_tool(|request, mut next| async move {
                    let result = next.run(request).await;
                    Ok(result.unwrap_or_else(|_| ToolResponse::new("all is well")))
                }));
            agent.build().unwrap()
        }),
        ("retries of everything", |watch| {
            let agent = watch
                .agent("boss", PAYS)
                .agent_layer(RetryLayer::new(Again(2)))
                .model_layer(RetryLayer::new(Again(2)))
                .tool_layer(RetryLayer::new(Again(2)));
            agent.build().unwrap()
        }),
        ("a model that a hook asks", |watch| {
            let helper = BoxModel::within_runs(watch.model(&[]));
            let asks = before_model_async(move |request: &mut ModelRequest| {
                let asked = ModelRequest::default().with_context(request.context().clone());
                let answer = helper.clone().oneshot(asked);
                async move {
                    // Whatever it says.
                    drop(answer.await);
                }
            });
            let agent = watch.agent("boss", PAYS).on_model(asks);
            agent.build().unwrap()
        }),
    ]
}

async fn run(agent: &Agent, request: AgentRequest, is_streamed: bool) -> Result<AgentResponse> {
    if !is_streamed {
        return agent.run(request).await;
    }
    let mut stream = agent.stream(request);
    while stream.next().await.is_some() {}
    stream.response().await
}

fn is_start(moment: &str) -> bool {
    ["before", "model", "tool"]
        .iter()
        .any(|start| moment.starts_with(start))
}

/// At every moment of every shape, by the token or the lease: nothing starts afterwards, the run
/// fails with what has ended it, and when it is resumed each payment is made once, or told as
/// unknown.
#[tokio::test]
async fn nothing_starts_after_the_cancellation_or_without_the_lease() {
    for (shape, agent) in shapes() {
        let whole = Watch::default();
        run(&agent(&whole), "go".into(), false).await.unwrap();
        let whole = whole.moments.take();
        let starts = whole.iter().filter(|moment| is_start(moment)).count();
        let moments = (0..whole.len()).flat_map(|at| [(at, false), (at, true)]);
        let moments = moments.flat_map(|(at, how)| [(at, how, false), (at, how, true)]);
        for (moment, is_streamed, has_lease) in moments {
            let mut watch = Watch::cancelling_at(moment);
            let request = AgentRequest::new("go").with_cancellation(watch.token.clone());
            watch.lease = has_lease.then(|| request.context().lease().clone());
            let result = run(&agent(&watch), request, is_streamed).await;
            let moments = watch.moments.take();
            let place = format!("{shape}, {is_streamed}, {has_lease}, at {moment}: {moments:?}");
            let (before, after) = moments.split_at(moment + 1);
            assert!(!after.iter().any(|later| is_start(later)), "{place}");
            if before.iter().filter(|moment| is_start(moment)).count() == starts {
                // Nothing was left to start.
                continue;
            }
            let error = result.expect_err(&place);
            let kind = if has_lease {
                ErrorKind::Conflict
            } else {
                ErrorKind::Cancelled
            };
            assert_eq!(error.kind(), kind, "{place}");
            assert!(!error.is_ending(), "its caller's own run goes on: {place}");

            let Some(checkpoint) = error.checkpoint() else {
                assert!(
                    !before.iter().any(|moment| moment.starts_with("tool")),
                    "{place}"
                );
                continue;
            };
            let resumed = AgentRequest::resume(checkpoint.clone());
            let response = run(&agent(&watch), resumed, is_streamed).await.unwrap();
            let all = [&moments[..], &watch.moments.take()].concat();
            let payments = |of: &[String]| {
                let mut paid: Vec<_> = of.iter().filter(|m| m.starts_with("tool pay")).collect();
                paid.sort();
                paid.into_iter().cloned().collect::<Vec<_>>()
            };
            let paid = payments(&all);
            let once = payments(&whole);
            let results = response.messages().iter().flat_map(Message::tool_results);
            let is_unknown = results
                .map(|result| result.text())
                .any(|text| text.contains("unknown"));
            if is_unknown {
                assert!(
                    paid.iter().all(|one| once.contains(one)),
                    "{place}: {paid:?}"
                );
                assert!(
                    paid.windows(2).all(|two| two[0] != two[1]),
                    "{place}: {paid:?}"
                );
            } else {
                assert_eq!(paid, once, "{place}, and then {all:?}");
            }
        }
    }
}

/// A part of a run with a token of its own: to what is outside, its end is a failed tool.
#[tokio::test]
async fn a_cancelled_part_starts_nothing_more_and_the_run_goes_on() {
    let part = Watch::cancelling_at(4);
    let whole = Watch::default();
    let worker = part.agent("worker", &["report", "pay"]).build().unwrap();
    let delegate = Tool::function_with("delegate", "", {
        let token = part.token.clone();
        move |_: Value, call: ToolRequest| {
            let request = AgentRequest::new("go").with_context(call.context().clone());
            let worker = worker.clone();
            let token = token.clone();
            async move {
                let response = worker.run(request.with_cancellation(token)).await?;
                Ok::<_, Error>(response.text())
            }
        }
    });
    let boss = whole.agent("boss", &["delegate", "pay"]).tool(delegate);
    let boss = boss.tool_concurrency(1).build().unwrap();

    let response = boss.run("go").await.unwrap();

    let moments = part.moments.take();
    assert_eq!(moments[4], "before tool of boss/worker");
    // The tries of `on_error` as well.
    assert!(
        !moments[5..].iter().any(|moment| is_start(moment)),
        "{moments:?}"
    );
    assert_eq!(response.text(), "done");
    assert!(whole.moments.all().contains(&"tool pay of boss".to_owned()));
    let results = response.messages().iter().flat_map(Message::tool_results);
    let failed: Vec<_> = results.filter(|result| result.is_error).collect();
    assert_eq!(failed.len(), 1);
    assert!(
        failed[0].text().contains("cancelled"),
        "{}",
        failed[0].text()
    );
}

/// tower's limit looks at its clock when the run lets go of the thread, so a run does that behind a
/// tool that has kept it.
#[tokio::test]
async fn nothing_starts_after_the_limit_of_time_that_a_blocking_tool_has_used_up() {
    const LIMIT: Duration = Duration::from_millis(60);
    for side_by_side in [1, 8] {
        let watch = Watch::default();
        let block = Tool::function("block", "", |_: Value| {
            let begun = Instant::now();
            while begun.elapsed() <= LIMIT * 2 {
                std::thread::yield_now();
            }
            "done"
        });
        let agent = watch.agent("boss", &["block", "pay", "report"]).tool(block);
        let agent = agent.tool_concurrency(side_by_side).build().unwrap();
        let limited = ServiceBuilder::new().timeout(LIMIT).service(agent);

        let error = limited.oneshot("go".into()).await.unwrap_err();

        assert!(error.is::<Elapsed>(), "{error}");
        assert_eq!(watch.moments.take().last().unwrap(), "after tool of boss");
    }
}
