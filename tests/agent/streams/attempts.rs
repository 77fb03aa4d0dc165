//! Several attempts at one answer: one at a time is let through.

use std::sync::Arc;
use std::time::Duration;

use tower::retry::{Policy, RetryLayer};
use tower_agent::callback::{after_agent, after_model, on_agent_error, on_model_error};
use tower_agent::stream::{Delta, DeltaSender, EventKind, channel};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Part, Recovery, Role,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::{read, words};
use test_support::deltas;

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

/// The visible pieces of the run's answers, in order.
async fn seen(agent: Agent) -> (Vec<String>, Result<AgentResponse, Error>) {
    let (events, response) = read(agent.stream("?")).await;
    let is_answer = |event: &&tower_agent::stream::Event| {
        matches!(
            event.kind,
            EventKind::TextStart { .. }
                | EventKind::TextDelta { .. }
                | EventKind::TextEnd { .. }
                | EventKind::AttemptDiscarded { .. }
                | EventKind::ResponseReplaced { .. }
                | EventKind::ToolCallStart(_)
                | EventKind::ToolCallEnd { .. }
        )
    };
    let answers: Vec<_> = events.iter().filter(is_answer).cloned().collect();
    (words(&answers), response)
}

#[derive(Clone)]
struct Again;

impl<R: Clone, T> Policy<R, T, Error> for Again {
    type Future = std::future::Ready<()>;

    fn retry(&mut self, _: &mut R, result: &mut Result<T, Error>) -> Option<Self::Future> {
        result.is_err().then(|| std::future::ready(()))
    }

    fn clone_request(&mut self, request: &R) -> Option<R> {
        Some(request.clone())
    }
}

#[tokio::test]
async fn a_retry_takes_back_what_was_seen_of_the_attempt_before() {
    let model = ScriptedModel::new([
        Turn::from_text("Hello world").failing_after(1, busy()),
        Turn::from_text("Hello world"),
    ])
    .chunk_size(6);
    let agent = Agent::builder(model)
        .model_layer(RetryLayer::new(Again))
        .build()
        .unwrap();

    let (seen, response) = seen(agent).await;

    assert_eq!(
        seen,
        [
            "text",
            "+Hello ",
            "text over",
            "discarded",
            "text",
            "+Hello ",
            "+world",
            "text over"
        ]
    );
    assert_eq!(response.unwrap().text(), "Hello world");
}

#[tokio::test]
async fn a_retry_before_anything_was_seen_is_not_seen_either() {
    let model = ScriptedModel::new([Turn::error(busy()), Turn::from_text("Hey")]);
    let agent = Agent::builder(model)
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build();

    let (seen, _) = seen(agent.unwrap()).await;

    assert_eq!(seen, ["text", "+Hey", "text over"]);
}

#[tokio::test]
async fn a_fallback_after_half_an_answer_is_all_that_stays() {
    let model =
        ScriptedModel::new([Turn::from_text("Hello world").failing_after(1, busy())]).chunk_size(6);
    let fallback = on_model_error(|_, _| Recovery::Fallback(ModelResponse::from_text("Sorry.")));
    let agent = Agent::builder(model).on_model(fallback).build().unwrap();

    let (seen, response) = seen(agent).await;

    assert_eq!(
        seen,
        [
            "text",
            "+Hello ",
            "text over",
            "discarded",
            "text",
            "+Sorry.",
            "text over"
        ]
    );
    assert_eq!(response.unwrap().text(), "Sorry.");
}

#[tokio::test]
async fn a_call_that_fails_for_good_takes_back_what_was_seen() {
    let model = ScriptedModel::new([Turn::from_text("Hello world").failing_after(1, busy())]);

    let (seen, response) = seen(Agent::builder(model).build().unwrap()).await;

    assert_eq!(seen.last().unwrap(), "discarded");
    assert_eq!(response.unwrap_err().kind(), ErrorKind::Overloaded);
}

#[tokio::test]
async fn an_answer_that_after_model_replaces_is_shown_as_replaced() {
    let model = ScriptedModel::new([Turn::from_text("word")]);
    let agent = Agent::builder(model)
        .on_model(after_model(|_, _| {
            Action::Respond(ModelResponse::from_text("[gone]"))
        }))
        .build()
        .unwrap();

    let (seen, response) = seen(agent).await;

    assert_eq!(
        seen,
        [
            "text",
            "+word",
            "text over",
            "replaced",
            "text",
            "+[gone]",
            "text over"
        ]
    );
    assert_eq!(response.unwrap().text(), "[gone]");
}

