//! What is in the state has the label of the call that has written it, whoever reads it.

use serde_json::{Map, json};
use tower_agent::callback::{before_agent, before_tool};
use tower_agent::compat::Semantics;
use tower_agent::message::ToolCall;
use tower_agent::{
    AgentRequest, Checkpoint, ModelResponse, Part, Request, Role, State, ToolRequest,
};
use tower_agent_middleware::flow::Label;
use tower_agent_test::{ScriptedModel, Turn};

use super::*;

fn done() -> Turn {
    Turn::from_text("Done.")
}

fn pay() -> Turn {
    Turn::tool("pay", json!({ "to": "bob", "amount": 5 }))
}

fn writes(name: &str, text: &'static str) -> Tool {
    let writes = move |_: Value, call: ToolRequest| async move {
        call.context().state().set("found", text);
        // Others run meanwhile.
        tokio::task::yield_now().await;
        "written"
    };
    Tool::function_with(name, "", writes).effect(Effect::Pure)
}

/// Tools that write into the state, and that read it.
fn state_tools() -> Vec<Tool> {
    let recall =
        async |_: Value, call: ToolRequest| call.context().state().get("found").unwrap_or_default();
    let count = async |_: Value, call: ToolRequest| {
        call.context().state().update("count", |count| {
            *count = json!(count.as_u64().unwrap_or(0) + 1);
            count.clone()
        })
    };
    vec![
        writes("fetch", SECRET),
        writes("note", "It is Monday."),
        Tool::function_with("recall", "", recall).effect(Effect::Pure),
        Tool::function_with("count", "", count).effect(Effect::Pure),
    ]
}

/// A guard by which nothing but the state can bring content to a model.
fn with_state() -> Flow {
    flow()
        .tool("fetch", ToolFlow::source().hidden())
        .tool("note", ToolFlow::trusted())
        .tool("recall", ToolFlow::trusted())
        .tool("count", ToolFlow::trusted())
        .tool("worker", ToolFlow::agent())
}

