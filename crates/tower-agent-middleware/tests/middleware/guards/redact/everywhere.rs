//! Every writer of a text, with a redaction in every place and under every preset: what is hidden
//! reaches neither a model, nor the transcript, nor the stream, nor a checkpoint.

use std::collections::BTreeMap;
use std::panic;
use std::sync::LazyLock;

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::property::sample;
use tower::util::{MapErrLayer, MapResponseLayer};
use tower_agent::agent::ToolAnswer;
use tower_agent::callback::{
    Bundle, after_agent, after_model, after_tool, before_agent, before_model, before_tool,
    on_model_error, on_tool_error,
};
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::stream::{Delta, map_fn};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, Error, ErrorKind,
    Interrupt, Message, ModelResponse, Part, Recovery, Request, Resolution, Result, Role, Tool,
    ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::layer_fn;

/// The text that must not be seen.
const RAW: &str = "jo@example.com";

fn raw_error() -> Error {
    Error::new(ErrorKind::Other, format!("no row of {RAW}"))
}

/// A writer of the text: the parts of an agent, and the answers to its questions.
struct Writer {
    name: &'static str,
    turns: Vec<Turn>,
    build: fn(AgentBuilder) -> AgentBuilder,
    answer: Value,
    /// Another agent writes it, which a redaction of the first one alone does not cover.
    is_other_agent: bool,
}

fn work() -> Tool {
    Tool::function("work", "Works.", |_: Value| "done")
}

fn calls() -> Vec<Turn> {
    vec![Turn::tool("work", json!({})), Turn::from_text("Done.")]
}

fn writer(name: &'static str, build: fn(AgentBuilder) -> AgentBuilder) -> Writer {
    Writer {
        name,
        turns: calls(),
        build,
        answer: Value::Null,
        is_other_agent: false,
    }
}

impl Writer {
    fn with_turns(mut self, turns: impl IntoIterator<Item = Turn>) -> Self {
        self.turns = turns.into_iter().collect();
        self
    }

    fn of_other_agent(mut self) -> Self {
        self.is_other_agent = true;
        self
    }

    fn with_answer(mut self, answer: impl Into<Value>) -> Self {
        self.answer = answer.into();
        self
    }
}

fn failing(agent: AgentBuilder) -> AgentBuilder {
    agent.tool(Tool::function("work", "Works.", |_: Value| {
        Err::<(), _>(Error::new(ErrorKind::Tool, "down"))
    }))
}

/// A tool that asks, and whose result is the answer.
fn asking(request: &ToolRequest) -> Result<Value> {
    let answer = request.ask(Interrupt::new("client", "client_tool"))?;
    Ok(json!(format!("{:?}", answer.outcome)))
}

fn helper() -> Tool {
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("Helped.")]);
    let agent = Agent::builder(model)
        .name("helper")
        .tool(work())
        .on_tool(after_tool(|_, _| Err::<(), _>(raw_error())))
        .on_agent(after_agent(|_, _| {
            Action::Respond(AgentResponse::new([Message::assistant(RAW)]))
        }))
        .build()
        .unwrap();
    agent.into_tool("Helps.")
}

