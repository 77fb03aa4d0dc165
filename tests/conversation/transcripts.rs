//! The conversation sent to a model is complete, and a run always answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use futures::StreamExt;
use serde_json::{Value, json};
use tower::util::MapRequestLayer;
use tower_agent::callback::{AfterModelRespond, after_agent, after_model, after_tool};
use tower_agent::compat::Semantics;
use tower_agent::message::{Messages, ToolCall, ToolResult};
use tower_agent::model::FinishReason;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, EndReason, Error, ErrorKind,
    Interrupt, Message, ModelRequest, ModelResponse, Part, Request, Role, Tool, ToolRequest, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

/// Returns the complaint of a strict provider, which wants every call answered exactly once, right
/// after the message that makes it, and no other answers.
fn refused(messages: &Messages) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        for result in message.tool_results() {
            let Some(at) = open.iter().position(|id| **id == *result.call_id) else {
                return Some(format!(
                    "message {index} answers `{}`, which is not open",
                    result.call_id
                ));
            };
            open.remove(at);
        }
        if message.role() != Role::Tool {
            if !open.is_empty() {
                return Some(format!("message {index} comes before answers to {open:?}"));
            }
            open.extend(message.tool_calls().map(|call| &*call.id));
        }
    }
    (!open.is_empty()).then(|| format!("{open:?} are not answered"))
}

/// A model that refuses what is not whole, and then says what was last said to it.
fn strict(say: impl Fn(&ModelRequest) -> ModelResponse + Send + Sync + 'static) -> ScriptedModel {
    ScriptedModel::always(Turn::function(move |request| {
        match refused(request.messages()) {
            Some(why) => Err(Error::new(ErrorKind::InvalidRequest, why)),
            None => Ok(say(request)),
        }
    }))
}

fn listener() -> AgentBuilder {
    Agent::builder(strict(|_| ModelResponse::from_text("I see.")))
}

fn asks(ids: &[&str]) -> Message {
    let call = |id: &&str| Part::from(ToolCall::new(*id, "look", json!({})));
    Message::new(Role::Assistant, ids.iter().map(call))
}

fn answer(id: &str, text: &str) -> Message {
    Message::tool(ToolResult::new(
        &ToolCall::new(id, "look", json!({})),
        [Part::from_text(text)],
    ))
}

fn user(text: &str) -> Message {
    Message::user(text)
}

async fn seen(
    agent: &Agent,
    request: impl Into<AgentRequest>,
) -> (Result<AgentResponse, Error>, Vec<Event>) {
    let mut run = agent.stream(request);
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event);
    }
    (run.response().await, events)
}

fn told(events: &[Event]) -> Vec<String> {
    let results = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResult(result) => Some(result.call_id.to_string()),
        _ => None,
    });
    results.collect()
}

/// Each message: its role's first letter, its text, its calls and the answers it holds.
fn shape(messages: &Messages) -> Vec<String> {
    let one = |message: &Message| {
        let role = format!("{:?}", message.role())[..1].to_lowercase();
        let calls: String = message
            .tool_calls()
            .map(|call| format!(" {}?", call.id))
            .collect();
        let answers = message.tool_results().map(|result| match result.text() {
            text if text.starts_with("no result") => format!(" {}=none", result.call_id),
            text => format!(" {}={text}", result.call_id),
        });
        format!(
            "{role}{calls}{} {}",
            answers.collect::<String>(),
            message.text()
        )
    };
    messages
        .iter()
        .map(|message| one(message).trim_end().to_owned())
        .collect()
}

