//! Two versions of a program beside each other, each of them killed by the system at a point of a
//! payment: whatever waits is answered in the end, and nothing is paid twice.
#![cfg(unix)]

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::property::sample;
use test_support::store::EndedLeases;
use tower::{Layer, ServiceExt, service_fn};
use tower_agent::agent::BoxAgent;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, Message, ModelRequest, ModelResponse, Resolution, Tool,
    ToolRequest,
};
use tower_agent_agui::{self as agui, AgUi, RunAgentInput};
use tower_agent_conversations::{
    ConversationQuery, ConversationStore, Inbox, Inboxes, Question, Roles, Session, SessionLayer,
    Thread,
};
use tower_agent_durable::journal::{Durable, RunQuery, UnfinishedStep};
use tower_agent_durable::{AgentInbox, Sqlite};
use tower_agent_middleware::approval::{Approval, Decision};

use crate::aged::a_minute_later;
use crate::kept::{Kept, key};
use crate::support::folder::Folder;

const FOLDER: &str = "TOWER_AGENT_TEST_ROLLING";
const CASE: &str = "TOWER_AGENT_TEST_ROLLING_CASE";

/// A point at which a process is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// The model is asked what to do.
    Model,
    /// The question is kept.
    Asked,
    /// The tool is about to pay.
    Before,
    /// The tool has paid.
    After,
    /// The model is asked with the result.
    Result,
}

const POINTS: [Point; 5] = [
    Point::Model,
    Point::Asked,
    Point::Before,
    Point::After,
    Point::Result,
];

/// A version of the program, of which the second may be one that cannot go on with a payment of the
/// first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Version {
    One,
    Compatible,
    ToolRenamed,
}

const VERSIONS: [Version; 3] = [Version::One, Version::Compatible, Version::ToolRenamed];

/// A point, at which a process may stop.
#[derive(Clone, Copy)]
struct Stop(bool);

impl Stop {
    async fn come(self) {
        if self.0 {
            println!("\n#stops");
            std::future::pending::<()>().await;
        }
    }
}

/// One version of the program in a process.
struct Program {
    kept: Kept,
    version: Version,
    folder: PathBuf,
    database: Sqlite,
    /// The point at which the process stops, to be killed.
    stops: Option<Point>,
    /// All processes before have been killed.
    are_lost: bool,
}

impl Program {
    async fn open(folder: &Path, kept: Kept, version: Version) -> Self {
        Self {
            kept,
            version,
            folder: folder.to_owned(),
            database: Sqlite::open(folder.join("runs.db")).await.unwrap(),
            stops: None,
            are_lost: true,
        }
    }

    fn stop(&self, point: Point) -> Stop {
        Stop(self.stops == Some(point))
    }

    fn agent(&self) -> Agent {
        let name = match self.version {
            Version::ToolRenamed => "transfer",
            _ => "pay",
        };
        let [model, result] = [Point::Model, Point::Result].map(|point| self.stop(point));
        let model = service_fn(move |request: ModelRequest| async move {
            let results = request.messages().iter().flat_map(Message::tool_results);
            let Some(text) = results.last().map(|result| result.text()) else {
                model.come().await;
                let call = ToolCall::new("c", name, json!({}));
                return Ok::<_, BoxError>(ModelResponse::from_tool_calls([call]));
            };
            result.come().await;
            Ok(ModelResponse::from_text(text))
        });
        let [before, after] = [Point::Before, Point::After].map(|point| self.stop(point));
        let paid = self.folder.join("paid");
        let pay = move |_: Value, call: ToolRequest| {
            let paid = paid.clone();
            async move {
                before.come().await;
                let file = OpenOptions::new().create(true).append(true).open(paid);
                writeln!(file.unwrap(), "{}", call.idempotency_key()).unwrap();
                after.come().await;
                "it is paid"
            }
        };
        let pay = Tool::function_with(name, "Pays.", pay).effect(Effect::Mutating);
        let mut agent = Agent::builder(model)
            .name("clerk")
            .tool(pay)
            .on_tool(Approval::of_tools([name]).by_role("support"));
        if self.kept.in_journal() {
            agent = agent.global_callbacks(Durable::new(self.database.clone()));
        }
        agent.build().unwrap()
    }

