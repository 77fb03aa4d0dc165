//! A guardrail around a model that streams.

use serde_json::json;
use tokio::time::Instant;
use tower_agent::stream::EventKind;
use tower_agent::{Agent, ErrorKind, ModelRequest, ModelResponse, Result};
use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Verdict};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use crate::guards::watch::{busy, count, ms, read_events, shown};
use test_support::log::Log;

#[tokio::test(start_paused = true)]
async fn a_check_that_crashes_hangs_or_fails_lets_nothing_pass_however_often() {
    async fn fails(_: ModelRequest) -> Result<Verdict> {
        Err(busy())
    }
    async fn crashes(_: ModelRequest) -> Result<Verdict> {
        panic!("on purpose")
    }
    async fn hangs(_: ModelRequest) -> Result<Verdict> {
        std::future::pending().await
    }
    let before = [
        Guardrail::before(fails),
        Guardrail::before(crashes),
        Guardrail::before(hangs),
    ];
    for guardrail in before {
        let probe = ProbeLayer::new();
        let agent = Agent::builder(probe.layer(ScriptedModel::always(Turn::from_text("seen"))))
            .model_layer(guardrail.with_timeout(ms(100)))
            .build()
            .unwrap();
        for _ in 0..5 {
            let (events, response) = read_events(&agent).await;
            assert_eq!(response.unwrap_err().kind(), ErrorKind::Callback);
            assert_eq!(shown(&events), "");
        }
        assert_eq!(probe.calls(), 0);
    }
}

async fn no_bomb(_: ModelRequest, response: ModelResponse) -> Result<Verdict> {
    Ok(if response.message().text().contains("bomb") {
        Verdict::trip("no bombs")
    } else {
        Verdict::Pass
    })
}

async fn trips_late(_: ModelRequest) -> Result<Verdict> {
    tokio::time::sleep(ms(500)).await;
    Ok(Verdict::trip("no"))
}

#[tokio::test]
async fn an_answer_that_a_check_refuses_is_never_streamed() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text(
        "Take a pipe for the bomb.",
    )]))
    .model_layer(Guardrail::after(no_bomb).with_on_trip(OnTrip::answer("No.")))
    .build()
    .unwrap();

    let (events, response) = read_events(&agent).await;

    assert_eq!(
        (shown(&events), response.unwrap().text()),
        ("No.".into(), "No.".into())
    );
}

#[tokio::test(start_paused = true)]
async fn no_tool_runs_before_the_verdict_of_a_check_beside_the_model() {
    let (log, probe) = (Log::default(), ProbeLayer::new());
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk"))]);
    let agent = Agent::builder(probe.layer(model))
        .tool(log.tool("wipe"))
        .model_layer(Guardrail::beside(trips_late))
        .build()
        .unwrap();

    let (events, response) = read_events(&agent).await;

    assert_eq!(response.unwrap_err().kind(), ErrorKind::Denied);
    assert!(log.all().is_empty());
    assert_eq!(
        count(&events, |kind| matches!(kind, EventKind::ToolCallStart(_))),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_that_trips_beside_the_model_drops_its_call() {
    let probe = ProbeLayer::new();
    let agent = Agent::builder(probe.layer(ScriptedModel::new([Turn::pending()])))
        .model_layer(Guardrail::beside(trips_late))
        .build()
        .unwrap();
    let start = Instant::now();

    agent.run("?").await.unwrap_err();

    assert_eq!(start.elapsed(), ms(500));
    assert_eq!((probe.cancelled(), probe.in_flight()), (1, 0));
}
