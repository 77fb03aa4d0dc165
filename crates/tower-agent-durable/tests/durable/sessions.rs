//! The layer that keeps the conversations of an agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::store::{Fate, FatedStore};
use tower::{Layer, ServiceExt};
use tower_agent::callback::before_agent;
use tower_agent::message::{Messages, ToolCall, ToolResult};
use tower_agent::stream::EventKind;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, Error, ErrorKind, Interrupt, Message,
    ModelResponse, Part, Request, Resolution, RunStream, State, Tool, ToolRequest,
};
use tower_agent_conversations::{ConversationKey, ConversationStore, Session, SessionLayer};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::{Approval, Decision};

use crate::memory::Memory;

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

async fn store() -> Arc<Sqlite> {
    Arc::new(Sqlite::in_memory().await.unwrap())
}

async fn load(store: &impl ConversationStore) -> Session {
    Session::load(store, &key()).await.unwrap().unwrap()
}

fn texts(session: &Session) -> Vec<String> {
    session
        .checkpoint
        .messages
        .iter()
        .map(Message::text)
        .collect()
}

fn says(texts: &[&str]) -> Agent {
    let turns: Vec<_> = texts.iter().map(|text| Turn::from_text(*text)).collect();
    Agent::builder(ScriptedModel::new(turns)).build().unwrap()
}

fn busy() -> Turn {
    Turn::error(Error::new(ErrorKind::Overloaded, "busy"))
}

/// A tool that counts its calls.
fn pay(paid: &Arc<AtomicU32>) -> Tool {
    let paid = paid.clone();
    Tool::function("pay", "Pays.", move |_: Value| {
        paid.fetch_add(1, Ordering::SeqCst);
        "paid"
    })
}

fn approve(session: &Session) -> Vec<Resolution> {
    let open = session.checkpoint.head.interrupts.iter();
    open.map(|interrupt| Resolution::resolved(&interrupt.id, Decision::Approve))
        .collect()
}

#[tokio::test]
async fn a_request_carries_only_what_is_new() {
    let store = store().await;
    let agent = SessionLayer::new(store.clone()).layer(says(&["Hello, Ada.", "You are Ada."]));
    agent
        .clone()
        .oneshot(key().request("I am Ada."))
        .await
        .unwrap();
    let second = agent.oneshot(key().request("Who am I?")).await.unwrap();
    assert_eq!(second.messages().len(), 4);
    assert_eq!(second.new_messages().len(), 1);
    let session = load(&*store).await;
    assert_eq!(
        texts(&session),
        ["I am Ada.", "Hello, Ada.", "Who am I?", "You are Ada."]
    );
    assert_eq!(
        (session.checkpoint.head.turn, session.is_running),
        (2, false)
    );
}

#[tokio::test]
async fn the_state_and_the_private_state_come_back() {
    let store = store().await;
    let count = before_agent(|request| {
        let context = request.context();
        let runs = context
            .private_state()
            .get("runs")
            .and_then(|runs| runs.as_u64())
            .unwrap_or(0);
        context.private_state().set("runs", runs + 1);
        let visits = context
            .state()
            .get("visits")
            .and_then(|value| value.as_u64())
            .unwrap_or(0);
        context.state().set("visits", visits + 1);
        context.state().remove("once");
    });
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hi."))).on_agent(count);
    let agent = SessionLayer::new(store.clone()).layer(agent.build().unwrap());
    let state = State::from_iter([
        ("once".to_owned(), json!(1)),
        ("theme".to_owned(), json!("dark")),
    ]);
    let first = AgentRequest::new("Hi.").with_state(state);
    agent.clone().oneshot(key().request(first)).await.unwrap();
    // A stream as well.
    let response = RunStream::new(agent, key().request("Hi."))
        .response()
        .await
        .unwrap();
    let state = load(&*store).await.state;
    assert_eq!(
        Value::from(state.clone()),
        json!({ "theme": "dark", "visits": 2 })
    );
    assert_eq!(response.state().snapshot(), state);
    let checkpoint = serde_json::to_value(response.checkpoint()).unwrap();
    assert_eq!(checkpoint["head"]["private_state"]["runs"], 2);
}

#[tokio::test]
async fn a_request_without_a_session_is_refused_and_the_model_is_not_called() {
    let agent = SessionLayer::new(store().await).layer(says(&[]));
    let error = agent.oneshot(AgentRequest::new("Hi.")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.to_string().contains("names no session"), "{error}");
}

