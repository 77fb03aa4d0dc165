//! Runs that another process has made, which has ended or was killed: forked, saved as recordings,
//! and shown as what they were.
#![cfg(unix)]

use std::fs::{OpenOptions, read_to_string};
use std::future::pending;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use serde_json::json;
use tower_agent::callback::{Bundle, before_model};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Effect, ModelRequest, ModelResponse,
    Resolution, Role, Tool,
};
use tower_agent_console::{Console, NotRecorded, RunStore};
use tower_agent_durable::{Postgres, Sqlite};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{Recording, ScriptedModel, Turn};

use crate::console::get;
use crate::support::folder::Folder;
use crate::support::server::Server;

/// Where the files of a test are, the address of its database, and what the process does.
const FOLDER: &str = "TOWER_AGENT_TEST_WATCHED";
const ADDRESS: &str = "TOWER_AGENT_TEST_WATCHED_ADDRESS";
const ACT: &str = "TOWER_AGENT_TEST_WATCHED_ACT";

/// A folder, and a database of either kind.
struct World {
    folder: PathBuf,
    address: String,
}

impl World {
    async fn console(&self) -> Console {
        if self.address.starts_with("postgres") {
            return self.over(Postgres::connect(&self.address).await.unwrap());
        }
        self.over(Sqlite::open(&self.address).await.unwrap())
    }

    fn over(&self, database: impl RunStore) -> Console {
        Console::new().stored_in(database).record_content()
    }

    fn paid(&self) -> usize {
        read_to_string(self.folder.join("paid")).map_or(0, |paid| paid.lines().count())
    }

    /// Starts another process.
    fn process(&self, act: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "watched::another_process", "--nocapture"])
            .env(FOLDER, &self.folder)
            .env(ADDRESS, &self.address)
            .env(ACT, act)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }
}

struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Waits for the line in which it says where it is.
    fn says(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find(|line| line.starts_with('#')).unwrap()
    }

    fn ends(mut self) {
        assert_eq!(self.says(), "#ended");
        self.lines.for_each(drop);
        assert!(self.child.wait().unwrap().success());
    }
}

/// An agent that looks and pays, and then says so.
fn clerk(console: &Console, folder: &Path) -> Agent {
    counter(console, folder).build().unwrap()
}

fn counter(console: &Console, folder: &Path) -> AgentBuilder {
    let model = ScriptedModel::always(Turn::function(|request| {
        let said = request.messages().iter();
        let turn = said.filter(|message| message.role() == Role::Assistant);
        let call = |name: &str, value: f64| {
            let call = ToolCall::new(name, name, json!({ "value": value }));
            Ok(ModelResponse::from_tool_calls([call]))
        };
        match turn.count() {
            0 => call("look", 0.1),
            1 => call("pay", 5.7),
            _ => Ok(ModelResponse::from_text("Paid.")),
        }
    }));
    let paid = folder.join("paid");
    let pay = Tool::function("pay", "Pays.", move |sum: f64| {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&paid)
            .unwrap();
        writeln!(file, "{sum}").unwrap();
        format!("paid {sum}")
    });
    let look = Tool::function("look", "Looks.", |_: f64| "nothing".repeat(100));
    Agent::builder(model)
        .name("clerk")
        .instructions("You are a clerk.")
        .tool(look.effect(Effect::Pure))
        .tool(pay)
        .global_callbacks(console.watch())
}

/// One whose clerk asks before it pays.
fn asking_clerk(console: &Console, folder: &Path) -> Agent {
    let clerk = counter(console, folder).on_tool(Approval::of_tools(["pay"]));
    let clerk = clerk.build().unwrap().into_tool("Pays.");
    let model = ScriptedModel::always(Turn::function(|request| {
        let has_result = request
            .messages()
            .last()
            .is_some_and(|last| last.tool_results().next().is_some());
        if has_result {
            return Ok(ModelResponse::from_text("It is done."));
        }
        let call = ToolCall::new("c", "clerk", json!({ "request": "Pay." }));
        Ok(ModelResponse::from_tool_calls([call]))
    }));
    Agent::builder(model)
        .name("boss")
        .tool(clerk)
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

fn approved(response: &AgentResponse) -> Vec<Resolution> {
    let interrupts = response.interrupts().iter();
    interrupts
        .map(|interrupt| Resolution::resolved(&interrupt.id, json!({ "approved": true })))
        .collect()
}

fn named(id: &str) -> AgentRequest {
    AgentRequest::new("Pay.").with_run_id(id.to_owned())
}

#[test]
fn another_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let address = std::env::var(ADDRESS).unwrap();
    let act = std::env::var(ACT).unwrap();
    let world = World { folder, address };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match &*act {
            "shops" => shops(&world).await,
            "hangs" => hangs(&world).await,
            "hurries" => hurries(&world).await,
            other => panic!("{other}"),
        }
    });
    println!("\n#ended");
}

