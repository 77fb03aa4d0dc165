//! Stored values are read back as they were.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower_agent::agent::{CheckpointHead, SavedRequest};
use tower_agent::call::{CallKind, Origin};
use tower_agent::callback::before_agent;
use tower_agent::context::{Effects, State};
use tower_agent::error::{CallSite, ResolutionOutcome};
use tower_agent::message::{Messages, Metadata, ProviderData, ToolCall};
use tower_agent::model::{
    CacheRetention, FinishReason, PromptCache, ReasoningEffort, ResponseFormat, ToolChoice,
};
use tower_agent::stream::Delta;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentRequest, Checkpoint, Effect, Error, ErrorKind, Interrupt, Message, ModelResponse,
    Part, Request, Resolution, Settings, Tool, ToolResponse, Usage,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

#[track_caller]
fn read_back<T: Serialize + DeserializeOwned>(stored: &T) -> T {
    serde_json::from_str(&serde_json::to_string(stored).unwrap()).unwrap()
}

#[track_caller]
fn assert_kept<T: Serialize + DeserializeOwned + PartialEq + Debug>(stored: &T) {
    assert_eq!(&read_back(stored), stored);
}

#[track_caller]
fn read<T: DeserializeOwned>(stored: Value) -> T {
    serde_json::from_value(stored).unwrap()
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::default();
    metadata.status = Some(429);
    metadata.request_id = Some("req_1".into());
    metadata.model = Some("m-2026".into());
    metadata.rate_limits = [("x-ratelimit-remaining".into(), "0".into())].into();
    metadata
}

#[test]
fn a_model_response_is_kept() {
    let mut provider = ProviderData::default();
    provider.set("anthropic", json!({ "signature": "EqQ" }));
    let mut message = Message::assistant("Let me see.");
    *message.provider_mut() = provider;
    let call = ToolCall::from_text(
        "call_1",
        "add",
        r#"{ "b": 100000000000000000000001, "a": 1 }"#,
    );
    let mut response = ModelResponse::new(message.with_part(Part::ToolCall(call)))
        .with_usage(Usage::new(3, 1))
        .with_metadata(metadata());
    assert_kept(&response);
    // Also where it came from.
    tower_agent::ModelRequest::default().mark(&mut response, None, Origin::Before);
    assert_kept(&response);
    assert_eq!(read_back(&response).origin(), Origin::Before);

    let bare: ModelResponse =
        read(json!({ "message": { "role": "assistant", "parts": [] }, "later": 1 }));
    assert_eq!(
        bare,
        ModelResponse::new(Message::new(tower_agent::Role::Assistant, []))
    );
}

#[track_caller]
fn assert_no_later_version_is_read<T: Serialize + DeserializeOwned>(stored: &T, version: &str) {
    let mut stored = serde_json::to_value(stored).unwrap();
    assert_eq!(stored.pointer(version), Some(&json!(1)));
    *stored.pointer_mut(version).unwrap() = json!(2);
    let error = serde_json::from_value::<T>(stored)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("format 2, but this version of tower-agent reads up to 1"),
        "{error}"
    );
}

#[test]
fn a_checkpoint_and_a_request_of_a_later_version_are_errors() {
    let checkpoint = Checkpoint::new([Message::user("Hi.")]);
    assert_no_later_version_is_read(&checkpoint, "/head/version");
    assert_no_later_version_is_read(&checkpoint.head, "/version");
    assert_no_later_version_is_read(&SavedRequest::from(&AgentRequest::new("Hi.")), "/version");
}

