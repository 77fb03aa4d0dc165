//! Work of growing size, whose instructions may grow only as its size does.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use futures::StreamExt;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tower::{ServiceExt, service_fn};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, BoxError, Message, ModelRequest, ModelResponse, Part, Role,
};
use tower_agent_agui::{self as agui, AgUi, RunAgentInput, sse};
use tower_agent_conversations::{
    ConversationKey, ConversationStore, MemoryConversations, SessionLayer,
};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::Durable;
use tower_layer::Layer;

use super::counted::work::{self, finish};

/// Work that is counted in several sizes.
pub struct Growth {
    pub name: &'static str,
    /// Sizes, smallest first. The exponent is that between the last two.
    pub sizes: [usize; 3],
    /// The greatest exponent. With 1.05, twice the size costs at most 2.07 times the instructions.
    pub most: f64,
    /// Sets up the work of one size, and returns one run of it.
    pub make: fn(usize) -> Box<dyn FnMut()>,
}

/// The greatest exponent of what grows as its size does: such work has parts that grow as its
/// logarithm.
const LINEAR: f64 = 1.05;

/// The numbers of turns of a conversation.
const TURNS: [usize; 3] = [10, 100, 1000];

/// The rows, in the order of the output.
pub const GROWTHS: &[Growth] = &[
    Growth {
        name: "members of a sequential team",
        sizes: [10, 100, 1000],
        most: LINEAR,
        make: sequential,
    },
    Growth {
        name: "sub-agents called at once",
        sizes: [10, 100, 400],
        most: LINEAR,
        make: sub_agents,
    },
    Growth {
        name: "turns of an AG-UI thread in memory",
        sizes: TURNS,
        most: LINEAR,
        make: turns_of_thread,
    },
    Growth {
        name: "turns of an AG-UI thread in SQLite",
        sizes: TURNS,
        most: LINEAR,
        make: turns_of_thread_in_sqlite,
    },
    Growth {
        name: "results of a run in an AG-UI thread in memory",
        sizes: [50, 200, 800],
        most: LINEAR,
        make: results_in_memory,
    },
    Growth {
        name: "results of a run in an AG-UI thread in SQLite",
        sizes: [50, 200, 800],
        // The thread of the database makes it vary by some hundredths.
        most: 1.1,
        make: results_in_sqlite,
    },
    Growth {
        name: "results of a run in a session",
        sizes: [50, 200, 800],
        most: LINEAR,
        make: results_in_session,
    },
    Growth {
        name: "turns of a session in memory",
        sizes: TURNS,
        most: LINEAR,
        make: turns_of_session,
    },
    Growth {
        name: "turns of a session in SQLite",
        sizes: TURNS,
        most: LINEAR,
        make: turns_of_session_in_sqlite,
    },
    Growth {
        name: "journaled turns of a session",
        sizes: [10, 40, 160],
        most: LINEAR,
        make: journaled_turns,
    },
    Growth {
        name: "journaled steps in a session",
        sizes: [10, 40, 160],
        // The thread of the database makes it vary by some hundredths.
        most: 1.1,
        make: steps_in_session,
    },
];

/// An agent that responds at once.
fn speaker(name: impl Into<Arc<str>>) -> Agent {
    let model =
        service_fn(|_: ModelRequest| async { Ok::<_, BoxError>(ModelResponse::from_text("done")) });
    Agent::builder(model).name(name).build().unwrap()
}

fn sequential(members: usize) -> Box<dyn FnMut()> {
    let agents = (0..members).map(|member| speaker(format!("member_{member}")));
    let team = Agent::sequential("team").agents(agents).build().unwrap();
    Box::new(move || {
        let response = finish(team.run(AgentRequest::new("Work."))).unwrap();
        assert_eq!(response.messages().len(), 1 + members);
    })
}

/// One agent that is called as a tool so many times in one turn. Each call waits once, so that all
/// run at the same time.
fn sub_agents(calls: usize) -> Box<dyn FnMut()> {
    let helper = service_fn(|_: ModelRequest| async {
        tokio::task::yield_now().await;
        Ok::<_, BoxError>(ModelResponse::from_text("done"))
    });
    let helper = Agent::builder(helper).name("helper").build().unwrap();
    let model = service_fn(move |request: ModelRequest| async move {
        if request.messages().len() > 1 {
            return Ok::<_, BoxError>(ModelResponse::from_text("done"));
        }
        let calls = (0..calls).map(|call| {
            let arguments = json!({ "request": "Help." });
            Part::from(ToolCall::new(format!("call_{call}"), "helper", arguments))
        });
        Ok(ModelResponse::new(Message::new(Role::Assistant, calls)))
    });
    let agent = Agent::builder(model)
        .tool(helper.into_tool("Helps."))
        .tool_concurrency(calls)
        .build()
        .unwrap();
    Box::new(move || {
        let response = finish_waiting(agent.run(AgentRequest::new("Work."))).unwrap();
        assert_eq!(response.messages().len(), 3 + calls);
    })
}