#[tokio::test]
async fn an_after_that_answers_with_the_same_words_replaces_nothing() {
    let model = ScriptedModel::new([Turn::from_text("same")]);
    let agent = Agent::builder(model)
        .on_model(after_model(|_, _| {
            Action::Respond(ModelResponse::from_text("same"))
        }))
        .build()
        .unwrap();

    assert_eq!(seen(agent).await.0, ["text", "+same", "text over"]);
}

#[tokio::test]
async fn only_the_words_of_an_answer_count_and_not_how_its_parts_divide_them() {
    let cases: [(&[&str], bool); 7] = [
        (&["Hello world"], false),
        (&["Hello", " world"], false),
        (&["", "Hel", "lo w", "", "orld", ""], false),
        (&["Hello", " World"], true),
        (&["Hello world", "!"], true),
        (&["Hello ", "worl"], true),
        (&[""], true),
    ];
    for (parts, is_replaced) in cases {
        let after = after_model(move |_, _| {
            let parts = parts.iter().map(|text| Part::from_text(*text));
            let message = Message::new(Role::Assistant, parts);
            Ok::<_, Error>(Action::Respond(ModelResponse::new(message)))
        });
        let model = ScriptedModel::new([Turn::from_text("Hello world")]).chunk_size(4);
        let agent = Agent::builder(model).on_model(after).build().unwrap();

        let (seen, response) = seen(agent).await;

        assert_eq!(
            seen.contains(&"replaced".to_owned()),
            is_replaced,
            "{parts:?}: {seen:?}"
        );
        assert_eq!(response.unwrap().text(), parts.concat());
    }
}

#[tokio::test]
async fn an_answer_that_after_agent_replaces_is_shown_as_replaced() {
    let model = ScriptedModel::new([Turn::from_text("word")]);
    let agent = Agent::builder(model)
        .on_agent(after_agent(|_, _| {
            Action::Respond(AgentResponse::new([Message::assistant("[gone]")]))
        }))
        .build()
        .unwrap();

    let (seen, response) = seen(agent).await;

    assert_eq!(
        seen,
        [
            "text",
            "+word",
            "text over",
            "replaced",
            "text",
            "+[gone]",
            "text over"
        ]
    );
    assert_eq!(response.unwrap().text(), "[gone]");
}