fn writers() -> Vec<Writer> {
    let thinks = Message::new(
        Role::Assistant,
        [
            Part::reasoning(format!("of {RAW}")),
            Part::from_text(format!("to {RAW}")),
            ToolCall::new("1", "work", json!({ "to": RAW })).into(),
            ToolCall::new("2", RAW, json!({})).into(),
        ],
    );
    let down = || Turn::error(Error::new(ErrorKind::Provider, "down"));
    vec![
        writer("the model", |agent| agent.tool(work())).with_turns([
            Turn::response(ModelResponse::new(thinks)),
            Turn::from_text(format!("Done for {RAW}.")),
        ]),
        writer("an error of the model", |agent| agent.tool(work()))
            .with_turns([Turn::error(raw_error())]),
        writer("a tool", |agent| {
            agent.tool(Tool::function("work", "", |_: Value| RAW))
        }),
        writer("the parts of a tool's response", |agent| {
            agent.tool(Tool::function("work", "", |_: Value| {
                ToolResponse::new(1).with_parts([Part::from_text(RAW)])
            }))
        }),
        writer("an error of a tool", |agent| {
            agent.tool(Tool::function("work", "", |_: Value| {
                Err::<(), _>(raw_error())
            }))
        }),
        writer("a panic of a tool", |agent| {
            agent.tool(Tool::function("work", "", |_: Value| -> Value {
                panic!("no row of {RAW}")
            }))
        }),
        writer("the arguments that a tool refuses", |agent| {
            agent
                .tool(Tool::function("work", "", |number: u32| number))
                .on_tool(before_tool(|request| {
                    *request.arguments_mut() = json!({ "value": RAW });
                }))
        }),
        writer("a response of a before_tool", |agent| {
            agent
                .tool(work())
                .on_tool(before_tool(|_| Action::Respond(ToolResponse::new(RAW))))
        }),
        writer("an error of a before_tool", |agent| {
            agent
                .tool(work())
                .on_tool(before_tool(|_| Err::<(), _>(raw_error())))
        }),
        writer("a panic of a before_tool", |agent| {
            agent
                .tool(work())
                .on_tool(before_tool(|_| -> () { panic!("no row of {RAW}") }))
        }),
        writer("a response of an after_tool", |agent| {
            agent
                .tool(work())
                .on_tool(after_tool(|_, _| Action::Respond(ToolResponse::new(RAW))))
        }),
        writer("an error of an after_tool", |agent| {
            agent
                .tool(work())
                .on_tool(after_tool(|_, _| Err::<(), _>(raw_error())))
        }),
        writer("an error of an on_tool_error", |agent| {
            failing(agent).on_tool(on_tool_error(|_, _| Err::<(), _>(raw_error())))
        }),
        writer("a fallback of an on_tool_error", |agent| {
            failing(agent).on_tool(on_tool_error(|_, _| {
                Recovery::Fallback(ToolResponse::new(RAW))
            }))
        }),
        writer("a layer around the tools", |agent| {
            agent
                .tool(work())
                .tool_layer(MapResponseLayer::new(|_: ToolResponse| {
                    ToolResponse::new(RAW)
                }))
        }),
        writer("a layer around the tools that fails", |agent| {
            failing(agent).tool_layer(MapErrLayer::new(|_: Error| raw_error()))
        }),
        writer("a layer of the tree", |agent| {
            let rewrites = MapResponseLayer::new(|_: ToolResponse| ToolResponse::new(RAW));
            agent
                .tool(work())
                .global_callbacks(Bundle::new().tool_layer(rewrites))
        }),
        writer("a callback of the tree", |agent| {
            let rewrites = after_tool(|_, _| Action::Respond(ToolResponse::new(RAW)));
            agent
                .tool(work())
                .global_callbacks(Bundle::new().on_tool(rewrites))
        }),
        writer("messages of a result", |agent| {
            agent
                .tool(work())
                .tool_result_messages(|answer: ToolAnswer| {
                    vec![answer.default.clone(), Message::user(format!("of {RAW}"))]
                })
        }),
        writer("a changed result among the messages", |agent| {
            agent
                .tool(Tool::function("work", "", |_: Value| "done"))
                .tool_result_messages(|answer: ToolAnswer| {
                    let mut message = answer.default.clone();
                    if let Some(Part::ToolResult(result)) = message.parts_mut().first_mut() {
                        result.parts = vec![Part::from_text(RAW)];
                    }
                    vec![message]
                })
        }),
        writer("an error of the messages of a result", |agent| {
            agent
                .tool(work())
                .tool_result_messages(|_| Err::<Vec<Message>, _>(raw_error()))
        }),
        writer("a panic of the messages of a result", |agent| {
            agent
                .tool(work())
                .tool_result_messages(|_| -> Vec<Message> { panic!("no row of {RAW}") })
        }),
        writer("a response of a before_model", |agent| {
            agent.tool(work()).on_model(before_model(|_| {
                Action::Respond(ModelResponse::from_text(RAW))
            }))
        }),
        writer("an error of a before_model", |agent| {
            agent
                .tool(work())
                .on_model(before_model(|_| Err::<(), _>(raw_error())))
        }),
        writer("a response of an after_model", |agent| {
            agent.tool(work()).on_model(after_model(|_, _| {
                Action::Respond(ModelResponse::from_text(RAW).without_tool_calls())
            }))
        }),
        writer("calls of an after_model", |agent| {
            agent
                .tool(work())
                .on_model(after_model(|_, response: &ModelResponse| {
                    if response.message().tool_calls().next().is_none() {
                        return Action::Continue;
                    }
                    let call = ToolCall::new("1", "work", json!({ "to": RAW }));
                    Action::Respond(ModelResponse::from_tool_calls([call]))
                }))
        }),
        writer("an error of an after_model", |agent| {
            agent
                .tool(work())
                .on_model(after_model(|_, _| Err::<(), _>(raw_error())))
        }),
        writer("an error of an on_model_error", |agent| {
            agent
                .tool(work())
                .on_model(on_model_error(|_, _| Err::<(), _>(raw_error())))
        })
        .with_turns([down()]),
        writer("a fallback of an on_model_error", |agent| {
            agent.tool(work()).on_model(on_model_error(|_, _| {
                Recovery::Fallback(ModelResponse::from_text(RAW))
            }))
        })
        .with_turns([down()]),
        writer("a layer around the model", |agent| {
            agent
                .tool(work())
                .model_layer(MapResponseLayer::new(|_: ModelResponse| {
                    ModelResponse::from_text(RAW)
                }))
        }),
        writer("another model of a layer", |agent| {
            agent.tool(work()).model_layer(layer_fn(|inner| {
                let other = ScriptedModel::always(Turn::from_text(RAW)).chunk_size(3);
                Fallback::new(inner).or(other)
            }))
        })
        .with_turns([Turn::error(Error::new(ErrorKind::Overloaded, "busy"))]),
        writer("a mapper of deltas", |agent| {
            agent
                .tool(work())
                .on_model(before_model(|request: &mut tower_agent::ModelRequest| {
                    request.map_deltas(|| {
                        map_fn(|delta| match delta {
                            Delta::Text(_) => Some(Delta::Text(RAW.into())),
                            other => Some(other),
                        })
                    });
                }))
        }),
        writer("a response of a before_agent", |agent| {
            agent.tool(work()).on_agent(before_agent(|_| {
                Action::Respond(AgentResponse::new([Message::assistant(RAW)]))
            }))
        }),
        writer("an error of a before_agent", |agent| {
            agent
                .tool(work())
                .on_agent(before_agent(|_| Err::<(), _>(raw_error())))
        }),
        writer("a response of an after_agent", |agent| {
            agent.tool(work()).on_agent(after_agent(|_, _| {
                Action::Respond(AgentResponse::new([Message::assistant(RAW)]))
            }))
        }),
        writer("an error of an after_agent", |agent| {
            agent
                .tool(work())
                .on_agent(after_agent(|_, _| Err::<(), _>(raw_error())))
        }),
        writer("a layer around the agent", |agent| {
            agent
                .tool(work())
                .agent_layer(MapErrLayer::new(|_: Error| raw_error()))
        })
        .with_turns([down()]),
        writer("a stop condition that panics", |agent| {
            agent.tool(work()).stop_when(|_| panic!("no row of {RAW}"))
        }),
        writer("an agent used as a tool", |agent| agent.tool(helper()))
            .with_turns([
                Turn::tool("helper", json!({ "request": "?" })),
                Turn::from_text("Done."),
            ])
            .of_other_agent(),
        writer("a person who edits", |agent| {
            agent
                .tool(work())
                .on_tool(Approval::of_tools(["work"]).allow_edits())
        })
        .with_answer(Decision::Edit(json!({ "to": RAW }))),
        writer("a person who edits a call of the tree", |agent| {
            agent
                .tool(work())
                .global_callbacks(Approval::of_tools(["work"]).allow_edits())
        })
        .with_answer(Decision::Edit(json!({ "to": RAW }))),
        writer("a person who rejects", |agent| {
            agent.tool(work()).on_tool(Approval::of_tools(["work"]))
        })
        .with_answer(Decision::reject(format!("ask {RAW}"))),
        writer("an answer to a tool's question", |agent| {
            agent.tool(Tool::function_with("work", "", |_: Value, request| {
                asking(&request)
            }))
        })
        .with_answer(RAW),
    ]
}

