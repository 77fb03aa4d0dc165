//! The translation of every event of an agent: each line of the module's table.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::callback::{after_model, before_model, before_model_async, on_model_error};
use tower_agent::message::MediaSource;
use tower_agent::stream::EventKind as Told;
use tower_agent::{
    Action, Agent, AgentBuilder, Error, ErrorKind, ModelRequest, ModelResponse, Part, Recovery,
    Request, Role, Tool, ToolRequest, ToolResponse, Usage,
};
use tower_agent_agui::{
    AgUi, Conversation, Event, EventKind, Message, MessageKind, RunAgentInput, TranslateResponse,
    before_translate, conversation,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{customs, error, in_step, input, names, open, run, says, wire};

fn agent(name: &str, turns: impl IntoIterator<Item = Turn>) -> AgentBuilder {
    Agent::builder(ScriptedModel::new(turns)).name(name)
}

/// A turn that calls a tool by a name of its own.
pub(super) fn asks(tool: &str, id: &str, arguments: Value) -> Turn {
    asks_for([(tool, id, arguments)])
}

fn asks_for<const N: usize>(calls: [(&str, &str, Value); N]) -> Turn {
    let calls = calls.map(|(tool, id, arguments)| {
        Part::from(tower_agent::message::ToolCall::new(id, tool, arguments))
    });
    Turn::response(ModelResponse::new(tower_agent::Message::new(
        Role::Assistant,
        calls,
    )))
}

fn echo() -> Tool {
    Tool::function("echo", "Echoes.", |value: Value| value)
}

fn served(agent: AgentBuilder) -> Vec<Event> {
    run(&open(agent.build().unwrap()).build(), input())
}

fn of_kind(events: &[Event], kind: &str) -> Vec<Value> {
    wire(events)
        .into_iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

fn position(events: &[Event], found: impl Fn(&Value) -> bool) -> usize {
    wire(events)
        .iter()
        .position(found)
        .unwrap_or_else(|| panic!("not in {events:#?}"))
}

#[test]
fn a_run_starts_says_its_version_and_its_parent_and_finishes_with_its_tokens() {
    let mut input = RunAgentInput::new("t", "r", [Message::user("u", "Hello")]);
    input.parent_run_id = Some("r0".into());
    let usage = Usage::new(12, 3);
    let sent = run(&says([Turn::from_text("hi").usage(usage)]).build(), input);
    let sent = wire(&sent);
    let started = json!({
        "type": "RUN_STARTED", "threadId": "t", "runId": "r",
        "protocolVersion": "1.0", "parentRunId": "r0",
    });
    assert_eq!(sent[0], started);
    let finished = json!({
        "type": "RUN_FINISHED", "threadId": "t", "runId": "r",
        "usage": [{ "inputTokens": 12, "outputTokens": 3, "totalTokens": 15 }],
    });
    assert_eq!(*sent.last().unwrap(), finished);
}

#[test]
fn a_run_that_fails_says_why_and_what_it_has_used() {
    let turns = [
        asks("echo", "c1", json!(1)).usage(Usage::new(4, 2)),
        Turn::error(Error::new(ErrorKind::Provider, "the model is ill")),
    ];
    let sent = served(agent("agent", turns).tool(echo()));
    let failed = json!({
        "type": "RUN_ERROR", "message": "the model is ill", "code": "provider",
        "usage": [{ "inputTokens": 4, "outputTokens": 2, "totalTokens": 6 }],
    });
    assert_eq!(*wire(&sent).last().unwrap(), failed);
}

#[test]
fn text_is_streamed_in_a_step_of_its_turn() {
    let sent = run(&says([Turn::from_text("one two")]).build(), input());
    let sent = wire(&sent[2..sent.len() - 1]);
    let message = |kind: &str| json!({ "type": kind, "messageId": "r-m1" });
    let mut start = message("TEXT_MESSAGE_START");
    start["role"] = "assistant".into();
    let expected = [
        json!({ "type": "STEP_STARTED", "stepName": "agent 0" }),
        start,
        super::content("r-m1", "one "),
        super::content("r-m1", "two"),
        message("TEXT_MESSAGE_END"),
        json!({ "type": "STEP_FINISHED", "stepName": "agent 0" }),
    ];
    assert_eq!(sent, expected);
}

#[test]
fn reasoning_comes_before_the_text_in_a_message_of_its_own() {
    let parts = [Part::reasoning("hm"), Part::from_text("yes")];
    let message = tower_agent::Message::new(Role::Assistant, parts);
    let sent = run(
        &says([Turn::response(ModelResponse::new(message))]).build(),
        input(),
    );
    let kinds: Vec<_> = in_step(&sent)
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    let expected = [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
    ];
    assert_eq!(kinds, expected);
    let content = of_kind(&sent, "REASONING_MESSAGE_CONTENT");
    assert_eq!(content[0]["delta"], "hm");
    assert_eq!(content[0]["messageId"], "r-m1-r0");
}

#[test]
fn a_tool_call_its_arguments_and_its_result() {
    let sent = served(
        agent(
            "agent",
            [asks("echo", "c1", json!({ "a": 1 })), Turn::from_text("so")],
        )
        .tool(echo()),
    );
    let expected = [
        json!({ "type": "TOOL_CALL_START", "toolCallId": "r-m1-t0", "toolCallName": "echo", "parentMessageId": "r-m1" }),
        json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "r-m1-t0", "delta": "{\"a\"" }),
        json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "r-m1-t0", "delta": ":1}" }),
        json!({ "type": "TOOL_CALL_END", "toolCallId": "r-m1-t0" }),
        json!({ "type": "TOOL_CALL_RESULT", "messageId": "r-m1-t0-result", "toolCallId": "r-m1-t0", "content": "{\"a\":1}" }),
    ];
    assert_eq!(in_step(&sent), expected);
}

