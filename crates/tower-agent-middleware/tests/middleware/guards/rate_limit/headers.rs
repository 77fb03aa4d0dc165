//! Limits that a provider reports.

use std::time::{Duration, SystemTime};

use tokio::time::{advance, timeout};
use tower_agent::message::Metadata;
use tower_agent::model::ModelService;
use tower_agent::{Error, ErrorKind, ModelResponse, Usage};
use tower_agent_middleware::rate_limit::{Exhausted, LimitedResource, RateLimitLayer};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use super::{SECOND, assert_near, reserving, time_of, using};
use test_support::{call, stream};

/// The headers of OpenAI and of those who speak its protocol.
fn openai(remaining: u64, reset: &str) -> Metadata {
    limits([
        ("x-ratelimit-limit-requests", "100"),
        ("x-ratelimit-remaining-requests", &remaining.to_string()),
        ("x-ratelimit-reset-requests", reset),
    ])
}

/// The headers of Anthropic, which reset at a date.
fn anthropic(remaining: u64, reset: Duration) -> Metadata {
    let date = rfc_3339(SystemTime::now() + reset);
    limits([
        ("anthropic-ratelimit-requests-limit", "100"),
        (
            "anthropic-ratelimit-requests-remaining",
            &remaining.to_string(),
        ),
        ("anthropic-ratelimit-requests-reset", &date),
    ])
}

fn limits<const N: usize>(headers: [(&str, &str); N]) -> Metadata {
    let mut metadata = Metadata::default();
    metadata.rate_limits = headers
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    metadata
}

/// Returns a date as RFC 3339 has it.
fn rfc_3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seconds = since.as_secs();
    let mut day = seconds / 86_400;
    let mut year = 1970;
    // From 1901 to 2099 every fourth year is one.
    let is_leap = |year: u64| year.is_multiple_of(4);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    let hour = seconds / 3600 % 24;
    let minute = seconds / 60 % 60;
    let second = seconds % 60;
    let nanos = since.subsec_nanos();
    format!(
        "{year}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z",
        month + 1,
        day + 1
    )
}

fn with(metadata: Metadata) -> Turn {
    let response = ModelResponse::from_text("fine").with_usage(Usage::new(1, 1));
    Turn::response(response.with_metadata(metadata))
}

fn learned<M: ModelService>(model: M) -> impl ModelService {
    RateLimitLayer::new().layer(model)
}

#[tokio::test(start_paused = true)]
async fn resets_are_read_in_both_spellings() {
    let after = SECOND * 30;
    for metadata in [openai(0, "30s"), openai(0, "0m30s"), anthropic(0, after)] {
        let model = learned(ScriptedModel::always(with(metadata.clone())));
        call(model.clone(), reserving(1)).await.unwrap();
        // A hundred come back in 30 s, so the next in 300 ms.
        let time = time_of(&model, reserving(1)).await;
        assert_near(time, Duration::from_millis(300));
    }
}

// Elsewhere the headers were read on one of the paths alone.
#[tokio::test(start_paused = true)]
async fn headers_count_of_plain_calls_of_streams_and_of_errors() {
    let limits = || openai(0, "100s");
    let refused = Error::new(ErrorKind::Provider, "broken").with_metadata(limits());
    for (turn, is_streamed) in [
        (with(limits()), false),
        (with(limits()), true),
        (Turn::error(refused.clone()), false),
        (Turn::error(refused), true),
    ] {
        let inner = ScriptedModel::new([turn, with(limits())]);
        let model = learned(inner.clone());
        // How it ends is not the point.
        let _ = if is_streamed {
            stream(model.clone(), reserving(1)).await.0
        } else {
            call(model.clone(), reserving(1)).await
        };
        assert_near(time_of(&model, reserving(1)).await, SECOND);
        inner.assert_done();
    }
}

#[tokio::test(start_paused = true)]
async fn the_period_of_a_provider_may_be_a_day() {
    // 30 of 14,400 come back in 2m59.56s, so one in six seconds.
    let daily = |remaining: u64, reset: &str| {
        limits([
            ("x-ratelimit-limit-requests", "14400"),
            ("x-ratelimit-remaining-requests", &remaining.to_string()),
            ("x-ratelimit-reset-requests", reset),
        ])
    };
    let turns = [
        with(daily(14_370, "2m59.56s")),
        with(daily(0, "24h")),
        with(daily(0, "24h")),
    ];
    let model = learned(ScriptedModel::new(turns));
    call(model.clone(), reserving(1)).await.unwrap();
    assert_eq!(time_of(&model, reserving(1)).await, Duration::ZERO);
    assert_near(time_of(&model, reserving(1)).await, SECOND * 6);
}

