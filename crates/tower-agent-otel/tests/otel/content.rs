//! Content: none by default, and what redaction lets through.

use serde_json::{Value, json};
use tower_agent::message::MediaSource;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentResponse, Error, ErrorKind, Message, Settings, Tool,
};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_otel::OpenTelemetry;
use tower_agent_test::{ScriptedModel, Turn};

use crate::received::{Data, Look, of_log};
use crate::world::World;

const ADDRESS: &str = "jo@example.com";

fn builder() -> AgentBuilder {
    let lookup = Tool::function("lookup", "Looks it up.", |_: Value| {
        format!("it is {ADDRESS}")
    });
    let fails = Tool::function("fails", "Fails.", |_: Value| -> Result<(), Error> {
        Err(Error::new(ErrorKind::Tool, format!("not for {ADDRESS}")))
    });
    let turn = Turn::tool("lookup", json!({ "whom": ADDRESS })).and_tool("fails", json!({}));
    let model = ScriptedModel::new([turn, Turn::from_text(format!("Ask {ADDRESS}."))]);
    Agent::builder(model)
        .instructions("Be kind.")
        .tool(lookup)
        .tool(fails)
}

async fn run(world: &World, agent: AgentBuilder) -> Data {
    agent
        .build()
        .unwrap()
        .run(format!("Who is {ADDRESS}?"))
        .await
        .unwrap();
    world.received()
}

fn everything(data: &Data) -> String {
    format!("{:?} {:?} {:?}", data.spans.0, data.logs, data.metrics.0)
}

#[tokio::test]
async fn by_default_there_is_none() {
    let world = World::new();
    let data = run(&world, builder().global_callbacks(world.telemetry())).await;
    let said = everything(&data);
    assert!(
        !said.contains(ADDRESS) && !said.contains("Be kind."),
        "{said}"
    );
    for key in [
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.tool.call.arguments",
    ] {
        assert!(!said.contains(key), "{key}");
    }
}

#[tokio::test]
async fn recorded_content_is_the_request_and_the_answer() {
    let world = World::new();
    let data = run(
        &world,
        builder().global_callbacks(world.telemetry().record_content()),
    )
    .await;
    let mut chats: Vec<_> = data
        .spans
        .0
        .iter()
        .filter(|span| span.name == "chat")
        .collect();
    chats.sort_by_key(|span| span.start_time_unix_nano);
    let json = |text: Option<String>| -> Value { serde_json::from_str(&text.unwrap()).unwrap() };
    let [first, second] = chats[..] else {
        panic!("{}", data.spans.tree())
    };

    let said = json(first.get("gen_ai.input.messages"));
    let question = format!("Who is {ADDRESS}?");
    assert_eq!(
        said,
        json!([{ "role": "user", "parts": [{ "type": "text", "content": question }] }])
    );
    let instructions = json(first.get("gen_ai.system_instructions"));
    assert_eq!(
        instructions,
        json!([{ "type": "text", "content": "Be kind." }])
    );
    assert_eq!(
        json(first.get("gen_ai.tool.definitions"))[0]["name"],
        "lookup"
    );
    let call = &json(first.get("gen_ai.output.messages"))[0]["parts"][0];
    assert_eq!(
        *call,
        json!({ "type": "tool_call", "id": "call_1", "name": "lookup", "arguments": { "whom": ADDRESS } })
    );
    let result = &json(second.get("gen_ai.input.messages"))[2]["parts"][0];
    let response = format!("it is {ADDRESS}");
    assert_eq!(
        *result,
        json!({ "type": "tool_call_response", "id": "call_1", "response": response })
    );
    assert_eq!(
        json(first.get("gen_ai.output.messages"))[0]["finish_reason"],
        "tool_calls"
    );

    let tool = data.spans.one("execute_tool lookup");
    assert_eq!(
        json(tool.get("gen_ai.tool.call.arguments")),
        json!({ "whom": ADDRESS })
    );
    assert_eq!(
        json(tool.get("gen_ai.tool.call.result")),
        json!(format!("it is {ADDRESS}"))
    );
    let message = data
        .logs
        .iter()
        .find_map(|log| of_log(log, "exception.message"));
    assert_eq!(message.as_deref(), Some(&*format!("not for {ADDRESS}")));
}

#[tokio::test]
async fn an_agents_span_has_what_was_asked_and_answered_as_far_as_redaction_has_seen_it() {
    let world = World::new();
    let telemetry = || world.telemetry().record_content();
    let data = run(
        &world,
        builder()
            .global_callbacks(telemetry())
            .global_callbacks(redact()),
    )
    .await;
    let agent = data.spans.one("invoke_agent agent");
    for (key, value) in [
        ("input.value", "Who is [email]?"),
        ("output.value", "Ask [email]."),
    ] {
        assert_eq!(agent.get(key).as_deref(), Some(value));
    }
    assert!(agent.get("gen_ai.input.messages").is_some());
    assert!(agent.get("gen_ai.output.messages").is_some());

    // Written by a callback that is inside the redaction of the agent, but outside that of its
    // calls.
    let says = tower_agent::callback::after_agent(|_, _| {
        Action::Respond(AgentResponse::new([Message::assistant(ADDRESS)]))
    });
    let agent = builder()
        .on_agent(says)
        .global_callbacks(telemetry())
        .global_callbacks(redact());
    let data = run(&world, agent).await;
    let text = everything(&data);
    assert!(!text.contains(ADDRESS), "{text}");
    let agent = data.spans.one("invoke_agent agent");
    assert_eq!(agent.get("output.value"), None);

    // A team was asked what its first member was, and has answered what its last one has.
    let member = |text: &str| {
        let model = ScriptedModel::new([Turn::from_text(text)]);
        Agent::builder(model).name(text).build().unwrap()
    };
    let team = Agent::sequential("team")
        .agents([member("one"), member("two")])
        .global_callbacks(telemetry())
        .build()
        .unwrap();
    team.run("Count.").await.unwrap();
    let spans = world.spans();
    let team = spans.one("invoke_workflow team");
    assert_eq!(team.get("input.value").as_deref(), Some("Count."));
    assert_eq!(team.get("output.value").as_deref(), Some("two"));
}

