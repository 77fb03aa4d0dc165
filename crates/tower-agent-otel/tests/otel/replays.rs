//! A durable run that goes on in another process: what was recorded is not recorded again.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::message::ToolCall;
use tower_agent::stream::Delta;
use tower_agent::{Agent, AgentRequest, Error, ModelRequest, ModelResponse, Role, Tool, Usage};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::Durable;
use tower_agent_test::{ScriptedModel, Turn};

use crate::received::{Data, Look};
use crate::receiver::Receiver;
use crate::world::{Exporters, Providers, World};

const FOLDER: &str = "TOWER_AGENT_TEST_FOLDER";
const COLLECTOR: &str = "TOWER_AGENT_TEST_COLLECTOR";
const IS_KILLED: &str = "TOWER_AGENT_TEST_IS_KILLED";

/// The program: it goes on with the run, if a test asks for it.
#[test]
fn a_process_that_goes_on_with_a_run() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let exporters = Exporters::to(&std::env::var(COLLECTOR).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let database = Sqlite::open(PathBuf::from(folder).join("runs.db"))
            .await
            .unwrap();
        let agent = agent(database, &exporters.providers);
        let mut run = agent.stream(AgentRequest::new("Rain?").with_run_id("run 1"));
        while run.next().await.is_some() {}
        assert_eq!(run.response().await.unwrap().text(), "It rains.");
    });
    exporters.providers.flush();
    // Dropped, they would export the metrics again.
    std::process::exit(0);
}

/// A boss that looks, lets a worker look, and answers. It is killed while it answers.
fn agent(journal: Sqlite, providers: &Providers) -> Agent {
    let look = || Tool::function("look", "Looks.", |_: Value| "rain");
    let worker = Agent::builder(model(&["look"], 10, || {}))
        .name("worker")
        .tool(look());
    let worker = worker.build().unwrap();
    let flush = providers.clone();
    let boss = model(&["look", "worker"], 1000, move || {
        if std::env::var_os(IS_KILLED).is_some() {
            // All that has ended is with the collector.
            flush.flush();
            let me = std::process::id().to_string();
            Command::new("kill").args(["-9", &me]).status().unwrap();
            loop {
                std::thread::park();
            }
        }
    });
    Agent::builder(boss)
        .name("boss")
        .tool(look())
        .tool(worker.into_tool("Works."))
        .global_callbacks(Durable::new(journal))
        .global_callbacks(providers.telemetry())
        .build()
        .unwrap()
}

/// Calls these tools one after the other, and then answers. Each call uses a token more.
fn model(
    tools: &'static [&'static str],
    tokens: u64,
    last: impl Fn() + Clone + Send + Sync + 'static,
) -> impl tower_agent::model::ModelService {
    tower::service_fn(move |request: ModelRequest| {
        let last = last.clone();
        async move {
            let done = request
                .messages()
                .iter()
                .filter(|message| message.role() == Role::Tool)
                .count();
            let usage = Usage::new(tokens + done as u64, 0);
            if let Some(tool) = tools.get(done) {
                let call = ToolCall::new(format!("c{done}"), *tool, json!({ "request": "?" }));
                return Ok(ModelResponse::from_tool_calls([call]).with_usage(usage));
            }
            last();
            let Some(sender) = request.delta_sender() else {
                return Ok(ModelResponse::from_text("It rains.").with_usage(usage));
            };
            let mut attempt = sender.open();
            attempt.send(Delta::Text("It ".into())).await?;
            attempt.send(Delta::Text("rains.".into())).await?;
            Ok::<_, Error>(ModelResponse::from(attempt.finish().await?).with_usage(usage))
        }
    })
}

fn process(folder: &Path, collector: &Receiver, is_killed: bool) -> (ExitStatus, Data) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "replays::a_process_that_goes_on_with_a_run"]);
    command.env(FOLDER, folder).env(COLLECTOR, &collector.url);
    if is_killed {
        command.env(IS_KILLED, "1");
    }
    let status = command.stdout(Stdio::null()).status().unwrap();
    (status, collector.take().into())
}

fn tokens(data: &Data) -> i64 {
    data.metrics
        .total("gen_ai.client.inference.usage.input_tokens")
}

