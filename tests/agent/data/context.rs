//! The context of a run: agent, path, iteration, texts.

use serde_json::json;
use tower_agent::callback::{
    after_agent, after_model, before_agent, before_model, before_tool, on_agent_error,
    on_model_error,
};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, ModelResponse, Recovery, Request, RunContext, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::data::{calls, echo};
use test_support::log::Log;

fn texts(context: &RunContext) -> Vec<String> {
    context
        .texts()
        .iter()
        .map(|text| text.to_string())
        .collect()
}

#[tokio::test]
async fn the_iteration_grows_its_limit_stays_and_texts_are_what_was_said_before() {
    let notes = Log::default();
    let seen = notes.clone();
    let says =
        |text: &str| Turn::response(ModelResponse::from_text(text)).and_tool("echo", json!(null));
    let agent = Agent::builder(ScriptedModel::new([
        says("one"),
        says("two"),
        Turn::from_text("done"),
    ]))
    .tool(echo())
    .max_iterations(5)
    .on_model(before_model(move |request| {
        let context = request.context();
        seen.push((
            context.iteration(),
            context.max_iterations(),
            texts(context).join(" "),
        ));
    }))
    .build()
    .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(
        notes.take(),
        [
            (0, 5, "".into()),
            (1, 5, "one".into()),
            (2, 5, "one two".into())
        ]
    );
}

/// The agent begins again: so does what it knows of itself.
#[tokio::test]
async fn an_agent_that_is_retried_begins_without_texts() {
    let notes = Log::default();
    let seen = notes.clone();
    let says = Turn::response(ModelResponse::from_text("one")).and_tool("echo", json!(null));
    let down = Turn::error(Error::new(ErrorKind::Provider, "down"));
    let agent = Agent::builder(ScriptedModel::new([
        says.clone(),
        down,
        says,
        Turn::from_text("done"),
    ]))
    .tool(echo())
    .on_agent(on_agent_error(|_, _| Recovery::Retry))
    .on_model(before_model(move |request| {
        seen.push((
            request.context().iteration(),
            texts(request.context()).join(" "),
        ));
    }))
    .build()
    .unwrap();
    agent.run("?").await.unwrap();
    let pass = [(0, "".to_owned()), (1, "one".to_owned())];
    assert_eq!(notes.take(), [pass.clone(), pass].concat());
}

/// A guard on tokens sees them all: those of an answer that a callback refused, too.
#[tokio::test]
async fn usage_counts_every_attempt_that_was_paid_for() {
    let notes = Log::default();
    let seen = notes.clone();
    let turns = [
        Turn::from_text("bad").usage(Usage::new(100, 10)),
        Turn::from_text("good")
            .and_tool("echo", json!(null))
            .usage(Usage::new(200, 20)),
        Turn::from_text("done").usage(Usage::new(1, 1)),
    ];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(echo())
        .on_model(before_model(move |request| {
            seen.push(request.context().usage().total())
        }))
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .model_layer(tower::layer::util::Identity::new())
        .on_model(after_model(|_, response| {
            match response.message().text().as_str() {
                "bad" => Err(Error::from("refused")),
                _ => Ok(()),
            }
        }))
        .build()
        .unwrap();
    let response = agent.run("?").await.unwrap();
    assert_eq!(notes.take(), [0, 330]);
    assert_eq!((response.usage().total(), response.iterations()), (332, 2));
}

#[tokio::test]
async fn usage_of_a_run_that_fails_is_what_was_spent() {
    let turns = [
        calls("echo", 1).usage(Usage::new(3, 4)),
        Turn::error(Error::from("down")),
    ];
    let agent = Agent::builder(ScriptedModel::new(turns))
        .tool(echo())
        .on_agent(on_agent_error(|request, _| {
            assert_eq!(request.context().usage().total(), 7);
            Recovery::Fallback(tower_agent::AgentResponse::new([]))
        }))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().usage().total(), 7);
}

/// Writes down what `read` makes of the context, in a hook of each call.
async fn seen_by_all<T: Send + 'static>(
    requests: impl IntoIterator<Item = AgentRequest>,
    read: fn(&RunContext) -> T,
) -> Vec<Vec<T>> {
    let notes = Log::default();
    let [a, b, c, d] = [(); 4].map(|()| notes.clone());
    let model = ScriptedModel::new(
        std::iter::repeat_with(|| [calls("echo", 2), Turn::from_text("done")])
            .take(2)
            .flatten(),
    );
    let agent = Agent::builder(model)
        .name("sums")
        .tool(echo())
        .on_agent(before_agent(move |request| a.push(read(request.context()))))
        .on_model(before_model(move |request| b.push(read(request.context()))))
        .on_tool(before_tool(move |request| c.push(read(request.context()))))
        .on_agent(after_agent(move |request, _| {
            d.push(read(request.context()))
        }))
        .build()
        .unwrap();
    let mut seen = Vec::new();
    for request in requests {
        agent.run(request).await.unwrap();
        seen.push(notes.take());
    }
    seen
}

#[tokio::test]
async fn the_run_id_is_the_same_in_every_call_and_another_in_the_next_run() {
    let requests = ["?", "?"].map(AgentRequest::new);
    let seen = seen_by_all(requests, |context| context.run_id().to_owned()).await;
    let [first, second] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!((first.len(), second.len()), (6, 6));
    assert!(
        first.iter().all(|id| id == &first[0] && !id.is_empty()),
        "{first:?}"
    );
    assert!(second.iter().all(|id| id == &second[0]), "{second:?}");
    assert_ne!(first[0], second[0]);
}

#[tokio::test]
async fn every_call_knows_its_agent() {
    let name = |context: &RunContext| (context.agent().to_owned(), context.path().to_owned());
    let seen = seen_by_all([AgentRequest::new("?")], name).await;
    assert_eq!(seen, [vec![("sums".to_owned(), "sums".to_owned()); 6]]);

    let none = RunContext::default();
    assert_eq!(
        (none.agent(), none.path(), none.max_iterations()),
        ("", "", 0)
    );
}

#[tokio::test]
async fn only_tool_calls_have_a_tool_call_id() {
    let id = |context: &RunContext| context.tool_call_id().map(str::to_owned);
    let seen = seen_by_all([AgentRequest::new("?")], id).await;
    let of = |id: &str| Some(id.to_owned());
    assert_eq!(
        seen,
        [vec![None, None, of("call_1"), of("call_2"), None, None]]
    );
}