#[tokio::test]
async fn a_request_that_resumes_a_checkpoint_is_refused() {
    let agent = SessionLayer::new(store().await).layer(says(&[]));
    let mut checkpoint = Checkpoint::new([Message::user("Hi.")]);
    checkpoint.head.turn = 1;
    let request = AgentRequest::resume(checkpoint);
    let error = agent.oneshot(key().request(request)).await.unwrap_err();
    assert!(
        error.to_string().contains("resumes a checkpoint"),
        "{error}"
    );
}

#[tokio::test]
async fn two_layers_and_a_layer_inside_the_builder_are_refused() {
    let layer = SessionLayer::new(store().await);
    let twice = layer.layer(layer.layer(says(&[])));
    let error = twice.oneshot(key().request("Hi.")).await.unwrap_err();
    assert!(
        error.to_string().contains("use one session layer"),
        "{error}"
    );

    let model = ScriptedModel::new([]);
    let inside = Agent::builder(model).agent_layer(layer).build().unwrap();
    let error = inside.run(key().request("Hi.")).await.unwrap_err();
    assert!(
        error.to_string().contains("around the outermost agent"),
        "{error}"
    );
}

#[tokio::test]
async fn an_agent_as_a_tool_does_not_touch_the_session() {
    let store = store().await;
    let layer = SessionLayer::new(store.clone());
    let helper = layer.layer(says(&["It rains."]));
    let helper = tower::ServiceBuilder::new().service(helper);
    let boss = ScriptedModel::new([
        Turn::tool("helper", json!({ "request": "The weather?" })),
        Turn::from_text("Take an umbrella."),
    ]);
    let helper = Tool::function_with(
        "helper",
        "Helps.",
        move |_: Value, call: tower_agent::ToolRequest| {
            let helper = helper.clone();
            async move {
                let request =
                    AgentRequest::new("The weather?").with_context(call.context().clone());
                helper
                    .oneshot(key().request(request))
                    .await
                    .map(|response| response.text())
            }
        },
    );
    let agent = layer.layer(Agent::builder(boss).tool(helper).build().unwrap());
    agent
        .oneshot(key().request("Do I need an umbrella?"))
        .await
        .unwrap();
    assert_eq!(load(&*store).await.checkpoint.messages.len(), 4);
}

#[tokio::test]
async fn a_second_run_is_refused_before_its_model_is_called() {
    let store = store().await;
    let layer = SessionLayer::new(store.clone());
    let inner = layer.layer(says(&[]));
    let meanwhile = before_agent(move |_: &mut AgentRequest| {
        let inner = inner.clone();
        async move {
            let error = inner.oneshot(key().request("Me too.")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
    });
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("Hi.")])).on_agent(meanwhile);
    let agent = layer.layer(agent.build().unwrap());
    agent.oneshot(key().request("Hi.")).await.unwrap();
    assert_eq!(texts(&load(&*store).await), ["Hi.", "Hi."]);
}

#[tokio::test]
async fn an_interrupt_is_answered_once() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Paid.")]);
    let agent = Agent::builder(model)
        .tool(pay(&paid))
        .on_tool(Approval::of_tools(["pay"]));
    let agent = SessionLayer::new(store.clone()).layer(agent.build().unwrap());
    agent.clone().oneshot(key().request("Pay.")).await.unwrap();
    let session = load(&*store).await;
    assert_eq!(session.checkpoint.head.interrupts.len(), 1);
    // The entries are whole: the open call is in the head.
    let stored = store.load(&key(), 0).await.unwrap().unwrap();
    assert_eq!(stored.entries.len(), 1);

    let yes = || key().request(AgentRequest::default().with_resolutions(approve(&session)));
    let (one, other) = tokio::join!(agent.clone().oneshot(yes()), agent.clone().oneshot(yes()));
    let (done, refused) = if one.is_ok() {
        (one, other)
    } else {
        (other, one)
    };
    assert_eq!(done.unwrap().text(), "Paid.");
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    let late = agent.oneshot(yes()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Conflict);
    assert!(late.to_string().contains("is not open"), "{late}");
    assert_eq!(paid.load(Ordering::SeqCst), 1);
    let session = load(&*store).await;
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        4
    );
    assert!(session.checkpoint.head.interrupts.is_empty());
}