#[tokio::test]
async fn a_head_and_the_messages_that_are_stored_apart_make_the_checkpoint() {
    let agent = Agent::builder(ScriptedModel::new([
        Turn::tool("pay", json!({})),
        Turn::from_text("Paid."),
    ]));
    let agent = agent
        .tool(Tool::function("pay", "Pays.", |_: Value| "paid"))
        .on_tool(Approval::of_tools(["pay"]))
        .on_agent(before_agent(|request| {
            request
                .context()
                .private_state()
                .set("test.secret", "hidden");
        }))
        .build()
        .unwrap();
    let paused = agent.run("Pay.").await.unwrap().checkpoint();
    let shown = format!("{paused:?}");
    assert!(
        shown.contains("interrupts") && !shown.contains("hidden"),
        "{shown}"
    );

    // The head first and each message by itself, as stores write them.
    let head = read_back(&paused.head);
    let messages = paused.messages.iter().map(read_back).collect();
    let stored = Checkpoint { head, messages };
    assert_eq!(stored, paused);
    let approved = Resolution::resolved(&stored.head.interrupts[0].id, json!({ "approved": true }));
    let request = AgentRequest::resume(stored).with_resolutions([approved]);
    let response = agent.run(request).await.unwrap();
    assert_eq!(response.text(), "Paid.");

    // Another branch has neither the questions nor the rest of the turn.
    let branch = paused.clone().with_messages([Message::user("Do not pay.")]);
    assert_eq!(branch.head, paused.head.clone().for_branch());
    assert_eq!((branch.head.turn, branch.head.interrupts.len()), (1, 0));
    assert_eq!(
        serde_json::to_value(&branch.head).unwrap()["private_state"],
        json!({ "test.secret": "hidden" })
    );
}

/// Returns arrays in one another.
fn nested(levels: usize) -> Value {
    (1..levels).fold(json!([]), |inner, _| json!([inner]))
}

/// Returns whether a value can be written. If so, it can be read.
#[track_caller]
fn is_written<T: Serialize + DeserializeOwned + PartialEq + Debug>(stored: &T) -> bool {
    match serde_json::to_string(stored) {
        Ok(text) => {
            assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), stored);
            true
        }
        Err(error) => {
            assert!(
                error.to_string().contains("could not be read again"),
                "{error}"
            );
            false
        }
    }
}

#[test]
fn json_too_deep_to_be_read_again_is_refused_where_it_is_written() {
    for levels in 55..140 {
        // An object with a key is one level more.
        let (in_key, alone) = (levels < 64, levels <= 64);
        let state = State::from_iter([("page".to_owned(), nested(levels))]);
        let request = AgentRequest::new("Hi.").with_state(state).with_run_id("1");
        assert_eq!(
            is_written(&SavedRequest::from(&request)),
            in_key,
            "{levels}"
        );
        let request = AgentRequest::new("Hi.").with_run_id("1");
        request
            .context()
            .private_state()
            .set("test.page", nested(levels));
        let checkpoint = request.checkpoint();
        assert_eq!(is_written(&checkpoint), in_key, "{levels}");
        let mut provider = ProviderData::default();
        provider.set("test", nested(levels));
        let mut message = Message::user("Hi.");
        *message.provider_mut() = provider;
        assert_eq!(is_written(&Checkpoint::new([message])), in_key, "{levels}");
        assert_eq!(
            is_written(&ToolResponse::new(nested(levels))),
            alone,
            "{levels}"
        );
        assert_eq!(
            is_written(&Resolution::resolved("1", nested(levels))),
            alone,
            "{levels}"
        );
        let interrupt = Interrupt::new("1", "test").with_payload(nested(levels));
        assert_eq!(is_written(&interrupt), alone, "{levels}");
    }
}