/// Runs of several kinds, to their ends.
async fn shops(world: &World) {
    let console = world.console().await;
    let clerk = clerk(&console, &world.folder);
    clerk.run(named("r")).await.unwrap();

    // One waits, and another process goes on with it.
    let boss = asking_clerk(&console, &world.folder);
    let waiting = boss.run(named("waits")).await.unwrap();
    assert_eq!(console.flush().await, 0);
    let console = world.console().await;
    let boss = asking_clerk(&console, &world.folder);
    let request = AgentRequest::resume(waiting.checkpoint()).with_resolutions(approved(&waiting));
    boss.run(request.with_run_id("goes on")).await.unwrap();

    // A guard inside hides from the model what the console sees.
    let hides = before_model(|request: &mut ModelRequest| request.extensions().note_hidden_input());
    let redacting = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
        .name("teller")
        .on_model(hides)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let tells = AgentRequest::new("I am jo@example.com.").with_run_id("hidden");
    redacting.run(tells).await.unwrap();
    assert_eq!(console.flush().await, 0);
}

/// A run whose tool does not come back.
async fn hangs(world: &World) {
    let console = world.console().await;
    let (reached, is_reached) = tokio::sync::oneshot::channel();
    let reached = Mutex::new(Some(reached));
    let look = Tool::function("look", "Looks.", move |_: f64| {
        reached.lock().unwrap().take().unwrap().send(()).unwrap();
        pending::<&str>()
    });
    let script = [Turn::tool("look", json!({ "value": 0.1 }))];
    let agent = Agent::builder(ScriptedModel::new(script))
        .name("clerk")
        .tool(look.effect(Effect::Pure))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    tokio::spawn(agent.run(named("r")));
    is_reached.await.unwrap();
    assert_eq!(console.flush().await, 0);
    println!("\n#stops");
    pending::<()>().await;
}

/// Runs without an end.
async fn hurries(world: &World) {
    let console = world.console().await;
    let clerk = clerk(&console, &world.folder);
    clerk.run(named("first")).await.unwrap();
    // One is stored for certain: a fast process may be killed before the writer's first turn.
    assert_eq!(console.flush().await, 0);
    for number in 0.. {
        clerk.run(named(&format!("r{number}"))).await.unwrap();
        // What the writer is about goes on meanwhile.
        tokio::task::yield_now().await;
        if number % 50 == 49 {
            println!("\n#{number}");
        }
    }
}