/// Two calls that are approved, among others.
fn several(asks: bool) -> (Agent, ScriptedModel) {
    let calls = [
        ("c1", "look"),
        ("c2", "pay"),
        ("c3", "look"),
        ("c4", "send"),
        ("c5", "look"),
    ];
    let calls = calls.map(|(id, tool)| ToolCall::new(id, tool, json!({})));
    let calls = Turn::response(ModelResponse::from_tool_calls(calls));
    let model = ScriptedModel::new([calls, Turn::from_text("Done.")]);
    let tool = |name: &'static str| Tool::function(name, "Does it.", move |_: Value| name);
    let agent = Agent::builder(model.clone()).tools(["look", "pay", "send"].map(tool));
    let agent = if asks {
        agent.on_tool(Approval::of_tools(["pay", "send"]))
    } else {
        agent
    };
    (agent.build().unwrap(), model)
}

/// Returns the conversation as it is stored, after checking that no write has changed what was
/// there.
fn appended(store: &Memory) -> Vec<String> {
    let mut entries = Vec::new();
    for append in &store.inner().appends {
        assert_eq!(append.from, entries.len(), "entries are rewritten");
        entries.extend(append.entries.clone());
    }
    entries
}

#[tokio::test]
async fn results_are_stored_in_the_order_of_their_calls_and_once() {
    let (agent, undisturbed) = several(false);
    let whole = Memory::default();
    SessionLayer::new(whole.clone())
        .layer(agent)
        .oneshot(key().request("Go."))
        .await
        .unwrap();

    for order in [["c2", "c4"], ["c4", "c2"]] {
        let ((agent, model), store) = (several(true), Memory::default());
        let agent = SessionLayer::new(store.clone()).layer(agent);
        agent.clone().oneshot(key().request("Go.")).await.unwrap();
        for call in order {
            let session = load(&store).await;
            let is_of = |interrupt: &&Interrupt| interrupt.tool_call_id.as_deref() == Some(call);
            let interrupts = &session.checkpoint.head.interrupts;
            let open = interrupts.iter().find(is_of).unwrap();
            let yes = [Resolution::resolved(&open.id, Decision::Approve)];
            let request = key().request(AgentRequest::default().with_resolutions(yes));
            agent.clone().oneshot(request).await.unwrap();
        }
        let (seen, asked) = (model.requests(), undisturbed.requests());
        let bytes = |messages: &Messages| {
            let mut messages = serde_json::to_value(messages).unwrap();
            for message in messages.as_array_mut().unwrap() {
                // The messages of each run.
                message.as_object_mut().unwrap().remove("id").unwrap();
            }
            messages.to_string()
        };
        assert_eq!(
            bytes(seen[1].messages()),
            bytes(asked[1].messages()),
            "{order:?}"
        );
        let stored = |store| {
            let entries = appended(store).into_iter();
            let contents = entries.map(|entry| serde_json::from_str::<Message>(&entry).unwrap());
            contents.collect::<Vec<_>>()
        };
        assert_eq!(stored(&store), stored(&whole), "{order:?}");
    }
}

#[tokio::test]
async fn a_result_of_the_caller_is_stored_in_its_place() {
    let ((agent, _), store) = (several(true), Memory::default());
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let first = agent.clone().oneshot(key().request("Go.")).await.unwrap();
    let results = first
        .open_calls()
        .map(|call| ToolResult::new(call, [Part::from_text("done")]));
    let mut request = AgentRequest::default();
    for result in results {
        request = request.with_message(Message::tool(result));
    }
    let response = agent.oneshot(key().request(request)).await.unwrap();
    assert_eq!(response.text(), "Done.");
    let stored = load(&store).await.checkpoint.messages;
    assert_eq!(stored, *response.messages());
    let results = stored.iter().flat_map(Message::tool_results);
    let ids: Vec<_> = results.map(|result| &*result.call_id).collect();
    assert_eq!(ids, ["c1", "c2", "c3", "c4", "c5"]);
    assert_eq!(appended(&store).len(), stored.len());
}

