//! Agents and tools as an MCP server: our client, which has its own tests, is the other side.
#![allow(deprecated)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rmcp::ClientHandler;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientServiceExt, ServiceError};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_agent::message::MediaSource;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, Effect, Error, ErrorKind, Interrupt, Json, Part, Request, Resolution,
    Tool, ToolRequest, ToolResponse,
};
use tower_agent_mcp::PROGRESS;
use tower_agent_mcp::client::{Lifecycle, McpClient, McpClientBuilder};
use tower_agent_mcp::server::{McpServer, ServerBuildError};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::{
    LIFECYCLES, agent_with_tools_of, ask, connected, first_result, names, serving,
};

/// Returns a builder of a client that connects to the server in memory.
pub(crate) fn client_of(server: &McpServer) -> McpClientBuilder {
    let server = server.clone();
    McpClient::stream(move || {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = server.clone();
        tokio::spawn(async move { server.serve(ours).await });
        async { Ok(theirs) }
    })
    .name("served")
}

fn serve(tools: impl IntoIterator<Item = Tool>) -> McpServer {
    McpServer::builder("test", "1.0.0")
        .tools(tools)
        .build()
        .unwrap()
}

/// An agent that pays after an approval, and how often it has paid.
pub(crate) fn clerk() -> (Agent, Arc<AtomicUsize>) {
    clerk_with(Approval::of_tools(["pay"]))
}

fn clerk_with(approval: Approval) -> (Agent, Arc<AtomicUsize>) {
    let paid = Arc::new(AtomicUsize::new(0));
    let pays = paid.clone();
    let model =
        ScriptedModel::always(Turn::function(|request| {
            let results = request
                .messages()
                .iter()
                .find_map(|message| message.tool_results().next());
            Ok(match results {
                None => tower_agent::ModelResponse::from_tool_calls([
                    tower_agent::message::ToolCall::new("call_1", "pay", json!({ "value": 100 })),
                ]),
                Some(result) => {
                    tower_agent::ModelResponse::from_text(format!("I {}.", result.text()))
                }
            })
        }));
    let pay = Tool::function("pay", "Pays.", move |amount: u32| {
        pays.fetch_add(1, Ordering::SeqCst);
        format!("paid {amount}")
    });
    let agent = Agent::builder(model)
        .name("clerk")
        .description("Pays bills.")
        .tool(pay)
        .on_tool(approval)
        .build()
        .unwrap();
    (agent, paid)
}

#[tokio::test]
async fn tools_are_declared_with_their_schemas_and_effects() {
    let add = Tool::function("add", "Adds.", |n: u32| n).effect(Effect::Pure);
    let put = Tool::function("put", "Puts.", |n: u32| n).effect(Effect::Idempotent);
    let pay = Tool::function("pay", "Pays.", |n: u32| n);
    let expected: Vec<_> = [&add, &pay, &put]
        .map(|tool| (**tool.declaration()).clone())
        .into_iter()
        .collect();
    let server = serve([pay, put, add]);
    for lifecycle in LIFECYCLES {
        let builder = client_of(&server).effect(ToolDeclaration::effect);
        let client = connected(builder.lifecycle(lifecycle)).await;
        let tools = client.tools().await;
        let seen: Vec<_> = tools.iter().map(|tool| tool.declaration()).collect();
        assert_eq!(seen.len(), 3);
        for (seen, expected) in seen.iter().zip(&expected) {
            assert_eq!(seen.name(), expected.name());
            assert_eq!(seen.description(), expected.description());
            assert_eq!(seen.effect(), expected.effect());
            assert_eq!(seen.parameters(), expected.parameters());
        }
    }
}

#[tokio::test]
async fn two_tools_with_one_name_are_not_served() {
    let tool = || Tool::function("add", "Adds.", |n: u32| n);
    let error = McpServer::builder("test", "1")
        .tools([tool(), tool()])
        .build()
        .unwrap_err();
    assert_eq!(error, ServerBuildError::Duplicate("add".into()));
}