#[tokio::test]
async fn every_conversation_is_sent_to_a_provider_complete() {
    let open = [user("a"), asks(&["1", "2"]), answer("1", "x"), user("b")];
    let late = [user("a"), asks(&["1"]), user("b"), answer("1", "x")];
    let late_beside = [
        user("a"),
        asks(&["1", "2"]),
        answer("2", "y"),
        user("b"),
        answer("1", "x"),
    ];
    let twice = [
        user("a"),
        asks(&["1"]),
        answer("1", "x"),
        answer("1", "y"),
        answer("1", "x"),
    ];
    let again = [
        user("a"),
        asks(&["1"]),
        answer("1", "x"),
        Message::assistant("b"),
        answer("1", "y"),
    ];
    let nothing = [user("a"), answer("0", "x"), user("b")];
    let reused = [
        asks(&["1"]),
        answer("1", "x"),
        asks(&["1"]),
        answer("1", "y"),
        user("a"),
        answer("1", "z"),
    ];
    let beside = [
        asks(&["1", "2"]),
        answer("1", "x"),
        user("and a picture"),
        answer("2", "y"),
    ];
    let before = [answer("1", "x"), asks(&["1"]), user("a")];
    let cases: [(&[Message], &[&str], &[&str]); 9] = [
        (
            &open,
            &["u a", "a 1? 2?", "t 1=x", "t 2=none", "u b"],
            &["2"],
        ),
        (&late, &["u a", "a 1?", "t 1=x", "u b"], &[]),
        (
            &late_beside,
            &["u a", "a 1? 2?", "t 1=x", "t 2=y", "u b"],
            &[],
        ),
        (&twice, &["u a", "a 1?", "t 1=xy"], &[]),
        (
            &again,
            &[
                "u a",
                "a 1?",
                "t 1=x",
                "a b",
                "u Result of the tool `look`:y",
            ],
            &[],
        ),
        (
            &nothing,
            &["u a", "u Result of the tool `look`:x", "u b"],
            &[],
        ),
        (
            &reused,
            &[
                "a 1?",
                "t 1=x",
                "a 1?",
                "t 1=y",
                "u a",
                "u Result of the tool `look`:z",
            ],
            &[],
        ),
        (
            &beside,
            &["a 1? 2?", "t 1=x", "t 2=y", "u and a picture"],
            &[],
        ),
        (
            &before,
            &["u Result of the tool `look`:x", "a 1?", "t 1=none", "u a"],
            &["1"],
        ),
    ];
    for (messages, whole, added) in cases {
        let agent = listener().build().unwrap();
        let messages = Messages::from(messages.to_vec());
        let response = agent.run(messages.clone()).await.unwrap();
        assert_eq!(response.text(), "I see.", "{messages:?}");
        assert_eq!(response.new_messages().len(), 1, "{messages:?}");
        let mut said = shape(response.messages());
        assert_eq!(said.pop().unwrap(), "a I see.");
        assert_eq!(said, whole);

        let (response, events) = seen(&agent, messages).await;
        assert_eq!(shape(response.unwrap().messages()).len(), whole.len() + 1);
        assert_eq!(told(&events), added, "{whole:?}: what was added is told");
    }
}

#[tokio::test]
async fn a_team_makes_a_conversation_whole_once() {
    let messages = Messages::from([user("a"), asks(&["1"]), user("b")]);
    let member = |name: &str| listener().name(name).build().unwrap();
    for team in [
        Agent::sequential("team"),
        Agent::parallel("team"),
        Agent::repeat("team", 2),
    ] {
        let team = team.agents([member("one"), member("two")]).build().unwrap();
        let (response, events) = seen(&team, messages.clone()).await;
        let response = response.unwrap();
        assert_eq!(
            shape(response.messages())[..4],
            ["u a", "a 1?", "t 1=none", "u b"]
        );
        assert_eq!(told(&events), ["1"]);
    }
}

/// A tool that waits for an answer, and an agent that has asked for it.
fn asking(change: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
    let model = strict(|request| {
        if request
            .messages()
            .iter()
            .any(|message| message.tool_calls().count() > 0)
        {
            ModelResponse::from_text("done")
        } else {
            ModelResponse::from_tool_calls([ToolCall::new("1", "ask", json!({}))])
        }
    });
    let ask = Tool::function_with("ask", "Asks.", async |_: Value, _: ToolRequest| {
        Err::<(), _>(Error::interrupt(Interrupt::new("may I?", "confirmation")))
    });
    change(Agent::builder(model).tool(ask)).build().unwrap()
}