    /// Returns the layer of a session's agent.
    fn layer(&self) -> SessionLayer {
        if self.are_lost {
            SessionLayer::new(EndedLeases(self.database.clone()))
        } else {
            SessionLayer::new(self.database.clone())
        }
    }

    fn around(&self) -> BoxAgent {
        if self.kept.in_session() {
            BoxAgent::new(self.layer().layer(self.agent()))
        } else {
            BoxAgent::new(self.agent())
        }
    }

    fn server(&self) -> AgUi {
        let server = AgUi::builder(self.agent())
            .name("shop")
            .allow_partial_history();
        if self.are_lost {
            server.threads(EndedLeases(self.database.clone())).build()
        } else {
            server.threads(self.database.clone()).build()
        }
    }

    /// Sends what the person has said: again, as a client does that has no answer.
    async fn say(&self, text: &str, run: &str) {
        if self.kept.in_thread() {
            // To send an earlier message alone would be to ask for another answer to it.
            if run == "run 1" && self.messages().await.len() > 1 {
                return;
            }
            let message = agui::Message::user(format!("m of {run}"), text);
            let input = RunAgentInput::new("1", run, [message]);
            if let Ok(run) = self.server().run_for("ada", input).await {
                drop(run.collect::<Vec<_>>().await);
            }
            return;
        }
        let request = AgentRequest::new(text).with_run_id(run);
        let request = match self.kept {
            Kept::Journal => request,
            _ => key().request(request),
        };
        // Refused while another process has it, or if only another version may go on.
        drop(self.around().oneshot(request).await);
    }

    fn inbox(&self) -> Inboxes {
        let inboxes = Inboxes::default();
        if self.kept.in_thread() {
            inboxes.with(self.server())
        } else if self.kept.in_session() {
            inboxes.with(AgentInbox::sessions(self.layer(), "shop", self.agent()))
        } else {
            inboxes.with(AgentInbox::runs(
                self.database.runs(),
                "clerk",
                self.agent(),
            ))
        }
    }

    async fn open_questions(&self) -> Vec<Question> {
        let query = ConversationQuery::new();
        let page = self.inbox().questions(&query, &staff()).await.unwrap();
        page.questions
    }

    /// Answers whatever is open: support approves, and the operator looks whether it was paid.
    async fn answer(&self) {
        for question in self.open_questions().await {
            let id = &*question.id;
            let answer = match &*question.interrupt.reason {
                UnfinishedStep::REASON if paid(&self.folder).is_empty() => {
                    Resolution::resolved(id, UnfinishedStep::RunAgain)
                }
                UnfinishedStep::REASON => {
                    Resolution::resolved(id, UnfinishedStep::Done(json!("it is paid")))
                }
                _ => Resolution::resolved(id, Decision::Approve),
            };
            if let Ok(run) = self.inbox().answer(question.key, staff(), answer).await {
                run.await;
            }
        }
    }

    /// Does all that a process of the program does for this payment.
    async fn serve(&self) {
        if self.kept.in_journal() {
            let runs = self.database.runs();
            let all = RunQuery::of_agent("clerk");
            drop(runs.resume_lost(&all, self.around()).await.unwrap());
        }
        self.say("Pay.", "run 1").await;
        self.stop(Point::Asked).come().await;
        // A question about a call that a killed process may have made comes after the first.
        for _ in 0..2 {
            self.answer().await;
        }
    }

    /// Returns the conversation as it is kept.
    async fn messages(&self) -> Messages {
        if self.kept.in_session() {
            let session = Session::load(&self.database, &key()).await.unwrap();
            return session.unwrap().checkpoint.messages;
        }
        let threads = self.database.list(&ConversationQuery::new()).await.unwrap();
        let Some(info) = threads.first() else {
            return Messages::new();
        };
        let thread = Thread::load(&self.database, &info.key).await.unwrap();
        thread.unwrap().messages()
    }
}

fn staff() -> Roles {
    Roles::new(["support", UnfinishedStep::ROLE])
}