#[test]
fn spans_of_a_killed_process_are_not_recorded_again() {
    let folder = std::env::temp_dir().join(format!("tower-agent-replays-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let collector = Receiver::start();

    let (status, first) = process(&folder, &collector, true);
    assert!(!status.success());
    // The span of the run did not end: only what has ended is exported.
    let worker = "execute_tool worker(invoke_agent worker(chat, execute_tool look, chat))";
    let seen: Vec<_> = first
        .spans
        .outermost()
        .iter()
        .map(|span| first.spans.under(span))
        .collect();
    assert_eq!(seen, ["chat", "execute_tool look", "chat", worker]);
    assert_eq!(tokens(&first), 1000 + 1001 + 10 + 11);

    let (status, second) = process(&folder, &collector, false);
    assert!(status.success());
    assert_eq!(second.spans.tree(), "invoke_agent boss(chat)");
    assert_eq!(second.spans.one("invoke_agent boss").error(), None);
    assert_eq!(tokens(&second), 1002);
    let calls = |data: &Data, kind: &str| {
        let counts = data
            .metrics
            .sums(&format!("gen_ai.invoke_agent.{kind}"), "");
        counts.values().sum::<f64>()
    };
    assert_eq!(
        (
            calls(&second, "inference_calls"),
            calls(&second, "tool_calls")
        ),
        (1.0, 0.0)
    );
    let chunks = "gen_ai.client.inference.time_per_output_chunk";
    assert_eq!(second.metrics.histogram(chunks)[0].count, 1);

    // Made again when it has ended, it is a run in which nothing was called.
    let (status, third) = process(&folder, &collector, false);
    assert!(status.success());
    assert_eq!(
        (third.spans.tree(), tokens(&third)),
        ("invoke_agent boss".to_owned(), 0)
    );
    assert_eq!(
        (
            calls(&third, "inference_calls"),
            calls(&third, "tool_calls")
        ),
        (0.0, 0.0)
    );
    assert!(!third.metrics.names().contains(&chunks));
    assert!(
        [first, second, third]
            .iter()
            .all(|data| data.logs.is_empty())
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn telemetry_is_inside_the_journal_wherever_it_is_registered() {
    let world = World::new();
    let journal = Sqlite::in_memory().await.unwrap();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("Done.")]))
        .name("boss")
        .global_callbacks(world.telemetry())
        .global_callbacks(Durable::new(journal))
        .build()
        .unwrap();
    let request = || AgentRequest::new("?").with_run_id("run 1");
    assert_eq!(agent.run(request()).await.unwrap().text(), "Done.");
    assert_eq!(world.received().spans.tree(), "invoke_agent boss(chat)");
    // The second run is answered from the journal: no span shows a call that was not made.
    assert_eq!(agent.run(request()).await.unwrap().text(), "Done.");
    assert_eq!(world.received().spans.tree(), "invoke_agent boss");
}

#[tokio::test]
async fn the_span_of_a_run_that_is_dropped_and_goes_on_ends_each_time() {
    let world = World::new();
    let journal = Sqlite::in_memory().await.unwrap();
    let model = ScriptedModel::new([
        Turn::tool("look", json!({})).usage(Usage::new(10, 0)),
        Turn::pending(),
        Turn::from_text("It rains.").usage(Usage::new(100, 0)),
    ]);
    let agent = Agent::builder(model.clone())
        .name("boss")
        .tool(Tool::function("look", "Looks.", |_: Value| "rain"))
        .global_callbacks(Durable::new(journal))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let request = || AgentRequest::new("Rain?").with_run_id("run 1");
    let mut run = Box::pin(agent.run(request()));
    while model.requests().len() < 2 {
        assert!(futures::poll!(&mut run).is_pending());
        tokio::task::yield_now().await;
    }
    drop(run);
    let first = world.received();
    assert_eq!(
        first.spans.tree(),
        "invoke_agent boss(chat, execute_tool look, chat)"
    );
    let error = first.spans.one("invoke_agent boss").error();
    assert_eq!((error.as_deref(), tokens(&first)), (Some("cancelled"), 10));

    assert_eq!(agent.run(request()).await.unwrap().text(), "It rains.");
    let second = world.received();
    assert_eq!(second.spans.tree(), "invoke_agent boss(chat)");
    assert_eq!(second.spans.one("invoke_agent boss").error(), None);
    // Of both together, which are one process.
    assert_eq!(tokens(&second), 10 + 100);
}
