//! `request.extensions()`: data of one call.

use std::time::Duration;

use serde_json::json;
use tower_agent::call::Extensions;
use tower_agent::callback::{
    Outcome, after_agent, after_model, after_tool, before_agent, before_model, before_tool,
    on_model_error,
};
use tower_agent::{
    Agent, Callback, Error, ErrorKind, Message, ModelRequest, ModelResponse, Recovery, Result, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::data::{calls, echo};
use test_support::log::Log;

#[derive(Clone, Debug, PartialEq)]
struct Mark(String);

fn mark(text: impl Into<String>) -> Mark {
    Mark(text.into())
}

#[tokio::test]
async fn data_of_a_before_is_found_by_the_after_of_the_same_call() {
    let notes = Log::default();
    let (agent_notes, model_notes, tool_notes) = (notes.clone(), notes.clone(), notes.clone());
    let agent = Agent::builder(ScriptedModel::new([
        calls("echo", 1),
        Turn::from_text("done"),
    ]))
    .tool(echo())
    .on_agent(before_agent(|request| {
        drop(request.extensions_mut().insert(mark("agent")))
    }))
    .on_agent(after_agent(move |request, _| {
        agent_notes.push(request.extensions().get::<Mark>().cloned());
    }))
    .on_model(before_model(|request| {
        drop(request.extensions_mut().insert(mark("model")))
    }))
    .on_model(after_model(move |request, _| {
        model_notes.push(request.extensions().get::<Mark>().cloned());
    }))
    .on_tool(before_tool(|request| {
        drop(request.extensions_mut().insert(mark("tool")))
    }))
    .on_tool(after_tool(move |request, _| {
        tool_notes.push(request.extensions().get::<Mark>().cloned());
    }))
    .build()
    .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(
        notes.take(),
        ["model", "tool", "model", "agent"].map(|text| Some(mark(text)))
    );
}

/// The first to begin is the last to end.
#[tokio::test(start_paused = true)]
async fn parallel_calls_of_one_tool_never_mix() {
    let notes = Log::default();
    let seen = notes.clone();
    let agent = Agent::builder(ScriptedModel::new([
        calls("wait", 4),
        Turn::from_text("done"),
    ]))
    .tool(Tool::function("wait", "", async |n: u64| {
        tokio::time::sleep(Duration::from_millis(100 - 10 * n)).await;
        n
    }))
    .on_tool(before_tool(|request| {
        let id = request.id().to_owned();
        drop(request.extensions_mut().insert(Mark(id)));
    }))
    .on_tool(after_tool(move |request, response| {
        let found = request.extensions().get::<Mark>().unwrap().0.clone();
        seen.push((request.id().to_owned(), found, response.value().clone()));
    }))
    .build()
    .unwrap();
    agent.run("?").await.unwrap();
    let row = |id: &str, n: u64| (id.to_owned(), id.to_owned(), json!(n));
    let last_first = [
        row("call_4", 3),
        row("call_3", 2),
        row("call_2", 1),
        row("call_1", 0),
    ];
    assert_eq!(notes.take(), last_first);
}

/// An inner band sees the data of an outer one, and its own data alone.
#[tokio::test]
async fn a_band_sees_what_the_bands_outside_it_put_there() {
    let notes = Log::default();
    let look = |who: &'static str| {
        let notes = notes.clone();
        move |request: &ModelRequest, _: &ModelResponse| {
            let extensions = request.extensions();
            notes.push((
                who,
                extensions.get::<Mark>().cloned(),
                extensions.get::<u8>().copied(),
            ));
        }
    };
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("done")]))
        .on_model(before_model(|request| {
            drop(request.extensions_mut().insert(mark("outer")))
        }))
        .on_model(after_model(look("outer")))
        .model_layer(tower::layer::util::Identity::new())
        .on_model(before_model(|request| {
            assert_eq!(request.extensions().get::<Mark>(), Some(&mark("outer")));
            drop(request.extensions_mut().insert(mark("inner")));
            request.extensions_mut().insert(1_u8);
        }))
        .on_model(after_model(look("inner")))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let inner = ("inner", Some(mark("inner")), Some(1));
    assert_eq!(notes.take(), [inner, ("outer", Some(mark("outer")), None)]);
}