fn call(tools: &[&'static str]) -> Turn {
    let calls = tools.iter().enumerate().map(|(number, tool)| {
        Part::from(ToolCall::new(format!("call_{number}"), *tool, json!({})))
    });
    Turn::response(ModelResponse::new(tower_agent::Message::new(
        Role::Assistant,
        calls,
    )))
}

/// Returns the request of a later run with the same state, which has nothing else of the
/// conversation than what the guard knows.
fn in_another_process(checkpoint: Checkpoint, state: &State) -> AgentRequest {
    let saved = serde_json::to_string(&(checkpoint, state.snapshot())).unwrap();
    let (mut checkpoint, state): (Checkpoint, Map<String, Value>) =
        serde_json::from_str(&saved).unwrap();
    checkpoint.messages = Default::default();
    AgentRequest::resume(checkpoint)
        .with_state(state.into())
        .with_message("Go on.")
}

/// Calls these tools, one turn after the other, and pays then.
fn script(turns: &[&[&'static str]]) -> ScriptedModel {
    let calls = turns.iter().map(|tools| call(tools));
    ScriptedModel::new(calls.chain([pay(), done()]))
}

async fn pays_after(flow: Flow, turns: &[&[&'static str]]) -> bool {
    let log = Log::default();
    let model = script(turns);
    let agent = assistant(&model, &log).tools(state_tools());
    let agent = agent.global_callbacks(flow).build().unwrap();
    agent.run("?").await.unwrap();
    model.assert_done();
    !log.take().is_empty()
}

#[tokio::test]
async fn what_a_tool_reads_in_the_state_has_the_label_of_the_call_that_wrote_it() {
    for (turns, pays) in [
        (&[&["fetch"][..]][..], true),
        (&[&["recall"]], true),
        (&[&["note"], &["recall"]], true),
        (&[&["fetch"], &["recall"]], false),
        // The last of two that write counts, unless both do at the same time.
        (&[&["fetch"], &["note"], &["recall"]], true),
        (&[&["note"], &["fetch"], &["recall"]], false),
        (&[&["fetch", "note"], &["recall"]], false),
        (&[&["note", "fetch"], &["recall"]], false),
        (&[&["note"], &["fetch", "recall"]], false),
        // What a call has written itself, and other entries, are nothing that it reads of others.
        (&[&["count"], &["count"]], true),
        (&[&["fetch"], &["count"], &["count"]], true),
    ] {
        assert_eq!(pays_after(with_state(), turns).await, pays, "{turns:?}");
        // Whatever the program says of its callbacks.
        let trusting = with_state().callbacks(Label::trusted());
        assert_eq!(pays_after(trusting, turns).await, pays, "{turns:?}");
    }
    let hiding = with_state().hide(Hide::Everything);
    assert!(pays_after(hiding, &[&["fetch"], &["recall"]]).await);
}

#[tokio::test]
async fn what_a_call_in_an_untrusted_context_writes_is_not_trusted() {
    let log = Log::default();
    // What the first agent has read is none of the second one's, which reads the state alone.
    let first = script(&[&["read_mail"], &["note"]]);
    let second = script(&[&["recall"]]);
    let flow = with_state();
    let agent = |model: &ScriptedModel| {
        let agent = assistant(model, &log).tools(state_tools());
        agent.global_callbacks(flow.clone()).build().unwrap()
    };
    let ended = agent(&first).run("?").await.unwrap();
    let request = in_another_process(ended.checkpoint(), ended.state());
    agent(&second).run(request).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn what_an_agent_in_a_call_writes_has_the_label_of_its_own_call() {
    for (writer, pays) in [("fetch", false), ("note", true)] {
        let log = Log::default();
        let inner = ScriptedModel::new([call(&[writer]), done()]);
        let worker = Agent::builder(inner).name("worker").tools(state_tools());
        let ask = Turn::tool("worker", json!({ "request": "Look." }));
        let model = ScriptedModel::new([ask, call(&["recall"]), pay(), done()]);
        let agent = assistant(&model, &log)
            .tools(state_tools())
            .tool(worker.build().unwrap().into_tool(""))
            .global_callbacks(with_state());
        agent.build().unwrap().run("?").await.unwrap();
        model.assert_done();
        assert_eq!(!log.take().is_empty(), pays, "{writer}");
    }
}

#[tokio::test]
async fn instructions_have_the_label_of_what_they_are_filled_with() {
    for (writer, pays) in [("fetch", false), ("note", true), ("today", false)] {
        for callbacks in [Label::unknown(), Label::trusted()] {
            let log = Log::default();
            let first = ScriptedModel::new([call(&[writer]), done()]);
            let first = assistant(&first, &log).name("first").tools(state_tools());
            let second = ScriptedModel::new([pay(), done()]);
            let second = assistant(&second, &log).name("second");
            let second = second.instructions("You know: {found}");
            let team = Agent::sequential("team")
                .agents([first.build().unwrap(), second.build().unwrap()])
                .semantics(Semantics::adk_python())
                .global_callbacks(with_state().callbacks(callbacks.clone()));
            // Where no call has written it, the program has, of which nothing is known.
            let state = State::from_iter([("found".to_owned(), json!("a name"))]);
            let request = AgentRequest::new("?").with_state(state);
            team.build().unwrap().run(request).await.unwrap();
            let pays = pays || writer == "today" && callbacks.is_trusted();
            assert_eq!(!log.take().is_empty(), pays, "{writer}, {callbacks:?}");
        }
    }
}

#[tokio::test]
async fn a_text_that_an_agent_keeps_has_the_label_of_its_messages() {
    for (reads, pays) in [("read_mail", false), ("today", true)] {
        for by_tool in [true, false] {
            let log = Log::default();
            let draft = ModelResponse::from_text("I look. ");
            let draft = draft.with_tool_call(ToolCall::new("1", reads, json!({})));
            let first = ScriptedModel::new([Turn::response(draft), Turn::from_text("Pay bob.")]);
            let first = assistant(&first, &log).name("first").output_key("found");
            // It is asked in a tool call, so that its messages are not those of the other.
            let first = first.build().unwrap().into_tool("");
            let ask = Turn::tool("first", json!({ "request": "Look." }));
            let list = ScriptedModel::new([ask, done()]);
            let list = Agent::builder(list).name("list").tool(first);
            let turns = by_tool.then(|| call(&["recall"]));
            let second = ScriptedModel::new(turns.into_iter().chain([pay(), done()]));
            let mut reader = assistant(&second, &log).tools(state_tools()).name("second");
            if !by_tool {
                reader = reader.instructions("You know: {found}");
            }
            let flow = with_state().tool("first", ToolFlow::agent().hidden());
            let team = Agent::sequential("team")
                .agents([list.build().unwrap(), reader.build().unwrap()])
                .semantics(Semantics::adk_python())
                .global_callbacks(flow);
            let ended = team.build().unwrap().run("?").await.unwrap();
            assert_eq!(ended.state().get("found"), Some(json!("I look. Pay bob.")));
            second.assert_done();
            assert_eq!(!log.take().is_empty(), pays, "{reads}, {by_tool}");
        }
    }
}

#[tokio::test]
async fn what_was_written_keeps_its_label_in_another_process() {
    for (writer, pays) in [("fetch", false), ("note", true), ("", false)] {
        let log = Log::default();
        let agent = |model: &ScriptedModel| assistant(model, &log).tools(state_tools());
        let first = match writer {
            "" => ScriptedModel::new([done()]),
            writer => ScriptedModel::new([call(&[writer]), done()]),
        };
        let mut first = agent(&first);
        if writer.is_empty() {
            first = first.on_agent(before_agent(|request: &mut AgentRequest| {
                request.context().state().set("found", SECRET);
            }));
        }
        let first = first.global_callbacks(with_state()).build().unwrap();
        let ended = first.run("?").await.unwrap();
        let request = in_another_process(ended.checkpoint(), ended.state());
        let second = script(&[&["recall"]]);
        let later = agent(&second).global_callbacks(with_state());
        later.build().unwrap().run(request).await.unwrap();
        second.assert_done();
        assert_eq!(!log.take().is_empty(), pays, "{writer}");
    }
}

#[tokio::test]
async fn what_a_callback_writes_over_it_is_not_trusted() {
    for in_call in [true, false] {
        let log = Log::default();
        let model = script(&[&["note"], &["today"], &["recall"]]);
        let agent = assistant(&model, &log).tools(state_tools());
        let agent = if in_call {
            // A callback around a tool is a part of the call, for which the program has spoken.
            agent.on_tool(before_tool(|request: &mut ToolRequest| {
                if request.name() == "today" {
                    request.context().state().set("found", SECRET);
                }
            }))
        } else {
            agent.on_model(tower_agent::callback::before_model(|request| {
                if request.context().iteration() == 1 {
                    request.context().state().set("found", SECRET);
                }
            }))
        };
        let agent = agent.global_callbacks(with_state()).build().unwrap();
        agent.run("?").await.unwrap();
        assert_eq!(!log.take().is_empty(), in_call);
    }
}

#[tokio::test]
async fn a_call_that_fails_has_written_what_it_has_written() {
    let log = Log::default();
    let fetch = async |_: Value, call: ToolRequest| {
        call.context().state().set("found", SECRET);
        Err::<String, _>(tower_agent::BoxError::from("down"))
    };
    let fetch = Tool::function_with("fetch", "", fetch).effect(Effect::Pure);
    let model = script(&[&["fetch"], &["recall"]]);
    let recall = state_tools().into_iter().skip(2);
    let agent = assistant(&model, &log).tool(fetch).tools(recall);
    let flow = with_state().callbacks(Label::trusted());
    let agent = agent.global_callbacks(flow).build().unwrap();
    agent.run("?").await.unwrap();
    assert!(read(&model.requests()).contains("SECRET"));
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn a_task_that_is_made_of_the_state_has_its_label() {
    for (writer, pays) in [("fetch", false), ("note", true)] {
        let log = Log::default();
        let list = ScriptedModel::new([call(&[writer]), done()]);
        let list = Agent::builder(list).name("list").tools(state_tools());
        let each = ScriptedModel::new([pay(), done()]);
        let worker = assistant(&each, &log).name("worker").build().unwrap();
        let tasks = Agent::for_each("each", worker, |request: &AgentRequest| {
            let found = request.context().state().get("found");
            let tasks: Vec<_> = found.into_iter().map(|found| found.to_string()).collect();
            Ok::<_, tower_agent::Error>(tasks)
        });
        let team = Agent::sequential("team")
            .agents([list.build().unwrap(), tasks.build().unwrap()])
            .global_callbacks(with_state().callbacks(Label::trusted()));
        team.build().unwrap().run("?").await.unwrap();
        each.assert_done();
        assert_eq!(!log.take().is_empty(), pays, "{writer}");
    }
}

#[tokio::test]
async fn what_was_written_as_the_process_died_is_not_trusted() {
    let by_tool = |ended: &'static str, text: &'static str| {
        let writes = move |_: Value, call: ToolRequest| async move {
            if !text.is_empty() {
                call.context().state().set("found", text);
            }
            std::future::pending::<&str>().await
        };
        (ended, Tool::function_with("fetch", "", writes), false)
    };
    let by_callback = {
        let waits = async |_: Value, _: ToolRequest| std::future::pending::<&str>().await;
        ("today", Tool::function_with("fetch", "", waits), true)
    };
    for ((ended, fetch, in_callback), pays) in [
        (by_tool("today", SECRET), false),
        (by_tool("note", SECRET), false),
        (by_callback, false),
        // What had a label before keeps it, and what the program has given stays its own.
        (by_tool("note", ""), true),
        (by_tool("today", ""), true),
    ] {
        let log = Log::default();
        let trusting = || with_state().callbacks(Label::trusted());
        let first_model = script(&[&[ended], &["fetch"]]);
        let first = assistant(&first_model, &log).tools(state_tools().into_iter().skip(1));
        let first = first.tool(fetch.effect(Effect::Pure));
        let first = first.on_model(tower_agent::callback::before_model(move |request| {
            if in_callback && request.context().iteration() == 1 {
                request.context().state().set("found", SECRET);
            }
        }));
        let first = first.global_callbacks(trusting()).build().unwrap();
        let given = State::from_iter([("found".to_owned(), json!("a name"))]);
        let request = AgentRequest::new("?").with_state(given);
        let running = request.context().clone();
        let progress = request.clone();
        let mut run = Box::pin(first.run(request));
        // The tools before it yield.
        while first_model.requests().len() < 2 {
            assert!(futures::poll!(&mut run).is_pending());
        }
        assert!(futures::poll!(&mut run).is_pending());
        let request = in_another_process(progress.checkpoint(), running.state());
        let second = script(&[&["recall"]]);
        let second_agent = assistant(&second, &log).tools(state_tools());
        let later = second_agent.global_callbacks(trusting()).build().unwrap();
        later.run(request).await.unwrap();
        second.assert_done();
        assert_eq!(!log.take().is_empty(), pays, "{ended} {in_callback}");
    }
}