#[tokio::test]
async fn a_user_who_speaks_in_the_place_of_answering_is_heard() {
    let agent = asking(|agent| agent);
    let paused = agent.run("Go.").await.unwrap();
    assert_eq!(paused.interrupts().len(), 1);
    let request = AgentRequest::resume(paused.checkpoint()).with_message("Never mind.");
    let (response, events) = seen(&agent, request).await;
    assert_eq!(response.unwrap().text(), "done");
    assert_eq!(told(&events), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn a_thread_in_which_a_tool_was_stopped_or_aborted_continues() {
    use std::time::Duration;
    use tower::timeout::TimeoutLayer;

    let endless = Tool::function_with("ask", "Never ends.", async |_: Value, _: ToolRequest| {
        std::future::pending::<()>().await;
    });
    let abort = Tool::function("ask", "Aborts.", |_: Value| {
        Err::<(), _>(Error::abort("no"))
    });
    for tool in [endless, abort] {
        let model = strict(|request| {
            if request
                .messages()
                .iter()
                .any(|message| message.tool_calls().count() > 0)
            {
                ModelResponse::from_text("done")
            } else {
                ModelResponse::from_tool_calls([ToolCall::new("1", "ask", json!({}))])
            }
        });
        let agent = Agent::builder(model)
            .tool(tool)
            .agent_layer(TimeoutLayer::new(Duration::from_secs(5)))
            .build()
            .unwrap();
        let error = agent.run("Go.").await.unwrap_err();
        let checkpoint = error.checkpoint().unwrap().clone();
        assert_eq!(
            checkpoint.messages.len() - usize::from(refused(&checkpoint.messages).is_none()),
            2
        );
        let request = AgentRequest::resume(checkpoint).with_message("And now?");
        assert_eq!(agent.run(request).await.unwrap().text(), "done");
    }
}

#[tokio::test]
async fn answers_that_the_end_of_an_invocation_adds_reach_the_reader() {
    let model = ScriptedModel::new([Turn::tool("look", json!({}))
        .and_tool("look", json!({}))
        .and_tool("look", json!({}))]);
    let calls = AtomicU32::new(0);
    let agent = Agent::builder(model)
        .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
        .tool_concurrency(1)
        .on_tool(after_tool(move |_, _| match calls.fetch_add(1, SeqCst) {
            0 => Err(Error::end_invocation()),
            _ => Ok(()),
        }))
        .build()
        .unwrap();
    let (response, events) = seen(&agent, "Go.").await;
    let response = response.unwrap();
    assert_eq!(response.end_reason(), &EndReason::EndedByCallback);
    assert_eq!(refused(response.messages()), None);
    assert_eq!(told(&events), ["call_1", "call_2", "call_3"]);
}

#[tokio::test]
async fn unless_calls_are_open_a_run_begins_with_the_model() {
    let conversations: [Messages; 4] = [
        [user("a"), Message::assistant("b")].into(),
        [
            user("a"),
            asks(&["1"]),
            answer("1", "x"),
            Message::assistant("b"),
            answer("1", "y"),
        ]
        .into(),
        [user("a"), asks(&["1"]), answer("1", "x")].into(),
        Messages::new(),
    ];
    for messages in conversations {
        let agent = listener().build().unwrap();
        let response = agent.run(messages.clone()).await.unwrap();
        assert_eq!(
            (response.text().as_str(), response.iterations()),
            ("I see.", 1)
        );

        let team = Agent::sequential("team")
            .agent(agent.clone())
            .build()
            .unwrap();
        assert_eq!(team.run(messages).await.unwrap().text(), "I see.");

        let again = AgentRequest::resume(response.checkpoint());
        let again = agent.run(again).await.unwrap();
        assert_eq!(
            again.new_messages().len(),
            1,
            "a completed run is not over for good"
        );
    }
}

// Answers that `after_model` replaces.

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: Value| "seen")
}

/// A model that asks for a tool with a word, a thought and something of its own.
fn thinker() -> ScriptedModel {
    let mut call = ToolCall::new("1", "look", json!({}));
    call.provider.set("acme", json!("signed"));
    let said = Message::new(
        Role::Assistant,
        [
            Part::reasoning("hm"),
            Part::from_text("Let me look."),
            Part::ToolCall(call),
        ],
    );
    let turn = ModelResponse::new(said).with_usage(Usage::new(5, 5));
    ScriptedModel::new([Turn::response(turn), Turn::from_text("done")])
}