/// Runs a future that waits for nothing but its turn.
fn finish_waiting<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// A conversation of so many turns, whose client sends only what is new.
fn turns_of_thread(turns: usize) -> Box<dyn FnMut()> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    turns_in_thread(turns, runtime, MemoryConversations::new())
}

fn turns_of_thread_in_sqlite(turns: usize) -> Box<dyn FnMut()> {
    let (runtime, database) = sqlite();
    turns_in_thread(turns, runtime, database)
}

fn turns_in_thread(
    turns: usize,
    runtime: Runtime,
    store: impl ConversationStore,
) -> Box<dyn FnMut()> {
    let server = AgUi::builder(speaker("agent"))
        .threads(store)
        .allow_partial_history()
        .build();
    let threads = AtomicUsize::new(0);
    Box::new(move || {
        let thread = format!("thread {}", threads.fetch_add(1, Relaxed));
        for turn in 0..turns {
            let message = agui::Message::user(format!("m{turn}"), "Talk.");
            let input = RunAgentInput::new(&*thread, format!("run {turn}"), [message]);
            let mut bytes = Vec::new();
            runtime.block_on(async {
                let mut run = server.run(input).await.unwrap();
                let mut writer = sse::Writer::new();
                while let Some(event) = run.next().await {
                    writer.write(&event, &mut bytes).unwrap();
                }
            });
            assert!(bytes.ends_with(b"}\n\n"));
        }
    })
}

/// One run with so many results of tools, each of which is saved before it is sent.
fn results_in_memory(results: usize) -> Box<dyn FnMut()> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    results_in_thread(results, runtime, MemoryConversations::new())
}

fn results_in_sqlite(results: usize) -> Box<dyn FnMut()> {
    let (runtime, database) = sqlite();
    results_in_thread(results, runtime, database)
}

fn sqlite() -> (Runtime, Sqlite) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let database = runtime.block_on(Sqlite::in_memory()).unwrap();
    (runtime, database)
}

fn results_in_thread(
    results: usize,
    runtime: Runtime,
    store: impl ConversationStore,
) -> Box<dyn FnMut()> {
    let agent = work::agent(results).build().unwrap();
    let server = AgUi::builder(agent).threads(store).build();
    let threads = AtomicUsize::new(0);
    Box::new(move || {
        let thread = format!("thread {}", threads.fetch_add(1, Relaxed));
        let message = agui::Message::user("m1", "Count.");
        let input = RunAgentInput::new(thread, "run", [message]);
        let events = runtime.block_on(async { server.run(input).await.unwrap().count().await });
        assert!(events > results);
    })
}

fn results_in_session(results: usize) -> Box<dyn FnMut()> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let sessions = SessionLayer::new(MemoryConversations::new());
    let agent = sessions.layer(work::agent(results).build().unwrap());
    let ids = AtomicUsize::new(0);
    Box::new(move || {
        let id = ids.fetch_add(1, Relaxed).to_string();
        let request = ConversationKey::new("bench", "", id).request("Count.");
        runtime.block_on(agent.clone().oneshot(request)).unwrap();
    })
}

/// A session of so many turns.
fn turns_of_session(turns: usize) -> Box<dyn FnMut()> {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    turns_in_session(turns, runtime, MemoryConversations::new(), speaker("agent"))
}

fn turns_of_session_in_sqlite(turns: usize) -> Box<dyn FnMut()> {
    let (runtime, database) = sqlite();
    turns_in_session(turns, runtime, database, speaker("agent"))
}

/// A session whose turns are durable runs, each of its own.
fn journaled_turns(turns: usize) -> Box<dyn FnMut()> {
    let (runtime, database) = sqlite();
    let agent = work::agent(0).global_callbacks(Durable::new(database.clone()));
    turns_in_session(turns, runtime, database, agent.build().unwrap())
}

fn turns_in_session(
    turns: usize,
    runtime: Runtime,
    store: impl ConversationStore,
    agent: Agent,
) -> Box<dyn FnMut()> {
    let agent = SessionLayer::new(store).layer(agent);
    let ids = AtomicUsize::new(0);
    Box::new(move || {
        let id = ids.fetch_add(1, Relaxed).to_string();
        let key = ConversationKey::new("bench", "", id);
        for _ in 0..turns {
            let run = agent.clone().oneshot(key.request("Talk."));
            runtime.block_on(run).unwrap();
        }
    })
}

/// One run of so many steps, journaled in the database that has its session.
fn steps_in_session(steps: usize) -> Box<dyn FnMut()> {
    let (runtime, database) = sqlite();
    let agent = work::agent(steps - 1).global_callbacks(Durable::new(database.clone()));
    let agent = SessionLayer::new(database).layer(agent.build().unwrap());
    let sessions = AtomicUsize::new(0);
    Box::new(move || {
        let session = sessions.fetch_add(1, Relaxed).to_string();
        let key = ConversationKey::new("bench", "", &*session);
        let request = key.request(AgentRequest::new("Count.").with_run_id(session));
        runtime.block_on(agent.clone().oneshot(request)).unwrap();
    })
}