#[test]
fn calls_side_by_side_each_have_their_result() {
    let turn = asks_for([("echo", "c1", json!(1)), ("echo", "c2", json!(2))]);
    let sent = served(agent("agent", [turn, Turn::from_text("so")]).tool(echo()));
    let results = of_kind(&sent, "TOOL_CALL_RESULT");
    let results: Vec<_> = results
        .iter()
        .map(|event| (&event["toolCallId"], &event["content"]))
        .collect();
    assert_eq!(
        results,
        [
            (&json!("r-m1-t0"), &json!("1")),
            (&json!("r-m1-t1"), &json!("2"))
        ]
    );
}

#[test]
fn a_result_may_have_pictures() {
    let draw = Tool::function("draw", "Draws.", |_: Value| {
        ToolResponse::new("drawn").with_parts([
            Part::from_text("Here:"),
            Part::image(MediaSource::base64("image/png", "QQ==")),
        ])
    });
    let sent = served(
        agent(
            "agent",
            [asks("draw", "c1", json!({})), Turn::from_text("so")],
        )
        .tool(draw),
    );
    let result = &of_kind(&sent, "TOOL_CALL_RESULT")[0];
    let kinds: Vec<_> = result["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["type"])
        .collect();
    assert_eq!(kinds, ["text", "image"]);
}

#[test]
fn the_state_is_sent_whole_and_then_as_it_changes() {
    let count = Tool::function_with("count", "Counts.", |_: Value, call: ToolRequest| {
        let state = call.context().state();
        let count = state
            .get("count")
            .and_then(|value| value.as_i64())
            .unwrap_or(0)
            + 1;
        state.set("count", count);
        count
    });
    let builder = agent(
        "agent",
        [asks("count", "c1", json!({})), Turn::from_text("so")],
    )
    .tool(count);
    let mut input = input();
    input.state = Some(json!({ "count": 4, "who": "Ada" }));
    let sent = run(&AgUi::new(builder.build().unwrap()), input);
    let snapshot = json!({ "type": "STATE_SNAPSHOT", "snapshot": { "count": 4, "who": "Ada" } });
    assert_eq!(wire(&sent)[1], snapshot);
    let deltas = of_kind(&sent, "STATE_DELTA");
    let patch = json!([{ "op": "replace", "path": "/count", "value": 5 }]);
    assert_eq!(deltas, [json!({ "type": "STATE_DELTA", "delta": patch })]);
}

#[test]
fn a_tools_own_event_is_a_custom_event() {
    let tell = Tool::function_with("tell", "Tells.", |_: Value, call: ToolRequest| async move {
        call.context()
            .emit("progress", json!({ "percent": 50 }))
            .await;
        "told"
    });
    let sent = served(
        agent(
            "agent",
            [asks("tell", "c1", json!({})), Turn::from_text("so")],
        )
        .tool(tell),
    );
    let told = json!({ "type": "CUSTOM", "name": "progress", "value": { "percent": 50 } });
    assert_eq!(of_kind(&sent, "CUSTOM"), [told]);
}

#[test]
fn usage_and_notes_are_not_sent_unless_a_callback_does() {
    let builder = || {
        agent("agent", [Turn::from_text("hi").usage(Usage::new(1, 1))])
            // Asynchronous, so that it is told where it happens.
            .on_model(before_model_async(async |request: &mut ModelRequest| {
                request.context().note("guard", "rule 7").await;
            }))
    };
    let plain = names(&served(builder()));
    assert_eq!(plain.len(), 8, "{plain:?}");
    let server = AgUi::builder(builder().build().unwrap())
        .on_translate(before_translate(|request| match &request.event().kind {
            Told::Usage { usage } => {
                let told = Event::custom("usage", usage.total());
                Action::Respond(TranslateResponse::from(told))
            }
            Told::Callback(note) => Action::Respond(Event::custom("callback", note.hook).into()),
            Told::Note { name, value } => {
                Action::Respond(Event::custom(name.clone(), value.clone()).into())
            }
            _ => Action::Continue,
        }))
        .build();
    let sent = run(&server, input());
    assert_eq!(customs(&sent), ["guard", "callback", "usage"]);
}

/// The messages that a front end is left with, as an agent would read them.
fn left(events: &[Event]) -> Vec<(Role, String)> {
    let mut front_end = Conversation::new(input().messages);
    events.iter().for_each(|event| front_end.apply(event));
    let messages = conversation::read(front_end.messages()).unwrap();
    messages
        .iter()
        .map(|message| (message.role(), message.text()))
        .collect()
}

#[test]
fn an_attempt_that_is_discarded_is_taken_away_again() {
    let turns = [
        Turn::response(ModelResponse::new(tower_agent::Message::new(
            Role::Assistant,
            [Part::reasoning("hm"), Part::from_text("half an ans")],
        )))
        .failing_after(3, Error::new(ErrorKind::Overloaded, "busy")),
        Turn::from_text("the whole"),
    ];
    let builder = agent("agent", turns).on_model(on_model_error(|_, _| Recovery::Retry));
    let sent = served(builder);
    let snapshots = of_kind(&sent, "MESSAGES_SNAPSHOT");
    assert_eq!(snapshots.len(), 1);
    assert!(
        !snapshots[0].to_string().contains("half"),
        "{}",
        snapshots[0]
    );
    // It was seen, and it is gone before the other begins.
    let half = position(&sent, |event| event["delta"] == "half");
    let gone = position(&sent, |event| event["type"] == "MESSAGES_SNAPSHOT");
    let whole = position(&sent, |event| event["delta"] == "the ");
    assert!(half < gone && gone < whole);
    assert_eq!(
        left(&sent),
        [
            (Role::User, "Hello".to_owned()),
            (Role::Assistant, "the whole".to_owned())
        ]
    );
}

#[test]
fn an_answer_that_is_replaced_is_taken_away_with_its_calls() {
    let replace = after_model(|request, _| match request.messages().len() {
        1 => Action::Respond(ModelResponse::from_text("no tools today").without_tool_calls()),
        _ => Action::Continue,
    });
    let builder = agent("agent", [asks("echo", "c1", json!("never"))])
        .tool(echo())
        .on_model(replace);
    let sent = served(builder);
    assert_eq!(of_kind(&sent, "TOOL_CALL_START").len(), 1);
    assert_eq!(of_kind(&sent, "TOOL_CALL_RESULT").len(), 0);
    assert_eq!(
        left(&sent),
        [
            (Role::User, "Hello".to_owned()),
            (Role::Assistant, "no tools today".to_owned())
        ]
    );
}

#[test]
fn an_agent_used_as_a_tool_is_a_subagent_and_its_events_bear_its_name() {
    let helper = agent(
        "helper",
        [asks("echo", "h1", json!("x")), Turn::from_text("helped")],
    )
    .tool(echo())
    .build()
    .unwrap();
    let turns = [
        asks("helper", "c1", json!({ "request": "Help!" })),
        Turn::from_text("so"),
    ];
    let sent = served(agent("lead", turns).tool(helper.into_tool("Helps.")));
    let started = json!({
        "type": "SUBAGENT_STARTED", "subagentRunId": "r-a2", "name": "helper",
        "parentToolCallId": "r-m1-t0",
    });
    assert_eq!(of_kind(&sent, "SUBAGENT_STARTED"), [started]);
    let finished = json!({ "type": "SUBAGENT_FINISHED", "subagentRunId": "r-a2" });
    assert_eq!(of_kind(&sent, "SUBAGENT_FINISHED"), [finished]);
    let start = position(&sent, |event| event["type"] == "SUBAGENT_STARTED");
    let end = position(&sent, |event| event["type"] == "SUBAGENT_FINISHED");
    let sent = wire(&sent);
    assert!(
        sent[start..=end]
            .iter()
            .all(|event| event["subagentRunId"] == "r-a2"),
        "{sent:#?}"
    );
    let rest = sent[..start].iter().chain(&sent[end + 1..]);
    assert!(
        rest.clone()
            .all(|event| event.get("subagentRunId").is_none())
    );
    let steps: Vec<_> = sent[start..end]
        .iter()
        .filter(|event| event["type"] == "STEP_STARTED")
        .map(|event| event["stepName"].as_str().unwrap())
        .collect();
    assert_eq!(steps, ["lead/helper 0", "lead/helper 1"]);
    assert!(
        rest.clone()
            .any(|event| event["toolCallId"] == "r-m1-t0" && event["content"] == "helped")
    );
}

#[test]
fn a_subagent_within_a_subagent_names_its_parent() {
    let inner = agent("inner", [Turn::from_text("deep")]).build().unwrap();
    let turns = [
        asks("inner", "m1", json!({ "request": "?" })),
        Turn::from_text("mid"),
    ];
    let outer = agent("outer", turns)
        .tool(inner.into_tool("Knows."))
        .build()
        .unwrap();
    let turns = [
        asks("outer", "c1", json!({ "request": "?" })),
        Turn::from_text("so"),
    ];
    let sent = served(agent("lead", turns).tool(outer.into_tool("Asks.")));
    let started = of_kind(&sent, "SUBAGENT_STARTED");
    assert_eq!(started.len(), 2);
    assert_eq!(started[1]["name"], "inner");
    assert_eq!(
        started[1]["parentSubagentRunId"],
        started[0]["subagentRunId"]
    );
    assert_eq!(started[1]["parentToolCallId"], "r/lead/m1.0/outer-m1-t0");
    // They are done from the inside out.
    let finished = of_kind(&sent, "SUBAGENT_FINISHED");
    assert_eq!(finished[0]["subagentRunId"], started[1]["subagentRunId"]);
}

#[test]
fn a_subagent_that_fails_says_why_and_the_run_goes_on() {
    let broken = Turn::error(Error::new(ErrorKind::Provider, "broken"));
    let helper = agent("helper", [broken]).build().unwrap();
    let turns = [
        asks("helper", "c1", json!({ "request": "?" })),
        Turn::from_text("so be it"),
    ];
    let sent = served(agent("lead", turns).tool(helper.into_tool("Helps.")));
    let failed = json!({
        "type": "SUBAGENT_ERROR", "subagentRunId": "r-a2", "message": "broken", "code": "provider",
    });
    assert_eq!(of_kind(&sent, "SUBAGENT_ERROR"), [failed]);
    assert_eq!(names(&sent).last(), Some(&"RUN_FINISHED"));
}

#[test]
fn an_abort_in_a_subagent_ends_it_and_the_run_with_one_code() {
    let helper = agent("helper", [Turn::from_text("never")])
        .on_model(before_model(|_| Err::<(), _>(Error::abort("stop"))))
        .build()
        .unwrap();
    let turns = [asks("helper", "c1", json!({ "request": "?" }))];
    let sent = served(agent("lead", turns).tool(helper.into_tool("Helps.")));
    assert_eq!(
        of_kind(&sent, "SUBAGENT_ERROR")[0]["code"],
        "stop_agent_error"
    );
    assert_eq!(error(&sent).code.as_deref(), Some("stop_agent_error"));
}

#[test]
fn two_subagents_at_once_keep_apart() {
    let helper = |name: &str| {
        agent(name, [Turn::from_text("one two three")])
            .build()
            .unwrap()
            .into_tool("Helps.")
    };
    let calls = [
        ("left", "c1", json!({ "request": "?" })),
        ("right", "c2", json!({ "request": "?" })),
    ];
    let turns = [asks_for(calls), Turn::from_text("so")];
    let sent = served(
        agent("lead", turns)
            .tool(helper("left"))
            .tool(helper("right")),
    );
    let started = of_kind(&sent, "SUBAGENT_STARTED");
    assert_eq!(started.len(), 2);
    for started in started {
        let id = &started["subagentRunId"];
        let said: String = of_kind(&sent, "TEXT_MESSAGE_CONTENT")
            .iter()
            .filter(|event| event["subagentRunId"] == *id)
            .map(|event| event["delta"].as_str().unwrap())
            .collect();
        assert_eq!(said, "one two three");
    }
}

/// Whoever goes on with the conversation is no subagent: the front end sees one conversation,
/// and who says what.
fn speakers(sent: &[Event]) -> Vec<String> {
    let starts = sent.iter().filter_map(|event| match &event.kind {
        EventKind::TextMessageStart { name, .. } => Some(name.clone()),
        _ => None,
    });
    assert_eq!(of_kind(sent, "SUBAGENT_STARTED").len(), 0);
    assert!(
        wire(sent)
            .iter()
            .all(|event| event.get("subagentRunId").is_none())
    );
    starts
        .map(|name: Option<Arc<str>>| name.unwrap_or_default().to_string())
        .collect()
}

#[test]
fn members_of_a_sequence_speak_in_one_conversation_by_their_names() {
    let team = Agent::sequential("team")
        .agent(
            agent("writer", [Turn::from_text("a draft")])
                .build()
                .unwrap(),
        )
        .agent(
            agent("editor", [Turn::from_text("a text")])
                .build()
                .unwrap(),
        )
        .build()
        .unwrap();
    let sent = run(&AgUi::new(team), input());
    assert_eq!(speakers(&sent), ["writer", "editor"]);
    let steps = of_kind(&sent, "STEP_STARTED");
    assert_eq!(steps[0]["stepName"], "team/writer 0");
    let said: Vec<_> = left(&sent).into_iter().map(|(_, text)| text).collect();
    assert_eq!(said, ["Hello", "a draft", "a text"]);
}

#[test]
fn parallel_members_speak_in_one_conversation_each_in_messages_of_its_own() {
    let member = |name: &str, text: &str| agent(name, [Turn::from_text(text)]).build().unwrap();
    let team = Agent::parallel("team")
        .agents([
            member("one", "first things"),
            member("two", "second things"),
        ])
        .build()
        .unwrap();
    let sent = run(&AgUi::new(team), input());
    let mut speakers = speakers(&sent);
    speakers.sort();
    assert_eq!(speakers, ["one", "two"]);
    let mut said: Vec<_> = left(&sent).into_iter().map(|(_, text)| text).collect();
    said.sort();
    assert_eq!(said, ["Hello", "first things", "second things"]);
}

#[test]
fn the_runs_of_a_team_for_tasks_speak_by_names_of_their_own() {
    let worker = agent("worker", [Turn::from_text("one"), Turn::from_text("other")])
        .build()
        .unwrap();
    let team = Agent::for_each("team", worker, |_| Ok(["a task", "another"]))
        .build()
        .unwrap();
    let sent = run(&AgUi::new(team), input());
    let mut speakers = speakers(&sent);
    speakers.sort();
    assert_eq!(speakers, ["worker.0", "worker.1"]);
    // The tasks are for the model.
    let mut said: Vec<_> = left(&sent).into_iter().map(|(_, text)| text).collect();
    said.sort();
    assert_eq!(said, ["Hello", "one", "other"]);
}

#[test]
fn an_agent_that_takes_over_speaks_by_its_name() {
    let expert = agent("expert", [Turn::from_text("I know")])
        .build()
        .unwrap();
    let turn = asks("transfer_to_agent", "c1", json!({ "agent_name": "expert" }));
    let sent = served(agent("desk", [turn]).sub_agent(expert));
    assert_eq!(speakers(&sent), ["expert"]);
    assert_eq!(
        left(&sent).last(),
        Some(&(Role::Assistant, "I know".to_owned()))
    );
}

#[test]
fn a_team_used_as_a_tool_is_one_subagent() {
    let team = Agent::sequential("team")
        .agent(
            agent("writer", [Turn::from_text("a draft")])
                .build()
                .unwrap(),
        )
        .agent(
            agent("editor", [Turn::from_text("a text")])
                .build()
                .unwrap(),
        )
        .build()
        .unwrap();
    let turns = [
        asks("team", "c1", json!({ "request": "?" })),
        Turn::from_text("so"),
    ];
    let sent = served(agent("lead", turns).tool(team.into_tool("Writes.")));
    let started = of_kind(&sent, "SUBAGENT_STARTED");
    assert_eq!(started.len(), 1);
    let id = &started[0]["subagentRunId"];
    let starts = of_kind(&sent, "TEXT_MESSAGE_START");
    let by: Vec<_> = starts
        .iter()
        .map(|event| (event["name"].as_str(), event.get("subagentRunId")))
        .collect();
    assert_eq!(
        by,
        [
            (Some("writer"), Some(id)),
            (Some("editor"), Some(id)),
            (None, None)
        ]
    );
}

/// A model that counts the calls of each turn from one: a front end would add the arguments of a
/// call to those of the one that it has by that name, from this run or one before.
#[test]
fn calls_that_turns_name_alike_are_told_apart() {
    let turns = [
        asks("echo", "c", json!(1)),
        asks("echo", "c", json!(2)),
        Turn::from_text("so"),
    ];
    let mut input = input();
    let mut asked = Message::assistant("r0-m1", "");
    if let MessageKind::Assistant { tool_calls, .. } = &mut asked.kind {
        tool_calls.push(tower_agent_agui::ToolCall::new("c", "echo", "0"));
    }
    let before = [
        Message::user("u0", "Hi"),
        asked,
        Message::tool("c-result", "c", "0"),
    ];
    input.messages.splice(0..0, before);
    let sent = run(
        &AgUi::new(agent("lead", turns).tool(echo()).build().unwrap()),
        input,
    );
    for kind in [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_RESULT",
    ] {
        let ids: Vec<_> = of_kind(&sent, kind)
            .iter()
            .map(|event| event["toolCallId"].clone())
            .collect();
        assert_eq!(ids, ["r-m3-t0", "r-m4-t0"], "{kind}");
    }
    let results = of_kind(&sent, "TOOL_CALL_RESULT");
    let results: Vec<_> = results
        .iter()
        .map(|result| result["content"].clone())
        .collect();
    assert_eq!(results, ["1", "2"]);
}

/// It has messages that are named after the run already, and would add to them.
#[test]
fn runs_of_one_name_do_not_add_to_one_anothers_messages() {
    let turns = ["one", "two", "three"].map(Turn::from_text);
    let server = AgUi::new(agent("lead", turns).build().unwrap());
    let mut messages = Vec::new();
    for turn in 0..3 {
        messages.push(Message::user(format!("u{turn}"), "Hello"));
        let input = RunAgentInput::new("t", "r", messages.clone());
        let mut front_end = Conversation::new(messages);
        run(&server, input)
            .iter()
            .for_each(|event| front_end.apply(event));
        messages = front_end.messages().to_vec();
    }
    let said = messages.iter().skip(1).step_by(2).cloned();
    let expected = [("r-m1", "one"), ("r.1-m2", "two"), ("r.2-m3", "three")];
    assert!(
        said.eq(expected.map(|(id, text)| Message::assistant(id, text))),
        "{messages:#?}"
    );
}

/// Such as the signature without which some take no further turn of the conversation.
#[test]
fn provider_data_of_a_call_is_sent_to_be_returned() {
    let model = tower::service_fn(|request: ModelRequest| async move {
        let mut call = tower_agent::message::ToolCall::new("c", "echo", json!({}));
        call.provider
            .set("openai", json!({ "extra_content": "EqQ" }));
        let asks = tower_agent::Message::new(Role::Assistant, [call.into()]);
        Ok::<_, Error>(match request.messages().len() {
            1 => ModelResponse::new(asks),
            _ => ModelResponse::from_text("so"),
        })
    });
    let sent = served(Agent::builder(model).tool(echo()));
    let expected = json!({
        "type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", "entityId": "r-m1-t0",
        "encryptedValue": "{\"openai\":{\"extra_content\":\"EqQ\"}}",
    });
    assert_eq!(of_kind(&sent, "REASONING_ENCRYPTED_VALUE"), [expected]);
}

/// Models that count their calls from one: nobody's call is taken for another's.
#[test]
fn calls_that_agents_name_alike_are_told_apart() {
    let helper = |name: &str| {
        agent(
            name,
            [
                Turn::tool("echo", json!({ "of": name })),
                Turn::from_text("helped"),
            ],
        )
        .tool(echo())
        .build()
        .unwrap()
        .into_tool("Helps.")
    };
    let request = json!({ "request": "?" });
    let turns = [
        Turn::tool("left", request.clone()).and_tool("right", request),
        Turn::from_text("so"),
    ];
    let sent = served(
        agent("lead", turns)
            .tool(helper("left"))
            .tool(helper("right")),
    );
    assert_eq!(names(&sent).last(), Some(&"RUN_FINISHED"));
    let ids = |kind| {
        let events = of_kind(&sent, kind);
        events
            .iter()
            .map(|event| event["toolCallId"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut started = ids("TOOL_CALL_START");
    started.sort();
    assert_eq!(
        started,
        [
            "r-m1-t0",
            "r-m1-t1",
            "r/lead/m1.0/left-m1-t0",
            "r/lead/m1.1/right-m1-t0"
        ]
    );
    let (mut ended, mut answered) = (ids("TOOL_CALL_END"), ids("TOOL_CALL_RESULT"));
    ended.sort();
    answered.sort();
    assert_eq!((&ended, &answered), (&started, &started));
    let parents = of_kind(&sent, "SUBAGENT_STARTED");
    let parents: Vec<_> = parents
        .iter()
        .map(|event| event["parentToolCallId"].clone())
        .collect();
    assert_eq!(parents, ["r-m1-t0", "r-m1-t1"]);
    // The agent's own calls stay what its model knows them by.
    let own = of_kind(&sent, "TOOL_CALL_RESULT");
    let own: Vec<_> = own
        .iter()
        .filter(|event| event.get("subagentRunId").is_none())
        .collect();
    assert_eq!(own.len(), 2);
}

#[test]
fn a_change_of_the_state_is_a_patch_of_what_the_front_end_has() {
    let note = Tool::function_with("note", "Notes.", |_: Value, call: ToolRequest| {
        call.context().state().set("a/b", 2);
        call.context().state().remove("old");
        call.context().state().set("new~", json!([1]));
    });
    let builder = agent(
        "agent",
        [asks("note", "c1", json!({})), Turn::from_text("so")],
    )
    .tool(note);
    let mut input = input();
    input.state = Some(json!({ "a/b": 1, "old": true }));
    let sent = run(&AgUi::new(builder.build().unwrap()), input);
    let patch = json!([
        { "op": "remove", "path": "/old" },
        { "op": "replace", "path": "/a~1b", "value": 2 },
        { "op": "add", "path": "/new~0", "value": [1] },
    ]);
    assert_eq!(
        of_kind(&sent, "STATE_DELTA"),
        [json!({ "type": "STATE_DELTA", "delta": patch })]
    );
}

/// The official client refuses such a key, and the whole delta with it.
#[test]
fn a_state_key_that_could_reach_a_prototype_is_told_by_snapshots_from_there_on() {
    for key in ["__proto__", "constructor", "prototype"] {
        let set = Tool::function_with("set", "", |key: String, call: ToolRequest| {
            call.context().state().set(key, 1);
        });
        let turns = ["count", key, "more"]
            .map(|key| asks("set", &format!("c-{key}"), json!(key)))
            .into_iter();
        let sent = served(agent("agent", turns.chain([Turn::from_text("end")])).tool(set));
        assert_eq!(of_kind(&sent, "STATE_DELTA").len(), 1, "{key}");
        let told: Vec<_> = of_kind(&sent, "STATE_SNAPSHOT")
            .into_iter()
            .map(|event| event["snapshot"].clone())
            .collect();
        let now = json!({ "count": 1, key: 1 });
        assert_eq!(
            told,
            [json!({}), now, json!({ "count": 1, key: 1, "more": 1 })]
        );
    }
}

#[test]
fn a_tool_that_fails_is_told_apart_from_one_that_answers() {
    let fail = Tool::function("fail", "", |_: Value| {
        Err::<(), _>(Error::new(ErrorKind::Tool, "no"))
    });
    let turns = [
        asks_for([
            ("fail", "c1", json!(1)),
            ("echo", "c2", json!(2)),
            ("made_up", "c3", json!(3)),
        ]),
        Turn::from_text("so"),
    ];
    let sent = served(agent("agent", turns).tools([fail, echo()]));
    let failed = |event: &Value| {
        (
            event["toolCallId"].clone(),
            event["metadata"]["isError"].clone(),
        )
    };
    let mut told: Vec<_> = of_kind(&sent, "TOOL_CALL_RESULT")
        .iter()
        .map(failed)
        .collect();
    told.sort_by_key(|(call, _)| call.to_string());
    let yes = |call: &str| (json!(call), json!(true));
    assert_eq!(
        told,
        [
            yes("r-m1-t0"),
            (json!("r-m1-t1"), json!(null)),
            yes("r-m1-t2")
        ]
    );
    // The front end's message keeps it, and says it to the model again.
    let mut front_end = Conversation::new(input().messages);
    sent.iter().for_each(|event| front_end.apply(event));
    let read = conversation::read(front_end.messages()).unwrap();
    let failed = read
        .iter()
        .flat_map(|message| message.tool_results())
        .filter(|result| result.is_error);
    assert_eq!(failed.count(), 2);
}

#[test]
fn a_snapshot_belongs_to_the_run_and_not_to_a_subagent() {
    let turns = [
        Turn::from_text("half an answer")
            .failing_after(2, Error::new(ErrorKind::Overloaded, "busy")),
        Turn::from_text("helped"),
    ];
    let helper = Agent::builder(ScriptedModel::new(turns).chunk_size(4))
        .name("helper")
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();
    let turns = [
        asks("helper", "c1", json!({ "request": "Help!" })),
        Turn::from_text("so"),
    ];
    let sent = served(agent("lead", turns).tool(helper.into_tool("Helps.")));
    let snapshots = of_kind(&sent, "MESSAGES_SNAPSHOT");
    assert_eq!(snapshots.len(), 1, "{sent:#?}");
    assert_eq!(snapshots[0].get("subagentRunId"), None);
}