fn redact() -> Redact {
    static REDACT: LazyLock<Redact> = LazyLock::new(|| Redact::new([Detector::email()]).unwrap());
    REDACT.clone()
}

/// Returns the presets: the default and another one for each place, and at length all.
fn presets(place: &str) -> impl Iterator<Item = (&'static str, Semantics)> {
    let other = 1 + place.len() % 4;
    let all = [
        ("default", Semantics::default()),
        ("potato", Semantics::potato()),
        ("adk_elixir", Semantics::adk_elixir()),
        ("adk_python", Semantics::adk_python()),
        ("trpc", Semantics::trpc()),
    ];
    let every = sample(false, true);
    let chosen = all.into_iter().enumerate();
    let chosen = chosen.filter(move |(index, _)| every || *index == 0 || *index == other);
    chosen.map(|(_, preset)| preset)
}

const PLACES: [&str; 9] = [
    "global_callbacks, first",
    "global_callbacks, last",
    "callbacks, first",
    "callbacks, last",
    "callbacks, inside a layer",
    "the run",
    "behind another bundle",
    "an agent around",
    "twice",
];

/// The places that cover one agent alone.
const ONE_AGENT: [&str; 4] = [
    "callbacks, first",
    "callbacks, last",
    "callbacks, inside a layer",
    "behind another bundle",
];

