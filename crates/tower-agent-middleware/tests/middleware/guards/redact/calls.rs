//! Redaction of model and tool calls.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, Messages, Metadata, ToolCall};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Message, ModelResponse, Part, Resolution, Role, Tool,
    ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::redact::{Detector, Redact, UndecidedPlaceholder};
use tower_agent_test::{ScriptedModel, Turn};

fn guard() -> Redact {
    Redact::new([Detector::email(), Detector::card(), Detector::secret()]).unwrap()
}

/// A tool that keeps what it is given, and answers with `answer`.
fn keeping(name: &str, given: &Arc<Mutex<Vec<Value>>>, answer: impl Into<Value>) -> Tool {
    answering(name, given, ToolResponse::new(answer))
}

fn answering(name: &str, given: &Arc<Mutex<Vec<Value>>>, answer: ToolResponse) -> Tool {
    let given = given.clone();
    Tool::function(name, "Keeps.", move |arguments: Value| {
        given.lock().unwrap().push(arguments);
        answer.clone()
    })
}

#[tokio::test]
async fn text_thoughts_and_calls_of_the_model_are_redacted() {
    let arguments = json!({
        "to": ["jo@example.com", 4_111_111_111_111_111_u64, 7, null],
        "jo@example.com": { "quote": "say \"a@b.co\"\n" },
        "a@b.co": true,
    });
    let mut thought = Part::reasoning("of jo@example.com");
    if let Part::Reasoning(thought) = &mut thought {
        thought
            .provider
            .set("some", json!({ "signature": "of jo@example.com" }));
    }
    let mut kept = Part::reasoning("of nobody");
    if let Part::Reasoning(kept) = &mut kept {
        kept.provider.set("some", json!("signature"));
    }
    let said = [
        thought,
        kept.clone(),
        Part::from_text("To jo@example.com"),
        ToolCall::new("1", "send", arguments).into(),
    ];
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::new(Message::new(Role::Assistant, said))),
        Turn::from_text("done"),
    ]);
    let given = Arc::default();
    let tool = keeping("send", &given, "sent");
    // A function's texts are for tools as well.
    let redact = guard().replace_with(|kind, _| format!("[{kind}]"));
    let agent = Agent::builder(model.clone())
        .tool(tool)
        .global_callbacks(redact)
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let hidden = json!({
        "to": ["[email]", "[card]", 7, null],
        "[email]": true,
        "[email]'": { "quote": "say \"[email]\"\n" },
    });
    let expected = [
        Part::reasoning("of [email]"),
        kept,
        Part::from_text("To [email]"),
        ToolCall::new("1", "send", hidden.clone()).into(),
    ];
    assert_eq!(response.messages()[1].parts(), expected);
    assert_eq!(
        *given.lock().unwrap(),
        [hidden],
        "the tool is given what the model is held to say"
    );
    assert_eq!(model.requests()[1].messages()[1].parts(), expected);
}

#[tokio::test]
async fn a_tools_answer_is_redacted_as_value_and_as_text() {
    for (answer, value, shown) in [
        (
            ToolResponse::new(json!({ "mail": "jo@example.com" })),
            json!({ "mail": "[email]" }),
            r#"{"mail":"[email]"}"#,
        ),
        (
            ToolResponse::new(json!(4711)).with_parts([Part::from_text("of jo@example.com")]),
            json!(4711),
            "of [email]",
        ),
        (
            ToolResponse::new(json!(["a@b.co"])).with_parts([Part::from_text("seen")]),
            json!(["[email]"]),
            "seen",
        ),
        (
            ToolResponse::error("no jo@example.com"),
            json!("no [email]"),
            "no [email]",
        ),
        (ToolResponse::new("nothing"), json!("nothing"), "nothing"),
    ] {
        let model = ScriptedModel::new([Turn::tool("send", json!({})), Turn::from_text("done")]);
        let values = Arc::new(Mutex::new(Vec::new()));
        let see = {
            let values = values.clone();
            tower_agent::callback::after_tool(move |_, response| {
                values.lock().unwrap().push(response.value().clone());
            })
        };
        let agent = Agent::builder(model)
            .tool(answering("send", &Arc::default(), answer.clone()))
            .callbacks(guard())
            .on_tool(see)
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(*values.lock().unwrap(), [value]);
        let result = response.messages()[2]
            .tool_results()
            .next()
            .unwrap()
            .clone();
        assert_eq!(
            (result.text().as_str(), result.is_error),
            (shown, answer.is_error())
        );
    }
}