#[tokio::test]
async fn a_failed_run_is_kept_and_goes_on() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({})),
        busy(),
        Turn::from_text("Paid."),
    ]);
    let agent = Agent::builder(model).tool(pay(&paid)).build().unwrap();
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let error = agent
        .clone()
        .oneshot(key().request("Pay."))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(load(&*store).await.checkpoint.messages.len(), 3);
    let response = agent
        .oneshot(key().request(AgentRequest::default()))
        .await
        .unwrap();
    assert_eq!(
        (response.text(), response.messages().len()),
        ("Paid.".into(), 4)
    );
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_retry_around_the_layer_adds_nothing_twice() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({})),
        busy(),
        Turn::from_text("Paid."),
    ]);
    let agent = Agent::builder(model).tool(pay(&paid)).build().unwrap();
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let request = key().request("Pay.");
    agent.clone().oneshot(request.clone()).await.unwrap_err();
    let response = agent.clone().oneshot(request).await.unwrap();
    assert_eq!(
        (response.text(), response.messages().len()),
        ("Paid.".into(), 4)
    );
    assert_eq!(load(&*store).await.checkpoint.messages.len(), 4);
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_dropped_stream_is_kept_with_what_it_has_shown() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({})),
        Turn::pending(),
        Turn::from_text("Paid."),
    ]);
    let agent = Agent::builder(model).tool(pay(&paid)).build().unwrap();
    let layer = SessionLayer::new(store.clone());
    let agent = layer.layer(agent);
    let mut run = RunStream::new(agent.clone(), key().request("Pay."));
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::ToolResult(_)) {
            break;
        }
    }
    assert_eq!(run.checkpoint().messages.len(), 3);
    drop(run);
    layer.finish().await;
    let session = load(&*store).await;
    assert!(!session.is_running);
    assert_eq!(session.checkpoint.messages.len(), 3);
    // The turn is in the head until something follows it.
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        1
    );
    let response = agent.oneshot(key().request("And?")).await.unwrap();
    assert_eq!(response.messages().len(), 5);
    assert_eq!(paid.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_run_dropped_at_any_point_leaves_a_session_that_goes_on() {
    // Polled `polls` times, and then dropped.
    for polls in 0.. {
        let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
        let model = ScriptedModel::new([
            Turn::tool("pay", json!({})),
            Turn::from_text("Paid."),
            Turn::from_text("Yes."),
            Turn::from_text("Yes."),
        ]);
        let agent = Agent::builder(model).tool(pay(&paid)).build().unwrap();
        let layer = SessionLayer::new(store.clone());
        let agent = layer.layer(agent);
        let mut run = Box::pin(agent.clone().oneshot(key().request("Pay.")));
        let mut is_done = false;
        for _ in 0..polls {
            is_done |= futures::poll!(&mut run).is_ready();
            if is_done {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(run);
        let response = agent.oneshot(key().request("And?")).await.unwrap();
        let stored = store.load(&key(), 0).await.unwrap().unwrap();
        assert_eq!(stored.entries.len(), response.messages().len());
        assert_eq!(response.messages().open_calls().count(), 0);
        assert!(paid.load(Ordering::SeqCst) <= 1);
        let users = response
            .messages()
            .iter()
            .filter(|message| message.text() == "Pay.")
            .count();
        assert!(users <= 1, "after {polls} polls");
        if is_done {
            assert_eq!(users, 1);
            return;
        }
    }
}

/// A model that pays and then hangs.
fn hangs() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("pay", json!({})), Turn::pending()])
}

#[tokio::test(start_paused = true)]
async fn a_layer_inside_that_replaces_the_error_loses_nothing() {
    let (store, paid) = (Memory::default(), Arc::new(AtomicU32::new(0)));
    let agent = Agent::builder(hangs()).tool(pay(&paid)).build().unwrap();
    let in_time = tower::timeout::TimeoutLayer::new(Duration::from_secs(1)).layer(agent);
    let agent = SessionLayer::new(store.clone()).layer(in_time);
    let error = agent.oneshot(key().request("Pay.")).await.unwrap_err();
    assert_eq!(error.checkpoint().unwrap().messages.len(), 3);
    assert_eq!(load(&store).await.checkpoint.messages.len(), 3);
}

#[tokio::test]
async fn a_response_of_a_layer_inside_is_added_to_the_conversation() {
    let store = Memory::default();
    let layer = SessionLayer::new(store.clone());
    layer
        .layer(says(&["Hello, Ada."]))
        .oneshot(key().request("I am Ada."))
        .await
        .unwrap();
    let answers = tower::service_fn(|_: AgentRequest| async {
        Ok::<_, Error>(AgentResponse::new([Message::assistant("From a cache.")]))
    });
    let response = layer
        .layer(answers)
        .oneshot(key().request("Who am I?"))
        .await
        .unwrap();
    assert_eq!(response.messages().len(), 4);
    let session = load(&store).await;
    assert_eq!(
        texts(&session),
        ["I am Ada.", "Hello, Ada.", "Who am I?", "From a cache."]
    );
    assert_eq!(session.checkpoint.head.turn, 2);
}

