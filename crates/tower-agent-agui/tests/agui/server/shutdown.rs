//! A server that is told to stop: who is told, what is saved, and who goes on elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use futures::{FutureExt, StreamExt};
use http::StatusCode;
use serde_json::{Value, json};
use test_support::store::{Fate, FatedStore};
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;
use tower_agent::message::ToolCall;
use tower_agent::stream::Delta;
use tower_agent::{Agent, Error, Interrupt, ModelRequest, ModelResponse, Role, Tool};
use tower_agent_agui::conversations::{ConversationKey, MemoryConversations, SealKey, Thread};
use tower_agent_agui::{
    AgUi, AgUiRun, InputErrorKind, RunAgentInput, TranslateRequest, TranslateResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::client::{parse, post, send};
use super::{Served, agent, app, input, rules, serve};
use crate::watched::Watched;

const LONG: Duration = Duration::from_secs(3600);

fn first() -> RunAgentInput {
    serde_json::from_value(input()).unwrap()
}

fn key() -> ConversationKey {
    ConversationKey::new("", "", "t")
}

/// Reads a run to its end, and checks the order of its events.
async fn read(run: AgUiRun) -> Vec<Value> {
    let events = run.map(|event| serde_json::to_value(event).unwrap());
    let events: Vec<_> = events.collect().await;
    rules::check("t", "r", &events).unwrap();
    events
}

#[track_caller]
fn is_stopped(events: &[Value]) {
    let end = events.last().unwrap();
    assert_eq!(end["type"], "RUN_ERROR", "{end}");
    assert_eq!(end["code"], "shutting_down", "{end}");
}

fn text(events: &[Value]) -> String {
    let deltas = events.iter().filter_map(|event| event["delta"].as_str());
    deltas.collect()
}

/// Pays, says half of a sentence, and hangs unless it may say the other half.
fn cashier(paid: &Arc<AtomicUsize>, hangs: bool) -> Agent {
    let model = tower::service_fn(move |request: ModelRequest| async move {
        let last = request.messages().last();
        if last.is_some_and(|message| message.role() == Role::User) {
            let call = ToolCall::new("c", "pay", json!({}));
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
    let paid = paid.clone();
    let pay = Tool::function("pay", "Pays.", move |_: Value| {
        paid.fetch_add(1, SeqCst);
        "paid"
    });
    Agent::builder(model).tool(pay).build().unwrap()
}

#[tokio::test]
async fn no_run_begins_while_those_that_are_active_end() {
    let (go, gone) = watch::channel(false);
    let held = tower::service_fn(move |_: ModelRequest| {
        let mut gone = gone.clone();
        async move {
            drop(gone.wait_for(|gone| *gone).await);
            Ok::<_, Error>(ModelResponse::from_text("done"))
        }
    });
    let server = AgUi::new(Agent::builder(held).build().unwrap());
    let served = serve(server.clone()).await;
    let active = send(&served, post(input().to_string())).await;
    let mut shutdown = Box::pin(server.shutdown(LONG));
    assert!((&mut shutdown).now_or_never().is_none());

    let late = send(&served, post(input().to_string())).await;
    assert_eq!(late.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(late.header("retry-after"), Some("1"));
    assert_eq!(late.json().await["error"]["code"], "shutting_down");
    let error = server.run(first()).await.unwrap_err();
    assert_eq!(error.kind(), InputErrorKind::ShuttingDown);

    go.send(true).unwrap();
    let events = active.events().await;
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
    shutdown.await;
}

/// With and without callbacks around the translation.
#[tokio::test(start_paused = true)]
async fn a_run_that_takes_longer_is_told_and_goes_on_elsewhere_at_once() {
    for has_callbacks in [false, true] {
        let store = Arc::new(MemoryConversations::new());
        let paid = Arc::new(AtomicUsize::new(0));
        let start = |hangs| {
            let mut server = AgUi::builder(cashier(&paid, hangs)).threads(store.clone());
            if has_callbacks {
                server = server.on_translate(tower_agent_agui::before_translate(|_| {}));
            }
            server.build()
        };
        let old = start(true);
        let run = old.run(first()).await.unwrap();
        let began = tokio::time::Instant::now();
        let grace = Duration::from_secs(20);
        let (events, ()) = tokio::join!(read(run), old.shutdown(grace));
        assert_eq!(began.elapsed(), grace);
        is_stopped(&events);
        assert_eq!(text(&events), "{}It is ");
        let thread = Thread::load(&store, &key()).await.unwrap().unwrap();
        assert!(!thread.is_running());

        let events = read(start(false).run(first()).await.unwrap()).await;
        assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
        assert!(text(&events).ends_with("It is paid."), "{events:?}");
        assert_eq!(paid.load(SeqCst), 1);
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_keeps_neither_the_server_nor_its_thread() {
    let store = Arc::new(MemoryConversations::new());
    let watched = Watched::default();
    let server = AgUi::builder(watched.agent().build().unwrap()).threads(store.clone());
    let server = server.build();
    let served = serve(server.clone()).await;
    let mut reply = send(&served, post(input().to_string())).await;
    let mut start = reply.next().await.unwrap().to_vec();
    // Until the connection is full, and nobody polls the run.
    let mut deltas = usize::MAX;
    while watched.deltas() != deltas {
        deltas = watched.deltas();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.shutdown(Duration::ZERO).await;
    assert_eq!(watched.alive(), 0);
    assert!(
        !Thread::load(&store, &key())
            .await
            .unwrap()
            .unwrap()
            .is_running()
    );

    start.extend(reply.bytes().await);
    let events = parse(std::str::from_utf8(&start).unwrap());
    rules::check("t", "r", &events).unwrap();
    is_stopped(&events);
}

#[tokio::test]
async fn a_run_that_was_never_polled_is_stopped() {
    let store = Arc::new(MemoryConversations::new());
    let server = AgUi::builder(agent([Turn::from_text("hi")])).threads(store.clone());
    let server = server.build();
    let run = server.run(first()).await.unwrap();
    server.shutdown(Duration::ZERO).await;
    assert!(
        !Thread::load(&store, &key())
            .await
            .unwrap()
            .unwrap()
            .is_running()
    );
    is_stopped(&read(run).await);
}

/// A client that sends its body a byte at a time has no run yet, and gets none.
#[tokio::test]
async fn a_request_whose_body_has_not_arrived_is_refused_when_the_grace_is_over() {
    let server = AgUi::new(agent([]));
    let body = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<bytes::Bytes>, std::io::Error>,
    >());
    let request = post("").map(|_| body);
    let mut response = server.clone().oneshot(request);
    assert!((&mut response).now_or_never().is_none());
    let (response, ()) = tokio::join!(response, server.shutdown(Duration::ZERO));
    let response = response.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
}

/// A server whose store waits for permits to write.
fn gated(agent: Agent) -> (AgUi, Arc<Semaphore>) {
    let open = Arc::new(Semaphore::new(1));
    let permits = open.clone();
    let store = FatedStore::new(move |_| {
        let permits = permits.clone();
        async move {
            permits.acquire().await.unwrap().forget();
            Fate::Made
        }
    });
    (AgUi::builder(agent).threads(store).build(), open)
}

#[tokio::test]
async fn what_a_dropped_stream_leaves_behind_is_saved_before_the_server_is_down() {
    let (server, open) = gated(agent([Turn::from_text("hi")]));
    drop(server.run(first()).await.unwrap());
    let mut shutdown = Box::pin(server.shutdown(Duration::ZERO));
    for _ in 0..100 {
        assert!((&mut shutdown).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    open.add_permits(1);
    shutdown.await;
}

/// The claim may have been written, so that the thread would be locked.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_about_to_begin_gives_its_thread_back() {
    let (server, open) = gated(agent([Turn::from_text("hi")]));
    open.forget_permits(1);
    let begin = server.run(first());
    let late = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        open.add_permits(2);
    };
    let (begun, (), ()) = tokio::join!(begin, server.shutdown(Duration::ZERO), late);
    let error = begun.unwrap_err();
    assert_eq!(error.kind(), InputErrorKind::ShuttingDown);
    // The claim and its undoing.
    assert_eq!(open.available_permits(), 0);
}

/// What is on its way is the true end, and the client must not be told another one.
#[tokio::test]
async fn a_run_whose_end_is_being_saved_ends_as_it_has_ended() {
    let (server, open) = gated(agent([Turn::from_text("hi")]));
    let mut run = server.run(first()).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = run.next().now_or_never() {
        events.push(serde_json::to_value(event.unwrap()).unwrap());
    }
    let mut shutdown = Box::pin(server.shutdown(Duration::ZERO));
    assert!((&mut shutdown).now_or_never().is_none());
    open.add_permits(1);
    shutdown.await;
    events.extend(read_on(run).await);
    rules::check("t", "r", &events).unwrap();
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
}

async fn read_on(run: AgUiRun) -> Vec<Value> {
    let events = run.map(|event| serde_json::to_value(event).unwrap());
    events.collect().await
}

#[tokio::test]
async fn a_question_stays_open_for_the_next_server() {
    let store = Arc::new(MemoryConversations::new());
    let ask = Tool::function_with("ask", "Asks.", |_: Value, _| async {
        Err::<String, _>(Error::interrupt(Interrupt::new("sure", "confirm")))
    });
    let model = ScriptedModel::new([Turn::tool("ask", json!({}))]);
    let agent = Agent::builder(model).tool(ask).build().unwrap();
    let server = AgUi::builder(agent).threads(store.clone()).build();
    read(server.run(first()).await.unwrap()).await;
    server.shutdown(LONG).await;
    let thread = Thread::load(&store, &key()).await.unwrap().unwrap();
    assert!(thread.is_waiting() && !thread.is_running());
}

#[tokio::test]
async fn a_client_that_keeps_its_thread_receives_it_before_the_error() {
    let paid = Arc::new(AtomicUsize::new(0));
    let start = |hangs| {
        let server = AgUi::builder(cashier(&paid, hangs));
        server.stateless(SealKey::new([7; 32])).build()
    };
    let old = start(true);
    let mut run = old.run(first()).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = run.next().now_or_never() {
        events.push(serde_json::to_value(event.unwrap()).unwrap());
    }
    old.shutdown(Duration::ZERO).await;
    events.extend(read_on(run).await);
    rules::check("t", "r", &events).unwrap();
    is_stopped(&events);
    let sealed = &events[events.len() - 2];
    assert_eq!(sealed["type"], "REASONING_ENCRYPTED_VALUE", "{sealed}");
}

/// A hasty operator, or the second of two signals.
#[tokio::test(start_paused = true)]
async fn a_second_call_with_a_shorter_grace_ends_the_runs_for_both() {
    let server = AgUi::new(cashier(&Arc::default(), true));
    let run = server.run(first()).await.unwrap();
    let patient = server.shutdown(LONG);
    let hasty = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.shutdown(Duration::ZERO).await;
    };
    let began = tokio::time::Instant::now();
    let (events, (), ()) = tokio::join!(read(run), patient, hasty);
    is_stopped(&events);
    assert!(began.elapsed() < Duration::from_secs(2));
}

/// The layer never answers; the run must not wait for it.
#[tokio::test]
async fn a_translation_that_hangs_does_not_keep_the_server() {
    let silent = tower::layer::layer_fn(|_| {
        tower::service_fn(|_: TranslateRequest| {
            std::future::pending::<Result<TranslateResponse, Error>>()
        })
    });
    let server = AgUi::builder(agent([Turn::from_text("hi")])).translate_layer(silent);
    let server = server.build();
    let run = server.run(first()).await.unwrap();
    let reading = tokio::spawn(read(run));
    // It waits for the translation now.
    tokio::task::yield_now().await;
    server.shutdown(Duration::ZERO).await;
    is_stopped(&reading.await.unwrap());
}

/// As a program does it: the server answers until its runs have ended, and then no longer listens.
#[tokio::test]
async fn axum_stops_when_the_streams_have_been_ended() {
    let server = AgUi::new(cashier(&Arc::default(), true));
    let router = Router::new().route_service("/agent", server.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (end, ended) = tokio::sync::oneshot::channel();
    let task = tokio::spawn(async move {
        let serve = axum::serve(listener, router).with_graceful_shutdown(async move {
            drop(stopped.await);
            server.shutdown(Duration::ZERO).await;
        });
        serve.await.unwrap();
        end.send(()).unwrap();
    });
    let served = Served { address, task };
    let reply = send(&served, post(input().to_string())).await;
    drop(stop);
    is_stopped(&reply.events().await);
    ended.await.unwrap();
}

#[tokio::test]
async fn a_hundred_runs_at_every_stage_are_ended_and_free() {
    let store = Arc::new(MemoryConversations::new());
    let paid = Arc::new(AtomicUsize::new(0));
    let server = AgUi::builder(cashier(&paid, true))
        .threads(store.clone())
        .build();
    let served = app(Router::new().route_service("/agent", server.clone())).await;
    let mut replies = Vec::new();
    for number in 0..100 {
        let mut body = input();
        body["threadId"] = json!(number.to_string());
        let mut reply = send(&served, post(body.to_string())).await;
        let mut received = Vec::new();
        while number % 2 == 0 && !received.ends_with(b"\"It is \"}\n\n") {
            received.extend(reply.next().await.unwrap());
        }
        // Some clients have gone.
        if number % 5 > 0 {
            replies.push(reply);
        }
    }
    server.shutdown(Duration::ZERO).await;
    for number in 0..100 {
        let key = ConversationKey::new("", "", number.to_string());
        assert!(
            !Thread::load(&store, &key)
                .await
                .unwrap()
                .unwrap()
                .is_running()
        );
    }
    for reply in replies {
        assert!(reply.bytes().await.ends_with(b"\n\n"));
    }
}
