//! Failures in a band of callbacks, and responses that do not count.

use tower_agent::callback::{
    CallbackRules, Remaining, after_model, before_model, before_tool, on_model_error,
};
use tower_agent::compat::CallbackSemantics;
use tower_agent::context::ConversationId;
use tower_agent::{
    Action, Agent, AgentRequest, Callbacks, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Recovery, Tool, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};
use tracing::Level;
use tracing::instrument::WithSubscriber;

use test_support::trace::Trace;
use test_support::traces::Traces;

fn says(text: &str) -> ModelResponse {
    ModelResponse::new(Message::assistant(text))
}

fn fails(message: &'static str) -> Error {
    Error::new(ErrorKind::Other, message)
}

fn by_hand(change: impl FnOnce(&mut CallbackRules)) -> CallbackRules {
    let mut rules = CallbackRules::default();
    change(&mut rules);
    rules
}

#[tokio::test]
async fn after_a_failed_hook_the_rest_run_whatever_one_of_them_returns() {
    let (trace, request) = (Trace::default(), ModelRequest::default());
    let (one, two) = (trace.clone(), trace.clone());
    let (three, four) = (trace.clone(), trace.clone());
    let rules = by_hand(|rules| rules.failure = Remaining::Notify);
    let callbacks = Callbacks::<ModelRequest>::new()
        .with_semantics(rules)
        .with(before_model(|_| Err::<(), _>(fails("broken"))))
        .with(before_model(move |_| {
            one.push("before 2");
            Action::Respond(says("before"))
        }))
        .with(before_model(move |_| two.push("before 3")))
        .with(after_model(|_, _| Err::<(), _>(fails("broken"))))
        .with(after_model(move |_, response| {
            three.push(format!("after 2 of {}", response.message().text()));
            Action::Respond(says("after"))
        }))
        .with(after_model(move |_, response| {
            four.push(format!("after 3 of {}", response.message().text()));
        }));

    let before = callbacks
        .run_before(&mut request.clone())
        .await
        .unwrap_err();
    let after = callbacks.run_after(&request, says("hi")).await.unwrap_err();

    assert_eq!((before.message(), after.message()), ("broken", "broken"));
    assert_eq!(
        trace.take(),
        "before 2 before 3 after 2 of hi after 3 of hi"
    );
}

/// Fails a call whose first `on_error` replaces the error. Returns the outcome, and the error that
/// the second sees, which recovers if `answers`.
async fn fail(semantics: CallbackSemantics, answers: bool) -> (String, String) {
    let trace = Trace::default();
    let second = trace.clone();
    let callbacks = Callbacks::<ModelRequest>::new()
        .with_semantics(semantics)
        .with(on_model_error(|_, _| Recovery::Fail(fails("another"))))
        .with(on_model_error(move |_, error| {
            second.push(error.message());
            if answers {
                Recovery::Fallback(says("answer"))
            } else {
                Recovery::Propagate
            }
        }));
    let recovery = callbacks
        .run_on_error(&mut ModelRequest::default(), fails("own"))
        .await;
    let end = match recovery {
        Recovery::Fail(error) => error.message().to_owned(),
        Recovery::Fallback(response) => response.message().text(),
        other => panic!("{other:?}"),
    };
    (end, trace.take())
}

#[tokio::test]
async fn a_fail_is_a_failing_hook_where_on_errors_are_asked_like_afters() {
    let cases = [
        // Here it changes the error.
        (CallbackSemantics::default(), false, "another", "another"),
        (CallbackSemantics::default(), true, "answer", "another"),
        // Here the rest are not asked.
        (CallbackSemantics::trpc(false, false), false, "another", ""),
        (CallbackSemantics::trpc(false, false), true, "another", ""),
        // Here they are, about the call's own error, and it beats what they answer.
        (
            CallbackSemantics::trpc(true, false),
            false,
            "another",
            "own",
        ),
        (CallbackSemantics::trpc(true, true), true, "another", "own"),
    ];
    for (index, (semantics, answers, end, told)) in cases.into_iter().enumerate() {
        let became = fail(semantics, answers).await;
        assert_eq!(became, (end.to_owned(), told.to_owned()), "case {index}");
    }
}

