//! Callbacks of the agent call, and the data they share.

use std::time::Instant;

use serde_json::{Value, json};
use tower_agent::callback::{
    after_agent, after_model, after_tool, before_agent, before_model, before_tool,
};
use tower_agent::{
    Action, AgentRequest, AgentResponse, EndReason, Error, Message, ModelResponse, Request, Result,
    Role, State,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, agent_says, said, told, work};
use test_support::log::Log;

fn with_state(key: &str, value: impl Into<Value>) -> AgentRequest {
    AgentRequest::new("?").with_state(State::from_iter([(key.to_owned(), value.into())]))
}

#[tokio::test]
async fn a_flag_in_the_state_skips_the_agent() {
    for (flag, text, calls) in [(true, "Agent greeter is skipped.", 0), (false, "Hello!", 1)] {
        let model = ScriptedModel::new([Turn::from_text("Hello!")]);
        let agent = adk(&model)
            .name("greeter")
            .on_agent(before_agent(|request| {
                let context = request.context();
                if context.state().get("skip") == Some(json!(true)) {
                    let text = format!("Agent {} is skipped.", context.agent());
                    return Action::Respond(agent_says(&text));
                }
                Action::Continue
            }))
            .build()
            .unwrap();

        let response = agent.run(with_state("skip", flag)).await.unwrap();

        assert_eq!(said(&response), [text]);
        assert_eq!(model.requests().len(), calls);
    }
}

#[tokio::test]
async fn a_concluding_note_replaces_the_output() {
    for (flag, text) in [
        (true, "A note was added."),
        (false, "Processing is complete."),
    ] {
        let model = ScriptedModel::new([Turn::from_text("Processing is complete.")]);
        let agent = adk(&model)
            .on_agent(after_agent(|request, _| {
                if request.context().state().get("add note") == Some(json!(true)) {
                    Action::Respond(agent_says("A note was added."))
                } else {
                    Action::Continue
                }
            }))
            .build()
            .unwrap();

        let response = agent.run(with_state("add note", flag)).await.unwrap();

        assert_eq!(said(&response), [text]);
        assert_eq!(
            response.messages().len(),
            2,
            "it stands in the output's place, not after it"
        );
        model.assert_done();
    }
}

#[tokio::test]
async fn after_agent_does_not_run_for_an_agent_that_was_skipped_or_ended_or_failed() {
    /// Where one callback does something instead of nothing.
    async fn run(hook: &'static str, error: fn() -> Error) -> (Result<AgentResponse>, Vec<String>) {
        let log = Log::default();
        let after = log.line("after_agent");
        let raises = move |here: &str| if here == hook { Err(error()) } else { Ok(()) };
        let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
        let agent = adk(&model)
            .tool(work(&Log::default()))
            .on_agent(before_agent(move |_| match hook {
                "skip" => Ok(Action::Respond(agent_says("skipped"))),
                _ => raises("before_agent").map(|()| Action::Continue),
            }))
            .on_agent(after_agent(move |_, _| after()))
            .on_model(before_model(move |_| raises("before_model")))
            .on_model(after_model(move |_, _| raises("after_model")))
            .on_tool(before_tool(move |_| raises("before_tool")))
            .on_tool(after_tool(move |_, _| raises("after_tool")))
            .build()
            .unwrap();
        (agent.run("?").await, log.take())
    }

    let (response, log) = run("none", Error::end_invocation).await;
    assert_eq!(
        (response.unwrap().text(), log),
        ("done".into(), vec!["after_agent".to_owned()])
    );

    let (response, log) = run("skip", Error::end_invocation).await;
    assert_eq!((response.unwrap().text(), log), ("skipped".into(), vec![]));

    for hook in [
        "before_agent",
        "before_model",
        "after_model",
        "before_tool",
        "after_tool",
    ] {
        let (response, log) = run(hook, Error::end_invocation).await;
        assert_eq!(
            response.unwrap().end_reason(),
            &EndReason::EndedByCallback,
            "{hook}"
        );
        assert!(log.is_empty(), "{hook}: {log:?}");

        let (response, log) = run(hook, || "my own bug".into()).await;
        assert_eq!(response.unwrap_err().message(), "my own bug", "{hook}");
        assert!(log.is_empty(), "{hook}: {log:?}");
    }
}

