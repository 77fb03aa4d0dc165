//! Layers and callbacks inside a journal and around it: each in a process that is killed before
//! every call of a model, and continues in another.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::buffer::BufferLayer;
use tower_agent::agent::AgentService;
use tower_agent::callback::wrap_model;
use tower_agent::message::{Message, Part, ToolCall};
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, BoxError, Error, ModelRequest, ModelResponse,
    Request, Role, RunStream, Tool, ToolRequest, Usage,
};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::Durable;
use tower_agent_mcp::client::McpClient;
use tower_agent_mcp::server::McpServer;
use tower_agent_middleware::budget::{Budget, Limit, Limits};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::redact::{Detector, Redact};

use crate::support::folder::Folder;

/// A long answer.
const RAIN: &str = "Rain in the morning, rain at noon, rain in the evening.";

const FOLDER: &str = "TOWER_AGENT_TEST_FOLDER";
const CASE: &str = "TOWER_AGENT_TEST_CASE";
const KILL_AT: &str = "TOWER_AGENT_TEST_KILL_AT";

const CASES: &[&str] = &[
    "budget",
    "buffer around the agent",
    "buffer around the model",
    "context window",
    "mcp",
    "part of a budget",
    "redact",
    "spawn around the model",
    "spawn in a tool",
    "sub-agent",
    "team",
    "transfer",
    "typed",
];

/// The program: it goes on with the run, if a test asks for it.
#[test]
fn a_process_that_goes_on_with_a_case() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let kill_at = std::env::var(KILL_AT)
        .ok()
        .map(|point| point.parse().unwrap());
    let world = World {
        folder: folder.into(),
        kill_at,
        point: Arc::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let case = std::env::var(CASE).unwrap();
    let end = runtime.block_on(run(&case, &world));
    std::fs::write(world.folder.join("end.json"), end.to_string()).unwrap();
}

#[test]
fn every_composition_continues_after_a_kill_as_without_one() {
    for case in CASES {
        let whole = Folder::new("composed-whole");
        let root = whole.file("");
        assert!(process(case, &root, None), "{case}");
        let (expected, mut done) = (end(&root), lines(&root, "done"));
        done.sort();
        let points = lines(&root, "points").len();
        assert!(points >= 2, "{case}: {points} points");
        for point in 1..=points {
            let folder = Folder::new("composed");
            let root = folder.file("");
            assert!(
                !process(case, &root, Some(point)),
                "{case}: not killed at {point}"
            );
            assert!(process(case, &root, None), "{case}: killed at {point}");
            assert_eq!(end(&root), expected, "{case}: killed at {point}");
            // Nothing was made twice.
            let mut again = lines(&root, "done");
            again.sort();
            assert_eq!(again, done, "{case}: killed at {point}");
        }
    }
}

fn process(case: &str, folder: &Path, kill_at: Option<usize>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "journal::compositions::a_process_that_goes_on_with_a_case",
    ]);
    command
        .env(FOLDER, folder)
        .env(CASE, case)
        .stdout(Stdio::null());
    match kill_at {
        Some(point) => command
            .env(KILL_AT, point.to_string())
            .stderr(Stdio::null()),
        None => &mut command,
    };
    command.status().unwrap().success()
}

fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn end(folder: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("end.json")).unwrap()).unwrap()
}

/// The files of what was done, and the point at which the process ends.
#[derive(Clone)]
struct World {
    folder: PathBuf,
    kill_at: Option<u32>,
    point: Arc<AtomicU32>,
}