#[tokio::test]
async fn on_errors_follow_their_own_rule_whatever_the_rule_for_afters() {
    use Remaining::{Notify, Run, Skip};
    let cases = [
        (Skip, Run, "first", ""),
        (Skip, Notify, "first", ""),
        (Skip, Skip, "first", ""),
        (Notify, Notify, "first", "told"),
        (Notify, Skip, "first", "told"),
        (Run, Run, "second", "told"),
    ];
    for (fallback, after, answer, told) in cases {
        let trace = Trace::default();
        let second = trace.clone();
        let callbacks = Callbacks::<ModelRequest>::new()
            .with_semantics(by_hand(|rules| {
                rules.fallback = fallback;
                rules.after_response = after;
            }))
            .with(on_model_error(|_, _| Recovery::Fallback(says("first"))))
            .with(on_model_error(move |_, _| {
                second.push("told");
                Recovery::Fallback(says("second"))
            }));

        let recovery = callbacks
            .run_on_error(&mut ModelRequest::default(), fails("own"))
            .await;

        let Recovery::Fallback(response) = recovery else {
            panic!("{recovery:?}")
        };
        let became = (response.message().text(), trace.take());
        assert_eq!(
            became,
            (answer.to_owned(), told.to_owned()),
            "{fallback:?} {after:?}"
        );
    }
}

#[tokio::test]
async fn a_response_that_does_not_count_is_warned_of() {
    let warnings = Traces::default();
    let callbacks = |semantics| {
        let answers = before_tool(|_| Action::Respond(ToolResponse::new("mine")));
        Callbacks::<ToolRequest>::new()
            .with(answers)
            .with_semantics(semantics)
    };
    let asked = async |semantics| {
        let call = tower_agent::message::ToolCall::new("1", "look", serde_json::json!({}));
        let mut request = ToolRequest::new(call);
        callbacks(semantics).run_before(&mut request).await.unwrap()
    };

    let counts = asked(CallbackSemantics::default())
        .with_subscriber(warnings.clone())
        .await;
    assert!(counts.is_some());
    assert_eq!(warnings.take(), [""; 0]);

    let ignored = asked(CallbackSemantics::potato())
        .with_subscriber(warnings.clone())
        .await;
    assert!(ignored.is_none());
    let warnings = warnings.take();
    let [warning] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert!(
        warning.contains("tool") && warning.contains("before"),
        "{warning}"
    );
}

/// With the run, its conversation, the call and the callback, and without the text of an error.
#[tokio::test]
async fn decisions_that_change_what_happens_are_in_the_log() {
    let lines = Traces::down_to(Level::DEBUG);
    let turns = [
        Turn::error(fails("busy")),
        Turn::tool("look", serde_json::json!({})),
        Turn::from_text("It rains."),
    ];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(Tool::function(
            "look",
            "Looks.",
            |_: serde_json::Value| "rain",
        ))
        .on_model(before_model(|_| ()).named("idle"))
        .on_model(on_model_error(|_, _| Recovery::Retry).named("again"))
        .on_tool(
            before_tool(|_| Err::<(), _>(Error::new(ErrorKind::Denied, "a secret")))
                .named("closed"),
        )
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_run_id("run 1")
        .with_extension(ConversationId::new("chat 7"));
    let run = agent.run(request).with_subscriber(lines.clone());
    run.await.unwrap();
    let of_decisions = |line: &String| line.contains("callback decided");
    let decided: Vec<_> = lines.take().into_iter().filter(of_decisions).collect();
    let [again, closed] = &decided[..] else {
        panic!("{decided:?}");
    };
    for part in [
        "again",
        "on_error",
        "Retry",
        "run 1",
        "chat 7",
        "model call",
    ] {
        assert!(again.contains(part), "{part}: {again}");
    }
    for part in [
        "closed",
        "before",
        "Failed(Denied)",
        "run 1",
        "tool call `look`",
    ] {
        assert!(closed.contains(part), "{part}: {closed}");
    }
    assert!(!closed.contains("secret"), "{closed}");
}
