//! Callbacks around an agent.

use serde_json::json;
use tower_agent::call::Origin;
use tower_agent::callback::{after_agent, before_agent, before_model};
use tower_agent::{
    Action, AgentRequest, AgentResponse, EndReason, Error, ErrorKind, Message, Part, Request, Role,
    State, Tool, ToolRequest, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{act, acts_once, agent};
use test_support::log::Log;

fn says(text: &str) -> AgentResponse {
    AgentResponse::new([Message::assistant(text)])
}

fn asked(request: &AgentRequest) -> String {
    request
        .messages()
        .last()
        .map(Message::text)
        .unwrap_or_default()
}

#[tokio::test]
async fn an_abort_of_the_user_is_answered_without_the_agent_and_without_after_agent() {
    let model = ScriptedModel::new([Turn::from_text("hello")]);
    let seen = Log::default();
    let agent = agent(model.clone())
        .on_agent(before_agent(|request| {
            if asked(request).contains("/abort") {
                Action::Respond(says("aborted by callback"))
            } else {
                Action::Continue
            }
        }))
        .on_agent(after_agent({
            let seen = seen.clone();
            move |_, response| seen.push(response.text())
        }))
        .build()
        .unwrap();

    let response = agent.run("please /abort").await.unwrap();
    assert_eq!(
        (response.text(), response.origin()),
        ("aborted by callback".into(), Origin::Before)
    );
    assert_eq!(
        (response.end_reason(), response.iterations()),
        (&EndReason::Completed, 0)
    );
    assert_eq!((model.requests().len(), seen.take().len()), (0, 0));

    assert_eq!(agent.run("hi").await.unwrap().text(), "hello");
    assert_eq!(seen.take(), ["hello"]);
}

#[tokio::test]
async fn a_footer_is_put_under_the_answer_and_the_rest_stays() {
    let model = ScriptedModel::new([
        Turn::tool("act", json!(null)).usage(Usage::new(10, 1)),
        Turn::from_text("four").usage(Usage::new(20, 2)),
    ]);
    let agent = agent(model)
        .tool(act())
        .on_agent(after_agent(|_, response| match response.message() {
            Some(said) => {
                let said = said
                    .clone()
                    .with_part(Part::from_text("\n\n-- the management"));
                Action::Respond(response.clone().with_message(said))
            }
            None => Action::Continue,
        }))
        .build()
        .unwrap();

    let response = agent.run("2 + 2?").await.unwrap();

    assert_eq!(response.text(), "four\n\n-- the management");
    assert_eq!(response.usage(), Usage::new(30, 3));
    assert_eq!(
        (response.new_messages().len(), response.iterations()),
        (3, 2)
    );
}

#[tokio::test]
async fn another_answer_takes_the_place_of_the_last_one_only() {
    let agent = agent(acts_once())
        .tool(act())
        .on_agent(after_agent(|_, _| Action::Respond(says("well done"))))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.text(), "well done");
    let roles: Vec<_> = response.new_messages().map(Message::role).collect();
    assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Assistant]);
}