impl World {
    fn write(&self, file: &str, line: &str) {
        let path = self.folder.join(file);
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn point(&self) {
        let point = self.point.fetch_add(1, Ordering::SeqCst) + 1;
        self.write("points", &point.to_string());
        if self.kill_at == Some(point) {
            let me = std::process::id().to_string();
            Command::new("kill").args(["-9", &me]).status().unwrap();
            loop {
                std::thread::park();
            }
        }
    }

    /// A model that calls these tools, one in each turn, and then says this.
    fn model(
        &self,
        tools: &'static [&'static str],
        says: &'static [&'static str],
    ) -> impl ModelService {
        let world = self.clone();
        tower::service_fn(move |request: ModelRequest| {
            world.point();
            let context = request.context();
            let at = format!("model {} {}", context.step_path(), context.iteration());
            world.write("done", &at);
            let count = |role| {
                request
                    .messages()
                    .iter()
                    .filter(|message| message.role() == role)
                    .count()
            };
            let done = count(Role::Tool);
            let response = match tools.get(done) {
                Some(tool) => ModelResponse::from_tool_calls([ToolCall::new(
                    format!("{}{done}", context.agent()),
                    *tool,
                    arguments(tool, &request),
                )]),
                None => ModelResponse::from_text(says[(count(Role::User) - 1).min(says.len() - 1)]),
            };
            async move { Ok::<_, BoxError>(response.with_usage(Usage::new(10, done as u64))) }
        })
    }

    /// A model that looks so often, whatever it is sent, and then says how long its prompt is.
    fn looking(&self, times: u32) -> impl ModelService {
        let world = self.clone();
        tower::service_fn(move |request: ModelRequest| {
            world.point();
            let context = request.context();
            let parts = request.messages().iter().flat_map(Message::parts);
            let prompt: usize = parts.map(Part::text_len).sum();
            let at = format!("model {} {}", context.step_path(), context.iteration());
            world.write("done", &format!("{at} {prompt}"));
            let response = if context.iteration() < times {
                let call = ToolCall::new("look", "look", json!({ "request": "?" }));
                ModelResponse::from_tool_calls([call])
            } else {
                ModelResponse::from_text(format!("{prompt}"))
            };
            async move { Ok::<_, BoxError>(response.with_usage(Usage::new(10, 1))) }
        })
    }

    /// A tool that counts in the state, and returns this.
    fn tool(&self, name: &'static str, returns: &'static str) -> Tool {
        let world = self.clone();
        Tool::function_with(
            name,
            "Does it.",
            move |arguments: Value, call: ToolRequest| {
                world.write("done", &format!("{name} {arguments}"));
                call.context().state().update(name, |value| {
                    *value = json!(value.as_u64().unwrap_or(0) + 1)
                });
                returns
            },
        )
    }
}

fn arguments(tool: &str, request: &ModelRequest) -> Value {
    let last = request
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
        .last();
    match tool {
        // The results that the model has read.
        "send" => json!({ "to": last.map(|result| result.text()) }),
        "transfer_to_agent" => json!({ "agent_name": "other" }),
        _ => json!({ "request": "?" }),
    }
}