/// Returns an agent with the writer and a redaction, and what its model will have been sent.
fn build(writer: &Writer, place: &str, semantics: Semantics) -> (Agent, ScriptedModel) {
    let model = ScriptedModel::new(writer.turns.clone()).chunk_size(3);
    let agent = Agent::builder(model.clone()).semantics(semantics);
    let write = writer.build;
    let nothing = || MapResponseLayer::new(|response: ToolResponse| response);
    let agent = match place {
        "global_callbacks, first" => write(agent.global_callbacks(redact())),
        "global_callbacks, last" => write(agent).global_callbacks(redact()),
        "callbacks, first" => write(agent.callbacks(redact())),
        "callbacks, last" => write(agent).callbacks(redact()),
        "callbacks, inside a layer" => write(agent).tool_layer(nothing()).callbacks(redact()),
        "behind another bundle" => {
            write(agent.callbacks(Bundle::new().tool_layer(nothing()).and(redact())))
        }
        "twice" => write(agent.callbacks(redact())).global_callbacks(redact()),
        _ => write(agent),
    };
    let agent = agent.build().unwrap();
    if place == "an agent around" {
        let team = Agent::sequential("team").agent(agent);
        return (team.global_callbacks(redact()).build().unwrap(), model);
    }
    (agent, model)
}

/// Returns where the text is seen.
#[derive(Default)]
struct Leaks(Vec<String>);

impl Leaks {
    fn look(&mut self, place: &str, text: &str) {
        if text.contains(RAW) {
            self.0.push(format!("{place}: {text}"));
        }
    }