#[tokio::test]
async fn after_agent_sees_the_final_answer_and_everything_that_led_to_it() {
    let model = ScriptedModel::new([
        Turn::tool("act", json!(1)).usage(Usage::new(5, 1)),
        Turn::tool("act", json!(2)).usage(Usage::new(5, 1)),
        Turn::from_text("three").usage(Usage::new(5, 1)),
    ]);
    let seen = Log::default();
    let agent = agent(model)
        .tool(act())
        .on_agent(after_agent({
            let seen = seen.clone();
            move |_, response| {
                let results = response.new_messages().flat_map(Message::tool_results);
                let results: Vec<_> = results.map(|result| result.text()).collect();
                let calls = response
                    .new_messages()
                    .flat_map(Message::tool_calls)
                    .count();
                seen.push((
                    response.text(),
                    results,
                    calls,
                    response.usage(),
                    response.end_reason().clone(),
                ));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    let results = vec!["1".to_owned(), "2".to_owned()];
    assert_eq!(
        seen.take(),
        [(
            "three".into(),
            results,
            2,
            Usage::new(15, 3),
            EndReason::Completed
        )]
    );
}

#[tokio::test]
async fn changes_of_before_agent_reach_the_agent() {
    let model = ScriptedModel::new([Turn::from_text("ok")]);
    let agent = agent(model.clone())
        .on_agent(before_agent(|request| {
            request.messages_mut().push(Message::user("in one word"));
            request.settings_mut().temperature = Some(0.0);
        }))
        .build()
        .unwrap();

    agent.run("Why?").await.unwrap();

    let sent = &model.requests()[0];
    let said: Vec<_> = sent.messages().iter().map(Message::text).collect();
    assert_eq!(said, ["Why?", "in one word"]);
    assert_eq!(sent.settings().temperature, Some(0.0));
}

#[derive(Debug, PartialEq)]
struct Tenant(&'static str);

#[tokio::test]
async fn after_agent_finds_what_before_agent_stored_and_the_whole_run_finds_its_values() {
    let seen = Log::default();
    let agent = agent(ScriptedModel::new([Turn::from_text("ok")]))
        .on_agent(before_agent(|request| {
            request.extensions_mut().insert(Tenant("acme"));
            request.context().values().set("tenant", Tenant("acme"));
        }))
        .on_agent(after_agent({
            let seen = seen.clone();
            move |request, _| {
                seen.push((
                    "after_agent",
                    request.extensions().get::<Tenant>().unwrap().0,
                ));
            }
        }))
        .on_model(before_model({
            let seen = seen.clone();
            move |request| {
                let tenant = request.context().values().get::<Tenant>("tenant").unwrap();
                seen.push(("before_model", tenant.unwrap().0));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(
        seen.take(),
        [("before_model", "acme"), ("after_agent", "acme")]
    );
}

#[tokio::test]
async fn several_after_callbacks_see_the_same_answer() {
    let seen = Log::default();
    let look = || {
        let seen = seen.clone();
        after_agent(move |_, response| {
            seen.push(response.text());
            Action::Respond(says("mine"))
        })
    };
    let agent = tower_agent::Agent::builder(ScriptedModel::new([Turn::from_text("said")]))
        .semantics(super::with_options(false, true))
        .on_agent(look())
        .on_agent(look())
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "mine");
    assert_eq!(seen.take(), ["said", "said"]);
}

#[tokio::test]
async fn the_sessions_state_comes_with_the_request_and_goes_with_the_answer() {
    let agent = agent(ScriptedModel::always(
        Turn::from_text("ok").usage(Usage::new(60, 0)),
    ))
    .on_agent(before_agent(|request| {
        let spent = request
            .context()
            .state()
            .get("tokens")
            .and_then(|n| n.as_u64());
        match spent.unwrap_or_default() {
            0..100 => Ok(()),
            _ => Err(Error::abort("token limit reached")),
        }
    }))
    .on_agent(after_agent(|request, response| {
        let state = request.context().state();
        let spent = state
            .get("tokens")
            .and_then(|n| n.as_u64())
            .unwrap_or_default();
        state.set("tokens", spent + response.usage().total());
    }))
    .build()
    .unwrap();

    let mut state = State::default();
    for tokens in [60, 120] {
        let response = agent
            .run(AgentRequest::new("?").with_state(state))
            .await
            .unwrap();
        state = response.state().clone();
        assert_eq!(state.get("tokens"), Some(json!(tokens)));
    }
    let error = agent
        .run(AgentRequest::new("?").with_state(state))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);
}

#[tokio::test]
async fn an_agent_that_works_for_another_shares_its_values_and_its_totals() {
    let seen = Log::default();
    let inner = agent(ScriptedModel::new([
        Turn::from_text("42").usage(Usage::new(7, 0))
    ]))
    .name("inner")
    .on_agent(before_agent({
        let seen = seen.clone();
        move |request| {
            let context = request.context();
            let tenant = context.values().get::<Tenant>("tenant").unwrap().unwrap();
            seen.push((context.path().to_owned(), tenant.0, context.usage().total()));
        }
    }))
    .build()
    .unwrap();
    let delegate = Tool::function_with(
        "act",
        "",
        move |_: serde_json::Value, request: ToolRequest| {
            let asked = AgentRequest::new("?").with_context(request.context().clone());
            let run = inner.run(asked);
            async move { run.await.map(|response| response.text()) }
        },
    );
    let model = ScriptedModel::new([
        Turn::tool("act", json!(null)).usage(Usage::new(100, 0)),
        Turn::from_text("done"),
    ]);
    let outer = agent(model)
        .name("outer")
        .tool(delegate)
        .on_agent(before_agent(|request| {
            request.context().values().set("tenant", Tenant("acme"));
        }))
        .build()
        .unwrap();

    let response = outer.run("?").await.unwrap();

    assert_eq!(seen.take(), [("outer/inner".to_owned(), "acme", 100)]);
    assert_eq!(response.usage().total(), 107);
}
