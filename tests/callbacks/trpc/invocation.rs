//! Values of any type that live as long as the run.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use serde_json::json;
use tower_agent::callback::{after_agent, after_tool, before_agent, before_tool};
use tower_agent::context::ValueTypeError;
use tower_agent::{AgentRequest, ErrorKind, Request, RunContext, Tool, ToolRequest};
use tower_agent_test::{ScriptedModel, Turn};

use super::{act, acts_once, agent, texts, told};
use test_support::log::Log;

#[derive(Debug, PartialEq)]
struct NotCloned(u32);

#[test]
fn values_of_any_type_are_set_read_replaced_and_deleted() {
    let context = RunContext::default();
    let values = context.values();

    assert_eq!(values.get::<u32>("n").unwrap(), None);
    assert!(
        !values.remove("n"),
        "to delete what is not there is no fault"
    );

    let start = Instant::now();
    values.set("start", start);
    values.set("text", "one".to_owned());
    values.set("own", NotCloned(7));
    values.set("list", vec![1, 2, 3]);
    assert_eq!(*values.get::<Instant>("start").unwrap().unwrap(), start);
    assert_eq!(*values.get::<String>("text").unwrap().unwrap(), "one");
    assert_eq!(
        *values.get::<NotCloned>("own").unwrap().unwrap(),
        NotCloned(7)
    );
    assert_eq!(*values.get::<Vec<i32>>("list").unwrap().unwrap(), [1, 2, 3]);

    values.set("text", 1_u8);
    assert_eq!(*values.get::<u8>("text").unwrap().unwrap(), 1);
    assert!(values.remove("text"));
    assert_eq!(values.get::<u8>("text").unwrap(), None);
    assert!(!values.remove("text"));
}

#[test]
fn a_value_of_another_type_is_an_error_that_says_so_and_stays_where_it_is() {
    let context = RunContext::default();
    context.values().set("start", "noon".to_owned());

    let error: ValueTypeError = context.values().get::<u64>("start").unwrap_err();

    assert_eq!((&*error.key, error.expected), ("start", "u64"));
    assert!(error.found.ends_with("String"));
    assert!(
        context
            .values()
            .update("start", |n: &mut u64| *n += 1)
            .is_err()
    );
    assert_eq!(
        *context.values().get::<String>("start").unwrap().unwrap(),
        "noon"
    );
}

#[tokio::test]
async fn a_callback_may_pass_that_error_on() {
    let agent = agent(ScriptedModel::new([]))
        .on_agent(before_agent(|request| -> tower_agent::Result<()> {
            let values = request.context().values();
            values.set("budget", 10_i64);
            values.get::<u64>("budget")?;
            Ok(())
        }))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Callback);
    assert_eq!(
        error.downcast_ref::<ValueTypeError>().unwrap().key,
        "budget"
    );
}

#[test]
fn threads_use_them_at_once_and_lose_nothing() {
    let context = RunContext::default();
    thread::scope(|scope| {
        for thread in 0..8_u32 {
            let context = &context;
            scope.spawn(move || {
                for n in 0..100_u32 {
                    context
                        .values()
                        .update("sum", |sum: &mut u32| *sum += 1)
                        .unwrap();
                    let key = format!("tool:calculator:{thread}-{n}:start_time");
                    context.values().set(key.clone(), (thread, n));
                    let kept = context.values().get::<(u32, u32)>(&key).unwrap();
                    assert_eq!(*kept.unwrap(), (thread, n));
                    assert!(context.values().remove(&key));
                }
            });
        }
    });
    assert_eq!(*context.values().get::<u32>("sum").unwrap().unwrap(), 800);
}

#[test]
fn nothing_is_allocated_until_the_first_is_set() {
    let context = RunContext::default();
    let unused = allocation_counter::measure(|| {
        assert_eq!(context.values().get::<u32>("n").unwrap(), None);
        assert!(!context.values().remove("n"));
    });
    let used = allocation_counter::measure(|| context.values().set("n", 1_u32));
    assert_eq!(unused.count_total, 0);
    assert!(used.count_total > 0);
}

#[tokio::test]
async fn a_value_belongs_to_one_run() {
    let seen = Log::default();
    let agent = agent(ScriptedModel::always(Turn::from_text("ok")))
        .on_agent(before_agent(|request| {
            let values = request.context().values();
            values.update("runs", |runs: &mut u32| *runs += 1).unwrap();
        }))
        .on_agent(after_agent({
            let seen = seen.clone();
            move |request, _| {
                seen.push(
                    *request
                        .context()
                        .values()
                        .get::<u32>("runs")
                        .unwrap()
                        .unwrap(),
                )
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();
    agent.run("?").await.unwrap();
    // A clone of a request belongs to the same run.
    let request = AgentRequest::new("?");
    agent.run(request.clone()).await.unwrap();
    agent.run(request).await.unwrap();

    assert_eq!(seen.take(), [1, 1, 1, 2]);
}

#[tokio::test]
async fn callbacks_and_the_tool_between_them_share_one_value() {
    let seen = Log::default();
    let counts = Tool::function_with("act", "", |_: serde_json::Value, request: ToolRequest| {
        let values = request.context().values();
        values.update("trail", |trail: &mut String| trail.push_str(" tool"))
    });
    let agent = agent(acts_once())
        .tool(counts)
        .on_tool(before_tool(|request| {
            request.context().values().set("trail", "before".to_owned());
        }))
        .on_tool(after_tool({
            let seen = seen.clone();
            move |request, _| {
                let values = request.context().values();
                let trail: Arc<String> = values.get("trail").unwrap().unwrap();
                values.remove("trail");
                seen.push(trail.to_string());
            }
        }))
        .on_agent(after_agent({
            let seen = seen.clone();
            move |request, _| {
                let trail = request.context().values().get::<String>("trail").unwrap();
                seen.push(format!("{trail:?}"));
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(seen.take(), ["before tool", "None"]);
}

#[tokio::test]
async fn values_of_the_run_are_not_sent_to_the_model_nor_kept_in_the_session() {
    let agent = agent(acts_once())
        .tool(act())
        .on_tool(before_tool(|request| {
            request
                .context()
                .values()
                .set("secret", "s3cret".to_owned());
            request.context().state().set("open", true);
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(texts(&told(&response)), [r#"{"n":1}"#]);
    assert_eq!(json!(response.state().snapshot()), json!({ "open": true }));
}