#[tokio::test]
async fn an_agent_that_is_called_again_continues_with_what_was_streamed() {
    let model = ScriptedModel::new([
        Turn::tool("nothing", serde_json::json!({})),
        Turn::from_text("half").failing_after(1, busy()),
        Turn::from_text("all"),
    ]);
    let agent = Agent::builder(model)
        .on_agent(on_agent_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();

    let (seen, response) = seen(agent).await;

    assert_eq!(
        seen,
        [
            "t0: nothing",
            "t0: over",
            "text",
            "+half",
            "text over",
            "discarded",
            "text",
            "+all",
            "text over"
        ]
    );
    assert_eq!(response.unwrap().text(), "all");
}

async fn say(sink: &DeltaSender, words: &[&str]) -> Result<ModelResponse, Error> {
    let mut attempt = sink.open();
    for word in words {
        attempt.send(Delta::Text((*word).into())).await?;
        tokio::task::yield_now().await;
    }
    Ok(attempt.finish().await?.into())
}

/// Two attempts beside one another; the second answers.
#[tokio::test]
async fn attempts_beside_one_another_are_never_mixed() {
    let model = tower::service_fn(|request: ModelRequest| async move {
        let sink = request.delta_sender().unwrap().clone();
        let first = async {
            let mut attempt = sink.open();
            attempt.send(Delta::Text("slow".into())).await?;
            std::future::pending::<Result<ModelResponse, Error>>().await
        };
        let second = say(&sink, &["a", "b", "c"]);
        tokio::select! { biased; response = first => response, response = second => response }
    });
    let agent = Agent::builder(model).build().unwrap();

    let (seen, response) = seen(agent).await;

    assert_eq!(
        seen,
        [
            "text",
            "+slow",
            "text over",
            "discarded",
            "text",
            "+abc",
            "text over"
        ]
    );
    assert_eq!(response.unwrap().text(), "abc");
}

#[tokio::test]
async fn an_attempt_beside_a_dropped_one_shows_what_it_kept_and_continues() {
    let (sink, events) = channel(64);
    let mut first = sink.open();
    let mut second = sink.open();
    first.send(Delta::Text("one".into())).await.unwrap();
    second.send(Delta::Text("two, ".into())).await.unwrap();
    assert!(sink.is_committed());
    drop(first);
    second.send(Delta::Text("three".into())).await.unwrap();
    let streamed = second.finish().await.unwrap();
    drop(sink);

    let events: Vec<_> = futures::StreamExt::collect(events).await;
    assert_eq!(
        words(&events),
        [
            "text",
            "+one",
            "text over",
            "discarded",
            "text",
            "+two, three",
            "text over"
        ]
    );
    assert_eq!(streamed.message, Message::assistant("two, three"));
    assert_eq!(streamed.attempt, Some(1));
}

#[tokio::test]
async fn an_attempt_that_finished_is_not_taken_back_by_one_that_began_before() {
    let (sink, events) = channel(64);
    let (mut first, mut second) = (sink.open(), sink.open());
    first.send(Delta::Text("one".into())).await.unwrap();
    first.finish().await.unwrap();
    second.send(Delta::Text("late".into())).await.unwrap();
    second.finish().await.unwrap();
    drop(sink);

    let events: Vec<_> = futures::StreamExt::collect(events).await;
    assert_eq!(words(&events), ["text", "+one", "text over"]);
}

#[tokio::test]
async fn an_attempt_that_outlives_its_call_gets_an_error() {
    let kept = Arc::new(std::sync::Mutex::new(None));
    let model = tower::service_fn({
        let kept = kept.clone();
        move |request: ModelRequest| {
            *kept.lock().unwrap() = request.delta_sender().map(DeltaSender::open);
            async { Ok::<_, Error>(ModelResponse::from_text("at once")) }
        }
    });
    let agent = Agent::builder(model).build().unwrap();

    let (seen, _) = seen(agent).await;

    assert_eq!(seen, ["text", "+at once", "text over"]);
    let mut late = kept.lock().unwrap().take().unwrap();
    let error = late.send(Delta::Text("late".into())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn tool_calls_without_an_id_are_named_while_they_stream() {
    let (sink, events) = channel(64);
    let mut attempt = sink.open();
    for index in 0..2 {
        let (id, name) = ("".into(), "add".into());
        attempt
            .send(Delta::ToolCall { index, id, name })
            .await
            .unwrap();
    }
    let message = attempt.finish().await.unwrap().message;
    drop(sink);

    let seen = deltas(futures::StreamExt::collect::<Vec<_>>(events).await);
    let ids: Vec<_> = message.tool_calls().map(|call| call.id.clone()).collect();
    assert!(ids[0] != ids[1] && !ids[0].is_empty(), "{ids:?}");
    let named = |index: usize| Delta::ToolCall {
        index,
        id: ids[index].clone(),
        name: "add".into(),
    };
    assert_eq!(seen, [named(0), named(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_tower_timeout_takes_back_half_an_answer() {
    let model = ScriptedModel::new([
        Turn::from_text("half of it").hanging_after(1),
        Turn::from_text("all"),
    ]);
    let agent = Agent::builder(model)
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .model_layer(tower::timeout::TimeoutLayer::new(Duration::from_secs(1)))
        .build()
        .unwrap();

    let (seen, response) = seen(agent).await;

    let taken_back = seen.iter().position(|word| word == "discarded").unwrap();
    assert_eq!(seen[taken_back + 1..], ["text", "+all", "text over"]);
    assert_eq!(response.unwrap().text(), "all");
}

#[test]
fn a_request_keeps_its_run_id_when_its_state_is_set() {
    let request = AgentRequest::new("?")
        .with_run_id("mine")
        .with_state(Default::default());
    assert_eq!(tower_agent::Request::context(&request).run_id(), "mine");
}

#[tokio::test]
async fn arguments_go_to_the_latest_call_of_their_number_as_seen_and_as_answered() {
    let (sink, events) = channel(64);
    let mut attempt = sink.open();
    for (id, json) in [("a", "1"), ("b", "2")] {
        let (index, name) = (0, "echo".into());
        attempt
            .send(Delta::ToolCall {
                index,
                id: id.into(),
                name,
            })
            .await
            .unwrap();
        attempt
            .send(Delta::Arguments {
                index,
                json: json.into(),
            })
            .await
            .unwrap();
    }
    let message = attempt.finish().await.unwrap().message;
    drop(sink);

    let events: Vec<_> = futures::StreamExt::collect(events).await;
    let seen = words(&events);
    assert_eq!(
        seen,
        [
            "t0: echo", "t0: +1", "t1: echo", "t1: +2", "t0: over", "t1: over"
        ]
    );
    let said: Vec<_> = message
        .tool_calls()
        .map(|call| format!("{}: +{}", call.id, call.arguments))
        .collect();
    assert_eq!(said, ["a: +1", "b: +2"]);
}