#[tokio::test]
async fn a_question_inside_a_sub_agent_is_answered_in_another_run() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let build = |boss: Vec<Turn>, clerk: Vec<Turn>| {
        let clerk = Agent::builder(ScriptedModel::new(clerk))
            .name("clerk")
            .tool(pay(&paid));
        let clerk = clerk.on_tool(Approval::of_tools(["pay"])).build().unwrap();
        let boss = Agent::builder(ScriptedModel::new(boss))
            .tool(clerk.into_tool("Pays."))
            .build()
            .unwrap();
        SessionLayer::new(store.clone()).layer(boss)
    };
    let asks = Turn::tool("clerk", json!({ "request": "Pay." }));
    let agent = build(vec![asks], vec![Turn::tool("pay", json!({}))]);
    agent.oneshot(key().request("Pay.")).await.unwrap();
    let session = load(&*store).await;
    assert_eq!(session.checkpoint.head.interrupts.len(), 1);

    let agent = build(
        vec![Turn::from_text("Done.")],
        vec![Turn::from_text("Paid.")],
    );
    let yes = AgentRequest::default().with_resolutions(approve(&session));
    let response = agent.oneshot(key().request(yes)).await.unwrap();
    assert_eq!(
        (response.text(), paid.load(Ordering::SeqCst)),
        ("Done.".into(), 1)
    );
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        4
    );
}

#[tokio::test]
async fn a_user_who_goes_on_instead_of_answering_closes_the_question() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let model = ScriptedModel::new([
        Turn::tool("pay", json!({})),
        Turn::from_text("As you like."),
    ]);
    let agent = Agent::builder(model)
        .tool(pay(&paid))
        .on_tool(Approval::of_tools(["pay"]));
    let agent = SessionLayer::new(store.clone()).layer(agent.build().unwrap());
    agent.clone().oneshot(key().request("Pay.")).await.unwrap();
    let old = approve(&load(&*store).await);
    agent
        .clone()
        .oneshot(key().request("Never mind."))
        .await
        .unwrap();
    let session = load(&*store).await;
    assert!(session.checkpoint.head.interrupts.is_empty());
    assert_eq!(
        store.load(&key(), 0).await.unwrap().unwrap().entries.len(),
        5
    );
    let late = AgentRequest::default().with_resolutions(old);
    let error = agent.oneshot(key().request(late)).await.unwrap_err();
    assert_eq!(
        (error.kind(), paid.load(Ordering::SeqCst)),
        (ErrorKind::Conflict, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tabs_lose_nothing_and_are_never_interleaved() {
    const ROUNDS: usize = 50;

    let store = store().await;
    let tab = |name: &'static str| {
        let agent = Agent::builder(ScriptedModel::always(Turn::from_text(name)))
            .build()
            .unwrap();
        // As two processes would.
        let agent = SessionLayer::new(store.clone()).layer(agent);
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let request = || key().request(format!("{name} {round}"));
                while let Err(error) = agent.clone().oneshot(request()).await {
                    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                    tokio::task::yield_now().await;
                }
            }
        })
    };
    let (one, other) = tokio::join!(tab("one"), tab("other"));
    one.unwrap();
    other.unwrap();
    let texts = texts(&load(&*store).await);
    assert_eq!(texts.len(), 4 * ROUNDS);
    for name in ["one", "other"] {
        let turns = texts.chunks(2).filter(|turn| turn[1] == name);
        let asked: Vec<_> = turns.map(|turn| turn[0].clone()).collect();
        let expected: Vec<_> = (0..ROUNDS).map(|round| format!("{name} {round}")).collect();
        assert_eq!(asked, expected);
    }
}

#[tokio::test]
async fn a_run_dropped_before_it_learns_that_it_has_its_session_gives_it_up() {
    let (claims, may_claim) = tokio::sync::watch::channel(false);
    let store = FatedStore::new(move |_| {
        let mut may_claim = may_claim.clone();
        async move {
            may_claim.wait_for(|may| *may).await.unwrap();
            Fate::Made
        }
    });
    let layer = SessionLayer::new(store);
    let agent = layer.layer(says(&["Yes."]));
    let mut run = Box::pin(agent.clone().oneshot(key().request("Pay.")));
    assert!(futures::poll!(&mut run).is_pending());
    claims.send(true).unwrap();
    drop(run);
    let response = agent.oneshot(key().request("And?")).await.unwrap();
    assert_eq!(response.messages().len(), 3);
}