#[tokio::test]
async fn the_next_call_finds_nothing_of_the_one_before() {
    let notes = Log::default();
    let (of_model, of_tool) = (notes.clone(), notes.clone());
    let turns = [calls("echo", 2), calls("echo", 1), Turn::from_text("done")];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(echo())
        .on_agent(before_agent(|request| {
            drop(request.extensions_mut().insert(mark("agent")))
        }))
        .on_model(before_model(move |request| {
            of_model.push(request.extensions().is_empty());
            request.extensions_mut().insert(mark("model"));
        }))
        .on_tool(before_tool(move |request| {
            of_tool.push(request.extensions().is_empty());
            request.extensions_mut().insert(mark("tool"));
        }))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(notes.take(), [true; 6]);
}

/// A retry is the same call.
#[tokio::test]
async fn a_retry_keeps_what_its_call_was_given() {
    let notes = Log::default();
    let seen = notes.clone();
    let busy = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let agent = Agent::builder(ScriptedModel::new([
        busy.clone(),
        busy,
        Turn::from_text("done"),
    ]))
    .on_model(before_model(|request| {
        drop(request.extensions_mut().insert(0_u32))
    }))
    .on_model(on_model_error(|request, _| {
        let tries = request
            .extensions()
            .get::<u32>()
            .copied()
            .unwrap_or_default();
        request.extensions_mut().insert(tries + 1);
        Recovery::Retry
    }))
    .on_model(after_model(move |request, _| {
        seen.push(request.extensions().get::<u32>().copied());
    }))
    .build()
    .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(notes.take(), [Some(2)]);
}

/// A span, as tracers keep it: opened in `before`, closed in `on_end`, also of a failed call.
#[tokio::test]
async fn on_end_finds_what_before_put_there_when_the_call_fails() {
    struct Span(Log<(String, bool)>);

    impl Callback<ModelRequest> for Span {
        async fn before(
            &self,
            request: &mut ModelRequest,
        ) -> Result<tower_agent::Action<ModelResponse>> {
            request.extensions_mut().insert(mark("span"));
            Ok(tower_agent::Action::Continue)
        }

        fn on_end(&self, request: &ModelRequest, outcome: Outcome<'_, ModelResponse>) {
            let Mark(text) = request.extensions().get().unwrap();
            self.0
                .push((text.clone(), matches!(outcome, Outcome::Failed(_))));
        }
    }

    let notes = Log::default();
    let down = Turn::error(Error::from("down"));
    let agent = Agent::builder(ScriptedModel::new([down])).on_model(Span(notes.clone()));
    agent.build().unwrap().run("?").await.unwrap_err();
    assert_eq!(notes.take(), [("span".to_owned(), true)]);
}

#[test]
fn extensions_hold_one_value_of_each_type_and_clones_do_not_share_changes() {
    let mut extensions = Extensions::new();
    assert!(extensions.is_empty());
    assert!(extensions.insert(mark("first")).is_none());
    assert_eq!(*extensions.insert(mark("second")).unwrap(), mark("first"));
    extensions.insert(7_u8);

    let mut copy = extensions.clone();
    assert_eq!(copy.remove::<Mark>().as_deref(), Some(&mark("second")));
    assert_eq!(copy.remove::<Mark>(), None);
    assert_eq!(copy.get::<u8>(), Some(&7), "the others stay");
    assert_eq!(extensions.get::<Mark>(), Some(&mark("second")));
    assert_eq!(extensions.get::<Message>(), None);
}

#[test]
fn extensions_hold_one_value_of_each_type() {
    let mut extensions = Extensions::new();
    assert!(extensions.insert("first").is_none());
    assert_eq!(extensions.insert("second").as_deref(), Some(&"first"));
    extensions.insert(1_u8);
    let shared = extensions.clone();
    assert_eq!(extensions.remove::<u8>().as_deref(), Some(&1));
    assert_eq!(
        (extensions.get::<u8>(), shared.get::<u8>()),
        (None, Some(&1))
    );
    assert_eq!(extensions.get::<&str>(), Some(&"second"));
}