#[tokio::test]
async fn errors_of_calls_are_redacted() {
    let tool = Tool::function("send", "Sends.", |_: Value| {
        Err::<(), _>(Error::new(ErrorKind::Tool, "jo@example.com is unknown"))
    });
    let key = format!("sk-{}", "a".repeat(24));
    let mut metadata = Metadata::default();
    metadata.status = Some(401);
    let refusal = Error::new(ErrorKind::Auth, format!("incorrect key {key}"))
        .with_metadata(metadata)
        .with_retryable(true);
    let model = ScriptedModel::new([Turn::tool("send", json!({})), Turn::error(refusal)]);
    let agent = Agent::builder(model.clone())
        .tool(tool)
        .global_callbacks(guard())
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    let told = model.requests()[1].messages()[2]
        .tool_results()
        .next()
        .unwrap()
        .text();
    assert_eq!(told, "tool failed: [email] is unknown");
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Auth, "incorrect key [secret]")
    );
    assert_eq!(
        (error.metadata().status, error.is_retryable()),
        (Some(401), true)
    );
}

#[tokio::test]
async fn the_conversation_is_redacted_only_if_asked() {
    let said = "I am jo@example.com";
    for (guard, sent) in [(guard(), said), (guard().redact_input(), "I am [email]")] {
        let model = ScriptedModel::new([Turn::from_text("hi")]);
        let agent = Agent::builder(model.clone())
            .instructions("Write to us@example.com.")
            .callbacks(guard)
            .build()
            .unwrap();

        let response = agent.run(said).await.unwrap();

        let request = &model.requests()[0];
        assert_eq!(request.messages()[0].text(), sent);
        assert_eq!(request.instructions(), Some("Write to us@example.com."));
        assert_eq!(
            response.messages()[0].text(),
            said,
            "the transcript keeps it"
        );
    }
}

