//! `TimeoutLayer`.

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::advance;
use tower::ServiceBuilder;
use tower::timeout::TimeoutLayer;
use tower_agent::message::ToolResult;
use tower_agent::stream::EventKind;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, Effect, Error, ErrorKind, Message, ModelResponse, Part, Role, RunStream, Tool,
};

use crate::retries::Again;
use crate::{WAYS, around_each, check, run, secs};

#[tokio::test(start_paused = true)]
async fn a_timeout_bounds_the_whole_answer() {
    for streamed in WAYS {
        let slow = || [Turn::from_text("half of it").hanging_after(3)];
        for (place, agent) in around_each!(slow(), TimeoutLayer::new(secs(1))) {
            let start = tokio::time::Instant::now();
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.is_retryable()),
                (ErrorKind::Timeout, true),
                "{place}"
            );
            assert_eq!(start.elapsed(), secs(1), "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_lets_an_answer_in_time_pass() {
    for streamed in WAYS {
        let quick = || [Turn::from_text("all of it").latency(secs(1))];
        for (place, agent) in around_each!(quick(), TimeoutLayer::new(secs(2))) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "all of it",
                "{place}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_around_a_timeout_takes_back_the_half_answer() {
    for streamed in WAYS {
        let turns = || {
            [
                Turn::from_text("half of it").hanging_after(3),
                Turn::from_text("all of it"),
            ]
        };
        let layer = || {
            ServiceBuilder::new()
                .retry(Again(1))
                .map_err(Error::from)
                .timeout(secs(1))
                .into_inner()
        };
        for (place, agent) in around_each!(turns(), layer()) {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "all of it",
                "{place}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_strikes_while_the_reader_is_away_leaves_nothing_open() {
    let parts = || (0..20).flat_map(|_| [Part::reasoning("hm"), Part::from_text("so")]);
    let answer = || ModelResponse::new(Message::new(Role::Assistant, parts()));
    let turns = || [Turn::response(answer()), Turn::from_text("all of it")];
    let layer = || {
        ServiceBuilder::new()
            .retry(Again(1))
            .map_err(Error::from)
            .timeout(secs(1))
            .into_inner()
    };
    // However many words the reader has taken before it goes away.
    for words in 1..20 {
        for (place, agent) in around_each!(turns(), layer()) {
            let mut stream = RunStream::new(agent, "?".into());
            let mut events = Vec::new();
            let mut taken = 0;
            while let Some(event) = stream.next().await {
                if let EventKind::TextDelta { .. } = event.kind {
                    taken += 1;
                    if taken == words {
                        advance(secs(2)).await;
                    }
                }
                events.push(event);
            }
            let response = check(&events, stream.response().await).unwrap();
            assert_eq!(response.text(), "all of it", "{place} after {words}");
        }
    }
}

/// The error is that of the layer, which knows nothing of what the tool has done.
#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_tool_that_is_cut_off_is_unknown_to_the_model() {
    for (effect, is_inside) in [
        (Effect::Mutating, false),
        (Effect::Mutating, true),
        (Effect::Pure, false),
    ] {
        let hangs = async |_: Value| std::future::pending::<Value>().await;
        let pay = Tool::function("pay", "", hangs).effect(effect);
        let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("done")]);
        let limit = TimeoutLayer::new(secs(1));
        let builder = Agent::builder(model);
        let builder = if is_inside {
            builder.tool(pay.layer(limit))
        } else {
            builder.tool(pay).tool_layer(limit)
        };

        let response = builder.build().unwrap().run("?").await.unwrap();

        let results = response.messages().iter().flat_map(Message::tool_results);
        let text = results.map(ToolResult::text).collect::<String>();
        let is_unknown = text.ends_with("; the tool was still running, and its outcome is unknown");
        assert!(text.starts_with("timed out: "), "{text}");
        assert_eq!(is_unknown, effect == Effect::Mutating, "{text}");
    }
}
