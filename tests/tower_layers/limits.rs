//! Limits of concurrency and rate, and shedding.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceBuilder;
use tower::buffer::BufferLayer;
use tower::limit::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, RateLimitLayer};
use tower::load_shed::LoadShedLayer;
use tower_agent::stream::Event;
use tower_agent::{Agent, ErrorKind, RunStream, Tool};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

use crate::{WAYS, around_each, check, read, reads_words, run, secs};

fn answers(count: usize) -> Vec<Turn> {
    vec![Turn::from_text("a long answer, many words").latency(secs(1)); count]
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_makes_calls_wait() {
    for streamed in WAYS {
        let probe = ProbeLayer::new();
        let layer = || {
            ServiceBuilder::new()
                .layer(ConcurrencyLimitLayer::new(1))
                .layer(probe.clone())
        };
        for (place, agent) in around_each!(answers(3), layer().into_inner()) {
            let start = Instant::now();
            for response in join_all((0..3).map(|_| run(&agent, streamed))).await {
                assert_eq!(
                    response.unwrap().text(),
                    "a long answer, many words",
                    "{place}"
                );
            }
            assert_eq!(start.elapsed(), secs(3), "{place}");
        }
        assert_eq!((probe.max_in_flight(), probe.violations()), (1, 0));
    }
}

#[tokio::test]
async fn a_limit_of_one_holds_its_permit_until_a_stream_has_ended() {
    let turns = || {
        [
            Turn::from_text("a long answer, many words"),
            Turn::from_text("another"),
        ]
    };
    for (place, agent) in around_each!(turns(), ConcurrencyLimitLayer::new(1)) {
        let [mut first, mut second] = [(); 2].map(|()| RunStream::new(agent.clone(), "?".into()));
        let (mut seen, mut waits) = (Vec::<Event>::new(), Vec::<Event>::new());
        assert!(reads_words(&mut first, &mut seen), "{place}");
        assert!(!reads_words(&mut second, &mut waits), "{place}");
        while reads_words(&mut first, &mut seen) {
            // A call behind a full queue is not at its end.
        }
        let response = check(&seen, first.response().await).unwrap();
        assert_eq!(response.text(), "a long answer, many words", "{place}");
        assert!(reads_words(&mut second, &mut waits), "{place}");
    }
}

#[tokio::test]
async fn a_stream_that_is_dropped_gives_its_permit_back() {
    let turns = || {
        [
            Turn::from_text("a long answer, many words"),
            Turn::from_text("another"),
        ]
    };
    for (place, agent) in around_each!(turns(), ConcurrencyLimitLayer::new(1)) {
        let mut first = RunStream::new(agent.clone(), "?".into());
        assert!(reads_words(&mut first, &mut Vec::new()), "{place}");
        drop(first);
        assert_eq!(
            run(&agent, true).await.unwrap().text(),
            "another",
            "{place}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_global_limit_is_shared_by_all_clones_of_the_layer() {
    for streamed in WAYS {
        let layer = GlobalConcurrencyLimitLayer::new(2);
        let agents = around_each!(answers(1), layer.clone());
        let start = Instant::now();
        let runs = agents.iter().map(|(_, agent)| run(agent, streamed));
        assert!(join_all(runs).await.iter().all(Result::is_ok));
        // Five calls, two at a time.
        assert_eq!(start.elapsed(), secs(3));
    }
}

/// A call of the agent inside waits for the place that the call around it has. Each with a limit of
/// its own, or around the agent alone, does what is intended.
#[tokio::test(start_paused = true)]
async fn a_global_limit_around_tools_and_in_their_agents_waits_for_itself() {
    let look = || Tool::function("look", "Looks.", |_: Value| "seen");
    let calls = |tool: &str| {
        let call = Turn::tool(tool, json!({ "request": "?" }));
        Agent::builder(ScriptedModel::new([call, Turn::from_text("done")]))
    };
    let boss = |around: bool, inside: bool| {
        let limit = GlobalConcurrencyLimitLayer::new(1);
        let mut worker = calls("look").name("worker").tool(look());
        if inside {
            worker = worker.tool_layer(limit.clone());
        }
        let worker = worker.build().unwrap().into_tool("Works.");
        let mut boss = calls("worker").name("boss").tool(worker);
        if around {
            boss = boss.tool_layer(limit);
        }
        boss.build().unwrap()
    };
    for (around, inside) in [(true, true), (true, false), (false, true)] {
        let agent = boss(around, inside);
        let is_wrong = around && inside;
        // A day is long enough: nothing here takes time.
        let ended = tokio::time::timeout(secs(86_400), agent.run("?")).await;
        assert_eq!(ended.is_err(), is_wrong, "{around}, {inside}");
        let warnings = agent.explain().warnings();
        let found: Vec<_> = warnings
            .iter()
            .map(|found| (&*found.agent, &*found.outside, &*found.inside))
            .collect();
        let expected = [("boss", "GlobalConcurrencyLimitLayer", "worker")];
        assert_eq!(found, expected[..usize::from(is_wrong)]);
    }
}

/// The same around agents: a limit that is passed by an agent and by one inside it.
#[tokio::test(start_paused = true)]
async fn a_global_limit_around_an_agent_and_one_inside_it_waits_for_itself() {
    for is_around_both in [true, false] {
        let limit = GlobalConcurrencyLimitLayer::new(1);
        let says = || Agent::builder(ScriptedModel::always(Turn::from_text("done")));
        let member = says().name("member").agent_layer(limit.clone()).build();
        let mut team = Agent::sequential("team").agent(member.unwrap());
        if is_around_both {
            team = team.agent_layer(limit);
        }
        let team = team.build().unwrap();
        let ended = tokio::time::timeout(secs(86_400), team.run("?")).await;
        assert_eq!(ended.is_err(), is_around_both);
        let warnings = team.explain().warnings();
        assert_eq!(warnings.len(), usize::from(is_around_both), "{warnings:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_in_a_buffer_spaces_calls_out() {
    for streamed in WAYS {
        let quick = || vec![Turn::from_text("quick"); 5];
        for (place, agent) in around_each!(
            quick(),
            ServiceBuilder::new()
                .layer(BufferLayer::<Call>::new(8))
                .rate_limit(2, secs(10))
                .into_inner()
        ) {
            let start = Instant::now();
            let responses = join_all((0..5).map(|_| run(&agent, streamed))).await;
            assert!(
                responses.iter().all(Result::is_ok),
                "{place}: {responses:?}"
            );
            assert_eq!(start.elapsed(), secs(20), "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shedding_inside_the_buffer_refuses_what_is_above_the_rate() {
    for streamed in WAYS {
        let quick = || vec![Turn::from_text("quick"); 2];
        for (place, agent) in around_each!(
            quick(),
            ServiceBuilder::new()
                .layer(BufferLayer::<Call>::new(8))
                .layer(LoadShedLayer::new())
                .layer(RateLimitLayer::new(1, secs(10)))
                .into_inner()
        ) {
            assert!(run(&agent, streamed).await.is_ok(), "{place}");
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Overloaded, "{place}");
            tokio::time::sleep(secs(10)).await;
            assert!(run(&agent, streamed).await.is_ok(), "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shedding_refuses_what_a_limit_would_let_wait() {
    for streamed in WAYS {
        let layer = || {
            ServiceBuilder::new()
                .load_shed()
                .concurrency_limit(1)
                .into_inner()
        };
        for (place, agent) in around_each!(answers(2), layer()) {
            let (one, other) = tokio::join!(run(&agent, streamed), run(&agent, streamed));
            assert!(one.is_ok(), "{place}");
            let error = other.unwrap_err();
            assert_eq!(
                (error.kind(), error.is_retryable()),
                (ErrorKind::Overloaded, true)
            );
            assert!(run(&agent, streamed).await.is_ok(), "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn shedding_alone_never_sheds_since_a_model_a_tool_and_an_agent_are_ready() {
    for streamed in WAYS {
        for (place, agent) in around_each!(answers(5), LoadShedLayer::new()) {
            let responses = join_all((0..5).map(|_| run(&agent, streamed))).await;
            assert!(responses.iter().all(Result::is_ok), "{place}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_read_holds_up_those_behind_it() {
    let turns = || {
        [
            Turn::from_text("a long answer, many words"),
            Turn::from_text("another"),
        ]
    };
    let layer = || {
        ServiceBuilder::new()
            .load_shed()
            .concurrency_limit(1)
            .into_inner()
    };
    for (place, agent) in around_each!(turns(), layer()) {
        let mut unread = RunStream::new(agent.clone(), "?".into());
        assert!(reads_words(&mut unread, &mut Vec::new()), "{place}");
        tokio::time::sleep(secs(3600)).await;
        let error = read(RunStream::new(agent.clone(), "?".into()))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded, "{place}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_limit_of_one_admits_one_stream_at_a_time() {
    let probe = ProbeLayer::new();
    let latency = Duration::from_millis(100);
    let slow = ScriptedModel::always(Turn::from_text("some words").latency(latency));
    let agent = Agent::builder(slow.chunk_size(1))
        .model_layer(ConcurrencyLimitLayer::new(1))
        .model_layer(probe.clone())
        .build()
        .unwrap();
    let start = Instant::now();

    let runs = join_all((0..3).map(|_| read(agent.stream("?")))).await;

    assert!(runs.iter().all(Result::is_ok));
    assert_eq!((probe.calls(), probe.max_in_flight()), (3, 1));
    assert_eq!(start.elapsed(), 3 * latency);
}