#[test]
fn conversations_too_deep_to_be_read_again_are_refused_where_they_are_written() {
    let deep = nested(63);
    let message = format!(
        r#"{{"role":"user","parts":[{{"type":"text","text":"Hi.","provider":{{"test":{deep}}}}}]}}"#
    );
    for count in 1..25 {
        let mut conversation = r#"{"length":1}"#.to_owned();
        for _ in 0..count {
            conversation = format!(
                r#"{{"length":1,"nested":{{"a":{{"messages":[{message}],"head":{conversation}}}}}}}"#
            );
        }
        let head =
            format!(r#"{{"version":1,"interrupts":[],"turn":1,"conversation":{conversation}}}"#);
        // What could not be read was not written either.
        let Ok(head) = serde_json::from_str::<CheckpointHead>(&head) else {
            assert!(count > 16, "{count}");
            continue;
        };
        let checkpoint = Checkpoint {
            head,
            messages: Messages::default(),
        };
        assert_eq!(is_written(&checkpoint), count <= 16, "{count}");
    }
}

/// Removes each of the fields, and expects that the rest is not read.
#[track_caller]
fn assert_required<T: DeserializeOwned + Debug>(stored: &Value, fields: &[&str]) {
    serde_json::from_value::<T>(stored.clone()).unwrap();
    for field in fields {
        let mut stored = stored.clone();
        let removed = stored.as_object_mut().unwrap().remove(*field);
        assert!(removed.is_some(), "{field}");
        let error = serde_json::from_value::<T>(stored).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn a_stored_field_whose_absence_would_mean_less_is_required() {
    let checkpoint = serde_json::to_value(Checkpoint::new([Message::user("Hi.")])).unwrap();
    assert_required::<Checkpoint>(&checkpoint, &["head", "messages"]);
    assert_required::<CheckpointHead>(&checkpoint["head"], &["version", "interrupts", "turn"]);
    for nothing in ["{}", "[]", r#"{"mesages":[]}"#] {
        assert!(
            serde_json::from_str::<Checkpoint>(nothing).is_err(),
            "{nothing}"
        );
    }
    let effects = serde_json::to_value(Effects::default()).unwrap();
    assert_required::<Effects>(&effects, &["usage", "amounts", "escalated"]);
    let response = serde_json::to_value(ToolResponse::new("paid")).unwrap();
    assert_required::<ToolResponse>(&response, &["value", "is_error"]);
    let interrupt = serde_json::to_value(Interrupt::new("1", "test")).unwrap();
    assert_required::<Interrupt>(&interrupt, &["answerer", "expiry"]);
}

#[test]
fn an_answer_with_a_key_twice_is_refused() {
    for payload in [
        r#"{"approved":true,"approved":false}"#,
        r#"{"approved":true,"editedArgs":{"to":"ada","to":"bob"}}"#,
        r#"[{"a":1,"a":1}]"#,
    ] {
        let answer = format!(r#"{{"id":"1","status":"resolved","payload":{payload}}}"#);
        let error = serde_json::from_str::<Resolution>(&answer).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
    }
    let payload = json!({ "a": [null, true, -1, 2, 1.5, "text", { "a": {} }], "b": [] });
    assert_kept(&Resolution::resolved("1", payload));
}

#[test]
fn every_finish_reason_is_kept() {
    for reason in [
        FinishReason::Stop,
        FinishReason::ToolCalls,
        FinishReason::Length,
        FinishReason::ContentFilter,
        FinishReason::Other("stop".into()),
    ] {
        assert_kept(&reason);
    }
    assert_eq!(
        serde_json::to_value(FinishReason::ToolCalls).unwrap(),
        "tool_calls"
    );
    let other = serde_json::to_value(FinishReason::Other("pause".into())).unwrap();
    assert_eq!(other, json!({ "other": "pause" }));
}

#[test]
fn a_tool_response_is_kept() {
    assert_kept(&ToolResponse::new(
        json!({ "celsius": 21.5, "odd": 0.1 + 0.2 }),
    ));
    assert_kept(&ToolResponse::error("no").with_parts([Part::from_text("No.")]));
    assert_kept(&ToolResponse::new(()).with_parts([]));
    // With the arguments that a callback had changed.
    let call = ToolCall::new("call_1", "add", json!({ "a": 1 }));
    let mut request = tower_agent::ToolRequest::new(call);
    request.arguments_mut()["a"] = json!(2);
    let mut response = ToolResponse::new("3");
    request.mark(&mut response, None, Origin::Fallback);
    assert_kept(&response);
}

#[test]
fn metadata_and_deltas_are_kept() {
    assert_kept(&metadata());
    assert_kept(&Metadata::default());
    assert_eq!(
        serde_json::to_value(Metadata::default()).unwrap(),
        json!({})
    );
    for delta in [
        test_support::text("a"),
        Delta::Reasoning("b".into()),
        test_support::begins(0, "call_1", "add"),
        test_support::arguments(0, "{}"),
    ] {
        assert_kept(&delta);
    }
}

#[test]
fn settings_are_kept_and_unset_ones_are_not_written() {
    let mut settings = Settings::default();
    assert_eq!(serde_json::to_value(&settings).unwrap(), json!({}));
    assert_eq!(read::<Settings>(json!({ "unknown": 1 })), settings);
    settings.model = Some("m".into());
    settings.temperature = Some(0.1 + 0.2);
    settings.top_p = Some(0.9);
    settings.max_tokens = Some(7);
    settings.stop = vec!["END".into()];
    settings.seed = Some(u64::MAX);
    settings.parallel_tool_calls = Some(false);
    settings
        .extra
        .insert("logit_bias".into(), json!({ "50256": -100 }));
    settings.prompt_cache = Some(
        PromptCache::new()
            .with_key("k")
            .with_retention(CacheRetention::Long),
    );
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "n".into(),
        schema: json!({}),
        strict: true,
    });
    for (choice, effort) in [
        (ToolChoice::Auto, ReasoningEffort::None),
        (ToolChoice::None, ReasoningEffort::Minimal),
        (ToolChoice::Required, ReasoningEffort::High),
        (
            ToolChoice::Tool("auto".into()),
            ReasoningEffort::Other("high".into()),
        ),
    ] {
        settings.tool_choice = Some(choice);
        settings.reasoning_effort = Some(effort);
        assert_kept(&settings);
    }
}

#[test]
fn a_declaration_is_kept() {
    let declaration = ToolDeclaration::new("wipe", "Wipes.")
        .with_arguments::<String>()
        .with_effect(Effect::Idempotent);
    assert_kept(&declaration);
    assert_eq!(
        read::<ToolDeclaration>(json!({ "name": "wipe" })),
        ToolDeclaration::new("wipe", "")
    );
}

#[test]
fn an_error_is_kept_as_data() {
    let site = |kind| CallSite::of(&tower_agent::ModelRequest::default()).with_kind(kind);
    let error = Error::new(ErrorKind::RateLimited, "slow down")
        .with_retryable(false)
        .with_retry_after(Duration::from_millis(1500))
        .with_metadata(metadata())
        .with_model_message("Later.")
        .with_source("the cause")
        .with_call(site(CallKind::Tool));
    let read = read_back(&error);
    // All but the source.
    assert_eq!(read.to_string(), error.to_string());
    assert_eq!(
        (read.kind(), read.is_retryable()),
        (ErrorKind::RateLimited, false)
    );
    assert_eq!(
        (read.retry_after(), read.metadata()),
        (error.retry_after(), error.metadata())
    );
    assert_eq!(
        (read.call(), read.model_message()),
        (error.call(), Some("Later."))
    );
    assert!(std::error::Error::source(&read).is_none());
    // The kind still decides after a round trip.
    assert!(read_back(&Error::new(ErrorKind::Timeout, "")).is_retryable());

    let interrupt = Interrupt::new("1", "confirmation").with_message("Sure?");
    let error = read_back(&Error::interrupt(interrupt.clone()));
    assert!(error.is_ending());
    assert_eq!(error.interrupts(), [interrupt]);
    // A call that this crate does not define has a name that cannot be read back.
    let own = Error::new(ErrorKind::Other, "").with_call(site(CallKind::Other("embed")));
    assert_eq!(read_back(&own).call(), None);
}

trait WithKind {
    fn with_kind(self, kind: CallKind) -> Self;
}

impl WithKind for CallSite {
    fn with_kind(mut self, kind: CallKind) -> Self {
        self.kind = kind;
        self
    }
}

#[tokio::test]
async fn the_callback_that_raised_an_error_is_kept() {
    use tower::ServiceExt;
    use tower_layer::Layer;

    let fails = tower_agent::callback::before_model(|_| Err::<(), _>(Error::from("no")));
    let model = fails.layer(tower_agent_test::ScriptedModel::new([]));
    let error = model
        .oneshot(tower_agent::ModelRequest::default())
        .await
        .unwrap_err();
    let read = read_back(&error);
    assert!(error.raised_by().is_some());
    assert_eq!(
        (read.raised_by(), read.to_string()),
        (error.raised_by(), error.to_string())
    );
}

#[test]
fn every_kind_of_error_is_its_code() {
    use ErrorKind::*;
    for kind in [
        Aborted,
        Interrupted,
        InvocationEnded,
        Cancelled,
        Timeout,
        RateLimited,
        Overloaded,
        Auth,
        NotFound,
        InvalidRequest,
        ContextLength,
        Provider,
        Connection,
        Protocol,
        Tool,
        UnknownTool,
        InvalidArguments,
        InvalidAnswer,
        MaxIterations,
        MaxNesting,
        BudgetExceeded,
        Conflict,
        Expired,
        Callback,
        Other,
    ] {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.code());
        assert_kept(&kind);
    }
    assert_eq!(read::<ErrorKind>(json!("from_a_later_version")), Other);
    assert_eq!(read::<Error>(json!({ "message": "?" })).kind(), Other);
}

#[test]
fn an_interrupt_can_be_sent_elsewhere() {
    let pending = Interrupt::new("1", "confirmation")
        .with_message("Really?")
        .with_payload(json!({ "amount": 7 }));
    let sent = serde_json::to_value(&pending).unwrap();
    assert_eq!(
        sent,
        json!({
            "id": pending.id, "name": "1", "reason": "confirmation", "message": "Really?",
            "payload": { "amount": 7 }, "answerer": "user", "expiry": null,
        })
    );
    assert_eq!(serde_json::from_value::<Interrupt>(sent).unwrap(), pending);
}

#[test]
fn an_interrupt_keeps_the_end_of_its_time_and_what_happens_then() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_500_000_001);
    let no = ResolutionOutcome::Resolved(json!({ "approved": false }));
    let pending = Interrupt::new("1", "confirmation").with_expiry(at, no);
    assert_kept(&pending);
    let sent = serde_json::to_value(&pending).unwrap();
    let outcome = json!({ "status": "resolved", "payload": { "approved": false } });
    assert_eq!(sent["expiry"], json!({ "at": 1500, "outcome": outcome }));
    for no_time in [json!(-1), json!(1.5), json!(null)] {
        let mut sent = sent.clone();
        sent["expiry"]["at"] = no_time;
        serde_json::from_value::<Interrupt>(sent).unwrap_err();
    }
}