    fn look_at(&mut self, checkpoint: &Checkpoint) {
        let mut saved = serde_json::to_value(checkpoint).unwrap();
        // The server's own: the questions of approvals, and the originals of placeholders.
        saved["head"]
            .as_object_mut()
            .map(|head| head.remove("private_state"));
        self.look("checkpoint", &saved.to_string());
    }
}

async fn run(writer: &Writer, place: &str, semantics: Semantics) -> Vec<String> {
    let (agent, model) = build(writer, place, semantics);
    let mut leaks = Leaks::default();
    let mut request = AgentRequest::new("?");
    loop {
        if place == "the run" {
            request = request.with_callbacks(redact());
        }
        let mut run = agent.stream(request);
        while let Some(event) = run.next().await {
            leaks.look("stream", &format!("{:?}", event.kind));
        }
        match run.response().await {
            Ok(response) => {
                leaks.look("transcript", &format!("{:?}", response.messages()));
                leaks.look_at(&response.checkpoint());
                let [question, ..] = response.interrupts() else {
                    break;
                };
                let answer = Resolution::resolved(&question.id, writer.answer.clone());
                // In another process.
                let saved = serde_json::to_string(&response.checkpoint()).unwrap();
                let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
                request = AgentRequest::resume(checkpoint).with_resolutions([answer]);
            }
            Err(error) => {
                leaks.look("error", &format!("{error} {error:?}"));
                if let Some(checkpoint) = error.checkpoint() {
                    leaks.look_at(checkpoint);
                }
                break;
            }
        }
    }
    for request in model.requests() {
        leaks.look("model", &format!("{:?}", request.messages()));
    }
    leaks.0
}

#[tokio::test]
async fn nothing_that_is_hidden_leaves_a_run_whoever_wrote_it_and_wherever_the_guard_stands() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let mut seen: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for writer in writers() {
        for place in PLACES {
            if writer.is_other_agent && ONE_AGENT.contains(&place) {
                continue;
            }
            for (preset, semantics) in presets(place) {
                for leak in run(&writer, place, semantics).await {
                    seen.entry((writer.name, place))
                        .or_default()
                        .push(format!("{preset}: {leak}"));
                }
            }
        }
    }
    panic::set_hook(hook);

    for ((writer, place), leaks) in &seen {
        println!("{writer} / {place}: {leaks:#?}");
    }
    assert!(seen.is_empty(), "{} leaks", seen.len());
}

#[tokio::test]
async fn the_text_would_be_seen_of_every_writer_without_a_guard() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let mut unseen = Vec::new();
    for writer in writers() {
        if run(&writer, "nowhere", Semantics::default())
            .await
            .is_empty()
        {
            unseen.push(writer.name);
        }
    }
    panic::set_hook(hook);

    assert!(unseen.is_empty(), "these write nothing: {unseen:?}");
}

#[tokio::test]
async fn what_the_application_says_itself_is_left_to_it() {
    let asks = |_: Value, request: ToolRequest| {
        request.context().state().set("of", RAW);
        Err::<(), _>(Error::interrupt(
            Interrupt::new("1", "confirm").with_message(format!("Write to {RAW}?")),
        ))
    };
    let model = ScriptedModel::new(calls());
    let agent = Agent::builder(model)
        .tool(Tool::function_with("work", "", asks))
        .global_callbacks(redact())
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        response.interrupts()[0].message.as_deref(),
        Some("Write to jo@example.com?")
    );
    assert_eq!(response.state().get("of"), Some(RAW.into()));
}

#[tokio::test]
async fn the_text_of_a_failure_that_is_for_the_model_stays() {
    let tool = Tool::function("work", "", |_: Value| Err::<(), _>(raw_error()));
    let model = ScriptedModel::new(calls());
    let agent = Agent::builder(model.clone())
        .tool(tool.failure_message("The bank is closed."))
        .global_callbacks(redact())
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let requests = model.requests();
    let result = requests[1].messages()[2].tool_results().next().unwrap();
    assert_eq!(result.text(), "The bank is closed.");
}