async fn shows_a_run_whose_process_was_killed(world: World) {
    let mut process = world.process("hangs");
    assert_eq!(process.says(), "#stops");
    process.child.kill().unwrap();
    process.child.wait().unwrap();

    let console = world.console().await;
    let (_, page) = get(&console, "/api/runs?status=unfinished").await;
    let [run] = &page["runs"].as_array().unwrap()[..] else {
        panic!("one run: {page}");
    };
    assert_eq!(run["status"], "unfinished");
    assert!(run["ended"].is_null());
    assert!(run["heard"].as_u64().unwrap() >= run["begun"].as_u64().unwrap());
    assert_eq!(
        (&run["model_calls"], &run["tool_calls"]),
        (&json!(1), &json!(1))
    );
    let (_, page) = get(&console, "/api/runs?status=running").await;
    assert_eq!(page["runs"], json!([]), "nobody is known to be at it");
    let (_, shown) = get(&console, "/api/runs/r").await;
    let kinds = shown["entries"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|entry| entry["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["agent", "turn", "model", "tool"]);
    assert!(
        shown["entries"][2]["end"].is_u64(),
        "the model has answered"
    );
    assert!(shown["entries"][3]["end"].is_null(), "the tool was at it");

    // It is tried again from its beginning; what it had not called is asked about.
    assert!(matches!(
        console.fork("r", 1).await.unwrap_err(),
        NotRecorded::Running { .. }
    ));
    let clerk = clerk(&console, &world.folder);
    let fork = console.fork("r", 0).await.unwrap();
    let waiting = clerk.run(fork).await.unwrap();
    assert_eq!(waiting.interrupts().len(), 1);
    assert_eq!(world.paid(), 0);
    assert!(console.delete_run("r").await.unwrap());
    assert_eq!(get(&console, "/api/runs/r").await.0, 404);
}

async fn shows_no_half_of_a_run_whenever_its_process_is_killed(world: World) {
    for kills in 1..4 {
        let mut process = world.process("hurries");
        for _ in 0..kills {
            process.says();
        }
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }
    let console = world.console().await;
    let mut seen = 0;
    let mut before = String::new();
    loop {
        let (_, page) = get(&console, &format!("/api/runs?limit=200&before={before}")).await;
        for run in page["runs"].as_array().unwrap() {
            let id = run["id"].as_str().unwrap();
            let (_, shown) = get(&console, &format!("/api/runs/{id}")).await;
            let entries = shown["entries"].as_array().unwrap();
            let numbers = entries.iter().map(|entry| entry["n"].as_u64().unwrap());
            assert!(numbers.eq(0..entries.len() as u64), "{shown}");
            match run["status"].as_str().unwrap() {
                "completed" => assert_eq!(entries.len(), 9, "{shown}"),
                status => assert_eq!(status, "unfinished"),
            }
            seen += 1;
        }
        match page["next"].as_str() {
            Some(next) => before = next.to_owned(),
            None => break,
        }
    }
    assert!(seen > 0);
}

async fn goes_on_where_another_process_was(world: World) {
    world.process("shops").ends();
    assert_eq!(world.paid(), 2);

    let console = world.console().await;
    let clerk = clerk(&console, &world.folder);
    for step in 0..3 {
        let fork = console.fork("r", step).await.unwrap();
        assert!(fork.run_id().starts_with("r-fork-"), "{}", fork.run_id());
        let again = clerk.run(fork).await.unwrap();
        assert_eq!(again.text(), "Paid.", "from step {step}");
        assert_eq!(again.messages().len(), 6, "from step {step}");
    }
    let fork = console.fork("r", 3).await.unwrap();
    let again = clerk.run(fork.message("And now?")).await.unwrap();
    assert_eq!(again.messages().len(), 8);
    assert_eq!(
        world.paid(),
        2,
        "it was paid once, and is answered from the record"
    );
    assert!(matches!(
        console.fork("r", 4).await.unwrap_err(),
        NotRecorded::NoStep { last: 3, .. }
    ));

    // What was changed in a fork is in the database as well.
    let fork = console.fork("r", 0).await.unwrap();
    let fork = fork.instructions("Be brief.").model("larger");
    let id = fork.run_id().to_owned();
    clerk.run(fork).await.unwrap();
    assert_eq!(console.flush().await, 0);
    let after = world.console().await;
    let silent = ScriptedModel::new([Turn::from_text("Nothing.")]);
    let other = Agent::builder(silent.clone())
        .name("clerk")
        .global_callbacks(after.watch())
        .build()
        .unwrap();
    other.run(after.fork(&id, 2).await.unwrap()).await.unwrap();
    let request = &silent.requests()[0];
    assert_eq!(request.instructions(), Some("Be brief."));
    assert_eq!(request.settings().model.as_deref(), Some("larger"));
    assert_eq!(request.messages().len(), 5);

    // The call was made in the run that went on, inside an agent that is a tool.
    let boss = asking_clerk(&after, &world.folder);
    for step in 0..3 {
        let fork = after.fork("waits", step).await.unwrap();
        let waiting = boss.run(fork.clone()).await.unwrap();
        assert_eq!(
            waiting.interrupts().len(),
            1,
            "what was approved is asked again"
        );
        let resumed = fork.resume(waiting.checkpoint());
        let ended = boss.run(resumed.with_resolutions(approved(&waiting))).await;
        assert_eq!(ended.unwrap().text(), "It is done.", "from step {step}");
    }
    assert_eq!(world.paid(), 2);

    let text = after.recording("r").await.unwrap();
    let path = world.folder.join("recording.json");
    std::fs::write(&path, text).unwrap();
    let recording = Recording::replay(&path).unwrap();
    let replay = Bundle::new()
        .model_layer(recording.clone())
        .tool_layer(recording.clone());
    let silent = Console::new();
    let replayed = self::clerk(&silent, &world.folder);
    let response = replayed
        .run(named("again").with_global_callbacks(replay))
        .await;
    assert_eq!(response.unwrap().text(), "Paid.");
    recording.finish().unwrap();
    assert_eq!(world.paid(), 2);

    let hidden = after.recording("hidden").await.unwrap_err();
    assert!(matches!(hidden, NotRecorded::Hidden { .. }), "{hidden}");
    let request = AgentRequest::from(after.fork("hidden", 1).await.unwrap());
    assert_eq!(request.messages().len(), 2);
    assert!(after.delete_run("hidden").await.unwrap());
    assert!(matches!(
        after.fork("hidden", 0).await.unwrap_err(),
        NotRecorded::UnknownRun { .. }
    ));
}

/// Each in a database of its own, of both kinds.
macro_rules! in_both {
    ($($what:ident as $sqlite:ident, $postgres:ident;)*) => {$(
        #[tokio::test]
        async fn $sqlite() {
            let folder = Folder::new(stringify!($sqlite));
            let file = folder.file("runs.db");
            let address = file.to_str().unwrap().to_owned();
            $what(World { folder: folder.file(""), address }).await;
        }

        #[tokio::test]
        async fn $postgres() {
            let Some(server) = Server::start(stringify!($postgres)) else {
                return;
            };
            let folder = Folder::new(concat!(stringify!($postgres), "-files"));
            server.create("watched");
            let address = server.url("watched");
            $what(World { folder: folder.file(""), address }).await;
        }
    )*};
}

in_both! {
    goes_on_where_another_process_was as forks_from_sqlite, forks_from_postgres;
    shows_a_run_whose_process_was_killed as killed_over_sqlite, killed_over_postgres;
    shows_no_half_of_a_run_whenever_its_process_is_killed as hurried_over_sqlite, hurried_over_postgres;
}