#[tokio::test]
async fn a_conversation_with_a_guard_goes_on_with_it_alone() {
    let agent = || {
        Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
            .build()
            .unwrap()
    };
    let guarded = |request: AgentRequest| request.with_guard("audit", "ask the auditor");
    let response = agent().run(guarded(AgentRequest::new("Hi."))).await;
    let checkpoint = read_back(&response.unwrap().checkpoint());
    let edited = checkpoint.clone().with_messages([Message::user("Hi.")]);
    let mut bare = checkpoint.clone();
    bare.head = bare.head.without_private_state();
    for checkpoint in [checkpoint, edited, bare] {
        let plain = || AgentRequest::resume(checkpoint.clone()).with_message("And again.");
        let kept = || AgentRequest::new("And again.").with_checkpoint(checkpoint.clone());
        let others = || plain().with_guard("other", "?");
        for request in [plain(), kept(), others()] {
            let error = agent().run(request).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest);
            assert!(
                error.message().contains("`audit`: ask the auditor"),
                "{error}"
            );
        }
        let streamed = agent().stream(plain()).response().await.unwrap_err();
        assert_eq!(streamed.kind(), ErrorKind::InvalidRequest);
        for request in [plain(), kept()] {
            let response = agent().run(guarded(request)).await.unwrap();
            assert_eq!(response.text(), "Hello.");
        }
    }

    // Two of them are needed both.
    let two = guarded(AgentRequest::new("Hi.")).with_guard("other", "?");
    let checkpoint = agent().run(two).await.unwrap().checkpoint();
    let request = || AgentRequest::resume(checkpoint.clone());
    agent().run(guarded(request())).await.unwrap_err();
    let both = guarded(request()).with_guard("other", "?");
    agent().run(both).await.unwrap();
}

#[tokio::test]
async fn a_guard_is_given_to_a_whole_run() {
    let inner = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
        .build()
        .unwrap();
    let outer = before_agent(move |request: &mut AgentRequest| {
        let inner = inner.clone();
        let context = request.context().clone();
        async move {
            let request = AgentRequest::new("Hi.").with_context(context);
            inner.run(request.with_guard("audit", "?")).await.map(drop)
        }
    });
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Hello.")))
        .on_agent(outer)
        .build()
        .unwrap();
    let error = agent.run("Hi.").await.unwrap_err();
    assert!(
        error.message().contains("belongs to a whole run"),
        "{error}"
    );
}
