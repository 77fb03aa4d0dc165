//! Redacted text stays redacted in every part of a run and in the next one.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::callback::{after_model, before_model};
use tower_agent::compat::{Hooks, Semantics};
use tower_agent::message::{Metadata, ToolCall};
use tower_agent::stream::EventKind;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, Error, ErrorKind,
    Message, ModelRequest, ModelResponse, Resolution, Result, Tool, ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::redact::{Detector, Redact, UnknownPlaceholder};
use tower_agent_test::{ScriptedModel, Turn};

use crate::guards::watch::{count, read_events, shown};
use test_support::log::Log;

/// The secrets that must not be visible, wherever they come from.
const RAW: [&str; 5] = [
    "user@raw.org",
    "model@raw.org",
    "tool@raw.org",
    "error@raw.org",
    "cause@raw.org",
];

#[track_caller]
fn assert_hidden(what: &str, seen: &str) {
    for raw in RAW {
        assert!(!seen.contains(raw), "{what} shows {raw}: {seen}");
    }
}

fn redact() -> Redact {
    Redact::new([Detector::email()])
        .unwrap()
        .redact_input()
        .numbered()
}

/// Writes down whatever a callback can see.
#[derive(Clone, Default)]
struct Sees(Arc<Mutex<Vec<String>>>);

impl Sees {
    fn note(&self, what: &str, seen: impl std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{what}: {seen:?}"));
    }

    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join("\n")
    }
}

fn chain(error: &Error) -> String {
    let mut words = format!("{error} {error:?}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        words = format!("{words} {error} {error:?}");
        cause = error.source();
    }
    words
}

impl Hooks for Sees {
    async fn before_model(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        self.note("before_model", request.messages());
        Ok(Action::Continue)
    }

    async fn after_model(
        &self,
        _: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        self.note("after_model", response);
        Ok(Action::Continue)
    }

    async fn on_model_error(
        &self,
        _: &mut ModelRequest,
        error: &Error,
    ) -> Result<tower_agent::Recovery<ModelResponse>> {
        self.note("on_model_error", chain(error));
        Ok(tower_agent::Recovery::Propagate)
    }

    async fn before_tool(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.note("before_tool", (request.name(), request.arguments()));
        Ok(Action::Continue)
    }

    async fn after_tool(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        self.note("after_tool", (request.arguments(), response));
        Ok(Action::Continue)
    }

    async fn on_tool_error(
        &self,
        _: &mut ToolRequest,
        error: &Error,
    ) -> Result<tower_agent::Recovery<ToolResponse>> {
        self.note("on_tool_error", chain(error));
        Ok(tower_agent::Recovery::Propagate)
    }
}

fn failure() -> Error {
    let cause = Error::new(ErrorKind::Tool, "asked cause@raw.org");
    let mut metadata = Metadata::default();
    metadata.request_id = Some("for error@raw.org".into());
    Error::new(ErrorKind::Tool, "no such box")
        .with_source(cause)
        .with_metadata(metadata)
}

fn ask(to: &Arc<Mutex<Vec<Value>>>) -> Tool {
    let to = to.clone();
    Tool::function("mail", "Mails.", move |mail: Value| {
        to.lock().unwrap().push(mail["to"].clone());
        match mail["fails"].as_bool() {
            Some(true) => Err(failure()),
            _ => Ok("sent to tool@raw.org".to_owned()),
        }
    })
}

fn speaks() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("mail", json!({ "to": "model@raw.org" }))
            .and_tool("mail", json!({ "to": "model@raw.org", "fails": true }))
            .and_tool("ask_model@raw.org", json!({})),
        Turn::from_text("I asked model@raw.org."),
    ])
    .chunk_size(3)
}

#[tokio::test]
async fn a_log_anywhere_inside_a_global_redaction_sees_nothing_raw_in_any_phase() {
    let semantics = [
        Semantics::default(),
        Semantics::adk_python(),
        Semantics::trpc(),
    ];
    for semantics in semantics {
        let (global, own, run, to) = (
            Sees::default(),
            Sees::default(),
            Sees::default(),
            Default::default(),
        );
        let agent = Agent::builder(speaks())
            .semantics(semantics)
            .tool(ask(&to))
            .global_callbacks(redact().restore_when(|call| call.name() == "mail"))
            .global_callbacks(global.clone())
            .callbacks(own.clone())
            .build()
            .unwrap();
        let request = AgentRequest::new("I am user@raw.org.").with_callbacks(run.clone());
        let mut stream = agent.stream(request);
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await {
            seen.push(format!("{:?}", event.kind));
        }
        // The user's own words stay.
        let seen = seen.join("\n").replace("I am user@raw.org", "");
        assert_hidden("the stream", &seen);
        assert_hidden("a global log", &global.take());
        assert_hidden("the agent's own log", &own.take());
        assert_hidden("the run's log", &run.take());
        assert_eq!(
            *to.lock().unwrap(),
            ["model@raw.org", "model@raw.org"],
            "{semantics:?}"
        );
    }
}

