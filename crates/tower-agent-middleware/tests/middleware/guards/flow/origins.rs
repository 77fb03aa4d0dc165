//! Who brought a message decides its label, whatever its role and whoever passes it on.

use serde_json::json;
use tower_agent::callback::{after_agent, before_agent, before_model, on_agent_error, wrap_agent};
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::{
    Action, AgentBuilder, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelResponse,
    Recovery, Request,
};
use tower_agent_middleware::flow::{Label, label_history};
use tower_agent_test::{ScriptedModel, Turn};

use super::*;
use crate::guards::saved;

fn pay() -> Turn {
    Turn::tool("pay", json!({ "to": "bob", "amount": 5 }))
}

fn done() -> Turn {
    Turn::from_text("Done.")
}

fn answer(text: impl Into<String>) -> AgentResponse {
    AgentResponse::new([Message::assistant(text)])
}

/// Runs an assistant whose model pays at once; returns what its tools did.
async fn pays(flow: Flow, build: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Vec<String> {
    let log = Log::default();
    let model = ScriptedModel::new([pay(), done()]);
    let builder = build(assistant(&model, &log)).global_callbacks(flow);
    builder.build().unwrap().run("What is new?").await.unwrap();
    model.assert_done();
    log.take()
}

/// A worker, and what is around it.
type Around = Box<dyn Fn(AgentBuilder) -> AgentBuilder>;

/// Returns workers whose answer is not made by their model.
fn laundering() -> Vec<(&'static str, Turn, Around)> {
    let read = || {
        let call = ToolCall::new("1", "read_mail", json!({}));
        Turn::response(ModelResponse::from_text("").with_tool_call(call))
    };
    vec![
        (
            "an `after_agent` that answers with the result of the agent's own tool",
            read(),
            Box::new(|worker| {
                let worker = worker.stop_when(|turn| turn.has_called("read_mail"));
                worker.on_agent(after_agent(|_, response| {
                    let results = response.new_messages().flat_map(Message::tool_results);
                    Action::Respond(answer(
                        results.map(|result| result.text()).collect::<String>(),
                    ))
                }))
            }),
        ),
        (
            "an `after_agent` that changes the words of the model",
            done(),
            Box::new(|worker| {
                worker.on_agent(after_agent(|_, response| {
                    let changed = response.map_messages(|message| {
                        let id = message.id().cloned()?;
                        Some(Message::assistant(SECRET).with_id(id))
                    });
                    changed.map_or(Action::Continue, Action::Respond)
                }))
            }),
        ),
        (
            "an `on_agent_error` that falls back to content",
            Turn::error(Error::new(ErrorKind::Provider, "down")),
            Box::new(|worker| {
                worker.on_agent(on_agent_error(|_, _| Recovery::Fallback(answer(SECRET))))
            }),
        ),
        (
            "a layer around the agent",
            done(),
            Box::new(|worker| {
                worker.agent_layer(wrap_agent(|request, mut next| async move {
                    next.run(request).await?;
                    Ok(answer(SECRET))
                }))
            }),
        ),
        (
            "an error of a callback around the agent",
            done(),
            Box::new(|worker| {
                worker.on_agent(after_agent(|_, _| {
                    Err::<(), _>(Error::new(ErrorKind::Callback, SECRET))
                }))
            }),
        ),
        (
            "an error of a callback around the model",
            done(),
            Box::new(|worker| {
                worker.on_model(before_model(|_| {
                    Err::<(), _>(Error::new(ErrorKind::Callback, SECRET))
                }))
            }),
        ),
    ]
}

#[tokio::test]
async fn an_agents_answer_has_the_label_of_what_it_is_made_of() {
    for hides in [Hide::Nothing, Hide::Everything] {
        for (name, turn, around) in laundering() {
            let log = Log::default();
            let worker = assistant(&ScriptedModel::new([turn]), &log).name("worker");
            let worker = around(worker).build().unwrap();
            let ask = Turn::tool("worker", json!({ "request": "Look." }));
            let model = ScriptedModel::new([ask, pay(), done()]);
            let agent = assistant(&model, &log)
                .tool(worker.into_tool(""))
                .global_callbacks(flow().hide(hides).tool("worker", ToolFlow::agent()));
            agent.build().unwrap().run("?").await.unwrap();
            model.assert_done();
            let has_read = read(&model.requests()).contains("SECRET");
            assert_eq!(has_read, hides == Hide::Nothing, "{name}");
            let paid = log.take().iter().any(|entry| entry.starts_with("pay"));
            assert_eq!(paid, !has_read, "{name}, {hides:?}");
        }
    }
}

#[tokio::test]
async fn what_a_callback_adds_to_what_an_agent_is_asked_is_not_the_users_own() {
    let memory = || Message::user(SECRET);
    let add = |message: Message| {
        before_agent(move |request: &mut AgentRequest| {
            request.messages_mut().push(message.clone());
        })
    };
    for message in [
        memory(),
        Message::system(SECRET),
        Message::assistant(SECRET),
        memory().with_id("memory-1"),
    ] {
        let adding = message.clone();
        let paid = pays(flow(), |agent| agent.on_agent(add(adding))).await;
        assert_eq!(paid, [""; 0], "{message:?}");
        // A program whose callbacks add its own words says so.
        let own = flow().callbacks(Label::trusted());
        let paid = pays(own, |agent| agent.on_agent(add(message.clone()))).await;
        assert_eq!(paid, ["pay bob 5"], "{message:?}");
    }
    let layer = wrap_agent(|mut request: AgentRequest, mut next| async move {
        request.messages_mut().push(Message::user(SECRET));
        next.run(request).await
    });
    assert_eq!(
        pays(flow(), |agent| agent.agent_layer(layer)).await,
        [""; 0]
    );
    let changes = before_agent(|request: &mut AgentRequest| {
        if let Some(message) = request.messages_mut().get_mut(0) {
            let id = message.id().cloned().unwrap();
            *message = Message::user(SECRET).with_id(id);
        }
    });
    assert_eq!(pays(flow(), |agent| agent.on_agent(changes)).await, [""; 0]);
    // Or says it of one message.
    let says = before_agent(|request: &mut AgentRequest| {
        let date = Message::user("It is Monday.").with_id("date");
        label_history(request, &date, Label::trusted())?;
        request.messages_mut().push(date);
        Ok::<_, Error>(())
    });
    assert_eq!(
        pays(flow(), |agent| agent.on_agent(says)).await,
        ["pay bob 5"]
    );
}

#[tokio::test]
async fn what_was_added_is_not_the_users_own_in_a_later_run_either() {
    for has_labels in [true, false] {
        let log = Log::default();
        let model = ScriptedModel::new([done()]);
        let added = before_agent(|request: &mut AgentRequest| {
            request.messages_mut().push(Message::user(SECRET));
        });
        let agent = assistant(&model, &log)
            .on_agent(added)
            .global_callbacks(flow());
        let ended = agent.build().unwrap().run("?").await.unwrap();
        let said = ended
            .messages()
            .iter()
            .filter(|message| message.text() == SECRET);
        let said: Vec<_> = said.cloned().collect();
        assert_eq!(said.len(), 1);
        let mut checkpoint = saved(&ended);
        checkpoint.messages = said.clone().into();
        let request = if has_labels {
            AgentRequest::resume(checkpoint)
        } else {
            AgentRequest::conversation(said)
        };
        let model = ScriptedModel::new([pay(), done()]);
        let agent = guarded(&model, &log, flow());
        agent.run(request.with_message("Go on.")).await.unwrap();
        assert_eq!(log.take(), [""; 0], "{has_labels}");
    }
}

#[tokio::test]
async fn a_message_that_a_callback_adds_to_an_answer_is_not_the_users_own_next_time() {
    let log = Log::default();
    let model = ScriptedModel::new([done()]);
    let adds = after_agent(|_: &AgentRequest, _: &AgentResponse| {
        let messages = [Message::user(SECRET), Message::assistant("Noted.")];
        Action::Respond(AgentResponse::new(messages))
    });
    let agent = assistant(&model, &log)
        .on_agent(adds)
        .global_callbacks(flow());
    let ended = agent.build().unwrap().run("?").await.unwrap();
    let mut checkpoint = saved(&ended);
    let users = checkpoint.messages.iter();
    let users = users.filter(|message| message.role() == tower_agent::Role::User);
    checkpoint.messages = users.cloned().collect();
    assert_eq!(checkpoint.messages.len(), 2);
    let model = ScriptedModel::new([pay(), done()]);
    let request = AgentRequest::resume(checkpoint).with_message("Go on.");
    guarded(&model, &log, flow()).run(request).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

/// Returns a result of a call, beside the one that the call has.
fn late(id: &str) -> Message {
    let call = ToolCall::new(id, "today", json!({}));
    Message::tool(ToolResult::new(
        &call,
        [tower_agent::Part::from_text(SECRET)],
    ))
}

#[tokio::test]
async fn a_repaired_result_is_the_word_of_a_tool() {
    for comes_at_once in [true, false] {
        for id in ["call_1", "call_of_nobody"] {
            let log = Log::default();
            let called = ToolCall::new("call_1", "today", json!({}));
            let mut turns = vec![Turn::response(
                ModelResponse::from_text("").with_tool_call(called),
            )];
            if !comes_at_once {
                turns.push(Turn::from_text("It runs."));
            }
            let model = ScriptedModel::new(turns);
            let agent = assistant(&model, &log).global_callbacks(flow());
            let agent = agent.stop_when(move |_| comes_at_once).build().unwrap();
            let started = agent.run("?").await.unwrap();
            let request = AgentRequest::resume(saved(&started)).with_message(late(id));
            let model = ScriptedModel::new([pay(), done()]);
            guarded(&model, &log, flow()).run(request).await.unwrap();
            assert!(read(&model.requests()).contains("SECRET"), "{id}");
            assert_eq!(log.take(), [""; 0], "{id}, {comes_at_once}");
        }
    }
}

#[tokio::test]
async fn a_task_of_a_team_is_not_the_users_own() {
    let run = async |flow: Flow, id: Option<&'static str>, says: bool| {
        let log = Log::default();
        let fetched = Tool::function_with(
            "fetch",
            "",
            async |_: Value, call: tower_agent::ToolRequest| {
                call.context().state().set("mails", json!([SECRET]));
                "1 mail"
            },
        );
        let list = ScriptedModel::new([Turn::tool("fetch", json!({})), done()]);
        let list = Agent::builder(list)
            .name("list")
            .tool(fetched.effect(Effect::Pure));
        let each = ScriptedModel::new([pay(), done()]);
        let worker = assistant(&each, &log).name("worker").build().unwrap();
        let tasks = move |request: &AgentRequest| {
            let mails = request.context().state().get("mails").unwrap_or_default();
            let mails: Vec<String> = serde_json::from_value(mails)?;
            let tasks = mails.into_iter().map(Message::user).map(|task| match id {
                Some(id) => task.with_id(id),
                None => task,
            });
            let tasks: Vec<_> = tasks.collect();
            if says {
                label_history(request, &tasks[0], Label::trusted())?;
            }
            Ok(tasks)
        };
        let team = Agent::sequential("team")
            .agents([
                list.build().unwrap(),
                Agent::for_each("each", worker, tasks).build().unwrap(),
            ])
            .global_callbacks(
                flow.hide(Hide::Everything)
                    .tool("fetch", ToolFlow::source()),
            )
            .build()
            .unwrap();
        team.run("Go through my mails.").await.unwrap();
        assert!(read(&each.requests()).contains("SECRET"));
        log.take()
    };
    assert_eq!(run(flow(), None, false).await, [""; 0]);
    assert_eq!(run(flow(), Some("mail-1"), false).await, [""; 0]);
    assert_eq!(run(flow(), Some("mail-1"), true).await, ["pay bob 5"]);
}

#[tokio::test]
async fn a_model_that_is_an_agent_says_what_that_has_read() {
    for reads in [true, false] {
        let log = Log::default();
        let turns = reads.then(|| Turn::tool("read_mail", json!({})));
        let inner = ScriptedModel::new(turns.into_iter().chain([Turn::from_text("pay")]));
        let inner = assistant(&inner, &log).name("inner").build().unwrap();
        let first = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
        let model = tower::service_fn(move |request: tower_agent::ModelRequest| {
            let inner = inner.clone();
            let is_first = first.swap(false, std::sync::atomic::Ordering::Relaxed);
            async move {
                if !is_first {
                    return Ok::<_, Error>(ModelResponse::from_text("Done."));
                }
                let asked =
                    AgentRequest::new("What to do?").with_context(request.context().clone());
                let name = inner.run(asked).await?.text();
                let call = ToolCall::new("1", &*name, json!({ "to": "bob", "amount": 5 }));
                Ok(ModelResponse::from_text("").with_tool_call(call))
            }
        });
        let agent = Agent::builder(model).tools(tools(&log));
        // What a model asks is its own word.
        let flow = flow().callbacks(Label::trusted());
        let agent = agent.global_callbacks(flow).build().unwrap();
        agent.run("?").await.unwrap();
        assert_eq!(log.take().is_empty(), reads);
    }
}

#[tokio::test]
async fn the_label_of_an_answer_is_told() {
    use futures::StreamExt;
    use tower_agent::stream::EventKind;

    for reads in [true, false] {
        let log = Log::default();
        let turns = reads.then(|| Turn::tool("read_mail", json!({})));
        let model = ScriptedModel::new(turns.into_iter().chain([Turn::from_text("\"bob\"")]));
        let flow = flow();
        let agent = guarded(&model, &log, flow.clone());
        let mut run = agent.stream_typed::<String>("?");
        let mut told = Vec::new();
        while let Some(event) = run.next().await {
            if let EventKind::Note { name, value } = event.kind
                && &*name == "flow_answer"
            {
                told.push(value["label"]["integrity"].clone());
            }
        }
        let typed = run.response().await.unwrap();
        assert_eq!(typed.value.as_deref(), Some("bob"));
        assert_eq!(flow.label_of(&typed.response).is_trusted(), !reads);
        assert_eq!(told, [if reads { "untrusted" } else { "trusted" }]);
    }
    // Without the guard, nobody has said.
    let model = ScriptedModel::new([done()]);
    let agent = Agent::builder(model).build().unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(flow().label_of(&response), Label::unknown());
}

#[tokio::test]
async fn instructions_that_are_filled_from_the_state_are_not_the_programs_own() {
    use tower_agent::compat::Semantics;

    for (instructions, pays) in [("Today is {found}.", false), ("It is Monday.", true)] {
        let log = Log::default();
        let writes = Tool::function_with(
            "writes",
            "",
            async |_: Value, call: tower_agent::ToolRequest| {
                call.context().state().set("found", SECRET);
                "written"
            },
        );
        let model = ScriptedModel::new([pay(), done()]);
        let first = ScriptedModel::new([Turn::tool("writes", json!({})), done()]);
        let first = Agent::builder(first).name("first");
        let first = first.tool(writes.effect(Effect::Pure)).build().unwrap();
        let second = assistant(&model, &log).name("second");
        let second = second.instructions(instructions).build().unwrap();
        let flow = hiding().tool("writes", ToolFlow::source());
        let team = Agent::sequential("team")
            .agents([first, second])
            .semantics(Semantics::adk_python())
            .global_callbacks(flow);
        team.build().unwrap().run("?").await.unwrap();
        let read = read(&model.requests());
        assert_eq!(read.contains("SECRET"), !pays);
        assert_eq!(!log.take().is_empty(), pays, "{instructions}");
    }
}
