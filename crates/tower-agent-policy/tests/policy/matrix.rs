//! Every way in which a tool call can come to be, by what the rules say of it: how often the tool
//! has its effect, and what is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::log::Log;
use tower_agent::agent::ToolAnswer;
use tower_agent::callback::{before_tool, on_tool_error, wrap_tool};
use tower_agent::stream::EventKind;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, EndReason, Recovery, Request, Tool, ToolRequest,
    ToolResponse, ToolSet,
};
use tower_agent_mcp::client::McpClient;
use tower_agent_mcp::server::McpServer;
use tower_agent_middleware::flow::{Flow, Hide, ToolFlow};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::tool_search::ToolSearch;
use tower_agent_policy::{Principal, Rulebook};

use crate::world::{ANN, SCHEMA, Seen, answered, asked_by, declarations, run};

/// What the rules say, by the amount.
const RULES: &str = r#"
@id("working") permit(principal, action, resource) unless { resource == Tool::"refund" };
@id("small") permit(principal, action == Action::"refund", resource)
when { context.input.cents == 1 || context.input.cents == 4 };
@id("three") permit(principal, action == Action::"refund", resource)
when { context.input.cents == 3 };
@id("two") forbid(principal, action == Action::"refund", resource) when { context.input.cents == 2 };
@id("breaks") forbid(principal, action == Action::"refund", resource)
when { context.input.cents == 3 && context.input.cents + 9223372036854775807 > 0 };
@id("asks") @ask("support") forbid(principal, action == Action::"refund", resource)
when { context.input.cents == 4 };
"#;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Refund {
    cents: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// What a way is made of.
struct World {
    log: Log,
    /// How often the tool fails before it has its effect.
    failures: Arc<AtomicU32>,
    cents: i64,
    book: Rulebook,
}

impl World {
    fn new(cents: i64) -> Self {
        let log = Log::default();
        let failures = Arc::<AtomicU32>::default();
        let worker = Agent::builder(ScriptedModel::new([])).name("worker");
        let worker = worker.build().unwrap().into_tool("Works.");
        let all = [refund(&log, &failures), amount(&log), worker];
        let book = Rulebook::builder()
            .schema("shop.cedarschema", SCHEMA)
            .tools(&declarations(&all))
            .principals(["User"], |_| Some(Principal::new("User", "ann")))
            .rules("shop.cedar", RULES)
            .build()
            .unwrap();
        Self {
            log,
            failures,
            cents,
            book,
        }
    }

    fn refund(&self) -> Tool {
        refund(&self.log, &self.failures)
    }

    fn call(&self) -> Value {
        json!({ "cents": self.cents })
    }

    /// A model that makes the call, and another after a pause.
    fn model(&self) -> ScriptedModel {
        ScriptedModel::new([Turn::tool("refund", self.call()), Turn::from_text("done")])
    }

    fn agent(&self) -> tower_agent::AgentBuilder {
        Agent::builder(self.model())
            .tool(self.refund())
            .global_callbacks(self.book.enforce())
    }
}

fn refund(log: &Log, failures: &Arc<AtomicU32>) -> Tool {
    let (log, failures) = (log.clone(), failures.clone());
    Tool::function("refund", "Pays back.", move |refund: Refund| {
        log.note(format!("refund {}", refund.cents));
        let left = failures.load(Ordering::Relaxed);
        if left > 0 {
            failures.store(left - 1, Ordering::Relaxed);
            return Err(BoxError::from("the bank is busy"));
        }
        Ok("refunded")
    })
    .effect(Effect::Idempotent)
}

/// A tool whose result is an amount.
fn amount(_: &Log) -> Tool {
    Tool::function("amount", "", |_: Nothing| json!({ "cents": 2 })).effect(Effect::Pure)
}

/// How a call comes to be.
struct Way {
    name: &'static str,
    build: fn(&World) -> Agent,
    /// How often the tool is called where it may be.
    calls: usize,
}

