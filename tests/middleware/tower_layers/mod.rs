//! Each of tower's layers around a model, a tool and an agent, streamed and not.

mod buffers;
mod compositions;
mod filters;
mod http;
mod limits;
mod maps;
mod retries;
mod routes;
mod timeouts;

use std::time::Duration;

use futures::StreamExt;
use tower::ServiceExt;
use tower_agent::agent::BoxAgent;
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::model::BoxModel;
use tower_agent::stream::{Event, EventKind};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::tool::BoxTool;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Part, Result, Role, RunStream, Tool,
};

use crate::support::transcript::{Answer, left, said};
use tower_agent::agent::ToolFailure;

/// The same layer around a model, around one tool and around all, around an agent inside its
/// callbacks, and around an agent from outside; what is inside it does what the script says. The layer is written once
/// and made for each, where `Call` is the request's type.
macro_rules! around_each {
    ($turns:expr, $layer:expr) => {{
        use tower_agent::agent::BoxAgent;
        use tower_agent::{AgentRequest, ModelRequest, ToolRequest};
        use $crate::tower_layers::{asking, plain, worker};
        let script = || tower_agent::testing::ScriptedModel::new($turns);
        let around_model = {
            #[allow(dead_code, reason = "most layers do not name it")]
            type Call = ModelRequest;
            plain(script()).model_layer($layer)
        };
        let around_tool = {
            #[allow(dead_code, reason = "most layers do not name it")]
            type Call = ToolRequest;
            asking(worker(script()).layer($layer))
        };
        let around_tools = {
            #[allow(dead_code, reason = "most layers do not name it")]
            type Call = ToolRequest;
            asking(worker(script())).tool_layer($layer)
        };
        let around_loop = {
            #[allow(dead_code, reason = "most layers do not name it")]
            type Call = AgentRequest;
            plain(script()).agent_layer($layer)
        };
        let around_agent = {
            #[allow(dead_code, reason = "most layers do not name it")]
            type Call = AgentRequest;
            let agent = plain(script()).build().unwrap();
            BoxAgent::new(tower_layer::Layer::layer(&$layer, agent))
        };
        [
            ("model", BoxAgent::new(around_model.build().unwrap())),
            ("tool", BoxAgent::new(around_tool.build().unwrap())),
            ("tools", BoxAgent::new(around_tools.build().unwrap())),
            ("loop", BoxAgent::new(around_loop.build().unwrap())),
            ("agent", around_agent),
        ]
    }};
}

/// The same function of two services around two models, two tools and two agents.
macro_rules! of_two {
    ([$one:expr, $two:expr], $join:path) => {{
        let agents =
            || [$one, $two].map(|script| $crate::tower_layers::plain(script).build().unwrap());
        let tools = [$one, $two].map(|script| $crate::tower_layers::worker(script).into_service());
        [
            (
                "model",
                $crate::tower_layers::of_model($join(
                    [$one, $two].map(tower_agent::model::BoxModel::new),
                )),
            ),
            ("tool", $crate::tower_layers::of_tool($join(tools))),
            ("agent", $join(agents().map(BoxAgent::new))),
        ]
    }};
}

use {around_each, of_two};

/// Streamed, or not.
const WAYS: [bool; 2] = [false, true];

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

fn plain(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model.with_chunk_size(1))
}

/// A tool that streams: an agent behind it.
fn worker(model: ScriptedModel) -> Tool {
    plain(model).name("worker").build().unwrap().into_tool("Works.")
}

/// An agent that calls the tool `worker` and says what that has answered; its failure is the
/// run's.
fn asking(tool: Tool) -> AgentBuilder {
    let model = ScriptedModel::always(Turn::function(|request: &ModelRequest| {
        let results = request.messages().iter().flat_map(Message::tool_results);
        Ok(match results.last() {
            Some(result) => ModelResponse::from_text(result.text()),
            None => {
                let arguments = serde_json::json!({ "request": "Work!" });
                let call = ToolCall::new("call", "worker", arguments);
                ModelResponse::new(Message::new(Role::Assistant, [Part::from(call)]))
            }
        })
    }));
    let mut semantics = Semantics::default();
    semantics.run.tool_failure = ToolFailure::FailRun;
    Agent::builder(model).tool(tool).semantics(semantics)
}

