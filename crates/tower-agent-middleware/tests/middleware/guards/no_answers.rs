//! A response that is no answer, in what may have another one instead: by the rule of the agent,
//! and of the agents around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use tower::service_fn;
use tower_agent::agent::AtNoAnswer;
use tower_agent::message::{FinishReason, NoAnswer};
use tower_agent::model::BoxModel;
use tower_agent::{
    Agent, AgentResponse, EndReason, Error, ErrorKind, ModelRequest, ModelResponse, Result, Usage,
};
use tower_agent_middleware::hedge::HedgeLayer;
use tower_agent_middleware::pool::Pool;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

use super::watch::{busy, ms};

/// What a model does with one call, after a time.
type Act = (u64, Result<ModelResponse>);

fn says(text: &str) -> Result<ModelResponse> {
    Ok(ModelResponse::from_text(text).with_usage(Usage::new(10, 2)))
}

fn ends(text: &str, reason: FinishReason) -> Result<ModelResponse> {
    says(text).map(|response| response.with_finish_reason(reason))
}

/// The ways in which a model gives no answer.
fn no_answers() -> [Result<ModelResponse>; 4] {
    [
        ends("It is", FinishReason::Length),
        ends("", FinishReason::ContentFilter),
        ends("No.", FinishReason::Refusal),
        says(" "),
    ]
}

/// A model that does this with its calls, and the last with all further ones.
fn acting(acts: impl Into<Vec<Act>>) -> (BoxModel, Arc<AtomicUsize>) {
    let acts = acts.into();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let model = service_fn(move |request: ModelRequest| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        let (time, result) = acts[call.min(acts.len() - 1)].clone();
        async move {
            sleep(ms(time)).await;
            result?.streamed_to(request.delta_sender()).await
        }
    });
    (BoxModel::new(model), calls)
}

async fn ask(agent: &Agent, is_streamed: bool) -> Result<AgentResponse> {
    if is_streamed {
        agent.stream("?").response().await
    } else {
        agent.run("?").await
    }
}

const RULES: [(AtNoAnswer, bool); 4] = [
    (AtNoAnswer::Tell, false),
    (AtNoAnswer::AskAgain(0), true),
    (AtNoAnswer::AskAgain(1), true),
    (AtNoAnswer::Fail, true),
];