#[tokio::test]
async fn numbers_stay_the_same_throughout_a_run_and_are_never_used_twice() {
    let model = ScriptedModel::new([
        Turn::from_text("b@b.co, a@a.co").and_tool("send", json!("c@c.co")),
        Turn::from_text("c@c.co, a@a.co, [email-4]"),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(keeping("send", &Arc::default(), "d@d.co a@a.co"))
        .global_callbacks(guard().redact_input().restore_when(|_| false))
        .build()
        .unwrap();

    // An earlier run has left placeholders, and one is made up.
    let request = AgentRequest::conversation([
        Message::user("a@a.co"),
        Message::assistant("[email-3] [email-4294967295] [other-9] [email-x]"),
        Message::user("go on"),
    ]);
    let response = agent.run(request).await.unwrap();

    let sent: Vec<_> = model.requests()[1]
        .messages()
        .iter()
        .map(|message| message.text())
        .collect();
    assert_eq!(sent[0], "[email-4]");
    assert_eq!(sent[3], "[email-5], [email-4]");
    let messages = response.messages();
    assert_eq!(
        messages[3].tool_calls().next().unwrap().arguments,
        json!("[email-6]")
    );
    assert_eq!(
        messages[4].tool_results().next().unwrap().text(),
        "[email-7] [email-4]"
    );
    assert_eq!(response.text(), "[email-6], [email-4], [email-4]");
}

#[tokio::test]
async fn a_run_that_resumes_uses_no_number_of_the_run_before_in_any_conversation() {
    let lead = ScriptedModel::new([
        Turn::from_text("a@a.co")
            .and_tool("wipe", json!(1))
            .and_tool("helper", json!({ "request": "go" })),
        Turn::from_text("c@c.co"),
    ]);
    let helper = ScriptedModel::new([
        Turn::from_text("a@a.co").and_tool("wipe", json!(2)),
        Turn::from_text("done"),
    ]);
    // Another process has another guard.
    let agent = || {
        let wipe = || keeping("wipe", &Arc::default(), "b@b.co");
        let helper = Agent::builder(helper.clone())
            .name("helper")
            .tool(wipe())
            .build()
            .unwrap();
        Agent::builder(lead.clone())
            .tools([wipe(), helper.into_tool("Helps.")])
            .global_callbacks(guard().numbered())
            .global_callbacks(Approval::of_tools(["wipe"]))
            .build()
            .unwrap()
    };
    let paused = agent().run("?").await.unwrap();
    let checkpoint = paused.checkpoint();
    let yes: Vec<_> = checkpoint
        .head
        .interrupts
        .iter()
        .map(|pending| Resolution::resolved(&pending.id, Decision::Approve))
        .collect();
    let request = AgentRequest::resume(checkpoint).with_resolutions(yes);

    let response = agent().run(request).await.unwrap();

    let results = |messages: &Messages| -> Vec<_> {
        messages
            .iter()
            .flat_map(Message::tool_results)
            .map(|result| result.text())
            .collect()
    };
    assert_eq!(results(response.messages()), ["[email-2]", "done"]);
    assert_eq!(results(helper.requests()[1].messages()), ["[email-2]"]);
    assert_eq!(response.text(), "[email-3]");
}

#[tokio::test]
async fn an_allowed_tool_receives_the_originals_of_placeholders() {
    let arguments = json!({ "to": "[email-1]", "text": "[email-2][email-1] [ip-9]" });
    let turns = || {
        [
            Turn::tool("send", arguments.clone()).and_tool("note", arguments.clone()),
            Turn::from_text("sent to jo@example.com"),
        ]
    };
    let model = ScriptedModel::new(turns());
    let (sent, noted) = (Arc::default(), Arc::default());
    let agent = Agent::builder(model.clone())
        .tool(keeping("send", &sent, "jo@example.com has it"))
        .tool(keeping("note", &noted, "noted"))
        .global_callbacks(
            guard()
                .redact_input()
                .restore_when(|call| call.name() == "send"),
        )
        .build()
        .unwrap();

    let response = agent
        .run("Write to jo@example.com about a@b.co")
        .await
        .unwrap();

    let restored = json!({ "to": "jo@example.com", "text": "a@b.cojo@example.com [ip-9]" });
    assert_eq!(*sent.lock().unwrap(), [restored]);
    assert_eq!(*noted.lock().unwrap(), [arguments]);
    let transcript = serde_json::to_string(response.messages()).unwrap();
    let (_, after) = transcript.split_once("a@b.co").expect("what the user said");
    assert!(
        !after.contains("jo@example") && !after.contains("a@b.co"),
        "{after}"
    );
    assert_eq!(response.text(), "sent to [email-1]");
}

#[tokio::test]
async fn a_tool_receives_no_placeholder_that_nobody_has_thought_of() {
    let with = |arguments: &Value| {
        let turns = [
            Turn::tool("send", arguments.clone()),
            Turn::from_text("done"),
        ];
        ScriptedModel::new(turns)
    };
    let to = json!({ "to": ["jo@example.com"], "n": 1 });
    let key = json!({ "jo@example.com": "x" });
    let none = json!({ "to": "[bcc] a[0] [email", "n": 1 });
    for (arguments, is_made) in [(&to, false), (&key, false), (&none, true)] {
        for redact in [guard(), guard().numbered(), guard().redact_input()] {
            let model = with(arguments);
            let given = Arc::default();
            let agent = Agent::builder(model.clone())
                .tool(keeping("send", &given, "sent"))
                .global_callbacks(redact.clone())
                .build()
                .unwrap();
            agent.run("Send.").await.unwrap();
            assert_eq!(
                given.lock().unwrap().len(),
                usize::from(is_made),
                "{arguments}"
            );
            let read = format!("{:?}", model.requests()[1].messages());
            let is_said = read.contains("decide with `Redact::restore_when`");
            assert_eq!(is_said, !is_made, "{read}");

            // The same for one run, and around a tool alone.
            let plain = Agent::builder(with(arguments))
                .tool(keeping("send", &given, "sent"))
                .build()
                .unwrap();
            given.lock().unwrap().clear();
            let request = AgentRequest::new("Send.").with_global_callbacks(redact.clone());
            plain.run(request).await.unwrap();
            assert_eq!(
                given.lock().unwrap().len(),
                usize::from(is_made),
                "{arguments}"
            );
        }
    }
    // What is typed says whose call it was.
    let mut call = ToolRequest::new(ToolCall::new("c", "send", json!({ "to": "[card]" })));
    let refused = guard()
        .around_tool()
        .run_before(&mut call)
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert_eq!(
        refused.downcast_ref::<UndecidedPlaceholder>().unwrap().tool,
        "send"
    );
    // The text of a function is for everybody, and a decision is one also if it is no.
    let by_function = guard().replace_with(|_, _| "[card]".to_owned());
    by_function
        .around_tool()
        .run_before(&mut call)
        .await
        .unwrap();
    let never = guard().restore_when(|_| false);
    never.around_tool().run_before(&mut call).await.unwrap();
}

#[tokio::test]
async fn another_conversation_has_another_vault() {
    let model = ScriptedModel::new([
        Turn::tool("send", json!("[email-1]")),
        Turn::from_text("done"),
    ]);
    let given = Arc::default();
    let agent = Agent::builder(model)
        .tool(keeping("send", &given, "sent"))
        .global_callbacks(guard().redact_input().restore_when(|_| true))
        .build()
        .unwrap();
    let earlier = [
        Message::user("[email-1]"),
        Message::assistant("ok"),
        Message::user("a@b.co"),
    ];

    agent
        .run(AgentRequest::conversation(earlier))
        .await
        .unwrap();

    assert!(
        given.lock().unwrap().is_empty(),
        "nothing stands behind it here"
    );
}

#[test]
fn its_debug_form_says_what_it_looks_for() {
    let debug = format!("{:?}", guard().restore_when(|_| true));

    assert!(
        debug.contains(r#"kinds: ["email", "card", "secret"]"#),
        "{debug}"
    );
    assert!(debug.contains("restores: true"), "{debug}");
    let debug = format!("{:?}", Detector::pattern("order", "[0-9]+"));
    assert_eq!(debug, r#"Detector { kind: "order", patterns: ["[0-9]+"] }"#);
}

#[tokio::test]
async fn the_name_of_a_document_is_redacted_and_its_data_is_not() {
    let model = ScriptedModel::new([Turn::from_text("read")]);
    let agent = Agent::builder(model.clone())
        .global_callbacks(guard().redact_input())
        .build()
        .unwrap();
    let report = MediaSource::base64("application/pdf", "JVBERi0=");
    let named = Media::new(report.clone()).with_name("CV of jo@example.com.pdf");
    agent
        .run(AgentRequest::conversation([
            Message::user("Read.").with_part(Part::document(named))
        ]))
        .await
        .unwrap();

    let expected = Media::new(report).with_name("CV of [email]");
    let seen = &model.requests()[0];
    assert_eq!(seen.messages()[0].parts()[1], Part::document(expected));
}