#[tokio::test]
async fn the_transcript_has_nothing_raw_but_what_the_user_said() {
    let to = Default::default();
    let agent = Agent::builder(speaks())
        .tool(ask(&to))
        .global_callbacks(redact().restore_when(|_| false))
        .build()
        .unwrap();
    let done = agent.run("I am user@raw.org.").await.unwrap();
    let new: Vec<_> = done.new_messages().cloned().collect();
    assert_hidden("the transcript", &format!("{new:?}"));
    assert_eq!(done.text(), "I asked [email-2].");
    let made_up = new[0].tool_calls().last().unwrap();
    assert!(made_up.name.contains("email"), "{}", made_up.name);
    assert_eq!(
        *to.lock().unwrap(),
        ["[email-2]", "[email-2]"],
        "it may not be put back here"
    );
}

#[tokio::test]
async fn text_that_a_callback_adds_is_hidden_from_the_model_and_from_those_outside() {
    let model = ScriptedModel::new([Turn::from_text("yes")]);
    let outside = Sees::default();
    let agent = Agent::builder(model.clone())
        .global_callbacks(redact())
        .callbacks(outside.clone())
        .on_model(before_model(|request| {
            request
                .messages_mut()
                .push(Message::user("Also model@raw.org."));
        }))
        .on_model(after_model(|_, _| {
            Action::Respond(ModelResponse::from_text("or tool@raw.org"))
        }))
        .build()
        .unwrap();
    let done = agent.run("?").await.unwrap();
    assert_hidden(
        "the model's request",
        &format!("{:?}", model.requests()[0].messages()),
    );
    assert_eq!(done.text(), "or [email-2]");
}

fn mails(to: &Arc<Mutex<Vec<Value>>>, model: &ScriptedModel) -> AgentBuilder {
    Agent::builder(model.clone())
        .tool(ask(to))
        .global_callbacks(redact().restore_when(|call| call.name() == "mail"))
}

fn again(response: &AgentResponse) -> Checkpoint {
    serde_json::from_str(&serde_json::to_string(&response.checkpoint()).unwrap()).unwrap()
}

#[tokio::test]
async fn an_unknown_placeholder_fails_the_call() {
    for made_up in [
        "[email-7]",
        "a [EMAIL-1] b",
        "[email-99999999999999999999]",
        "[email-01]",
    ] {
        let (to, own) = (Arc::default(), Sees::default());
        let mail = Turn::tool("mail", json!({ "to": made_up }));
        let model = ScriptedModel::new([mail, Turn::from_text("done")]);
        let kinds = Arc::new(Mutex::new(Vec::new()));
        let failed = kinds.clone();
        let agent = mails(&to, &model)
            .callbacks(own)
            .on_tool(tower_agent::callback::on_tool_error(move |_, error| {
                let unknown = error.downcast_ref::<UnknownPlaceholder>();
                failed
                    .lock()
                    .unwrap()
                    .push(unknown.unwrap().placeholder.clone());
            }))
            .build()
            .unwrap();
        let done = agent.run("I am user@raw.org.").await.unwrap();
        assert!(to.lock().unwrap().is_empty(), "{made_up}");
        assert!(made_up.contains(&kinds.lock().unwrap()[0]));
        assert!(
            done.messages()
                .iter()
                .flat_map(|message| message.tool_results())
                .all(|result| result.is_error)
        );
    }
}

