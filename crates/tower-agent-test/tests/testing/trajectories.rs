//! Assertions on the course of a run, which a failed assertion prints.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::error::panic_message;
use tower_agent::stream::Event;
use tower_agent::{Agent, Error, ErrorKind, Tool};
use tower_agent_test::{ScriptedModel, Trajectory, Turn};

use test_support::trace::poll_times;

fn traveller() -> Agent {
    let model = ScriptedModel::new([
        Turn::tool("search", json!({ "city": "Rome" }))
            .and_tool("search", json!({ "city": "Oslo" })),
        Turn::tool("book", json!({ "hotel": "Roma" })),
        Turn::from_text("Booked."),
    ]);
    Agent::builder(model)
        .tool(Tool::function("search", "Searches.", |_: Value| "Roma"))
        .tool(Tool::function("book", "Books.", |_: Value| {
            Err::<(), _>(Error::new(ErrorKind::Tool, "full"))
        }))
        .build()
        .unwrap()
}

#[track_caller]
fn fails(check: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("it holds");
    panic_message(&*panic).to_owned()
}

fn check(_: &Trajectory) {}

#[tokio::test]
async fn assertions_hold_or_show_the_calls() {
    let made = Trajectory::of(&traveller().run("?").await.unwrap());
    made.assert_called("search")
        .assert_called_before("search", "book")
        .assert_called_before("search", "cancel")
        .assert_called_at_most("search", 2)
        .assert_called_with("search", |arguments| arguments["city"] == "Oslo")
        .assert_never_called("cancel");

    let shown = "the calls were:\n  \
                 1. search {\"city\":\"Rome\"} -> Roma\n  \
                 2. search {\"city\":\"Oslo\"} -> Roma\n  \
                 3. book {\"hotel\":\"Roma\"} -> error: tool failed: full";
    let said = |what: &str| format!("{what}; {shown}");
    assert_eq!(
        fails(|| check(made.assert_called("pay"))),
        said("`pay` was not called")
    );
    assert_eq!(
        fails(|| check(made.assert_called_before("book", "search"))),
        said("`search` was called before `book`"),
    );
    assert_eq!(
        fails(|| check(made.assert_called_at_most("search", 1))),
        said("`search` was called 2 times, and at most 1 are allowed"),
    );
    assert_eq!(
        fails(|| check(made.assert_never_called("book"))),
        said("`book` was called")
    );
    assert_eq!(
        fails(|| check(made.assert_called_with("book", |_| false))),
        said("`book` was not called with such arguments"),
    );
    let empty = Trajectory::of_messages([]);
    assert_eq!(
        fails(|| check(empty.assert_called("pay"))),
        "`pay` was not called; no tool was called",
    );
}

#[tokio::test]
async fn events_say_the_same_as_the_transcript() {
    let events: Vec<Event> = traveller().stream("?").collect().await;
    let told = Trajectory::of_events(&events);
    let written = Trajectory::of(&traveller().run("?").await.unwrap());
    let of_agent = told.calls()[0].agent.to_string();
    assert_eq!(
        told.to_string().replace(&format!("{of_agent}: "), ""),
        written.to_string(),
    );
}

#[tokio::test]
async fn calls_of_sub_agents_have_their_path() {
    let worker = Agent::builder(ScriptedModel::new([
        Turn::tool("look", json!({ "at": "sky" })),
        Turn::from_text("Blue."),
    ]))
    .name("worker")
    .tool(Tool::function("look", "Looks.", |_: Value| "blue"))
    .build()
    .unwrap();
    let boss = Agent::builder(ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "What colour is the sky?" })),
        Turn::from_text("Blue."),
    ]))
    .name("boss")
    .tool(worker.into_tool("Works."))
    .build()
    .unwrap();
    let events: Vec<Event> = boss.stream("?").collect().await;
    let made = Trajectory::of_events(&events);
    made.assert_called_before("worker", "look");
    made.within("boss/worker")
        .assert_called("look")
        .assert_never_called("worker");
    assert!(made.within("boss/work").calls().is_empty());
    assert_eq!(
        made.calls()[1].to_string(),
        r#"boss/worker: look {"at":"sky"} -> blue"#
    );
}

#[test]
fn a_discarded_attempt_made_no_calls() {
    use tower_agent::Recovery;
    use tower_agent::callback::on_model_error;

    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let model = ScriptedModel::new([
        Turn::tool("wipe", json!({ "what": "disk" })).failing_after(2, busy),
        Turn::from_text("No."),
    ]);
    let agent = Agent::builder(model)
        .tool(Tool::function("wipe", "Wipes.", |_: Value| "done"))
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();
    let events = poll_times(agent.stream("?").collect::<Vec<_>>(), 100).unwrap();
    Trajectory::of_events(&events).assert_never_called("wipe");
}
