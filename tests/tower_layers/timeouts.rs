//! `TimeoutLayer`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::{advance, timeout};
use tower::ServiceBuilder;
use tower::timeout::TimeoutLayer;
use tower_agent::callback::{on_tool_error, wrap_tool};
use tower_agent::message::ToolResult;
use tower_agent::stream::EventKind;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, Effect, Error, ErrorKind, Message, ModelResponse, Part, Recovery, Role, RunStream, Tool,
    ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

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

/// What cuts a call off, and what the model reads of it.
#[tokio::test(start_paused = true)]
async fn the_outcome_is_unknown_whatever_has_cut_the_tool_off_and_whoever_answers() {
    let limit = || TimeoutLayer::new(secs(1));
    // The first call hangs, and any other is declined.
    let pay = || {
        let calls = Arc::new(AtomicU32::new(0));
        Tool::function("pay", "Pays.", move |_: Value| {
            let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if is_first {
                    std::future::pending::<()>().await;
                }
                Err::<Value, _>(Error::new(ErrorKind::Tool, "declined"))
            }
        })
    };
    let slow = || ToolResponse::new("the bank is slow");
    let gives_up = |response: Result<ToolResponse, ErrorKind>| {
        wrap_tool(move |request: ToolRequest, mut next| {
            let response = response.clone();
            async move {
                let result = timeout(secs(1), next.run(request)).await;
                result.unwrap_or(response.map_err(|kind| Error::new(kind, "gave up")))
            }
        })
    };
    let own_limit = {
        let hangs = |_: ToolRequest| std::future::pending::<Result<ToolResponse, Error>>();
        let hangs = ServiceBuilder::new().layer(limit()).service_fn(hangs);
        Tool::service(ToolDeclaration::new("pay", "Pays."), hangs)
    };
    let again = || ServiceBuilder::new().retry(Again(1)).map_err(Error::from);
    let sorry = || on_tool_error(move |_, _| Recovery::Fallback(slow()));
    let agent = || Agent::builder(script());
    let ways = [
        (
            "a wrap answers",
            agent().tool(pay()).tool_layer(gives_up(Ok(slow()))),
        ),
        (
            "a wrap fails",
            agent()
                .tool(pay())
                .tool_layer(gives_up(Err(ErrorKind::Other))),
        ),
        (
            "a callback answers",
            agent().tool(pay()).on_tool(sorry()).tool_layer(limit()),
        ),
        (
            "a retry fails",
            agent()
                .tool(pay())
                .tool_layer(again().layer(limit()).into_inner()),
        ),
        ("the tool's own limit", agent().tool(own_limit)),
    ];
    for (way, agent) in ways {
        let response = agent.build().unwrap().run("?").await.unwrap();
        let results = response.messages().iter().flat_map(Message::tool_results);
        let text = results.map(ToolResult::text).collect::<String>();
        assert!(text.contains("its outcome is unknown"), "{way}: {text}");
    }
}

/// The answer of the attempt that was made again is that of the call.
#[tokio::test(start_paused = true)]
async fn a_tool_that_answers_at_its_second_attempt_has_an_outcome() {
    let calls = AtomicU32::new(0);
    let pay = Tool::function("pay", "Pays.", move |_: Value| {
        let is_first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if is_first {
                std::future::pending::<()>().await;
            }
            "paid"
        }
    });
    let layer = ServiceBuilder::new()
        .retry(Again(1))
        .map_err(Error::from)
        .timeout(secs(1))
        .into_inner();
    let agent = Agent::builder(script()).tool(pay).tool_layer(layer);

    let response = agent.build().unwrap().run("?").await.unwrap();

    let results = response.messages().iter().flat_map(Message::tool_results);
    assert_eq!(results.map(ToolResult::text).collect::<String>(), "paid");
}

fn script() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("done")])
}