/// Returns the keys of the payments.
fn paid(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("paid")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The program: it serves, and stops at its point.
#[test]
fn a_process_of_a_version() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let case = std::env::var(CASE).unwrap();
    let case: Vec<usize> = case
        .split(' ')
        .map(|index| index.parse().unwrap())
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let folder = PathBuf::from(folder);
        let open = Program::open(&folder, Kept::ALL[case[0]], VERSIONS[case[1]]);
        let mut program = open.await;
        program.stops = Some(POINTS[case[2]]);
        program.serve().await;
    });
    println!("\n#ended");
}

/// A process that is killed when this is dropped.
struct Process(Child);

impl Process {
    /// Starts one, and waits until it stops at its point or ends.
    fn start(folder: &Folder, case: [usize; 3]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "rolling::a_process_of_a_version", "--nocapture"])
            .env(FOLDER, folder.file(""))
            .env(CASE, case.map(|index| index.to_string()).join(" "))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = Self(command.spawn().unwrap());
        let output = BufReader::new(process.0.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.starts_with('#')), "{case:?}");
        process
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Not to be caught: what it has not written is lost.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two processes are killed, of the first version and of the second, and both versions go on.
async fn roll(kept: usize, second: usize, points: [usize; 2], wrong: &mut Vec<String>) {
    let what = format!(
        "{:?}, {:?}, killed at {:?}",
        Kept::ALL[kept],
        VERSIONS[second],
        points.map(|point| POINTS[point])
    );
    let folder = Folder::new(&format!(
        "rolling-{kept}-{second}-{}-{}",
        points[0], points[1]
    ));
    let root = folder.file("");
    let program =
        async |version: usize| Program::open(&root, Kept::ALL[kept], VERSIONS[version]).await;

    let first = Process::start(&folder, [kept, 0, points[0]]);
    // The other version beside it leaves what the first one has.
    let mut beside = program(second).await;
    beside.are_lost = false;
    let before = paid(&root).len();
    beside.serve().await;
    // A run in a journal alone is that of whoever sends its request last.
    let may_pay = POINTS[points[0]] == Point::Asked || Kept::ALL[kept] == Kept::Journal;
    if !may_pay && paid(&root).len() != before {
        wrong.push(format!("{what}: paid beside it"));
    }
    drop(first);
    a_minute_later(&folder.file("runs.db")).await;
    drop(Process::start(&folder, [kept, second, points[1]]));
    a_minute_later(&folder.file("runs.db")).await;

    // Back again, and forth.
    for version in [second, 0, second, 0] {
        program(version).await.serve().await;
        a_minute_later(&folder.file("runs.db")).await;
    }
    let last = program(0).await;
    if Kept::ALL[kept] != Kept::Journal {
        // The person asks, with an id of its own.
        last.say("And?", "run 2").await;
        last.answer().await;
    }
    let open = last.open_questions().await.len();
    let paid = paid(&root).len();
    let words = match Kept::ALL[kept] {
        Kept::Journal => {
            let again = last.database.runs().request("run 1").await.unwrap();
            last.around().oneshot(again).await.unwrap().text()
        }
        _ => last.messages().await.last().unwrap().text(),
    };
    let is_paid = words == "it is paid";
    // Without a journal the model reads that nobody knows whether it was paid.
    let is_told = is_paid
        || ["unknown", "no result"]
            .iter()
            .any(|told| words.contains(told));
    let has_journal = Kept::ALL[kept].in_journal() && !Kept::ALL[kept].in_thread();
    let is_right = open == 0
        && is_told
        && if is_paid || has_journal {
            is_paid && paid == 1
        } else {
            paid <= 1
        };
    if !is_right {
        wrong.push(format!("{what}: {open} open, {paid} paid, {words}"));
    }
}

#[tokio::test]
async fn versions_that_are_killed_beside_each_other_lose_nothing_and_pay_once() {
    let mut seen = HashSet::new();
    let mut wrong = Vec::new();
    for kept in 0..Kept::ALL.len() {
        for second in [1, 2] {
            for first in 0..POINTS.len() {
                for further in 0..POINTS.len() {
                    let case = kept * 50 + second * 25 + first * 5 + further;
                    // Each pair of points, and each keeper with each version.
                    if case % sample(7, 1) == 0 {
                        roll(kept, second, [first, further], &mut wrong).await;
                        seen.insert((kept, second));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(seen.len(), 2 * Kept::ALL.len());
}
