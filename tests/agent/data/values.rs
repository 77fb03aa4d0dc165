//! `context.values()`: data of one run.

use std::time::Instant;

use serde_json::json;
use tower_agent::callback::{
    after_agent, after_model, after_tool, before_agent, before_model, before_tool,
};
use tower_agent::context::ValueTypeError;
use tower_agent::{Action, Agent, Error, ErrorKind, Request, RunContext, Tool, ToolRequest};
use tower_agent_test::{ScriptedModel, Turn};

use crate::data::{calls, echo};
use test_support::log::Log;

#[derive(Debug, PartialEq)]
struct NotClone(&'static str);

#[test]
fn a_value_may_be_of_any_type_and_is_gone_once_removed() {
    let context = RunContext::default();
    let values = context.values();
    let now = Instant::now();
    values.set("text", "words".to_owned());
    values.set("instant", now);
    values.set("own", NotClone("kept"));
    values.set(String::from("number"), 7_u8);

    assert_eq!(
        values.get::<String>("text").unwrap().as_deref(),
        Some(&"words".to_owned())
    );
    assert_eq!(
        values.get::<Instant>("instant").unwrap().as_deref(),
        Some(&now)
    );
    assert_eq!(
        values.get::<NotClone>("own").unwrap().as_deref(),
        Some(&NotClone("kept"))
    );
    assert_eq!(values.get::<u8>("number").unwrap().as_deref(), Some(&7));

    assert!(values.remove("text"));
    assert!(!values.remove("text"), "it is gone");
    assert_eq!(values.get::<String>("text"), Ok(None));
    assert_eq!(
        values.get::<u8>("number").unwrap().as_deref(),
        Some(&7),
        "the others stay"
    );
}

#[test]
fn a_context_without_values_says_so() {
    let context = RunContext::default();
    assert_eq!(context.values().get::<u8>("number"), Ok(None));
    assert!(!context.values().remove("number"));
    assert_eq!(format!("{:?}", context.values()), "{}");
}

#[test]
fn setting_a_value_replaces_it_whatever_its_type() {
    let context = RunContext::default();
    context.values().set("key", 1_u8);
    let held = context.values().get::<u8>("key").unwrap().unwrap();
    context.values().set("key", "two");
    assert_eq!(
        context.values().get::<&str>("key").unwrap().as_deref(),
        Some(&"two")
    );
    assert_eq!(*held, 1, "who holds the old one keeps it");
}

#[test]
fn the_wrong_type_is_an_error_that_says_which_and_changes_nothing() {
    let context = RunContext::default();
    context.values().set("count", 1_u8);
    let error: ValueTypeError = context.values().get::<u16>("count").unwrap_err();
    assert_eq!(
        (&*error.key, error.expected, error.found),
        ("count", "u16", "u8")
    );
    assert_eq!(
        error.to_string(),
        "the value under `count` is a `u8`, not a `u16`"
    );

    let updated = context
        .values()
        .update("count", |count: &mut u16| *count += 1);
    assert_eq!(updated, Err(error));
    assert_eq!(
        context.values().get::<u8>("count").unwrap().as_deref(),
        Some(&1)
    );
}

/// In a hook it is the callback's failure, found again by its type.
#[tokio::test]
async fn the_wrong_type_fails_a_hook_by_question_mark() {
    let agent = Agent::builder(ScriptedModel::new([]))
        .on_agent(before_agent(|request| {
            request.context().values().set("count", "one")
        }))
        .on_model(before_model(|request| {
            let count = request.context().values().get::<u32>("count")?;
            assert_eq!(count, None, "not reached");
            Ok::<_, Error>(())
        }))
        .build()
        .unwrap();
    let error = agent.run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Callback);
    assert_eq!(
        error.downcast_ref::<ValueTypeError>().unwrap().expected,
        "u32"
    );
}

#[test]
fn an_update_starts_with_the_default_and_returns_the_closures_result() {
    let context = RunContext::default();
    let push = |word: &str| {
        context.values().update("words", |words: &mut Vec<String>| {
            words.push(word.to_owned());
            words.len()
        })
    };
    assert_eq!((push("a"), push("b")), (Ok(1), Ok(2)));
    let words = context
        .values()
        .get::<Vec<String>>("words")
        .unwrap()
        .unwrap();
    assert_eq!(*words, ["a", "b"]);
}