/// Makes the run of a case, and returns how it has ended.
async fn run(case: &str, world: &World) -> Value {
    let journal = Sqlite::open(world.folder.join("runs.db")).await.unwrap();
    let durable = |builder: AgentBuilder| builder.global_callbacks(Durable::new(journal.clone()));
    let says = |text: &'static [&'static str]| Agent::builder(world.model(&[], text));
    let looks =
        |says| Agent::builder(world.model(&["look"], says)).tool(world.tool("look", "rain"));
    match case {
        "budget" => {
            let budget = Budget::new(Limits::new().model_calls(5).tool_calls(5).tokens(50_000));
            let agent = durable(looks(&["Done."])).global_callbacks(budget.clone());
            let request = request();
            let context = request.context().clone();
            let mut end = finish(agent.build().unwrap(), request).await;
            let used = budget.account(&context).unwrap().used();
            end["used"] = json!([used.model_calls, used.tool_calls, used.tokens]);
            end
        }
        "buffer around the agent" => {
            let agent = durable(looks(&["Done."])).build().unwrap();
            let agent = tower::ServiceBuilder::new()
                .layer(BufferLayer::new(4))
                .service(agent);
            finish(agent, request()).await
        }
        "buffer around the model" => {
            let agent = durable(looks(&["Done."])).model_layer(BufferLayer::new(4));
            let agent = agent.tool_layer(BufferLayer::new(4));
            finish(agent.build().unwrap(), request()).await
        }
        "context window" => {
            let summariser = world.model(&[], &["In short."]);
            let window = ContextWindow::new(250)
                .keep_results(1)
                .summariser(summariser);
            let agent = Agent::builder(world.looking(8)).max_iterations(20);
            let agent = agent
                .tool(world.tool("look", RAIN))
                .on_model(window.count_tokens(|message| {
                    message.parts().iter().map(Part::text_len).sum::<usize>() as u64
                }));
            let end = finish(durable(agent).build().unwrap(), request()).await;
            let done = lines(&world.folder, "done");
            let summaries = done.iter().filter(|line| line.contains("summary_"));
            assert!(summaries.count() > 1);
            end
        }
        "part of a budget" => {
            let budget = Budget::new(Limits::new().model_calls(20).tokens(500_000));
            let worker = Agent::builder(world.looking(100)).name("worker");
            let worker = worker
                .tool(world.tool("look", "rain"))
                .callbacks(budget.carve([Limit::ModelCalls(4)]))
                .build()
                .unwrap();
            let agent = Agent::builder(world.model(&["worker"], &["Done."]));
            let agent = agent.tool(worker.into_tool("Works."));
            let agent = durable(agent).global_callbacks(budget.clone());
            let request = request();
            let context = request.context().clone();
            let mut end = finish(agent.build().unwrap(), request).await;
            let account = budget.account(&context).unwrap();
            let (used, reserved) = (account.used(), account.reserved());
            end["used"] = json!([used.model_calls, used.tokens, reserved.model_calls]);
            assert_eq!(used.model_calls, 6);
            end
        }
        "mcp" => {
            let server = McpServer::builder("test", "1.0.0").tool(world.tool("look", "rain"));
            let server = server.build().unwrap();
            let client = McpClient::stream(move || {
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                let server = server.clone();
                tokio::spawn(async move { server.serve(ours).await });
                async { Ok(theirs) }
            });
            let client = client.connect().await.unwrap();
            let agent = Agent::builder(world.model(&["look"], &["Done."]));
            let agent = durable(agent).tools(client.tools().await).build().unwrap();
            finish(agent, request()).await
        }
        "redact" => {
            let agent = Agent::builder(world.model(&["find", "send"], &["Sent."]))
                .tool(world.tool("find", "ann@example.com"))
                .tool(world.tool("send", "sent"));
            let redact = Redact::new([Detector::email()]).unwrap();
            let agent = durable(agent).global_callbacks(redact.numbered().restore_when(|_| true));
            finish(agent.build().unwrap(), request()).await
        }
        "spawn around the model" => {
            let spawns = wrap_model(|request: ModelRequest, mut next| async move {
                tokio::spawn(async move { next.run(request).await })
                    .await
                    .unwrap()
            });
            let agent = durable(looks(&["Done."])).model_layer(spawns);
            finish(agent.build().unwrap(), request()).await
        }
        "spawn in a tool" => {
            let worker = looks(&["Rain."]).name("worker").build().unwrap();
            let asks = move |_: Value, call: ToolRequest| {
                let request = AgentRequest::new("?").with_context(call.context().clone());
                let run = tokio::spawn(worker.run(request));
                async move { Ok::<_, Error>(run.await.unwrap()?.text()) }
            };
            let asks = Tool::function_with("ask", "Asks.", asks);
            // Its own calls are not made again.
            let asks = asks.effect(tower_agent::Effect::Pure);
            let agent = Agent::builder(world.model(&["ask"], &["Done."])).tool(asks);
            finish(durable(agent).build().unwrap(), request()).await
        }
        "sub-agent" => {
            let worker = looks(&["Rain."]).name("worker").build().unwrap();
            let agent = Agent::builder(world.model(&["worker"], &["Done."]));
            let agent = agent.tool(worker.into_tool("Works."));
            finish(durable(agent).build().unwrap(), request()).await
        }
        "team" => {
            // Not a parallel one: a call that is made when another kills is made again.
            let team = Agent::sequential("team")
                .agent(looks(&["Rain."]).name("one").build().unwrap())
                .agent(looks(&["Rain."]).name("two").build().unwrap());
            let team = team.agent(says(&["Done."]).name("last").build().unwrap());
            let team = team.global_callbacks(Durable::new(journal.clone()));
            finish(team.build().unwrap(), request()).await
        }
        "transfer" => {
            let other = looks(&["Done."]).name("other").build().unwrap();
            let agent = Agent::builder(world.model(&["transfer_to_agent"], &["No."]));
            finish(durable(agent).sub_agent(other).build().unwrap(), request()).await
        }
        "typed" => {
            #[derive(Serialize, Deserialize, JsonSchema)]
            struct Weather {
                celsius: f64,
            }
            let agent = looks(&["warm", r#"{ "celsius": 21.5 }"#]);
            let response = durable(agent)
                .build()
                .unwrap()
                .run_typed::<Weather>(request())
                .await;
            let response = response.unwrap();
            json!({ "value": response.value, "run": end_of(&response.response) })
        }
        other => panic!("there is no case `{other}`"),
    }
}

fn request() -> AgentRequest {
    AgentRequest::new("Do it.").with_run_id("run 1")
}

async fn finish(agent: impl AgentService, request: AgentRequest) -> Value {
    let mut stream = RunStream::new(agent, request);
    while stream.next().await.is_some() {}
    end_of(&stream.response().await.unwrap())
}

fn end_of(response: &AgentResponse) -> Value {
    json!({
        "messages": response.messages(),
        "state": response.state().snapshot(),
        "checkpoint": response.checkpoint(),
        "usage": response.usage(),
    })
}