#[tokio::test]
async fn an_invocation_that_ends_keeps_what_was_said_and_makes_no_further_call() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::from_text("Let me see.")).and_tool("work", json!({}))
    ]);
    let agent = adk(&model)
        .tool(work(&log))
        .on_tool(after_tool(|_, _| Err::<(), _>(Error::end_invocation())))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    model.assert_done();
    assert_eq!(said(&response)[0], "Let me see.");
    assert_eq!(told(&response), [r#"{"from":"tool"}"#]);
    assert_eq!(log.take().len(), 1);
}

#[tokio::test]
async fn before_agent_sets_up_what_every_later_callback_sees() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    let agent = adk(&model)
        .name("clerk")
        .tool(work(&Log::default()))
        .on_agent(before_agent(|request| {
            request.context().state().set("user", "Ada");
            request.context().values().set("temp:began", Instant::now());
            request
                .messages_mut()
                .push(Message::user("(from the archive)"));
        }))
        .on_model(before_model({
            let log = log.clone();
            move |request| {
                let context = request.context();
                let began = context.values().get::<Instant>("temp:began")?;
                let (user, has_began) = (context.state().get("user"), began.is_some());
                log.note(format!("model {user:?} {has_began}"));
                Ok(())
            }
        }))
        .on_tool(after_tool(|request, _| {
            request.context().state().set("tool", "ran")
        }))
        .on_agent(after_agent({
            let log = log.clone();
            move |request, response| {
                let (context, state) = (request.context(), response.state());
                let began = context.values().get::<Instant>("temp:began")?;
                log.note(format!("agent {:?} {}", state.get("tool"), began.is_some()));
                state.set("answered", response.text());
                Ok(())
            }
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let seen = r#"model Some(String("Ada")) true"#;
    assert_eq!(
        log.take(),
        [seen, seen, r#"agent Some(String("ran")) true"#]
    );
    assert_eq!(
        model.requests()[0].messages()[1].text(),
        "(from the archive)"
    );
    // Temporary values are no part of the session.
    let delta = json!({ "user": "Ada", "tool": "ran", "answered": "done" });
    assert_eq!(Value::Object(response.state().delta().set), delta);
}

#[tokio::test]
async fn the_state_goes_back_as_a_delta_and_temporary_values_do_not_outlive_the_run() {
    let model = ScriptedModel::always(Turn::from_text("done"));
    let agent = adk(&model)
        .on_agent(before_agent(|request| {
            let context = request.context();
            let earlier = context.values().get::<u32>("temp:count")?;
            assert!(earlier.is_none(), "a run begins with no values");
            context.values().set("temp:count", 1_u32);
            let visits = context
                .state()
                .get("visits")
                .and_then(|n| n.as_u64())
                .unwrap_or(0);
            context.state().set("visits", visits + 1);
            context.state().set("same", "as before");
            context.state().remove("draft");
            Ok(())
        }))
        .build()
        .unwrap();
    let state = json!({ "visits": 4, "same": "as before", "draft": "..." });
    let state = State::from(state.as_object().unwrap().clone());

    let first = agent
        .run(AgentRequest::new("?").with_state(state))
        .await
        .unwrap();

    let delta = first.state().delta();
    assert_eq!(Value::Object(delta.set), json!({ "visits": 5 }));
    assert_eq!(delta.removed, ["draft"]);

    let next = AgentRequest::new("?").with_state(first.state().clone());
    let second = agent.run(next).await.unwrap();
    assert_eq!(second.state().snapshot()["visits"], 6);
}

#[tokio::test]
async fn the_answer_is_kept_under_a_key_also_where_a_callback_gave_it() {
    for (skip, text) in [(true, "skipped"), (false, "from the model")] {
        let model = ScriptedModel::always(Turn::from_text("from the model"));
        let agent = adk(&model)
            .output_key("answer")
            .on_agent(before_agent(move |_| {
                if skip {
                    Action::Respond(agent_says("skipped"))
                } else {
                    Action::Continue
                }
            }))
            .build()
            .unwrap();
        let state = State::default();

        agent
            .run(AgentRequest::new("?").with_state(state.clone()))
            .await
            .unwrap();

        assert_eq!(state.get("answer"), Some(json!(text)));
    }
}

#[tokio::test]
async fn the_answer_after_a_transfer_is_kept_under_the_key_of_the_agent_that_gave_it() {
    let billing = ScriptedModel::new([Turn::from_text("It is paid.")]);
    let billing = adk(&billing)
        .name("billing")
        .output_key("of billing")
        .build()
        .unwrap();
    let turn = Turn::tool("transfer_to_agent", json!({ "agent_name": "billing" }));
    let desk = adk(&ScriptedModel::new([turn]))
        .sub_agent(billing)
        .output_key("of the desk")
        .build()
        .unwrap();
    let state = State::default();

    let request = AgentRequest::new("My invoice?").with_state(state.clone());
    desk.run(request).await.unwrap();

    let kept = Value::Object(state.snapshot());
    assert_eq!(kept, json!({ "of billing": "It is paid." }));
}

#[tokio::test]
async fn every_callback_knows_the_agent_the_run_and_what_was_said_so_far() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::from_text("First I work.")).and_tool("work", json!({})),
        Turn::from_text("done"),
    ]);
    let note = |hook: &'static str| {
        let log = log.clone();
        move |context: &tower_agent::RunContext| {
            let texts = context.texts().join("|");
            log.note(format!(
                "{hook} {} {} [{texts}]",
                context.agent(),
                context.iteration()
            ));
            log.note(format!("run {}", context.run_id()));
        }
    };
    let (agent_hook, model_hook, tool_hook) = (note("agent"), note("model"), note("tool"));
    let agent = adk(&model)
        .name("clerk")
        .tool(work(&Log::default()))
        .on_agent(before_agent(move |request| agent_hook(request.context())))
        .on_model(before_model(move |request| model_hook(request.context())))
        .on_tool(before_tool(move |request| tool_hook(request.context())))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let (runs, hooks): (Vec<_>, Vec<_>) = log
        .take()
        .into_iter()
        .partition(|line| line.starts_with("run "));
    assert_eq!(hooks[0], "agent clerk 0 []");
    assert_eq!(hooks[1], "model clerk 0 []");
    assert!(hooks[2].starts_with("tool clerk 0"), "{hooks:?}");
    assert_eq!(hooks[3], "model clerk 1 [First I work.]");
    assert!(
        runs.len() == 4 && runs.iter().all(|run| *run == runs[0]),
        "{runs:?}"
    );
}

#[tokio::test]
async fn after_agent_sees_everything_that_was_said() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("work", json!({})), Turn::from_text("done")]);
    let agent = adk(&model)
        .tool(work(&Log::default()))
        .on_agent(after_agent({
            let log = log.clone();
            move |request, response| {
                assert_eq!(request.messages()[0].text(), "What now?");
                let roles = response.new_messages().map(Message::role);
                roles.for_each(|role| log.note(format!("{role:?}")));
            }
        }))
        .build()
        .unwrap();

    agent.run("What now?").await.unwrap();

    assert_eq!(
        log.take(),
        [Role::Assistant, Role::Tool, Role::Assistant].map(|r| format!("{r:?}"))
    );
}