#[tokio::test(start_paused = true)]
async fn a_retry_repeats_what_the_agent_does_not_accept() {
    for (at, repeats) in RULES {
        for no_answer in no_answers() {
            for is_streamed in [false, true] {
                let (model, calls) = acting([(0, no_answer.clone()), (0, says("It is 5."))]);
                let agent = Agent::builder(model)
                    .model_layer(CallRetryLayer::new().restart_streams(true))
                    .at_no_answer(at);
                let response = ask(&agent.build().unwrap(), is_streamed).await.unwrap();
                assert_eq!(response.no_answer().is_none(), repeats, "{at:?}");
                let made = 1 + usize::from(repeats);
                assert_eq!(calls.load(Ordering::SeqCst), made, "{at:?}");
                // What was refused was paid for.
                assert_eq!(response.usage().total(), 12 * made as u64);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_agent_gets_the_last_no_answer_of_a_retry() {
    let agent = |layer: CallRetryLayer, at| {
        let (model, calls) = acting([(0, says(" "))]);
        let agent = Agent::builder(model).model_layer(layer).at_no_answer(at);
        (agent.build().unwrap(), calls)
    };
    let (asks_again, calls) = agent(CallRetryLayer::new(), AtNoAnswer::AskAgain(1));
    let response = asks_again.run("?").await.unwrap();
    assert_eq!(response.end_reason(), &EndReason::NoAnswer(NoAnswer::Empty));
    assert_eq!(calls.load(Ordering::SeqCst), 2 * 3);

    let (fails, _) = agent(CallRetryLayer::new(), AtNoAnswer::Fail);
    let error = fails.run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAnswer);

    // A predicate decides about it as about any error.
    let busy = |error: &Error| error.kind() == ErrorKind::Overloaded;
    let (agent, calls) = agent(
        CallRetryLayer::new().retry_if(busy),
        AtNoAnswer::AskAgain(0),
    );
    assert!(agent.run("?").await.unwrap().no_answer().is_some());
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_shown_is_not_retried() {
    let (model, calls) = acting([(0, ends("It is", FinishReason::Length))]);
    let agent = Agent::builder(model)
        .model_layer(CallRetryLayer::new())
        .at_no_answer(AtNoAnswer::AskAgain(0))
        .build()
        .unwrap();
    assert_eq!(ask(&agent, true).await.unwrap().text(), "It is");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_rule_of_an_agent_around_counts_for_one_without_its_own() {
    for (at, repeats) in RULES {
        let (model, calls) = acting([(0, says("")), (0, says("It is 5."))]);
        let inner = Agent::builder(model)
            .name("inner")
            .model_layer(CallRetryLayer::new())
            .build()
            .unwrap();
        let boss = ScriptedModel::new([
            Turn::tool("inner", json!({ "request": "?" })),
            Turn::from_text("Done."),
        ]);
        let boss = Agent::builder(boss)
            .tool(inner.into_tool("Answers."))
            .at_no_answer(at);
        boss.build().unwrap().run("?").await.unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1 + usize::from(repeats));
    }
}

fn hedged(first: Act, second: Act, at: AtNoAnswer) -> Agent {
    let (model, _) = acting([first, second]);
    let agent = Agent::builder(model).model_layer(HedgeLayer::new(ms(100)));
    agent.at_no_answer(at).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_answer_does_not_win_over_an_attempt_that_may_still_answer() {
    for (at, waits) in RULES {
        for no_answer in no_answers() {
            for is_streamed in [false, true] {
                let is_shown = !no_answer.clone().unwrap().text().is_empty();
                if is_streamed && is_shown {
                    // The first delta decides.
                    continue;
                }
                let answer = says("It is 5.");
                let first = hedged((150, no_answer.clone()), (100, answer.clone()), at);
                let second = hedged((300, answer), (50, no_answer.clone()), at);
                for agent in [first, second] {
                    let response = ask(&agent, is_streamed).await.unwrap();
                    assert_eq!(response.no_answer().is_none(), waits, "{at:?}");
                    let is_answer = response.text() == "It is 5.";
                    assert_eq!(is_answer, waits, "{at:?} {is_streamed}");
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_without_an_answer_gives_what_it_has() {
    let at = AtNoAnswer::AskAgain(0);
    let (empty, refused) = (says(""), ends("No.", FinishReason::Refusal));
    let fails = || Err(busy());
    for (first, second, text) in [
        ((150, empty.clone()), (100, refused.clone()), "No."),
        ((150, refused.clone()), (100, fails()), "No."),
        ((150, fails()), (100, refused.clone()), "No."),
        // Alone, it is the answer of the call.
        ((50, refused.clone()), (0, says("It is 5.")), "No."),
    ] {
        let response = hedged(first, second, at).run("?").await.unwrap();
        assert_eq!(response.text(), text);
        assert!(response.no_answer().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_without_answers_is_dear_and_never_taken_out() {
    for (at, is_dear) in RULES {
        let (mute, asked) = acting([(1, says(""))]);
        let (works, _) = acting([(50, says("It is 5."))]);
        let pool = Pool::new([("mute", mute), ("works", works)])
            .failures(1)
            .pause(Duration::from_secs(3_600));
        let agent = Agent::builder(pool).at_no_answer(at).build().unwrap();
        for _ in 0..100 {
            drop(agent.run("?").await);
        }
        let asked_before = asked.load(Ordering::SeqCst);
        assert_eq!(asked_before < 50, is_dear, "{at:?}: {asked_before}");
        // As one that is slow, it is tried again now and then.
        sleep(Duration::from_secs(60)).await;
        for _ in 0..20 {
            drop(agent.run("?").await);
        }
        assert!(asked.load(Ordering::SeqCst) > asked_before, "{at:?}");
    }
}