#[tokio::test]
async fn responses_of_every_kind_arrive() {
    let parts = [
        Part::from_text("words"),
        Part::image(MediaSource::base64("image/png", "AAAA")),
        Part::audio(MediaSource::base64("audio/wav", "BBBB")),
        Part::document(MediaSource::base64("application/pdf", "CCCC")),
    ];
    let shown = parts.clone();
    let server = serve([
        Tool::function("parts", "", move |_: Value| {
            ToolResponse::new("all").with_parts(shown.clone())
        }),
        Tool::function("object", "", |_: Value| Json(json!({ "n": 1 }))),
        Tool::function("refuses", "", |_: Value| ToolResponse::error("no")),
        Tool::function("fails", "", |_: Value| {
            Err::<(), _>(Error::new(ErrorKind::Tool, "no column `balance`"))
        })
        .failure_message("The bank is closed."),
        Tool::function("typed", "", |n: u32| n),
    ]);
    for lifecycle in LIFECYCLES {
        let client = connected(client_of(&server).lifecycle(lifecycle)).await;
        let response = ask(&client, "parts", json!({})).await.unwrap();
        assert_eq!(response.parts()[..3], parts[..3]);
        let Part::Document(document) = &response.parts()[3] else {
            panic!("{response:?}")
        };
        assert_eq!(document.source.media_type(), Some("application/pdf"));
        assert_eq!(
            ask(&client, "object", json!({})).await.unwrap().value()["n"],
            1
        );
        let refusal = ask(&client, "refuses", json!({})).await.unwrap();
        assert!(refusal.is_error() && refusal.value() == "no");
        let failure = ask(&client, "fails", json!({})).await.unwrap();
        assert!(failure.is_error() && failure.value() == "The bank is closed.");
        let invalid = ask(&client, "typed", json!({ "value": "x" }))
            .await
            .unwrap();
        assert!(invalid.is_error() && invalid.value().to_string().contains("invalid arguments"));
    }
}

#[tokio::test]
async fn an_agent_is_a_tool_with_its_name_and_tells_its_text_as_progress() {
    let model = ScriptedModel::always(Turn::from_text("It rains."));
    let agent = Agent::builder(model)
        .name("weather")
        .description("Knows the weather.")
        .build();
    let server = McpServer::builder("test", "1.0.0")
        .agent(agent.unwrap())
        .build()
        .unwrap();
    for lifecycle in LIFECYCLES {
        let client = connected(client_of(&server).lifecycle(lifecycle)).await;
        assert_eq!(names(&client).await, ["weather"]);
        let asks = ScriptedModel::new([
            Turn::tool("weather", json!({ "request": "How is it?" })),
            Turn::from_text("Take an umbrella."),
        ]);
        let outer = agent_with_tools_of(&client, asks).await;
        let mut run = outer.stream("Go out?");
        let mut told = String::new();
        while let Some(event) = futures::StreamExt::next(&mut run).await {
            if let tower_agent::stream::EventKind::Custom { value, .. } = event.kind {
                told.push_str(value["message"].as_str().unwrap());
            }
        }
        assert_eq!(told, "It rains.");
        let result = run.response().await.unwrap();
        let result = result
            .messages()
            .iter()
            .find_map(|message| message.tool_results().next().cloned());
        assert_eq!(result.unwrap().text(), "It rains.");
    }
}

#[tokio::test]
async fn the_progress_of_a_tool_passes_through_servers() {
    let count = Tool::function_with("count", "", async |_: Value, call: ToolRequest| {
        for n in [1, 7] {
            let value = json!({ "progress": n, "total": 7, "message": format!("{n} of 7") });
            call.context().emit(PROGRESS, value).await;
            call.context()
                .emit("debug", json!({ "progress": 100 }))
                .await;
        }
    });
    let inner = serve([count]);
    for lifecycle in LIFECYCLES {
        let client = connected(client_of(&inner).lifecycle(lifecycle)).await;
        let outer = serve(client.tools().await);
        let client = connected(client_of(&outer).lifecycle(lifecycle)).await;
        let model = ScriptedModel::new([Turn::tool("count", json!({})), Turn::from_text("Done.")]);
        let agent = agent_with_tools_of(&client, model).await;
        let mut told = Vec::new();
        let mut run = agent.stream("Go.");
        while let Some(event) = futures::StreamExt::next(&mut run).await {
            if let tower_agent::stream::EventKind::Custom { value, .. } = event.kind {
                told.push(value);
            }
        }
        let step = |n: u32| {
            let message = format!("{n} of 7");
            json!({ "tool": "count", "progress": f64::from(n), "total": 7.0, "message": message })
        };
        assert_eq!(told, [step(1), step(7)]);
    }
}