#[tokio::test]
async fn bytes_of_media_are_left_out() {
    use tower_agent::message::Messages;
    use tower_agent::{Part, Role};

    let world = World::new();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("A cat.")]))
        .global_callbacks(world.telemetry().record_content())
        .build()
        .unwrap();
    let parts = [
        Part::image(MediaSource::base64("image/png", "bWVvdw==")),
        Part::image(MediaSource::url("https://example.com/cat.png")),
    ];
    let messages = Messages::from_iter([Message::new(Role::User, parts)]);
    agent.run(messages).await.unwrap();
    let spans = world.spans();
    let said = spans.one("chat").get("gen_ai.input.messages").unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let [bytes, url] = said[0]["parts"].as_array().unwrap().as_slice() else {
        panic!("{said}")
    };
    assert_eq!(
        *bytes,
        json!({ "type": "blob", "modality": "image", "mime_type": "image/png", "content": "" })
    );
    assert_eq!(
        (&url["type"], &url["uri"]),
        (&json!("uri"), &json!("https://example.com/cat.png"))
    );
}

/// Tools receive the placeholders as well.
fn redact() -> Redact {
    let redact = Redact::new([Detector::email()]).unwrap().redact_input();
    redact.replace_with(|kind, _| format!("[{kind}]"))
}

#[tokio::test]
async fn redaction_is_inside_it_wherever_it_is_registered() {
    let telemetry = |world: &World| -> OpenTelemetry { world.telemetry().record_content() };
    let world = World::new();
    let placed = [
        builder()
            .global_callbacks(telemetry(&world))
            .global_callbacks(redact()),
        builder()
            .global_callbacks(redact())
            .global_callbacks(telemetry(&world)),
        builder()
            .global_callbacks(telemetry(&world))
            .callbacks(redact()),
        builder().callbacks(telemetry(&world)).callbacks(redact()),
    ];
    for (place, agent) in placed.into_iter().enumerate() {
        let data = run(&world, agent).await;
        let said = everything(&data);
        assert!(!said.contains(ADDRESS), "place {place}: {said}");
        assert!(said.contains("Ask [email]."), "place {place}");
        let tool = data.spans.one("execute_tool lookup");
        assert_eq!(
            tool.get("gen_ai.tool.call.arguments").unwrap(),
            r#"{"whom":"[email]"}"#
        );
        assert_eq!(
            tool.get("gen_ai.tool.call.result").unwrap(),
            r#""it is [email]""#
        );
    }
}

#[tokio::test]
async fn an_original_that_a_tool_receives_is_not_recorded() {
    let world = World::new();
    let received = std::sync::Arc::new(std::sync::Mutex::new(None));
    let keeps = received.clone();
    let mail = Tool::function("mail", "Sends it.", move |to: String| {
        *keeps.lock().unwrap() = Some(to);
        "sent"
    });
    let turn = Turn::tool("mail", json!({ "value": ADDRESS }));
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("done")]))
        .tool(mail)
        .global_callbacks(world.telemetry().record_content())
        .global_callbacks(redact().restore_when(|call| call.name() == "mail"));
    let said = everything(&run(&world, agent).await);
    assert_eq!(received.lock().unwrap().as_deref(), Some(ADDRESS));
    assert!(!said.contains(ADDRESS), "{said}");
    assert!(said.contains("[email-1]"));
}

#[tokio::test]
async fn settings_are_attributes() {
    let world = World::new();
    let mut settings = Settings::default();
    settings.model = Some("roadrunner".into());
    settings.temperature = Some(0.5);
    settings.max_tokens = Some(64);
    settings.seed = Some(7);
    settings.stop = vec!["\n".into(), "END".into()];
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("beep")]))
        .settings(settings)
        .global_callbacks(world.telemetry().provider_name("acme"))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let spans = world.spans();
    let chat = spans.one("chat roadrunner");
    let expected = [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "acme"),
        ("gen_ai.request.model", "roadrunner"),
        ("gen_ai.request.temperature", "0.5"),
        ("gen_ai.request.max_tokens", "64"),
        ("gen_ai.request.seed", "7"),
        ("gen_ai.request.stop_sequences", "[\n, END]"),
        ("gen_ai.response.finish_reasons", "[stop]"),
    ];
    for (key, value) in expected {
        assert_eq!(chat.get(key).as_deref(), Some(value), "{key}");
    }
    // Unset is not streamed.
    assert_eq!(chat.get("gen_ai.request.stream"), None);
    let mut keys: Vec<_> = chat
        .attributes
        .iter()
        .map(|attribute| &attribute.key)
        .collect();
    keys.sort();
    let count = keys.len();
    keys.dedup();
    assert_eq!(count, keys.len(), "{keys:?}");
}
