//! An AG-UI server with threads in sessions and durable runs, that is killed or terminated while a
//! client listens.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use test_support::store::EndedLeases;
use tokio::net::{TcpListener, TcpStream};
use tower_agent::message::ToolCall;
use tower_agent::stream::Delta;
use tower_agent::{Agent, Error, ModelRequest, ModelResponse, Role, Tool};
use tower_agent_agui::AgUi;
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::Durable;

use crate::support::folder::Folder;

const FOLDER: &str = "TOWER_AGENT_TEST_FOLDER";
const HANGS: &str = "TOWER_AGENT_TEST_HANGS";
/// The time that runs have to end when the server is terminated.
const GRACE: Duration = Duration::from_millis(500);
/// In milliseconds.
const LEASE: &str = "TOWER_AGENT_TEST_LEASE";

/// The program: a server, if a test asks for it.
#[test]
fn a_process_that_serves() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(serve(PathBuf::from(folder)));
    drop(runtime);
    // The test harness would fail: nobody reads what it prints.
    std::process::exit(0);
}

async fn serve(folder: PathBuf) {
    let lease: u64 = std::env::var(LEASE).unwrap().parse().unwrap();
    let store = Sqlite::open(folder.join("a.db")).await.unwrap();
    let server = AgUi::builder(agent(folder, store.clone())).name("shop");
    let server = if lease == 0 {
        // As if it were over whenever another server looks.
        server.threads(EndedLeases(store))
    } else {
        server.threads(store).lease(Duration::from_millis(lease))
    };
    let server = server.build();
    let app = Router::new().route_service("/agent", server.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let terminated = terminated();
    println!("\nlistens {}", listener.local_addr().unwrap());
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            terminated.await;
            server.shutdown(GRACE).await;
        })
        .await
        .unwrap();
}

/// Waits for SIGTERM, which is caught from now on.
#[cfg(unix)]
fn terminated() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut signals = signal(SignalKind::terminate()).unwrap();
    async move {
        signals.recv().await;
    }
}

#[cfg(not(unix))]
fn terminated() -> impl Future<Output = ()> {
    std::future::pending()
}

/// Pays, and says so; it may hang in the middle of a word.
fn agent(folder: PathBuf, journal: Sqlite) -> Agent {
    let hangs = std::env::var_os(HANGS).is_some();
    let model = tower::service_fn(move |request: ModelRequest| async move {
        if request
            .messages()
            .last()
            .is_some_and(|message| message.role() == Role::User)
        {
            let call = ToolCall::new("c1", "pay", json!({ "bill": 7 }));
            return Ok(ModelResponse::from_tool_calls([call]));
        }
        let mut attempt = request.delta_sender().unwrap().open();
        attempt.send(Delta::Text("It is ".into())).await?;
        if hangs {
            std::future::pending::<()>().await;
        }
        attempt.send(Delta::Text("paid.".into())).await?;
        Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
    });
    let pay = Tool::function("pay", "Pays.", move |_: Value| {
        let mut paid = OpenOptions::new()
            .create(true)
            .append(true)
            .open(folder.join("paid"))
            .unwrap();
        paid.write_all(b"paid\n").unwrap();
        "paid"
    });
    Agent::builder(model)
        .tool(pay)
        .global_callbacks(Durable::new(journal))
        .build()
        .unwrap()
}

/// A server in a process of its own, which dies with this.
struct Process {
    child: Child,
    address: String,
}

impl Process {
    fn start(folder: &Path, hangs: bool) -> Self {
        Self::start_with(folder, hangs, Duration::ZERO)
    }

    fn start_with(folder: &Path, hangs: bool, lease: Duration) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "served::a_process_that_serves", "--nocapture"]);
        command.env(FOLDER, folder).stdout(Stdio::piped());
        command.env(LEASE, lease.as_millis().to_string());
        if hangs {
            command.env(HANGS, "1");
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let listens = |line: String| line.strip_prefix("listens ").map(str::to_owned);
        let address = lines.map(Result::unwrap).find_map(listens).unwrap();
        Self { child, address }
    }

    async fn post(&self, input: &Value) -> Incoming {
        let response = self.send(input).await;
        assert_eq!(response.status(), 200);
        response.into_body()
    }

    async fn send(&self, input: &Value) -> Response<Incoming> {
        let socket = TcpStream::connect(&self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("/agent").header("host", "localhost");
        let request = request.header("content-type", "application/json");
        let body = Full::new(Bytes::from(input.to_string()));
        sender
            .send_request(request.body(body).unwrap())
            .await
            .unwrap()
    }
}