#[tokio::test]
async fn an_interrupt_of_a_served_agent_interrupts_the_client_and_its_answer_comes_back() {
    for lifecycle in LIFECYCLES {
        for (approved, text, times) in [
            (true, "I paid 100.", 1),
            (false, "I the approver rejected this call.", 0),
        ] {
            let (agent, paid) = clerk();
            let server = serving(agent);
            let client = connected(client_of(&server).lifecycle(lifecycle)).await;
            let model = ScriptedModel::new([
                Turn::tool("clerk", json!({ "request": "Pay." })),
                Turn::from_text("Done."),
            ]);
            let outer = agent_with_tools_of(&client, model).await;
            let paused = outer.run("Pay the bill.").await.unwrap();
            let [interrupt] = paused.interrupts() else {
                panic!("{:?}", paused.messages())
            };
            let message = interrupt.message.as_deref().unwrap();
            let (_, shown) = message.split_once('\n').unwrap();
            let shown: Value = serde_json::from_str(shown).unwrap();
            assert_eq!(
                shown,
                json!({ "tool": "pay", "arguments": { "value": 100 } })
            );
            let fields = interrupt.response_schema["properties"].as_object().unwrap();
            assert_eq!(fields.keys().collect::<Vec<_>>(), ["approved", "reason"]);
            assert_eq!(paid.load(Ordering::SeqCst), 0);

            let answer = Resolution::resolved(&interrupt.id, json!({ "approved": approved }));
            let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
            let done = outer.run(request).await.unwrap();
            let result = first_result(&done);
            assert_eq!(result.text(), text);
            assert_eq!(paid.load(Ordering::SeqCst), times);
        }
    }
}

#[tokio::test]
async fn an_interrupt_of_a_served_tool_keeps_its_private_state() {
    let count = Tool::function_with("count", "", |_: Value, call: ToolRequest| {
        let context = call.context();
        let key = context.call_key("visits");
        let visits = context
            .private_state()
            .get(&key)
            .and_then(|n| n.as_u64())
            .unwrap_or(0)
            + 1;
        context.private_state().set(key, visits);
        let schema = json!({ "type": "array", "items": { "type": "integer" } });
        let question = Interrupt::new("go_on", "confirmation").with_response_schema(schema);
        let answer = call.ask(question)?;
        Ok::<_, Error>(format!("{visits} {:?}", answer.outcome))
    });
    let server = serve([count]);
    for lifecycle in LIFECYCLES {
        let client = connected(client_of(&server).lifecycle(lifecycle)).await;
        let model = ScriptedModel::new([Turn::tool("count", json!({})), Turn::from_text("Done.")]);
        let outer = agent_with_tools_of(&client, model).await;
        let paused = outer.run("Go.").await.unwrap();
        let [interrupt] = paused.interrupts() else {
            panic!("{:?}", paused.messages())
        };
        // MCP knows no lists of numbers in forms.
        let field = &interrupt.response_schema["properties"]["answer"];
        assert_eq!(field["type"], "string");
        let answer = Resolution::resolved(&interrupt.id, json!({ "answer": "[1, 2]" }));
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
        let done = outer.run(request).await.unwrap();
        let result = first_result(&done);
        let expected = "2 Resolved(Array [Number(1), Number(2)])";
        assert_eq!(result.text(), expected);
    }
}

/// A client of rmcp's own, which answers questions with what it is given.
#[derive(Clone, Default)]
pub(crate) struct Other {
    elicits: bool,
    questions: Arc<Mutex<Vec<Value>>>,
    progress: Arc<Mutex<Vec<String>>>,
}

impl ClientHandler for Other {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.elicits {
            capabilities.elicitation = Some(ElicitationCapability::new());
        }
        ClientConfig::new(capabilities, Implementation::new("other", "1"))
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.questions.lock().unwrap().push(json!(question));
        let answer = ElicitResult::new(ElicitationAction::Accept);
        Ok(answer.with_content(json!({ "approved": true })))
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress
            .lock()
            .unwrap()
            .push(progress.message.unwrap_or_default());
    }
}

async fn other(server: &McpServer, client: &Other, lifecycle: Lifecycle) -> Running {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let server = server.clone();
    tokio::spawn(async move { server.serve(ours).await });
    let mode = match lifecycle {
        Lifecycle::Initialize => rmcp::ClientLifecycleMode::Initialize,
        _ => rmcp::ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
    };
    client
        .clone()
        .serve_with_lifecycle(theirs, mode)
        .await
        .unwrap()
}

pub(crate) type Running = rmcp::service::RunningService<RoleClient, Other>;

pub(crate) fn pay() -> CallToolRequestParams {
    let Value::Object(arguments) = json!({ "request": "Pay." }) else {
        unreachable!()
    };
    CallToolRequestParams::new("clerk").with_arguments(arguments)
}

pub(crate) fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

