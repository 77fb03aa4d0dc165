//! Each of tower's layers around a model, a tool and an agent, streamed and not.

mod buffers;
mod compositions;
mod filters;
mod limits;
mod maps;
mod probes;
mod retries;
mod routes;
mod timeouts;
mod traffic;

use futures::StreamExt;
use tower_agent::agent::BoxAgent;
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::stream::{Event, EventKind};
use tower_agent::tool::BoxTool;
use tower_agent::{
    Agent, AgentBuilder, Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role,
    RunStream, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::runs::{WAYS, check, of_model, read, run, secs};
use tower_agent::callback::ToolFailure;

/// The same layer around a model, around one tool and around all, around an agent inside its
/// callbacks, and around an agent from outside; what is inside it does what the script says. The
/// layer is written once and made for each, where `Call` is the request's type.
macro_rules! around_each {
    ($turns:expr, $layer:expr) => {{
        use tower_agent::agent::BoxAgent;
        use tower_agent::{AgentRequest, ModelRequest, ToolRequest};
        use $crate::{asking, plain, worker};
        let script = || tower_agent_test::ScriptedModel::new($turns);
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
        let agents = || [$one, $two].map(|script| $crate::plain(script).build().unwrap());
        let tools = [$one, $two].map(|script| $crate::worker(script).into_service());
        [
            (
                "model",
                $crate::of_model($join([$one, $two].map(tower_agent::model::BoxModel::new))),
            ),
            ("tool", $crate::of_tool($join(tools))),
            ("agent", $join(agents().map(BoxAgent::new))),
        ]
    }};
}

use {around_each, of_two};

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

fn plain(model: ScriptedModel) -> AgentBuilder {
    Agent::builder(model.chunk_size(1))
}

/// A tool that streams: an agent behind it.
fn worker(model: ScriptedModel) -> Tool {
    plain(model)
        .name("worker")
        .build()
        .unwrap()
        .into_tool("Works.")
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

fn of_tool(service: BoxTool) -> BoxAgent {
    let declaration = worker(ScriptedModel::new([]))
        .declaration()
        .as_ref()
        .clone();
    BoxAgent::new(asking(Tool::service(declaration, service)).build().unwrap())
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
        "limits",
        "maps",
        "retries",
        "routes",
        "timeouts",
        "traffic",
    ];
    let mut named = std::collections::BTreeSet::new();
    for quoted in guide.split('`').skip(1).step_by(2) {
        let Some((module, test)) = quoted.split_once("::") else {
            continue;
        };
        if modules.contains(&module) {
            let file = root.join(format!("tests/tower_layers/{module}.rs"));
            let source = std::fs::read_to_string(file).unwrap();
            assert!(
                source.contains(&format!("fn {test}()")),
                "`{quoted}` is no test"
            );
            named.insert(module);
        }
    }
    assert_eq!(Vec::from_iter(named), modules);
}
