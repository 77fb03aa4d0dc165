//! Every way in which a tool call can come to be, by what the rules say of it: how often the tool
//! has its effect, and what is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::log::Log;
use tower_agent::agent::ToolAnswer;
use tower_agent::callback::{before_tool, on_tool_error, wrap_tool};
use tower_agent::stream::{EventKind, Observations};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, EndReason, Error, ErrorKind, Message, Recovery, Request,
    Tool, ToolRequest, ToolResponse, ToolSet,
};
use tower_agent_agui::{self as agui, AgUi, RunAgentInput};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::Durable;
use tower_agent_mcp::client::McpClient;
use tower_agent_mcp::server::McpServer;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::flow::{Flow, Hide, ToolFlow};
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::tool_search::ToolSearch;
use tower_agent_policy::{Principal, Rulebook};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{ANN, SCHEMA, Seen, answered, asked_by, decided, declarations, listen, run};

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
        Self {
            log,
            failures,
            cents,
            book: book(&declarations(&all), RULES),
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

/// Returns the rulebook about these tools.
fn book(tools: &[Arc<ToolDeclaration>], rules: &str) -> Rulebook {
    Rulebook::builder()
        .schema("shop.cedarschema", SCHEMA)
        .tools(tools)
        .principals(["User"], |_| Some(Principal::new("User", "ann")))
        .rules("shop.cedar", rules)
        .build()
        .unwrap()
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
                .backoff(Duration::ZERO, Duration::ZERO);
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
        name: "a model that is asked twice",
        build: |world| {
            let call = Turn::tool("refund", world.call());
            let slow = [Turn::pending(), call, Turn::from_text("done")];
            Agent::builder(ScriptedModel::new(slow))
                .model_layer(HedgeLayer::new(Duration::from_secs(1)))
                .tool(world.refund())
                .global_callbacks(world.book.enforce())
                .build()
                .unwrap()
        },
        calls: 1,
    },
    Way {
        name: "a model in place of another",
        build: |world| {
            let busy = Error::new(ErrorKind::Overloaded, "busy");
            let busy = ScriptedModel::always(Turn::error(busy));
            Agent::builder(Fallback::new(busy).or(world.model()))
                .tool(world.refund())
                .global_callbacks(world.book.enforce())
                .build()
                .unwrap()
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
            let book = book(&declarations(&known), RULES);
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

/// What is decided about a call of each amount.
const DECISIONS: [(i64, &str); 5] = [
    (1, "allowed small"),
    (2, "refused: forbidden two"),
    (3, "refused: rule_failed"),
    (4, "asked asks"),
    (5, "refused: not_permitted"),
];

/// Returns the decisions about refunds.
fn about_refunds(events: &[Value]) -> Vec<String> {
    let refunds = Seen {
        result: Err(Error::abort("unused")),
        events: events
            .iter()
            .filter(|event| event["tool"] == "refund" && event["enforced"] == true)
            .cloned()
            .collect(),
    };
    refunds.decisions()
}

#[tokio::test(start_paused = true)]
async fn each_way_to_a_call_leads_past_the_rules() {
    for way in WAYS {
        for (cents, decision) in DECISIONS {
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
            let decisions = about_refunds(&seen.events);
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
#[tokio::test(start_paused = true)]
async fn a_stream_leads_past_the_rules_as_well() {
    for way in WAYS {
        for (cents, decision) in [(1, "allowed"), (2, "refused"), (3, "refused"), (4, "asked")] {
            let world = World::new(cents);
            let mut stream = (way.build)(&world).stream(asked_by(&ANN));
            let mut decisions = Vec::new();
            while let Some(event) = stream.next().await {
                if let EventKind::Note { name, value } = event.kind
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
    assert_eq!(about_refunds(&seen.events), ["refused: forbidden two"]);
    assert!(world.log.take().is_empty());
}

/// Connects to a server in memory.
async fn connected(server: McpServer) -> McpClient {
    let client = McpClient::stream(move || {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = server.clone();
        tokio::spawn(async move { server.serve(ours).await });
        async move { Ok(theirs) }
    });
    client.name("bank").connect().await.unwrap()
}

#[tokio::test]
async fn a_tool_of_an_mcp_server_is_decided_about() {
    for (cents, decision) in DECISIONS {
        let world = World::new(cents);
        let server = McpServer::builder("bank", "1").tool(world.refund());
        let client = connected(server.build().unwrap()).await;
        let tools = client.tools().await;
        let agent = Agent::builder(world.model())
            .global_callbacks(book(&declarations(&tools), RULES).enforce())
            .tools(tools)
            .build()
            .unwrap();
        let seen = run(&agent, asked_by(&ANN)).await;
        assert_eq!(about_refunds(&seen.events), [decision]);
        assert_eq!(world.log.take().len(), usize::from(cents == 1));
    }
}

/// The rules are the server's, and whoever connects knows nothing of them.
#[tokio::test]
async fn an_agent_behind_an_mcp_server_is_decided_about() {
    for (cents, decision) in DECISIONS {
        let world = World::new(cents);
        let (listening, mut heard) = listen();
        let worker = world.agent().name("worker").global_callbacks(listening);
        let server = McpServer::builder("bank", "1").agent(worker.build().unwrap());
        let client = connected(server.build().unwrap()).await;
        let caller = Agent::builder(ScriptedModel::new([
            Turn::tool("worker", json!({ "request": "?" })),
            Turn::from_text("told"),
        ]));
        let caller = caller.tools(client.tools().await).build().unwrap();
        let response = caller.run("?").await.unwrap();
        let mut results = response.messages().iter().flat_map(Message::tool_results);
        let expected = match cents {
            4 => "interrupted: this call waits for somebody with the role `support`",
            _ => "done",
        };
        assert_eq!(results.next().unwrap().text(), expected);
        assert_eq!(about_refunds(&decided(&mut heard)), [decision]);
        assert_eq!(world.log.take().len(), usize::from(cents == 1));
    }
}

/// A page that declares a tool of its own, for refunds.
struct Page {
    server: AgUi,
    model: ScriptedModel,
    heard: Observations,
}

impl Page {
    fn new(cents: i64, rules: &str) -> Self {
        let world = World::new(cents);
        let declared = ToolDeclaration::new("refund", "Pays back.")
            .with_arguments::<Refund>()
            .described_by_others();
        let others = declarations(&[amount(&world.log)]);
        let (listening, heard) = listen();
        let model = world.model();
        let agent = Agent::builder(model.clone())
            .global_callbacks(book(&[others, vec![declared.into()]].concat(), rules).enforce())
            .global_callbacks(listening)
            .build()
            .unwrap();
        Self {
            server: AgUi::new(agent),
            model,
            heard,
        }
    }

    /// Returns the input of a run with these messages.
    fn input(messages: &[agui::Message]) -> RunAgentInput {
        let parameters = json!({
            "properties": { "cents": { "type": "integer" } },
            "required": ["cents"],
        });
        let tool =
            json!({ "name": "refund", "description": "Pays back.", "parameters": parameters });
        let run = format!("r{}", messages.len());
        let mut input = RunAgentInput::new("t", run, messages.to_vec());
        input.tools = vec![serde_json::from_value(tool).unwrap()];
        input
    }

    /// Makes a run with these messages, and returns those that the page has then. Of the rules it
    /// reads nothing.
    async fn run(&self, messages: &[agui::Message]) -> Vec<agui::Message> {
        let mut shown = agui::Conversation::new(messages.to_vec());
        let mut run = self.server.run(Self::input(messages)).await.unwrap();
        while let Some(event) = run.next().await {
            shown.apply(&event);
            let sent = serde_json::to_string(&event).unwrap();
            for id in [
                "\"working\"",
                "\"small\"",
                "\"two\"",
                "\"breaks\"",
                "\"asks\"",
            ] {
                assert!(!sent.contains(id), "{sent}");
            }
            assert!(!sent.contains("CUSTOM"), "{sent}");
        }
        shown.messages().to_vec()
    }
}

/// Returns the calls that wait for the page.
fn open_calls(messages: &[agui::Message]) -> Vec<Arc<str>> {
    let calls = messages.iter().flat_map(agui::Message::tool_calls);
    let mut open: Vec<_> = calls.map(|call| call.id.clone()).collect();
    for message in messages {
        if let agui::MessageKind::Tool { tool_call_id, .. } = &message.kind {
            open.retain(|call| call != tool_call_id);
        }
    }
    open
}

#[tokio::test]
async fn a_clients_tool_is_decided_about() {
    for (cents, decision) in DECISIONS {
        let mut page = Page::new(cents, RULES);
        let mut messages = page.run(&[agui::Message::user("u", "?")]).await;
        assert_eq!(about_refunds(&decided(&mut page.heard)), [decision]);
        let open = open_calls(&messages);
        let waits = messages
            .iter()
            .any(|message| matches!(message.kind, agui::MessageKind::Activity { .. }));
        // Of one that waits for support the page is told so.
        assert_eq!(
            (open.len(), waits),
            (usize::from(cents == 1 || cents == 4), cents == 4)
        );
        let Some(call) = open.first() else { continue };
        messages.push(agui::Message::tool("result", call.clone(), "I have paid."));
        if cents == 4 {
            // Not even a page that has not waited goes on.
            let refusal = page.server.run(Page::input(&messages)).await.unwrap_err();
            assert_eq!(refusal.kind(), agui::InputErrorKind::Forbidden);
            assert_eq!(page.model.requests().len(), 1);
            continue;
        }
        page.run(&messages).await;
        let read = page.model.requests()[1].messages().clone();
        let read = read.iter().flat_map(Message::tool_results).next().unwrap();
        assert_eq!(read.text(), "I have paid.");
        assert!(decided(&mut page.heard).is_empty());
    }
}

/// It is a message of the client, and comes from no call.
#[tokio::test]
async fn no_rule_is_asked_about_a_result_that_a_client_sends() {
    let rules = format!(
        r#"{RULES} @id("lies") forbid(principal, action == Action::"result:refund", resource);"#
    );
    let mut page = Page::new(1, &rules);
    let mut messages = page.run(&[agui::Message::user("u", "?")]).await;
    assert_eq!(about_refunds(&decided(&mut page.heard)), ["allowed small"]);
    let open = open_calls(&messages);
    messages.push(agui::Message::tool("result", open[0].clone(), "paid"));
    page.run(&messages).await;
    assert!(decided(&mut page.heard).is_empty());
    let read = page.model.requests()[1].messages().clone();
    assert_eq!(
        read.iter()
            .flat_map(Message::tool_results)
            .next()
            .unwrap()
            .text(),
        "paid"
    );
}

/// A worker of an engine has the request from the journal, and goes on with the run.
#[tokio::test]
async fn a_run_that_a_worker_goes_on_with_is_decided_about() {
    for (cents, decision) in DECISIONS {
        let world = World::new(cents);
        let database = Sqlite::in_memory().await.unwrap();
        let agent = |turns: Vec<Turn>, listening| {
            Agent::builder(ScriptedModel::new(turns))
                .tool(world.refund())
                .global_callbacks(Durable::new(database.clone()))
                .global_callbacks(world.book.enforce())
                .global_callbacks(listening)
                .build()
                .unwrap()
        };
        // The first process dies while its model thinks.
        let (listening, _) = listen();
        let first = agent(vec![Turn::pending()], listening);
        let mut dying = Box::pin(first.run(asked_by(&ANN).with_run_id("run 1")));
        while database.runs().get("run 1").await.is_err() {
            assert!(futures::poll!(&mut dying).is_pending());
        }
        drop(dying);
        let call = Turn::tool("refund", world.call());
        let (listening, mut heard) = listen();
        let worker = agent(vec![call, Turn::from_text("done")], listening);
        let request = database.runs().request("run 1").await.unwrap();
        let response = worker.run(request).await.unwrap();
        assert_eq!(about_refunds(&decided(&mut heard)), [decision]);
        assert_eq!(world.log.take().len(), usize::from(cents == 1));
        // Delivered once more, to a worker whose model says nothing.
        let (listening, mut heard) = listen();
        let again = agent(vec![], listening);
        let request = database.runs().request("run 1").await.unwrap();
        let repeated = again.run(request).await.unwrap();
        // One that waits is decided by the rules of now; what is stored is not decided again.
        let asks = if cents == 4 { vec![decision] } else { vec![] };
        assert_eq!(about_refunds(&decided(&mut heard)), asks);
        assert_eq!(repeated.text(), response.text());
        assert!(world.log.take().is_empty());
    }
}