#[tokio::test]
async fn another_client_asks_its_user_and_the_agent_goes_on() {
    for lifecycle in LIFECYCLES {
        let (agent, paid) = clerk();
        let server = serving(agent);
        let client = Other {
            elicits: true,
            ..Other::default()
        };
        let running = other(&server, &client, lifecycle).await;
        let result = running.call_tool(pay()).await.unwrap();
        assert_eq!(text(&result), "I paid 100.");
        assert_eq!(paid.load(Ordering::SeqCst), 1);
        assert_eq!(client.questions.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_client_that_cannot_ask_its_user_reads_what_the_call_waits_for() {
    for lifecycle in LIFECYCLES {
        let (agent, paid) = clerk();
        let server = serving(agent);
        let running = other(&server, &Other::default(), lifecycle).await;
        let told = match running.call_tool(pay()).await {
            Ok(result) => {
                assert_eq!(
                    (lifecycle, result.is_error),
                    (Lifecycle::Initialize, Some(true))
                );
                text(&result).to_owned()
            }
            Err(ServiceError::McpError(error)) => {
                assert_eq!(lifecycle, Lifecycle::Discover);
                assert_eq!(error.code, ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY);
                let needed = json!({ "requiredCapabilities": { "elicitation": {} } });
                assert_eq!(error.data, Some(needed));
                error.message.into_owned()
            }
            Err(other) => panic!("{other}"),
        };
        assert!(
            told.starts_with("interrupted: this call needs an answer of the user"),
            "{told}"
        );
        assert!(told.contains(r#""tool":"pay""#), "{told}");
        assert_eq!(paid.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_clients_user_is_not_asked_what_a_role_answers() {
    for lifecycle in LIFECYCLES {
        let ask = |id: &str| Interrupt::new(id, "audit").with_message(format!("Was {id} done?"));
        let pay = Tool::function("pay", "Pays.", move |_: Value| {
            let asked = [ask("this").for_role("audit"), ask("that")];
            Err::<String, _>(Error::interrupt_all(asked))
        });
        let client = Other {
            elicits: true,
            ..Other::default()
        };
        let running = other(&serve([pay]), &client, lifecycle).await;
        let result = running
            .call_tool(CallToolRequestParams::new("pay"))
            .await
            .unwrap();
        let told = "interrupted: this call waits for somebody with the role `audit`";
        assert_eq!((result.is_error, text(&result)), (Some(true), told));
        assert!(client.questions.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_late_answer_is_refused_and_a_question_during_the_call_ends_with_its_time() {
    for lifecycle in LIFECYCLES {
        let approval = Approval::of_tools(["pay"]).deny_after(Duration::ZERO);
        let (agent, paid) = clerk_with(approval);
        let client = Other {
            elicits: true,
            ..Other::default()
        };
        let running = other(&serving(agent), &client, lifecycle).await;
        if lifecycle == Lifecycle::Initialize {
            let result = running.call_tool(pay()).await.unwrap();
            let denied = "I the approver rejected this call: nobody answered in time.";
            assert_eq!(text(&result), denied);
        } else {
            let late = approved(&waits(&running).await);
            let Err(ServiceError::McpError(error)) = running.call_tool_once(late).await else {
                panic!("a late answer is refused")
            };
            assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
            assert!(
                error.message.starts_with("the time for an answer is over"),
                "{error}"
            );
        }
        assert_eq!(paid.load(Ordering::SeqCst), 0);
    }
}

/// Connects a client whose user can be asked, and says nothing by itself.
pub(crate) async fn asked(server: &McpServer) -> Running {
    other(
        server,
        &Other {
            elicits: true,
            ..Other::default()
        },
        Lifecycle::Discover,
    )
    .await
}

/// A call that waits: the sealed checkpoint, and the id of its question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waits {
    pub(crate) state: String,
    pub(crate) id: String,
}

impl Waits {
    pub(crate) fn of(response: CallToolResponse) -> Self {
        let CallToolResponse::InputRequired(asked) = response else {
            panic!("{response:?}")
        };
        let asks = asked.input_requests.unwrap();
        let [id] = &asks.into_keys().collect::<Vec<_>>()[..] else {
            panic!("one question")
        };
        Self {
            state: asked.request_state.unwrap(),
            id: id.clone(),
        }
    }

    fn with_state(&self, state: &str) -> Self {
        Self {
            state: state.to_owned(),
            id: self.id.clone(),
        }
    }
}

/// Makes a call until it waits.
pub(crate) async fn waits(running: &Running) -> Waits {
    Waits::of(running.call_tool_once(pay()).await.unwrap())
}

pub(crate) fn approved(waits: &Waits) -> CallToolRequestParams {
    let yes = json!({ "action": "accept", "content": { "approved": true } });
    let answers = [(waits.id.clone(), yes)].into();
    pay()
        .with_request_state(&waits.state)
        .with_input_responses(answers)
}

#[tokio::test]
async fn a_sealed_checkpoint_counts_once_for_its_own_call_and_cannot_be_read_or_changed() {
    let (agent, paid) = clerk();
    let server = serving(agent);
    let client = Other {
        elicits: true,
        ..Other::default()
    };
    let running = other(&server, &client, Lifecycle::Discover).await;
    let waits = waits(&running).await;
    let state = waits.state.clone();
    // Long words: chance writes short ones into a thousand sealed bytes.
    let sealed = URL_SAFE_NO_PAD.decode(&state).unwrap();
    for word in ["call_1", "value", "content", "messages"] {
        let found = sealed
            .windows(word.len())
            .any(|window| window == word.as_bytes());
        assert!(!found && !state.contains(word), "{word}: {state}");
    }
    let refused = async |params: CallToolRequestParams| match running.call_tool_once(params).await {
        Err(ServiceError::McpError(error)) => error.message.to_string(),
        other => panic!("{other:?}"),
    };
    let foreign = "the request state does not belong to this call";
    // Changed, for other arguments, and made up.
    let mut changed = state.clone().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed = String::from_utf8(changed).unwrap();
    assert_eq!(
        refused(approved(&waits.with_state(&changed))).await,
        foreign
    );
    let mut elsewhere = approved(&waits);
    elsewhere
        .arguments
        .as_mut()
        .unwrap()
        .insert("request".into(), "Pay more.".into());
    assert_eq!(refused(elsewhere).await, foreign);
    assert_eq!(
        refused(approved(&waits.with_state("made up"))).await,
        foreign
    );
    assert_eq!(paid.load(Ordering::SeqCst), 0);

    assert!(running.call_tool_once(approved(&waits)).await.is_ok());
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let used = "the request state was used before; make the call anew";
    assert_eq!(refused(approved(&waits)).await, used);
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_approval_without_the_sealed_checkpoint_approves_nothing() {
    let (agent, paid) = clerk();
    let server = serving(agent);
    let client = Other {
        elicits: true,
        ..Other::default()
    };
    let running = other(&server, &client, Lifecycle::Discover).await;
    let mut forged = approved(&waits(&running).await);
    forged.request_state = None;
    let answer = running.call_tool_once(forged).await.unwrap();
    assert!(
        matches!(answer, CallToolResponse::InputRequired(_)),
        "{answer:?}"
    );
    assert_eq!(paid.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn another_process_with_the_key_continues_a_call() {
    let (agent, paid) = clerk();
    let build = |key| {
        let builder = McpServer::builder("test", "1.0.0").agent(agent.clone());
        builder.seal_key([key; 32]).build().unwrap()
    };
    let client = Other {
        elicits: true,
        ..Other::default()
    };
    let first = other(&build(1), &client, Lifecycle::Discover).await;
    let state = waits(&first).await;
    let stranger = other(&build(2), &client, Lifecycle::Discover).await;
    assert!(stranger.call_tool_once(approved(&state)).await.is_err());
    let second = other(&build(1), &client, Lifecycle::Discover).await;
    let answer = second.call_tool_once(approved(&state)).await.unwrap();
    let CallToolResponse::Complete(result) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (text(&result), paid.load(Ordering::SeqCst)),
        ("I paid 100.", 1)
    );
}

#[tokio::test]
async fn a_call_that_its_client_cancels_is_dropped() {
    struct Dropped(Arc<Notify>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    let begun = Arc::new(Notify::new());
    let dropped = Arc::new(Notify::new());
    let begins = begun.clone();
    let drops = dropped.clone();
    let slow = Tool::function("slow", "", move |_: Value| {
        let begins = begins.clone();
        let guard = Dropped(drops.clone());
        async move {
            begins.notify_one();
            std::future::pending::<()>().await;
            drop(guard);
        }
    });
    let server = serve([slow]);
    for lifecycle in LIFECYCLES {
        let client = connected(client_of(&server).lifecycle(lifecycle)).await;
        tokio::select! {
            _ = ask(&client, "slow", json!({})) => panic!("it is slow"),
            () = begun.notified() => {}
        }
        dropped.notified().await;
    }
}

#[tokio::test]
async fn an_unknown_tool_is_rejected() {
    let running = other(&serve([]), &Other::default(), Lifecycle::Initialize).await;
    let error = running
        .call_tool_once(CallToolRequestParams::new("gone"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("unknown tool `gone`"), "{error}");
}