fn of_model(model: BoxModel) -> BoxAgent {
    BoxAgent::new(Agent::builder(model).build().unwrap())
}

fn of_tool(service: BoxTool) -> BoxAgent {
    let declaration = worker(ScriptedModel::new([])).declaration().as_ref().clone();
    BoxAgent::new(asking(Tool::service(declaration, service)).build().unwrap())
}

/// Runs the agent. Streamed, what its reader is left with must be what was answered, and what an
/// agent behind a tool has said must be what the tool has answered.
async fn run(agent: &BoxAgent, streamed: bool) -> Result<AgentResponse> {
    let request = AgentRequest::new("?");
    if !streamed {
        return agent.clone().oneshot(request).await;
    }
    read(RunStream::new(agent.clone(), request)).await
}

/// Reads to the end, and checks what was seen.
async fn read(mut stream: RunStream) -> Result<AgentResponse> {
    let events: Vec<_> = stream.by_ref().collect().await;
    check(&events, stream.response().await)
}

fn check(events: &[Event], response: Result<AgentResponse>) -> Result<AgentResponse> {
    let in_tool = |event: &&Event| event.invocation.tool_call.is_some();
    let main: Vec<_> = events.iter().filter(|event| !in_tool(event)).collect();
    let from_tool = left(events.iter().filter(in_tool));
    let entered = events.iter().filter(|event| matches!(event.kind, EventKind::AgentStarted));
    let gone = events.iter().filter(|event| matches!(event.kind, EventKind::AgentFinished { .. }));
    assert_eq!(entered.count(), gone.count(), "every agent that came has left");
    match &response {
        Ok(response) => {
            assert_eq!(left(main), said(response.new_messages()));
            assert!(from_tool.len() <= 1, "{from_tool:?}");
            assert!(matches!(events.last().unwrap().kind, EventKind::RunFinished));
        }
        Err(error) => {
            // Every answer that breaks off in these tests begins with `half`.
            let half = |answer: &Answer| answer.0.starts_with("ha");
            assert!(!left(main).iter().chain(&from_tool).any(half), "half an answer is left");
            let EventKind::RunFailed { error: told } = &events.last().unwrap().kind else {
                panic!("a run that fails says so last");
            };
            assert_eq!(told.kind(), error.kind());
        }
    }
    response
}

/// Reads until the first words, and returns whether there were any before the run had to wait.
fn reads_words(stream: &mut RunStream, seen: &mut Vec<Event>) -> bool {
    while let Some(Some(event)) = futures::FutureExt::now_or_never(stream.next()) {
        seen.push(event);
        if matches!(seen.last().unwrap().kind, EventKind::TextDelta { .. }) {
            return true;
        }
    }
    false
}

/// The tests that the guide names are tests.
#[test]
fn the_guide_names_tests_that_there_are() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = std::fs::read_to_string(root.join("src/guide/tower_layers.md")).unwrap();
    let modules = [
        "buffers",
        "compositions",
        "filters",
        "http",
        "limits",
        "maps",
        "retries",
        "routes",
        "timeouts",
    ];
    let mut named = std::collections::BTreeSet::new();
    for quoted in guide.split('`').skip(1).step_by(2) {
        let Some((module, test)) = quoted.split_once("::") else { continue };
        if modules.contains(&module) {
            let file = root.join(format!("tests/middleware/tower_layers/{module}.rs"));
            let source = std::fs::read_to_string(file).unwrap();
            assert!(source.contains(&format!("fn {test}()")), "`{quoted}` is no test");
            named.insert(module);
        }
    }
    assert_eq!(Vec::from_iter(named), modules);
}