#[tokio::test]
async fn a_late_answer_is_refused_and_the_next_run_has_the_outcome_of_the_question() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("A pity.")]);
    let agent = Agent::builder(model.clone())
        .tool(pay(&paid))
        .on_tool(Approval::of_tools(["pay"]).deny_after(Duration::ZERO))
        .build()
        .unwrap();
    let agent = SessionLayer::new(store.clone()).layer(agent);
    agent.clone().oneshot(key().request("Pay.")).await.unwrap();
    let late = AgentRequest::default().with_resolutions(approve(&load(&*store).await));
    let error = agent
        .clone()
        .oneshot(key().request(late))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Expired);
    assert_eq!(load(&*store).await.checkpoint.head.interrupts.len(), 1);
    // Streamed, so that the run's own checkpoint shows that it is the same run.
    let mut run = RunStream::new(agent, key().request(AgentRequest::default()));
    while run.next().await.is_some() {}
    let checkpoint = run.checkpoint();
    let denied = "the approver rejected this call: nobody answered in time";
    let result = checkpoint
        .messages
        .iter()
        .find_map(|message| message.tool_results().next());
    assert_eq!(result.unwrap().text(), denied);
    let session = load(&*store).await;
    assert_eq!(session.checkpoint, checkpoint);
    assert_eq!(texts(&session).last().unwrap(), "A pity.");
    assert_eq!(paid.load(Ordering::SeqCst), 0);
    model.assert_done();
}

#[tokio::test]
async fn an_answer_to_one_question_comes_with_the_outcome_of_another_that_has_expired() {
    let (store, paid) = (store().await, Arc::new(AtomicU32::new(0)));
    let both = Turn::tool("pay", json!({ "value": 1 })).and_tool("pay", json!({ "value": 2 }));
    let model = ScriptedModel::new([both, Turn::from_text("One is paid.")]);
    let is_first = |call: &ToolRequest| call.arguments()["value"] == 1;
    let agent = Agent::builder(model)
        .tool(pay(&paid))
        .on_tool(Approval::when(is_first).deny_after(Duration::ZERO))
        .on_tool(Approval::when(move |call| !is_first(call)))
        .build()
        .unwrap();
    let agent = SessionLayer::new(store.clone()).layer(agent);
    agent
        .clone()
        .oneshot(key().request("Pay both."))
        .await
        .unwrap();
    let answers = approve(&load(&*store).await);
    assert_eq!(answers.len(), 2);
    let in_time = AgentRequest::default().with_resolutions([answers[1].clone()]);
    let done = agent.oneshot(key().request(in_time)).await.unwrap();
    assert_eq!(
        (done.text(), paid.load(Ordering::SeqCst)),
        ("One is paid.".into(), 1)
    );
}

/// As an idempotency key: a request that is delivered again has the same outcome, in another
/// process too, and another one under its id is refused.
#[tokio::test]
async fn a_run_id_counts_once_in_a_session() {
    let store = store().await;
    let paid = Arc::new(AtomicU32::new(0));
    let agent = || {
        let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Paid.")]);
        let agent = Agent::builder(model).tool(pay(&paid)).build().unwrap();
        SessionLayer::new(store.clone()).layer(agent)
    };
    let asks = |text: &str, run: &str| key().request(AgentRequest::new(text).with_run_id(run));
    let first = agent().oneshot(asks("Pay 7.", "order-7")).await.unwrap();
    agent().oneshot(asks("Pay 8.", "order-8")).await.unwrap();
    for _ in 0..2 {
        let again = agent().oneshot(asks("Pay 7.", "order-7")).await.unwrap();
        assert_eq!(again.messages(), first.messages());
        let error = agent()
            .oneshot(asks("Pay 9.", "order-7"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
    }
    assert_eq!(paid.load(Ordering::SeqCst), 2);
    assert_eq!(load(&store).await.checkpoint.messages.len(), 8);
}

/// The message stands once, and the run goes on where it has failed.
#[tokio::test]
async fn a_request_that_is_delivered_again_after_a_failure_goes_on() {
    let store = store().await;
    let model = ScriptedModel::new([busy(), Turn::from_text("Hello.")]);
    let agent = Agent::builder(model).build().unwrap();
    let agent = SessionLayer::new(store.clone()).layer(agent);
    let asks = || key().request(AgentRequest::new("Hi.").with_run_id("run 1"));
    agent.clone().oneshot(asks()).await.unwrap_err();
    assert_eq!(agent.oneshot(asks()).await.unwrap().text(), "Hello.");
    assert_eq!(texts(&load(&store).await), ["Hi.", "Hello."]);
}