const WAYS: &[Way] = &[
    Way {
        name: "a loop",
        build: |world| world.agent().build().unwrap(),
        calls: 1,
    },
    Way {
        name: "calls of one turn",
        build: |world| {
            let both = Turn::tool("refund", world.call()).and_tool("refund", world.call());
            Agent::builder(ScriptedModel::new([both, Turn::from_text("done")]))
                .tool(world.refund())
                .global_callbacks(world.book.enforce())
                .build()
                .unwrap()
        },
        calls: 2,
    },
    Way {
        name: "calls one by one",
        build: |world| world.agent().tool_concurrency(1).build().unwrap(),
        calls: 1,
    },
    Way {
        name: "a layer that tries again",
        build: |world| {
            world.failures.store(1, Ordering::Relaxed);
            let retry = CallRetryLayer::new()
                .max_attempts(2)
                .retry_if(|_| true)
                .backoff(std::time::Duration::ZERO, std::time::Duration::ZERO);
            world.agent().tool_layer(retry).build().unwrap()
        },
        calls: 2,
    },
    Way {
        name: "a callback that tries again",
        build: |world| {
            world.failures.store(1, Ordering::Relaxed);
            world
                .agent()
                .on_tool(on_tool_error(|_, _| Recovery::Retry))
                .build()
                .unwrap()
        },
        calls: 2,
    },
    Way {
        name: "a wrap that calls twice",
        build: |world| {
            let twice = wrap_tool(|request: ToolRequest, mut next| async move {
                next.run(request.clone()).await?;
                next.run(request).await
            });
            world.agent().tool_layer(twice).build().unwrap()
        },
        calls: 2,
    },
    Way {
        name: "an attempt that a callback has changed",
        build: |world| {
            world.failures.store(1, Ordering::Relaxed);
            let cents = world.cents;
            Agent::builder(ScriptedModel::new([
                Turn::tool("refund", json!({ "cents": 1 })),
                Turn::from_text("done"),
            ]))
            .tool(world.refund())
            .on_tool(on_tool_error(move |request: &mut ToolRequest, _| {
                *request.arguments_mut() = json!({ "cents": cents });
                Recovery::Retry
            }))
            .global_callbacks(world.book.enforce())
            .build()
            .unwrap()
        },
        // The first attempt, which is permitted whatever the case, is in the log as well.
        calls: 2,
    },
    Way {
        name: "a callback that answers failures",
        build: |world| {
            world
                .agent()
                .on_tool(on_tool_error(|_, _| {
                    Recovery::Fallback(ToolResponse::new("another"))
                }))
                .build()
                .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "a callback that changes the arguments",
        build: |world| {
            let cents = world.cents;
            Agent::builder(ScriptedModel::new([
                Turn::tool("refund", json!({ "cents": 1 })),
                Turn::from_text("done"),
            ]))
            .tool(world.refund())
            .on_tool(before_tool(move |request: &mut ToolRequest| {
                *request.arguments_mut() = json!({ "cents": cents });
            }))
            .global_callbacks(world.book.enforce())
            .build()
            .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "a layer that makes a request of its own",
        build: |world| {
            let anew = wrap_tool(|request: ToolRequest, mut next| async move {
                let own = ToolRequest::new(request.call().clone())
                    .with_context(request.context().clone())
                    .with_declaration(request.declaration().cloned());
                next.run(own).await
            });
            world.agent().tool_layer(anew).build().unwrap()
        },
        calls: 1,
    },
    Way {
        name: "an agent as a tool",
        build: |world| {
            let worker = Agent::builder(world.model()).name("worker");
            let worker = worker.tool(world.refund()).build().unwrap();
            boss(world)
                .tool(worker.into_tool("Works."))
                .build()
                .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "an agent that a tool runs",
        build: |world| {
            let worker = Agent::builder(world.model()).name("inner");
            let worker = worker.tool(world.refund()).build().unwrap();
            let tool = Tool::function_with("worker", "Works.", {
                move |_: Asked, call: ToolRequest| {
                    let worker = worker.clone();
                    async move {
                        let request = AgentRequest::new("?").with_context(call.context().clone());
                        let response = worker.run(request).await?;
                        match response.end_reason() {
                            EndReason::Interrupted(open) => {
                                Err(tower_agent::Error::interrupt_all(open.iter().cloned()))
                            }
                            _ => Ok(response.text()),
                        }
                    }
                }
            });
            // It is no agent's tool, so the rules know it by its own declaration.
            let known = [tool.clone(), world.refund()];
            let book = Rulebook::builder()
                .schema("s", SCHEMA)
                .tools(&declarations(&known))
                .principals(["User"], |_| Some(Principal::new("User", "ann")))
                .rules("r", RULES)
                .build()
                .unwrap();
            Agent::builder(ScriptedModel::new([
                Turn::tool("worker", json!({ "request": "?" })),
                Turn::from_text("done"),
            ]))
            .tool(tool)
            .global_callbacks(book.enforce())
            .build()
            .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "a team",
        build: |world| {
            let member = Agent::builder(world.model()).tool(world.refund());
            Agent::sequential("team")
                .agent(member.build().unwrap())
                .global_callbacks(world.book.enforce())
                .build()
                .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "a team at once",
        build: |world| {
            let member = |name: &str| {
                let member = Agent::builder(world.model()).name(name);
                member.tool(world.refund()).build().unwrap()
            };
            Agent::parallel("team")
                .agents([member("one"), member("two")])
                .global_callbacks(world.book.enforce())
                .build()
                .unwrap()
        },
        calls: 2,
    },
    Way {
        name: "a transfer",
        build: |world| {
            let other = Agent::builder(world.model()).name("other");
            let other = other.tool(world.refund()).build().unwrap();
            Agent::builder(ScriptedModel::new([Turn::tool(
                "transfer_to_agent",
                json!({ "agent_name": "other" }),
            )]))
            .sub_agent(other)
            .global_callbacks(world.book.enforce())
            .build()
            .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "a tool that was searched",
        build: |world| {
            let search = ToolSearch::new([world.refund()]);
            Agent::builder(ScriptedModel::new([
                Turn::tool("search_tools", json!({ "query": "pays back" })),
                Turn::tool("load_tools", json!({ "names": ["refund"] })),
                Turn::tool("refund", world.call()),
                Turn::from_text("done"),
            ]))
            .tools(search.tools())
            .on_model(search)
            .global_callbacks(world.book.enforce())
            .build()
            .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "messages for each result",
        build: |world| {
            let shown = |answer: ToolAnswer| vec![answer.default];
            world.agent().tool_result_messages(shown).build().unwrap()
        },
        calls: 1,
    },
    Way {
        name: "two rulebooks around each other",
        build: |world| {
            world
                .agent()
                .global_callbacks(world.book.enforce())
                .global_callbacks(world.book.observe())
                .build()
                .unwrap()
        },
        calls: 1,
    },
];

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct Asked {
    request: String,
}

fn boss(world: &World) -> tower_agent::AgentBuilder {
    Agent::builder(ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "?" })),
        Turn::from_text("done"),
    ]))
    .global_callbacks(world.book.enforce())
}

/// Returns the decisions about refunds.
fn about_refunds(seen: &Seen) -> Vec<String> {
    let refunds = Seen {
        result: Err(tower_agent::Error::abort("unused")),
        events: seen
            .events
            .iter()
            .filter(|event| event["tool"] == "refund" && event["enforced"] == true)
            .cloned()
            .collect(),
    };
    refunds.decisions()
}

#[tokio::test]
async fn each_way_to_a_call_leads_past_the_rules() {
    for way in WAYS {
        for (cents, decision) in [
            (1, "allowed small"),
            (2, "refused: forbidden two"),
            (3, "refused: rule_failed"),
            (4, "asked asks"),
            (5, "refused: not_permitted"),
        ] {
            let world = World::new(cents);
            let agent = (way.build)(&world);
            let seen = run(&agent, asked_by(&ANN)).await;
            let place = format!("{}, {cents}", way.name);
            let made = world.log.take();
            let effects = made
                .iter()
                .filter(|made| **made == format!("refund {cents}"));
            let expected = if cents == 1 { way.calls } else { 0 };
            assert_eq!(effects.count(), expected, "{place}: {made:?}");
            let decisions = about_refunds(&seen);
            assert!(
                decisions.last().is_some_and(|last| last == decision),
                "{place}: {decisions:?}"
            );
            if cents != 4 {
                assert_eq!(seen.response().text(), "done", "{place}");
                continue;
            }
            let open = seen.response().interrupts();
            assert!(!open.is_empty(), "{place}");
            assert!(
                open.iter()
                    .all(|one| one.answerer.role() == Some("support"))
            );
        }
    }
}

/// The same, for a consumer that reads a stream.
#[tokio::test]
async fn a_stream_leads_past_the_rules_as_well() {
    for way in WAYS {
        for (cents, decision) in [(1, "allowed"), (2, "refused"), (3, "refused"), (4, "asked")] {
            let world = World::new(cents);
            let mut stream = (way.build)(&world).stream(asked_by(&ANN));
            let mut decisions = Vec::new();
            while let Some(event) = stream.next().await {
                if let EventKind::Custom { name, value } = event.kind
                    && *name == *"policy"
                    && value["tool"] == "refund"
                {
                    decisions.push(value["decision"].as_str().unwrap().to_owned());
                }
            }
            let last = decisions.last().map(|last| &**last);
            assert_eq!(last, Some(decision), "{}, {cents}", way.name);
            let made = world.log.take();
            let effects = made
                .iter()
                .filter(|made| **made == format!("refund {cents}"));
            let expected = if cents == 1 { way.calls } else { 0 };
            assert_eq!(effects.count(), expected, "{}: {made:?}", way.name);
        }
    }
}

/// A run that was asked about goes on in another process, with the answer.
#[tokio::test]
async fn what_was_asked_about_is_decided_by_the_answer_elsewhere() {
    // In the others the scripted model of an agent inside would begin anew.
    for name in ["a loop", "calls one by one", "messages for each result"] {
        let way = WAYS.iter().find(|way| way.name == name).unwrap();
        for (approved, calls) in [(true, 1), (false, 0)] {
            let first = World::new(4);
            let paused = run(&(way.build)(&first), asked_by(&ANN)).await;
            assert!(first.log.take().is_empty());
            let second = World::new(4);
            let agent = Agent::builder(ScriptedModel::new([Turn::from_text("done")]))
                .tool(second.refund())
                .global_callbacks(second.book.enforce())
                .build()
                .unwrap();
            let answer = answered(paused.response(), &ANN, json!({ "approved": approved }));
            let done = run(&agent, answer).await;
            assert_eq!(done.response().text(), "done");
            assert_eq!(second.log.take().len(), calls);
        }
    }
}

#[tokio::test]
async fn tools_that_come_with_a_run_are_decided_about() {
    for (cents, calls) in [(1, 1), (2, 0)] {
        let world = World::new(cents);
        let agent = Agent::builder(world.model())
            .global_callbacks(world.book.enforce())
            .build()
            .unwrap();
        let mut tools = ToolSet::new();
        tools.insert(world.refund()).unwrap();
        run(&agent, asked_by(&ANN).with_tools(tools)).await;
        assert_eq!(world.log.take().len(), calls);
    }
}

/// The model has read nothing of the amount, and passes it on by its name.
#[tokio::test]
async fn the_value_of_a_reference_is_decided_about() {
    let world = World::new(2);
    let flow = Flow::new()
        .tool("amount", ToolFlow::source())
        .tool("refund", ToolFlow::trusted())
        .hide(Hide::Everything);
    let agent = Agent::builder(ScriptedModel::new([
        Turn::tool("amount", json!({})),
        Turn::tool("refund", json!({ "cents": { "$ref": "@m1.0#/cents" } })),
        Turn::from_text("done"),
    ]))
    .tools([world.refund(), amount(&world.log)])
    .global_callbacks(world.book.enforce())
    .global_callbacks(flow)
    .build()
    .unwrap();
    let seen = run(&agent, asked_by(&ANN)).await;
    assert_eq!(about_refunds(&seen), ["refused: forbidden two"]);
    assert!(world.log.take().is_empty());
}

/// A tool of an MCP server, and an agent that is one.
#[tokio::test]
async fn what_comes_over_mcp_is_decided_about() {
    for (cents, calls) in [(1, 1), (2, 0), (3, 0), (5, 0)] {
        let world = World::new(cents);
        let server = McpServer::builder("bank", "1").tool(world.refund());
        let server = server.build().unwrap();
        let client = McpClient::stream(move || {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let server = server.clone();
            tokio::spawn(async move { server.serve(ours).await });
            async move { Ok(theirs) }
        });
        let client = client.name("bank").connect().await.unwrap();
        let tools = client.tools().await;
        let known: Vec<_> = declarations(&tools);
        let book = Rulebook::builder()
            .schema("s", SCHEMA)
            .tools(&known)
            .principals(["User"], |_| Some(Principal::new("User", "ann")))
            .rules("r", RULES)
            .build()
            .unwrap();
        let agent = Agent::builder(world.model())
            .tools(tools)
            .global_callbacks(book.enforce())
            .build()
            .unwrap();
        let seen = run(&agent, asked_by(&ANN)).await;
        assert_eq!(world.log.take().len(), calls, "{:?}", seen.decisions());
        assert_eq!(seen.decisions().len(), 1);
    }
}