#[tokio::test]
async fn it_fails_the_call_also_of_a_tool_that_is_given_the_placeholders_themselves() {
    let to = Arc::default();
    let mail = |to: &str| Turn::tool("mail", json!({ "to": to }));
    let model = ScriptedModel::new([
        mail("[email-1]"),
        mail("[email-7]"),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model)
        .tool(ask(&to))
        .global_callbacks(redact().restore_when(|_| false))
        .build()
        .unwrap();
    let done = agent.run("I am user@raw.org.").await.unwrap();
    assert_eq!(*to.lock().unwrap(), ["[email-1]"]);
    let failed = done
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
        .map(|result| result.is_error);
    assert_eq!(failed.collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn after_an_approval_in_another_process_placeholders_are_put_back() {
    let to = Arc::default();
    let mail = Turn::tool("mail", json!({ "to": "[email-1]" }));
    let model = ScriptedModel::new([mail, Turn::from_text("done")]);
    let guarded = || {
        mails(&to, &model)
            .on_tool(Approval::of_tools(["mail"]))
            .build()
            .unwrap()
    };
    let paused = guarded().run("Mail user@raw.org.").await.unwrap();
    assert_hidden("the question", &format!("{:?}", paused.interrupts()));
    assert_hidden("the checkpoint, as it prints", &{
        let checkpoint = paused.checkpoint();
        format!("{checkpoint:?}").replace("Mail user@raw.org.", "")
    });

    let yes = Resolution::resolved(&paused.interrupts()[0].id, json!({ "approved": true }));
    let request = AgentRequest::resume(again(&paused)).with_resolutions([yes]);
    let done = guarded().run(request).await.unwrap();
    assert_eq!(
        (done.text(), &*to.lock().unwrap()),
        ("done".into(), &vec![json!("user@raw.org")])
    );
}

#[tokio::test]
async fn an_approver_with_the_role_reads_the_texts_that_nobody_else_does() {
    let to = Arc::default();
    let mail = Turn::tool("mail", json!({ "to": "[email-1], [card-1] and [email-9]" }));
    let model = ScriptedModel::new([mail, Turn::from_text("done")]);
    let cards = || {
        Redact::new([Detector::card()])
            .unwrap()
            .redact_input()
            .numbered()
    };
    let guarded = || {
        let emails = redact().restore_when(|_| true).reveal_to("support");
        Agent::builder(model.clone())
            .tool(ask(&to))
            .global_callbacks(emails)
            .global_callbacks(cards())
            .on_tool(
                Approval::of_tools(["mail"])
                    .by_role("support")
                    .allow_edits(),
            )
            .build()
            .unwrap()
    };
    let text = "Mail user@raw.org, 4111 1111 1111 1111.";
    let paused = guarded().run(text).await.unwrap();
    let [question] = paused.interrupts() else {
        panic!("{:?}", paused.interrupts())
    };
    // Neither of another redaction, nor made up.
    let shown = json!({ "to": "user@raw.org, [card-1] and [email-9]" });
    assert_eq!(question.payload["arguments"], shown);
    assert_hidden("the call", &format!("{:?}", paused.new_messages()));

    let edit = json!({ "approved": true, "editedArgs": { "to": "user@raw.org" } });
    let edit = Resolution::resolved(&question.id, edit);
    let request = AgentRequest::resume(again(&paused)).with_resolutions([edit]);
    let done = guarded().run(request).await.unwrap();
    assert_eq!(*to.lock().unwrap(), [json!("user@raw.org")]);
    assert_hidden(
        "what the model reads",
        &format!("{:?}", done.new_messages()),
    );
    assert_hidden(
        "its request",
        &format!("{:?}", model.requests()[1].messages()),
    );
}

#[tokio::test]
async fn a_question_for_another_role_or_for_the_user_reveals_nothing() {
    for approval in [
        Approval::of_tools(["mail"]).by_role("audit"),
        Approval::of_tools(["mail"]),
    ] {
        let to = Arc::default();
        let model = ScriptedModel::new([Turn::tool("mail", json!({ "to": "[email-1]" }))]);
        let agent = Agent::builder(model)
            .tool(ask(&to))
            .global_callbacks(redact().reveal_to("support"))
            .on_tool(approval)
            .build()
            .unwrap();
        let paused = agent.run("Mail user@raw.org.").await.unwrap();
        assert_eq!(
            paused.interrupts()[0].payload["arguments"]["to"],
            "[email-1]"
        );
    }
}

#[tokio::test]
async fn numbers_stay_the_same_across_a_conversation_and_are_not_shown() {
    let model = ScriptedModel::new([(); 2].map(|()| Turn::from_text("Well, model@raw.org.")));
    let agent = || {
        Agent::builder(model.clone())
            .global_callbacks(redact())
            .build()
            .unwrap()
    };
    let first = agent().run("I am user@raw.org.").await.unwrap();
    assert_eq!(first.text(), "Well, [email-2].");
    let request = AgentRequest::resume(again(&first)).with_message("And b@raw.org, user@raw.org.");
    let mut stream = agent().stream(request);
    let mut text = String::new();
    while let Some(event) = stream.next().await {
        if let EventKind::TextDelta { text: more, .. } = &event.kind {
            text.push_str(more);
        }
        assert!(!format!("{:?}", event.kind).contains("model@raw.org"));
    }
    assert_eq!(text, "Well, [email-2].");
    let sent = model.requests().last().unwrap().messages().clone();
    let said: Vec<_> = sent.iter().map(Message::text).collect();
    assert_eq!(
        said,
        [
            "I am [email-1].",
            "Well, [email-2].",
            "And [email-3], [email-1]."
        ],
        "the answer before is left as it is"
    );
}

#[tokio::test]
async fn two_redactions_and_all_agents_of_a_run_share_one_vault() {
    let to: Arc<Mutex<Vec<Value>>> = Arc::default();
    let inner = ScriptedModel::new([
        Turn::tool("mail", json!({ "to": "[email-1]" }))
            .and_tool("mail", json!({ "to": "[email-2] [ip-1]" })),
        Turn::from_text("Mailed."),
    ]);
    let clerk = Agent::builder(inner)
        .name("clerk")
        .tool(ask(&to))
        .build()
        .unwrap();
    let outer = ScriptedModel::new([
        Turn::tool(
            "clerk",
            json!({ "request": "user@raw.org and model@raw.org at 10.0.0.1" }),
        ),
        Turn::from_text("done"),
    ]);
    let other = Redact::new([Detector::ip_address()])
        .unwrap()
        .redact_input();
    let agent = Agent::builder(outer)
        .tool(clerk.into_tool("Mails."))
        .global_callbacks(redact().restore_when(|call| call.name() == "mail"))
        .global_callbacks(other.restore_when(|call| call.name() == "mail"))
        .build()
        .unwrap();
    assert_eq!(
        agent.run("I am user@raw.org.").await.unwrap().text(),
        "done"
    );
    assert_eq!(
        *to.lock().unwrap(),
        ["user@raw.org", "model@raw.org 10.0.0.1"]
    );
}

#[tokio::test]
async fn an_error_that_leaves_a_run_shows_nothing_in_its_causes_or_its_metadata() {
    let mut metadata = Metadata::default();
    metadata.status = Some(503);
    metadata.request_id = Some("error@raw.org".into());
    let model = ScriptedModel::new([Turn::error(
        Error::new(ErrorKind::Overloaded, "busy")
            .with_source(Error::new(ErrorKind::Tool, "for cause@raw.org"))
            .with_metadata(metadata),
    )]);
    let agent = Agent::builder(model)
        .global_callbacks(redact())
        .build()
        .unwrap();
    let error = agent.run("?").await.unwrap_err();
    assert_hidden("the error", &chain(&error));
    assert_eq!(
        (error.kind(), error.metadata().status),
        (ErrorKind::Overloaded, Some(503))
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("for [email-"), "{cause}");
}

#[tokio::test]
async fn a_global_guard_wraps_agents_used_as_tools_and_sub_agents() {
    let worker = Agent::builder(ScriptedModel::new([Turn::from_text("Ask jo@example.com.")]))
        .name("worker")
        .build()
        .unwrap();
    let clerk = Agent::builder(ScriptedModel::new([Turn::from_text("Or al@example.com.")]))
        .name("clerk")
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "?" })),
        Turn::tool("transfer_to_agent", json!({ "agent_name": "clerk" })),
    ]);
    let agent = Agent::builder(model)
        .tool(worker.into_tool(""))
        .sub_agent(clerk)
        .global_callbacks(Redact::new([Detector::email()]).unwrap())
        .build()
        .unwrap();

    let (events, response) = read_events(&agent).await;

    let response = response.unwrap();
    assert_eq!(response.text(), "Or [email].");
    assert_eq!(shown(&events), "Ask [email].Or [email].");
    let results: Vec<_> = response
        .new_messages()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!(results[0].text(), "Ask [email].");
}

