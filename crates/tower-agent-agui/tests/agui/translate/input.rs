//! The front end's input reaches the agent.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::{before_agent, before_model};
use tower_agent::error::ResolutionOutcome;
use tower_agent::message::MediaSource;
use tower_agent::{Action, Agent, Interrupt, ModelRequest, Part, Request, Role, Tool, ToolRequest};
use tower_agent_agui::{
    AgUi, Content, ContentPart, Context, Conversation, Event, EventKind, Message, PartSource,
    ResumeEntry, RunAgentInput, RunOutcome, before_translate,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{customs, input, names, run};

fn parse(value: Value) -> RunAgentInput {
    RunAgentInput::from_json(value.to_string().as_bytes()).unwrap()
}

/// Returns the model's requests in a run of this input.
fn asked(input: RunAgentInput) -> ModelRequest {
    let model = ScriptedModel::new([Turn::from_text("hi")]);
    let agent = Agent::builder(model.clone())
        .instructions("Be kind.")
        .build()
        .unwrap();
    run(&AgUi::new(agent), input);
    model.requests().remove(0)
}

#[test]
fn the_conversation_reaches_the_model_in_order() {
    let messages = [
        Message::user("u1", "One?"),
        Message::assistant("a1", "One."),
        Message::user("u2", "Two?"),
    ];
    let request = asked(RunAgentInput::new("t", "r", messages));
    let said: Vec<_> = request
        .messages()
        .iter()
        .map(|message| (message.role(), message.text()))
        .collect();
    let expected = [
        (Role::User, "One?".to_owned()),
        (Role::Assistant, "One.".to_owned()),
        (Role::User, "Two?".to_owned()),
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_multimodal_message_reaches_the_model() {
    let data = PartSource::Data {
        value: "QQ==".into(),
        mime_type: "image/png".into(),
    };
    let url = PartSource::Url {
        value: "https://example.com/a.png".into(),
        mime_type: None,
    };
    let parts = vec![
        ContentPart::text("What is this?"),
        ContentPart::image(data),
        ContentPart::image(url),
    ];
    let message = Message::user("u", Content::Parts(parts));
    let request = asked(RunAgentInput::new("t", "r", [message]));
    let expected = [
        Part::from_text("What is this?"),
        Part::image(MediaSource::base64("image/png", "QQ==")),
        Part::image(MediaSource::url("https://example.com/a.png")),
    ];
    assert_eq!(request.messages()[0].parts(), expected);
}

#[test]
fn context_entries_are_told_to_the_model_after_the_agents_own_instructions() {
    let mut input = input();
    for (description, value) in [("Page", "Checkout"), ("Language", "Dutch")] {
        input.context.push(Context {
            description: description.into(),
            value: value.into(),
        });
    }
    let request = asked(input);
    let told = request.instructions().unwrap();
    let at = |part: &str| {
        told.find(part)
            .unwrap_or_else(|| panic!("{part} is not in {told}"))
    };
    assert!(at("Be kind.") < at("Page: Checkout"));
    assert!(at("Page: Checkout") < at("Language: Dutch"));
    // Nothing is added where there is nothing to tell.
    assert_eq!(asked(super::input()).instructions(), Some("Be kind."));
}

#[test]
fn the_front_ends_tools_are_declared_to_the_model() {
    let parameters = json!({ "type": "object", "properties": { "colour": { "type": "string" } } });
    let input = parse(json!({
        "threadId": "t", "runId": "r",
        "messages": [{ "id": "u", "role": "user", "content": "Hello" }],
        "tools": [{ "name": "paint", "description": "Paints.", "parameters": parameters }],
    }));
    let request = asked(input);
    let tool = &request.tools()[0];
    assert_eq!((tool.name(), tool.description()), ("paint", "Paints."));
    assert_eq!(*tool.parameters(), parameters);
}

#[test]
fn resume_entries_are_the_runs_resolutions() {
    let seen = Arc::<Mutex<Vec<ResolutionOutcome>>>::default();
    let found = seen.clone();
    let ask = Tool::function_with("ask", "", move |name: String, call: ToolRequest| {
        let answer = call.ask(Interrupt::new(name, "question"));
        let answer = answer.map(|resolution| resolution.outcome);
        if let Ok(answer) = &answer {
            found.lock().unwrap().push(answer.clone());
        }
        async move { answer.map(|_| "answered") }
    });
    let asks = ["i1", "i2", "i3"].map(|name| json!({ "value": name }));
    let asks = asks
        .into_iter()
        .fold(None, |turn: Option<Turn>, arguments| match turn {
            None => Some(Turn::tool("ask", arguments)),
            Some(turn) => Some(turn.and_tool("ask", arguments)),
        });
    let model = ScriptedModel::new([asks.unwrap(), Turn::from_text("hi")]);
    let server = AgUi::new(Agent::builder(model).tool(ask).build().unwrap());
    let sent = run(&server, input());
    let EventKind::RunFinished(finished) = &sent.last().unwrap().kind else {
        panic!("{sent:?}")
    };
    let Some(RunOutcome::Interrupt { interrupts }) = &finished.outcome else {
        panic!("{sent:?}")
    };
    let resume = json!([
        { "interruptId": interrupts[0].id, "status": "resolved", "payload": { "approved": true } },
        { "interruptId": interrupts[1].id, "status": "cancelled" },
    ]);
    let mut front_end = Conversation::new(input().messages);
    sent.iter().for_each(|event| front_end.apply(event));
    let mut next = RunAgentInput::new("t", "r", front_end.messages().to_vec());
    next.resume = serde_json::from_value::<Vec<ResumeEntry>>(resume).unwrap();
    run(&server, next);
    let expected = [
        ResolutionOutcome::Resolved(json!({ "approved": true })),
        ResolutionOutcome::Cancelled,
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn a_state_that_is_no_object_is_refused_and_says_where() {
    for state in [json!([1]), json!("x"), json!(1), json!(true)] {
        let mut input = input();
        input.state = Some(state.clone());
        let error = super::greeter()
            .build()
            .run(input)
            .now_or_never()
            .unwrap()
            .unwrap_err();
        assert_eq!(error.path(), "state", "{state}");
        assert!(!error.is_syntax());
    }
    for state in [None, Some(Value::Null), Some(json!({}))] {
        let mut input = input();
        input.state = state;
        assert_eq!(
            names(&run(&super::greeter().build(), input)).last(),
            Some(&"RUN_FINISHED")
        );
    }
}

#[test]
fn a_part_that_no_model_reads_and_two_tools_of_one_name_are_refused() {
    let input = parse(json!({
        "threadId": "t", "runId": "r",
        "messages": [{ "id": "u", "role": "user", "content": [
            { "type": "text", "text": "Watch:" },
            { "type": "video", "source": { "type": "data", "value": "QQ==", "mimeType": "video/mp4" } },
        ] }],
    }));
    let error = super::greeter()
        .build()
        .run(input)
        .now_or_never()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.path(), "messages[0].content[1]");

    let tool = json!({ "name": "paint", "description": "" });
    let input = parse(json!({
        "threadId": "t", "runId": "r", "messages": [], "tools": [tool, tool],
    }));
    let error = super::greeter()
        .build()
        .run(input)
        .now_or_never()
        .unwrap()
        .unwrap_err();
    assert_eq!(error.path(), "tools");
    assert!(error.message().contains("paint"), "{error}");
}

/// Nothing is known of its tools before.
#[test]
fn a_tool_by_the_name_of_one_of_an_agent_inside_a_layer_ends_the_run() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .tool(tower_agent::Tool::function(
            "paint",
            "",
            |_: Value| "painted",
        ))
        .build()
        .unwrap();
    let agent = tower::service_fn(move |request| agent.clone().oneshot(request));
    let input = parse(json!({
        "threadId": "t", "runId": "r", "messages": [{ "id": "u", "role": "user", "content": "?" }],
        "tools": [{ "name": "paint", "description": "" }],
    }));
    let sent = run(&super::open(agent).build(), input);
    assert_eq!(super::error(&sent).code.as_deref(), Some("invalid_request"));
    assert!(super::error(&sent).message.contains("paint"));
}

#[test]
fn the_whole_input_reaches_the_agents_callbacks_and_those_of_the_translation() {
    let mut input = input();
    input.forwarded_props = Some(json!({ "tenant": "acme" }).into());
    let tenants = Arc::<Mutex<Vec<Value>>>::default();
    let seen = tenants.clone();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .on_agent(before_agent(move |request| {
            let input = request.context().extension::<Arc<RunAgentInput>>().unwrap();
            let props = input.forwarded_props.as_ref().unwrap();
            seen.lock().unwrap().push(props.parse().unwrap());
        }))
        .build()
        .unwrap();
    let server = AgUi::builder(agent)
        .on_translate(before_translate(|request| {
            let props = request.input().forwarded_props.as_ref().unwrap();
            let tenant = props.parse::<Value>().unwrap()["tenant"].clone();
            match request.event().kind {
                tower_agent::stream::EventKind::AgentStarted => {
                    Action::Respond(Event::custom(tenant.as_str().unwrap(), 1).into())
                }
                _ => Action::Continue,
            }
        }))
        .build();
    assert_eq!(customs(&run(&server, input)), ["acme"]);
    assert_eq!(*tenants.lock().unwrap(), [json!({ "tenant": "acme" })]);
}

#[test]
fn the_state_of_the_front_end_is_the_sessions() {
    let mut input = input();
    input.state = Some(json!({ "steps": 2 }));
    let seen = Arc::<Mutex<Option<Value>>>::default();
    let found = seen.clone();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .on_model(before_model(move |request| {
            *found.lock().unwrap() = request.context().state().get("steps");
        }))
        .build()
        .unwrap();
    run(&AgUi::new(agent), input);
    assert_eq!(*seen.lock().unwrap(), Some(json!(2)));
}