#[cfg(unix)]
impl Process {
    /// Sends SIGTERM.
    fn terminate(&self) {
        let kill = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(kill.unwrap().success());
    }

    /// Waits until the process has exited; returns whether it has done so with 0.
    async fn has_succeeded(&mut self) -> bool {
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.success();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL. Both fail for a process that has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the events until one for which `is_enough`, or to the end.
async fn read(mut body: Incoming, is_enough: impl Fn(&Value) -> bool) -> Vec<Value> {
    let (mut bytes, mut events) = (Vec::new(), Vec::new());
    while let Some(Ok(frame)) = body.frame().await {
        bytes.extend(frame.into_data().unwrap_or_default());
        while let Some(end) = bytes.windows(2).position(|window| window == b"\n\n") {
            let event: Vec<u8> = bytes.drain(..end + 2).collect();
            let event = std::str::from_utf8(&event).unwrap();
            let Some(data) = event.trim().strip_prefix("data: ") else {
                continue;
            };
            events.push(serde_json::from_str(data).unwrap());
            if is_enough(events.last().unwrap()) {
                return events;
            }
        }
    }
    events
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

fn said(events: &[Value]) -> String {
    let texts = of_type(events, "TEXT_MESSAGE_CONTENT");
    texts
        .iter()
        .map(|event| event["delta"].as_str().unwrap())
        .collect()
}

fn paid(folder: &Folder) -> usize {
    let paid = std::fs::read_to_string(folder.file("paid"));
    paid.unwrap_or_default().lines().count()
}

fn input(run: &str, messages: &[Value]) -> Value {
    json!({ "threadId": "t", "runId": run, "messages": messages })
}

/// The messages of the client's front end, from the events.
fn heard(question: &Value, events: &[Value]) -> Vec<Value> {
    let messages: Vec<tower_agent_agui::Message> =
        vec![serde_json::from_value(question.clone()).unwrap()];
    let mut held = tower_agent_agui::Conversation::new(messages);
    for event in events {
        held.apply(&serde_json::from_value(event.clone()).unwrap());
    }
    held.messages()
        .iter()
        .map(|message| serde_json::to_value(message).unwrap())
        .collect()
}

#[tokio::test]
async fn a_client_whose_server_was_killed_gets_the_answer_once() {
    let question = json!({ "id": "m1", "role": "user", "content": "Pay." });
    // It asks again as before, or sends what it has got; in the same run or another.
    for (number, run) in ["r1", "r2"].into_iter().enumerate() {
        for sends_all in [false, true] {
            let folder = Folder::new(&format!("served-{number}-{sends_all}"));
            let hanging = Process::start(&folder.file(""), true);
            let body = hanging
                .post(&input("r1", std::slice::from_ref(&question)))
                .await;
            let first = read(body, |event| event["type"] == "TEXT_MESSAGE_CONTENT").await;
            assert_eq!(said(&first), "It is ");
            assert_eq!(of_type(&first, "TOOL_CALL_RESULT").len(), 1);
            drop(hanging);

            let next = Process::start(&folder.file(""), false);
            let messages = if sends_all {
                heard(&question, &first)
            } else {
                vec![question.clone()]
            };
            let body = next.post(&input(run, &messages)).await;
            let second = read(body, |_| false).await;
            assert_eq!(second[0]["type"], "RUN_STARTED");
            assert_eq!(said(&second), "It is paid.", "{second:?}");
            assert_eq!(of_type(&second, "TEXT_MESSAGE_START").len(), 1);
            assert_eq!(second.last().unwrap()["type"], "RUN_FINISHED");
            // Messages that it has seen are not sent again.
            for kind in ["TOOL_CALL_START", "TOOL_CALL_RESULT"] {
                assert_eq!(of_type(&second, kind).len(), 0, "{kind}: {second:?}");
            }
            assert_eq!(paid(&folder), 1);

            // The conversation goes on from there.
            let mut messages = vec![question.clone()];
            messages = heard(&messages[0], &first);
            messages.extend(heard(&question, &second).into_iter().skip(1));
            messages.push(json!({ "id": "m2", "role": "user", "content": "And this." }));
            let third = read(next.post(&input("r3", &messages)).await, |_| false).await;
            assert_eq!(said(&third), "It is paid.", "{third:?}");
            assert_eq!(paid(&folder), 2);
        }
    }
}

#[tokio::test]
async fn a_thread_is_of_its_living_server_and_free_within_the_lease_of_a_killed_one() {
    let lease = Duration::from_secs(1);
    let folder = Folder::new("served-lease");
    let question = json!({ "id": "m1", "role": "user", "content": "Pay." });
    let messages = std::slice::from_ref(&question);
    let hanging = Process::start_with(&folder.file(""), true, lease);
    let mut body = hanging.post(&input("r1", messages)).await;
    // It pays, and says half of its answer.
    while paid(&folder) == 0 {
        body.frame().await.unwrap().unwrap();
    }
    let next = Process::start_with(&folder.file(""), false, lease);
    for _ in 0..4 {
        tokio::time::sleep(lease / 2).await;
        let refused = next.send(&input("r4", messages)).await;
        assert_eq!(refused.status(), 409);
        let after: u64 = refused.headers()["retry-after"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        assert!((1..=2).contains(&after), "{after}");
    }
    drop(hanging);
    drop(body);

    let killed = std::time::Instant::now();
    let answered = loop {
        let response = next.send(&input("r4", messages)).await;
        if response.status() == 200 {
            break response.into_body();
        }
        assert_eq!(response.status(), 409);
        // A busy machine stops no clock: within three leases on a quiet one.
        assert!(killed.elapsed() < lease * 30, "the thread stays locked");
        tokio::time::sleep(lease / 10).await;
    };
    let events = read(answered, |_| false).await;
    assert_eq!(said(&events), "It is paid.", "{events:?}");
    assert_eq!(paid(&folder), 1);
}

/// A lease of an hour: nobody waits for it.
#[cfg(unix)]
#[tokio::test]
async fn a_server_that_is_terminated_exits_within_the_grace_and_another_goes_on_at_once() {
    let lease = Duration::from_secs(3600);
    let folder = Folder::new("served-terminated");
    let question = json!({ "id": "m1", "role": "user", "content": "Pay." });
    let messages = std::slice::from_ref(&question);
    let mut hanging = Process::start_with(&folder.file(""), true, lease);
    let reader = hanging.post(&input("r1", messages)).await;
    // Of another thread, whose client does not read any more.
    let mut other = input("r1", messages);
    other["threadId"] = json!("t2");
    let mut idle = hanging.post(&other).await;
    let first = tokio::spawn(read(reader, |_| false));
    while paid(&folder) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    idle.frame().await.unwrap().unwrap();
    let terminated = std::time::Instant::now();
    hanging.terminate();
    let first = first.await.unwrap();
    let end = first.last().unwrap();
    assert_eq!(end["code"], "shutting_down", "{first:?}");
    assert_eq!(said(&first), "It is ");
    assert!(hanging.has_succeeded().await);
    let took = terminated.elapsed();
    assert!(
        took >= GRACE && took < GRACE + Duration::from_secs(5),
        "{took:?}"
    );

    let next = Process::start_with(&folder.file(""), false, lease);
    for thread in [input("r2", messages), other] {
        let events = read(next.post(&thread).await, |_| false).await;
        assert_eq!(said(&events), "It is paid.", "{events:?}");
        assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
    }
    assert_eq!(paid(&folder), 2);
}

#[cfg(unix)]
#[tokio::test]
async fn a_server_that_is_terminated_lets_a_run_end() {
    let folder = Folder::new("served-idle");
    let question = json!({ "id": "m1", "role": "user", "content": "Pay." });
    let mut server = Process::start(&folder.file(""), false);
    let body = server
        .post(&input("r1", std::slice::from_ref(&question)))
        .await;
    server.terminate();
    let events = read(body, |_| false).await;
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED", "{events:?}");
    assert!(server.has_succeeded().await);
}