#[tokio::test]
async fn values_redacted_for_the_model_are_put_back_for_a_tool() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::function(|request: &ModelRequest| {
            let text = request.messages().iter().next_back().unwrap().text();
            let mut response = ModelResponse::from_text("");
            let call = ToolCall::new("call", "send", json!({ "to": text }));
            *response.message_mut().parts_mut() = vec![call.into()];
            Ok(response)
        }),
        Turn::from_text("sent"),
    ]);
    let redact = Redact::new([Detector::email()]).unwrap().redact_input();
    let agent = Agent::builder(model.clone())
        .tool(log.tool("send"))
        .global_callbacks(redact.restore_when(|call| call.name() == "send"))
        .build()
        .unwrap();

    agent.run("jo@example.com").await.unwrap();

    assert!(!format!("{:?}", model.requests()).contains("jo@example.com"));
    assert_eq!(log.all(), [r#"send {"to":"jo@example.com"}"#]);
}

#[tokio::test]
async fn a_redactor_waits_while_a_match_may_still_grow() {
    let model = ScriptedModel::new([Turn::from_text("Ask jo@example.com or me.")]).chunk_size(1);
    let redact = Redact::new([Detector::email()]).unwrap();
    let agent = Agent::builder(model)
        .global_callbacks(redact)
        .build()
        .unwrap();

    let (events, response) = read_events(&agent).await;

    assert_eq!(shown(&events), "Ask [email] or me.");
    assert_eq!(response.unwrap().text(), "Ask [email] or me.");
    assert_eq!(
        count(&events, |kind| matches!(
            kind,
            EventKind::ResponseReplaced { .. }
        )),
        0
    );
}