fn replaced(
    semantics: Semantics,
    change: impl Fn(&ModelResponse) -> ModelResponse + Send + Sync + 'static,
) -> Agent {
    Agent::builder(thinker())
        .tool(look())
        .semantics(semantics)
        .on_model(after_model(move |_, response| {
            match response.message().tool_calls().next() {
                Some(_) => Action::Respond(change(response)),
                None => Action::Continue,
            }
        }))
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_text_in_the_place_of_tool_calls_keeps_them() {
    type Change = fn(&ModelResponse) -> ModelResponse;
    let changes: [Change; 2] = [
        |_| ModelResponse::from_text("One moment."),
        |response| response.clone().with_text("One moment."),
    ];
    for change in changes {
        let response = replaced(Semantics::default(), change)
            .run("Go.")
            .await
            .unwrap();
        assert_eq!(response.text(), "done");
        let first = response.new_messages().next().unwrap();
        assert_eq!(first.text(), "One moment.");
        assert!(matches!(first.parts()[0], Part::Reasoning(_)), "{first:?}");
        let call = first.tool_calls().next().unwrap();
        assert_eq!(call.provider.get("acme"), Some(&json!("signed")));

        let (response, events) = seen(&replaced(Semantics::default(), change), "Go.").await;
        assert_eq!(response.unwrap().text(), "done");
        assert_eq!(told(&events), ["1"]);
    }
}

#[tokio::test]
async fn an_answer_drops_the_calls_when_it_says_so() {
    type Change = fn(&ModelResponse) -> ModelResponse;
    let changes: [Change; 3] = [
        |_| ModelResponse::from_text("No.").without_tool_calls(),
        |response| response.clone().with_text("No.").without_tool_calls(),
        // A change of the model's own answer is what it is.
        |response| {
            let mut response = response.clone().with_text("No.");
            response
                .message_mut()
                .parts_mut()
                .retain(|part| !matches!(part, Part::ToolCall(_)));
            response
        },
    ];
    for change in changes {
        let response = replaced(Semantics::default(), change)
            .run("Go.")
            .await
            .unwrap();
        assert_eq!(
            (response.text().as_str(), response.iterations()),
            ("No.", 1)
        );
    }
    let other =
        |_: &ModelResponse| ModelResponse::from_tool_calls([ToolCall::new("2", "look", json!({}))]);
    let response = replaced(Semantics::default(), other)
        .run("Go.")
        .await
        .unwrap();
    let calls = response.new_messages().flat_map(Message::tool_calls);
    assert_eq!(calls.map(|call| &*call.id).collect::<Vec<_>>(), ["2"]);
}

#[tokio::test]
async fn a_guards_response_is_not_changed() {
    let agent = Agent::builder(thinker())
        .tool(look())
        .on_model(
            after_model(|_, response| match response.message().tool_calls().next() {
                Some(_) => Action::Respond(ModelResponse::from_text("Never.")),
                None => Action::Continue,
            })
            .guard(),
        )
        .on_model(after_model(|_, _| {
            Action::Respond(ModelResponse::from_text("Really."))
        }))
        .build()
        .unwrap();
    let response = agent.run("Go.").await.unwrap();
    assert_eq!(
        (response.text().as_str(), response.iterations()),
        ("Really.", 1)
    );
}

#[tokio::test]
async fn the_presets_replace_the_models_answer_with_its_calls() {
    let presets = [
        Semantics::potato(),
        Semantics::adk_python(),
        Semantics::adk_elixir(),
        Semantics::trpc(),
    ];
    for preset in presets {
        assert_ne!(
            preset.run.after_model_respond,
            AfterModelRespond::KeepToolCalls
        );
        let response = replaced(preset, |_| ModelResponse::from_text("No."))
            .run("Go.")
            .await
            .unwrap();
        assert_eq!(
            (response.text().as_str(), response.iterations()),
            ("No.", 1),
            "{preset:?}"
        );
    }
}

#[test]
fn the_helpers_change_one_thing_and_keep_the_rest() {
    let call = |id: &str| ToolCall::new(id, "look", json!({}));
    let response = ModelResponse::from_tool_calls([call("1")]).with_usage(Usage::new(1, 2));
    let response = response
        .with_text("a")
        .with_tool_call(call("2"))
        .with_text("b");
    assert_eq!(response.message().text(), "b");
    assert_eq!(response.message().tool_calls().count(), 2);
    assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    assert_eq!(response.usage().total(), 3);
    assert_eq!(
        response.clone().without_tool_calls().finish_reason(),
        &FinishReason::Stop
    );
    assert_eq!(
        ModelResponse::from_text("a")
            .with_tool_call(call("1"))
            .finish_reason(),
        &FinishReason::ToolCalls
    );
    let long = ModelResponse::from_text("a")
        .with_finish_reason(FinishReason::Length)
        .with_text("b");
    assert_eq!(long.finish_reason(), &FinishReason::Length);
}

// Interrupts, pauses and `after`

#[tokio::test]
async fn an_agent_that_pauses_or_ends_is_not_asked_after() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = |agent: AgentBuilder| {
        let asked = asked.clone();
        agent.on_agent(after_agent(move |_, _| {
            asked.fetch_add(1, SeqCst);
        }))
    };
    assert_eq!(
        asking(count).run("Go.").await.unwrap().interrupts().len(),
        1
    );
    assert_eq!(asked.load(SeqCst), 0);

    let ends = |agent: AgentBuilder| {
        count(agent).on_model(after_model(|_, _| Err::<(), _>(Error::end_invocation())))
    };
    assert_eq!(
        asking(ends).run("Go.").await.unwrap().end_reason(),
        &EndReason::EndedByCallback
    );
    assert_eq!(asked.load(SeqCst), 0);

    assert_eq!(
        count(listener())
            .build()
            .unwrap()
            .run("Go.")
            .await
            .unwrap()
            .text(),
        "I see."
    );
    assert_eq!(asked.load(SeqCst), 1);
}