#[tokio::test(start_paused = true)]
async fn what_a_call_uses_beyond_its_estimate_is_taken_from_a_limit_by_the_day() {
    let daily = limits([
        ("x-ratelimit-limit-tokens", "1000"),
        ("x-ratelimit-remaining-tokens", "600"),
        ("x-ratelimit-reset-tokens", "24h"),
    ]);
    let turns = [with(daily), using(600)];
    let layer = RateLimitLayer::new().max_wait(Duration::ZERO);
    let model = layer.layer(ScriptedModel::new(turns));
    call(model.clone(), reserving(1)).await.unwrap();
    call(model.clone(), reserving(100)).await.unwrap();
    let error = call(model, reserving(100)).await.unwrap_err();
    let exhausted = error.downcast_ref::<Exhausted>().unwrap();
    assert_eq!(exhausted.resource, LimitedResource::Tokens);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_others_have_used_make_a_call_wait() {
    let tokens = |remaining: u64| {
        limits([
            ("anthropic-ratelimit-tokens-limit", "1000"),
            (
                "anthropic-ratelimit-tokens-remaining",
                &remaining.to_string(),
            ),
            (
                "anthropic-ratelimit-tokens-reset",
                &rfc_3339(SystemTime::now() + SECOND * 9),
            ),
        ])
    };
    let model = learned(ScriptedModel::always(with(tokens(100))));
    call(model.clone(), reserving(500)).await.unwrap();
    // 100 are left and 100 come back each second.
    assert_near(time_of(&model, reserving(500)).await, SECOND * 4);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_late_does_not_raise_the_limit() {
    let model = learned(ScriptedModel::new([
        with(openai(1, "99s")),
        with(openai(80, "20s")),
        with(openai(80, "20s")),
    ]));
    call(model.clone(), reserving(1)).await.unwrap();
    assert_eq!(time_of(&model, reserving(1)).await, Duration::ZERO);
    let short = timeout(Duration::from_millis(500), call(model, reserving(1)));
    assert!(short.await.is_err(), "it used the last one");
}

#[tokio::test(start_paused = true)]
async fn headers_that_make_no_sense_limit_nothing() {
    let odd = limits([
        ("x-ratelimit-limit-requests", "many"),
        ("x-ratelimit-remaining-requests", "-1"),
        ("x-ratelimit-reset-requests", "soon"),
        ("x-ratelimit-", ""),
        ("anthropic-ratelimit-", "7"),
    ]);
    let model = learned(ScriptedModel::always(with(odd)));
    for _ in 0..10 {
        assert_eq!(time_of(&model, reserving(1)).await, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_no_call_is_made_before_its_time() {
    let refused = Error::new(ErrorKind::RateLimited, "slow down").with_retry_after(SECOND * 7);
    let inner = ScriptedModel::new([Turn::error(refused), with(Metadata::default())]);
    let model = RateLimitLayer::new().layer(inner.clone());
    call(model.clone(), reserving(1)).await.unwrap_err();
    assert_near(time_of(&model, reserving(1)).await, SECOND * 7);
    inner.assert_done();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_stops_the_calls_that_already_wait() {
    let refused = Error::new(ErrorKind::RateLimited, "slow down").with_retry_after(SECOND * 30);
    let inner = ScriptedModel::new([
        Turn::error(refused).latency(SECOND),
        with(Metadata::default()),
    ]);
    let layer = RateLimitLayer::new().requests(6, super::MINUTE);
    let model = layer.max_wait(SECOND * 20).layer(inner.clone());
    let first = call(model.clone(), reserving(1));
    let second = call(model.clone(), reserving(1));
    let (first, second) = futures::join!(first, second);
    assert_eq!(first.unwrap_err().kind(), ErrorKind::RateLimited);
    let error = second.unwrap_err();
    let exhausted = error.downcast_ref::<Exhausted>().unwrap();
    assert_eq!(exhausted.resource, LimitedResource::Provider);
    advance(exhausted.retry_after).await;
    call(model, reserving(1)).await.unwrap();
    inner.assert_done();
}