#[test]
fn no_update_is_lost_between_threads() {
    let context = RunContext::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let context = context.clone();
            scope.spawn(move || {
                for _ in 0..250 {
                    context
                        .values()
                        .update("count", |count: &mut u32| *count += 1)
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(
        context.values().get::<u32>("count").unwrap().as_deref(),
        Some(&1000)
    );
}

#[tokio::test]
async fn every_call_of_a_run_shares_its_values_and_the_next_run_has_none_of_them() {
    let notes = Log::default();
    let note = |word: &'static str, notes: &Log<String>| {
        let notes = notes.clone();
        move |context: &RunContext| {
            let push = |words: &mut Vec<&'static str>| {
                words.push(word);
                words.join(" ")
            };
            notes.push(context.values().update("words", push).unwrap());
        }
    };
    let [agent1, model1, tool1, tool2, model2, agent2] =
        ["agent>", "model>", "tool>", "<tool", "<model", "<agent"].map(|word| note(word, &notes));
    let turns = || [calls("echo", 1), Turn::from_text("done")];
    let agent = Agent::builder(ScriptedModel::new([turns(), turns()].into_iter().flatten()))
        .tool(echo())
        .on_agent(before_agent(move |request| agent1(request.context())))
        .on_agent(after_agent(move |request, _| agent2(request.context())))
        .on_model(before_model(move |request| model1(request.context())))
        .on_model(after_model(move |request, _| model2(request.context())))
        .on_tool(before_tool(move |request| tool1(request.context())))
        .on_tool(after_tool(move |request, _| tool2(request.context())))
        .build()
        .unwrap();
    for _ in 0..2 {
        agent.run("?").await.unwrap();
        let all = "agent> model> <model tool> <tool model> <model <agent";
        let seen = notes.take();
        assert_eq!(seen.first().unwrap(), "agent>", "a run begins without any");
        assert_eq!((seen.last().unwrap().as_str(), seen.len()), (all, 8));
    }
}

/// The calls meet: each waits until all have begun.
#[tokio::test]
async fn parallel_tools_update_one_value_together() {
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(5));
    let tool = Tool::function_with(
        "meet",
        "",
        move |_: serde_json::Value, request: ToolRequest| {
            let barrier = barrier.clone();
            async move {
                let add = |met: &mut Vec<String>| met.push(request.id().to_owned());
                request.context().values().update("met", add).unwrap();
                barrier.wait().await;
                request
                    .context()
                    .values()
                    .get::<Vec<String>>("met")
                    .unwrap()
                    .unwrap()
                    .len()
            }
        },
    );
    let agent = Agent::builder(ScriptedModel::new([
        calls("meet", 5),
        Turn::from_text("done"),
    ]))
    .tool(tool)
    .build()
    .unwrap();
    let response = agent.run("?").await.unwrap();
    let results = response
        .new_messages()
        .flat_map(tower_agent::Message::tool_results);
    assert_eq!(
        results.map(|result| result.text()).collect::<Vec<_>>(),
        ["5"; 5]
    );
}

/// A minimal budget: it counts calls, and refuses the third.
#[tokio::test]
async fn a_guard_counts_in_a_value() {
    let agent = Agent::builder(ScriptedModel::new([
        calls("echo", 3),
        Turn::from_text("done"),
    ]))
    .tool(echo())
    .on_tool(before_tool(|request| {
        let add = |calls: &mut u32| {
            *calls += 1;
            *calls
        };
        match request.context().values().update("calls", add)? {
            0..=2 => Ok::<_, Error>(Action::Continue),
            _ => Ok(Action::Respond(tower_agent::ToolResponse::new(json!(
                "enough"
            )))),
        }
    }))
    .build()
    .unwrap();
    let response = agent.run("?").await.unwrap();
    let results = response
        .new_messages()
        .flat_map(tower_agent::Message::tool_results);
    assert_eq!(
        results.map(|result| result.text()).collect::<Vec<_>>(),
        ["0", "1", "enough"]
    );
}

#[test]
fn values_and_state_are_separate() {
    let context = RunContext::default();
    context.values().set("clock", std::time::Instant::now());
    assert!(
        context
            .values()
            .get::<std::time::Instant>("clock")
            .unwrap()
            .is_some()
    );
    let wrong = context.values().get::<String>("clock").unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "the value under `clock` is a `std::time::Instant`, not a `alloc::string::String`"
    );
    assert!(context.values().remove("clock") && !context.values().remove("clock"));
    assert!(context.values().get::<String>("clock").unwrap().is_none());
    assert_eq!(context.state().get("clock"), None);
}