/// The call has succeeded, and it is the run that ends.
#[tokio::test]
async fn an_interrupt_or_an_end_in_an_after_leaves_the_call_its_response() {
    let errors: [fn() -> Error; 2] = [
        || Error::interrupt(Interrupt::new("may I?", "confirmation")),
        Error::end_invocation,
    ];
    for error in errors {
        let later = Arc::new(AtomicU32::new(0));
        let counted = later.clone();
        let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("done")]);
        let agent = Agent::builder(model)
            .tool(look())
            .on_tool(after_tool(move |_, _| Err::<(), _>(error())))
            .on_tool(after_tool(move |_, _| {
                counted.fetch_add(1, SeqCst);
            }))
            .build()
            .unwrap();
        let (response, events) = seen(&agent, "Go.").await;
        let response = response.unwrap();
        assert_eq!(later.load(SeqCst), 0, "no further `after` of it is asked");
        assert_eq!(told(&events), ["call_1"]);
        assert_eq!(
            refused(response.messages()),
            None,
            "the call has its answer"
        );
    }
}

// Requests that are put in another's place

#[tokio::test]
async fn a_new_request_inside_an_agents_stack_fails_and_a_changed_one_does_not() {
    type Change = fn(AgentBuilder) -> AgentBuilder;
    let looking = || {
        let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("done")]);
        Agent::builder(model).tool(look()).instructions("Be brief.")
    };
    let fresh: [(&str, Change); 2] = [
        ("model", |agent| {
            agent.model_layer(MapRequestLayer::new(|request: ModelRequest| {
                ModelRequest::new(request.messages().clone())
            }))
        }),
        ("agent", |agent| {
            agent.agent_layer(MapRequestLayer::new(|_: AgentRequest| {
                AgentRequest::new("Go.")
            }))
        }),
    ];
    for (call, change) in fresh {
        let agent = change(looking()).build().unwrap();
        for result in [agent.run("Go.").await, seen(&agent, "Go.").await.0] {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{call}: {error}");
            let start = format!("a layer has replaced the agent's {call} request");
            assert!(error.message().starts_with(&start), "{error}");
        }
    }

    let fresh_tool: Change = |agent| {
        agent.tool_layer(MapRequestLayer::new(|request: ToolRequest| {
            ToolRequest::new(request.call().clone())
        }))
    };
    let agents = || fresh_tool(looking()).build().unwrap();
    for result in [agents().run("Go.").await, seen(&agents(), "Go.").await.0] {
        let response = result.unwrap();
        let results = response.new_messages().flat_map(Message::tool_results);
        let told: String = results.map(ToolResult::text).collect();
        assert!(
            told.contains("a layer has replaced the agent's tool request"),
            "{told}"
        );
    }

    let kept: [Change; 3] = [
        |agent| {
            agent.model_layer(MapRequestLayer::new(|request: ModelRequest| {
                ModelRequest::new(request.messages().clone())
                    .with_context(request.context().clone())
            }))
        },
        |agent| {
            agent.tool_layer(MapRequestLayer::new(|request: ToolRequest| {
                ToolRequest::new(request.call().clone()).with_context(request.context().clone())
            }))
        },
        |agent| agent.agent_layer(MapRequestLayer::new(|request: AgentRequest| request)),
    ];
    for change in kept {
        let agent = change(looking()).build().unwrap();
        assert_eq!(agent.run("Go.").await.unwrap().text(), "done");
        let agent = change(looking()).build().unwrap();
        assert_eq!(seen(&agent, "Go.").await.0.unwrap().text(), "done");
    }
}
