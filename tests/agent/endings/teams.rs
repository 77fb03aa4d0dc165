//! How teams end early: failure, abort, interruption, the end of an invocation, cancellation.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::team::{agent, saying, slow, texts};
use test_support::trace::Trace;
use tokio_util::sync::CancellationToken;
use tower_agent::callback::{before_agent, before_tool, on_agent_error};
use tower_agent::stream::EventKind;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Checkpoint, EndReason, Error, ErrorKind, Interrupt,
    Message, Recovery, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};

#[tokio::test(start_paused = true)]
async fn a_failure_is_the_teams_and_drops_the_members_beside_it() {
    let trace = Trace::default();
    let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let member = |name: &str, turn: Turn| {
        let model = ScriptedModel::new([turn]);
        Agent::builder(model)
            .name(name)
            .on_agent(trace.named(name))
            .build()
            .unwrap()
    };

    let fan = Agent::parallel("fan")
        .on_agent(trace.named("fan"))
        .agents([
            member("a", slow("quick", 1)),
            member("b", busy().latency(Duration::from_secs(2))),
            member("c", Turn::pending()),
        ])
        .build()
        .unwrap();
    let error = fan.run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    assert_eq!(&*error.call().unwrap().agent, "fan/b");
    let ends = "fan> a> b> c> <a a=done b=overloaded c=dropped fan=overloaded";
    assert_eq!(trace.take(), ends);

    let never = ScriptedModel::new([]);
    let pipeline = Agent::sequential("pipeline")
        .agents([
            member("a", Turn::from_text("a")),
            member("b", busy()),
            agent("c", &never),
        ])
        .on_agent(on_agent_error(|_, error| {
            Recovery::Fallback(AgentResponse::new([Message::assistant(error.to_string())]))
        }))
        .build()
        .unwrap();
    let text = pipeline.run("?").await.unwrap().text();
    assert!(
        text.starts_with("model call of agent `pipeline/b`: overloaded: busy"),
        "{text}"
    );
    never.assert_done();
    assert_eq!(trace.take(), "a> <a a=done b> b=overloaded");
}

fn failing(name: &str, seconds: u64) -> Agent {
    let busy = Turn::error(Error::new(ErrorKind::Overloaded, format!("{name} is busy")));
    let busy = busy.latency(Duration::from_secs(seconds));
    agent(name, &ScriptedModel::always(busy))
}

#[tokio::test(start_paused = true)]
async fn a_failure_keeps_what_the_other_members_have_finished() {
    let finished = saying("a", 1);
    let fails = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let fails = ScriptedModel::new([fails.latency(Duration::from_secs(2)), Turn::from_text("b")]);
    let team = Agent::parallel("fan")
        .agents([agent("a", &finished), agent("b", &fails)])
        .build()
        .unwrap();

    let error = team.run("?").await.unwrap_err();
    let saved = serde_json::to_string(error.checkpoint().unwrap()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    let response = team.run(AgentRequest::resume(checkpoint)).await.unwrap();

    finished.assert_done();
    assert_eq!(texts(&response), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn members_that_may_fail_are_left_out() {
    let team = Agent::parallel("fan")
        .agents([agent("a", &saying("a", 2)), failing("b", 1)])
        .agent(agent("c", &saying("c", 1)))
        .allow_failures()
        .build()
        .unwrap();
    let mut run = team.stream("?");
    let mut errors = Vec::new();
    while let Some(event) = run.next().await {
        if let EventKind::AgentFinished { error, .. } = &event.kind {
            errors.extend(error.as_ref().map(|error| error.message().to_owned()));
        }
    }
    let response = run.response().await.unwrap();
    assert_eq!(texts(&response), ["a", "c"]);
    assert_eq!(response.end_reason(), &EndReason::Completed);
    assert_eq!(errors, ["b is busy"]);
}

#[tokio::test(start_paused = true)]
async fn a_team_of_which_all_fail_fails_with_the_error_of_the_first_member() {
    let team = Agent::parallel("fan")
        .agents([failing("a", 3), failing("b", 1)])
        .allow_failures()
        .build()
        .unwrap();
    let error = team.run("?").await.unwrap_err();
    assert_eq!(error.message(), "a is busy");
    let again = team.run(AgentRequest::resume(error.checkpoint().unwrap().clone()));
    assert_eq!(again.await.unwrap_err().message(), "a is busy");
}

#[tokio::test(start_paused = true)]
async fn one_answer_is_enough_where_others_may_fail() {
    let pending = agent("c", &ScriptedModel::always(Turn::pending()));
    let team = Agent::parallel("fan")
        .agents([failing("a", 1), agent("b", &saying("b", 2)), pending])
        .allow_failures()
        .until(|_| true)
        .build()
        .unwrap();
    let response = team.run("?").await.unwrap();
    assert_eq!(texts(&response), ["b"]);
    assert_eq!(response.end_reason(), &EndReason::StopCondition);
}

#[tokio::test(start_paused = true)]
async fn what_ends_the_run_ends_a_team_that_allows_failures() {
    let aborts = Agent::builder(ScriptedModel::new([]))
        .name("b")
        .on_agent(before_agent(|_| Err::<(), _>(Error::abort("enough"))))
        .build()
        .unwrap();
    let of = |other: Agent| {
        Agent::parallel("fan")
            .agents([agent("a", &saying("a", 0)), other])
            .allow_failures()
            .build()
            .unwrap()
    };
    let error = of(aborts).run("?").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Aborted);

    let token = CancellationToken::new();
    let pending = agent("b", &ScriptedModel::always(Turn::pending()));
    let run = of(pending).run(AgentRequest::new("?").with_cancellation(token.clone()));
    let (result, ()) = tokio::join!(run, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        token.cancel();
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
}

#[tokio::test]
async fn a_member_that_was_left_out_stays_out_when_another_waits() {
    let granted = Arc::new(Mutex::new(false));
    let (asks, model) = asking("a", &granted);
    let fails = ScriptedModel::new([Turn::error(Error::new(ErrorKind::Overloaded, "busy"))]);
    let team = Agent::parallel("fan")
        .agents([agent("b", &fails), asks, agent("c", &saying("c", 0))])
        .allow_failures()
        .build()
        .unwrap();
    let stopped = team.run("?").await.unwrap();
    assert_eq!(waits(&stopped), ["wipe_a"]);

    *granted.lock().unwrap() = true;
    let response = resume(&team, &stopped).await;
    model.assert_done();
    fails.assert_done();
    assert_eq!(texts(&response), ["wiped", "a wiped", "c"]);
}

#[tokio::test]
async fn a_member_that_fails_after_its_question_leaves_what_it_did_and_no_open_call() {
    let busy = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let granted = Arc::new(Mutex::new(false));
    let (fails, _) = asking_first("a", busy, &granted);
    let team = Agent::parallel("fan")
        .agents([fails, agent("c", &saying("c", 0))])
        .allow_failures()
        .build()
        .unwrap();
    let stopped = team.run("?").await.unwrap();
    assert_eq!(waits(&stopped), ["wipe_a"]);

    *granted.lock().unwrap() = true;
    let response = resume(&team, &stopped).await;
    assert_eq!(texts(&response), ["wiped", "c"]);
    assert_eq!(response.open_calls().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_race_that_another_member_wins_leaves_what_the_one_that_waited_did() {
    let granted = Arc::new(Mutex::new(false));
    let (slow, _) = asking_first("a", Turn::pending(), &granted);
    let (quick, _) = asking("b", &granted);
    let team = Agent::parallel("fan")
        .agents([slow, quick])
        .until(|response| response.text() == "b wiped")
        .build()
        .unwrap();
    let stopped = team.run("?").await.unwrap();
    assert_eq!(waits(&stopped), ["wipe_a", "wipe_b"]);

    *granted.lock().unwrap() = true;
    let response = resume(&team, &stopped).await;
    assert_eq!(texts(&response), ["wiped", "", "wiped", "b wiped"]);
    assert_eq!(response.open_calls().count(), 0);
}

#[tokio::test]
async fn a_member_that_fails_in_a_question_has_a_result_for_each_of_its_calls() {
    let granted = Arc::new(Mutex::new(false));
    let (asks, _) = asking("a", &granted);
    let breaks = granted.clone();
    let fails = Agent::parallel("a_team")
        .agent(asks)
        .on_agent(before_agent(move |_| {
            if *breaks.lock().unwrap() {
                return Err(Error::new(ErrorKind::Other, "no longer"));
            }
            Ok(())
        }))
        .build()
        .unwrap();
    let team = Agent::parallel("fan")
        .agents([fails, agent("c", &saying("c", 0))])
        .allow_failures()
        .build()
        .unwrap();
    let stopped = team.run("?").await.unwrap();

    *granted.lock().unwrap() = true;
    let mut run = team.stream(AgentRequest::resume(stopped.checkpoint()));
    let mut results = 0;
    while let Some(event) = run.next().await {
        results += usize::from(matches!(event.kind, EventKind::ToolResult(_)));
    }
    let response = run.response().await.unwrap();
    assert_eq!(response.messages().open_calls().count(), 0);
    let answers = response.messages().iter().flat_map(Message::tool_results);
    assert_eq!((answers.count(), results), (1, 1));
    assert_eq!(response.text(), "c");
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_everything_with_its_type_and_path() {
    let trace = Trace::default();
    let stop = Tool::function("stop", "", |_: Value| {
        Err::<(), _>(Error::abort("budget is gone"))
    });
    let worker = Agent::builder(ScriptedModel::new([Turn::tool("stop", json!(null))]))
        .name("worker")
        .tool(stop)
        .build()
        .unwrap();
    let asks = Turn::tool("worker", json!({ "request": "Work!" })).latency(Duration::from_secs(1));
    let boss = Agent::builder(ScriptedModel::new([asks]))
        .name("boss")
        .tool(worker.into_tool("Works."))
        .build()
        .unwrap();
    let never = ScriptedModel::new([]);
    let pair = Agent::sequential("pair")
        .agents([boss, agent("next", &never)])
        .on_agent(trace.named("pair"))
        .build()
        .unwrap();
    let beside = Agent::builder(ScriptedModel::new([Turn::pending()]))
        .name("beside")
        .on_agent(trace.named("beside"))
        .build()
        .unwrap();
    let fan = Agent::parallel("fan")
        .on_agent(on_agent_error(|_, _| {
            Recovery::Fallback(AgentResponse::new([Message::assistant("all is well")]))
        }))
        .on_agent(trace.named("fan"))
        .agents([beside, pair])
        .build()
        .unwrap();

    let error = fan.run("?").await.unwrap_err();

    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "budget is gone")
    );
    let call = error.call().unwrap();
    assert_eq!(
        (&*call.agent, call.name.as_deref()),
        ("fan/pair/boss/worker", Some("stop"))
    );
    never.assert_done();
    assert_eq!(
        trace.take(),
        "fan> beside> pair> pair=aborted beside=dropped fan=aborted"
    );
}

/// A member that asks for permission, and then has this turn.
fn asking_first(name: &str, then: Turn, granted: &Arc<Mutex<bool>>) -> (Agent, ScriptedModel) {
    let wipe = format!("wipe_{name}");
    let model = ScriptedModel::new([Turn::tool(wipe.clone(), json!(null)), then]);
    let granted = granted.clone();
    let agent = Agent::builder(model.clone())
        .name(name)
        .tool(Tool::function(wipe, "", |_: Value| "wiped"))
        .on_tool(before_tool(move |request| {
            if *granted.lock().unwrap() {
                return Ok(());
            }
            Err(Error::interrupt(Interrupt::new(
                request.name(),
                "confirmation",
            )))
        }))
        .build()
        .unwrap();
    (agent, model)
}

/// A member that asks for permission, and what it did once it had it.
fn asking(name: &str, granted: &Arc<Mutex<bool>>) -> (Agent, ScriptedModel) {
    asking_first(name, Turn::from_text(format!("{name} wiped")), granted)
}

fn waits(response: &AgentResponse) -> Vec<&str> {
    response
        .interrupts()
        .iter()
        .map(|pending| &*pending.name)
        .collect()
}

async fn resume(team: &Agent, first: &AgentResponse) -> AgentResponse {
    let saved = serde_json::to_string(&first.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    team.run(AgentRequest::resume(checkpoint)).await.unwrap()
}

#[tokio::test]
async fn an_interrupted_sequence_resumes_with_the_member_that_waits() {
    let granted = Arc::new(Mutex::new(false));
    let first = ScriptedModel::new([Turn::from_text("begin")]);
    let last = ScriptedModel::new([Turn::from_text("end")]);
    let (asks, model) = asking("b", &granted);
    let trace = Trace::default();
    let team = Agent::sequential("pipeline")
        .on_agent(trace.named("team"))
        .agents([agent("a", &first), asks, agent("c", &last)])
        .build()
        .unwrap();

    let stopped = team.run("?").await.unwrap();

    assert_eq!(waits(&stopped), ["wipe_b"]);
    assert_eq!(
        stopped.interrupts()[0].tool_call_id.as_deref(),
        Some("call_1")
    );
    assert_eq!(stopped.new_messages().len(), 2);
    assert_eq!(trace.take(), "team> team=done", "no after_agent yet");
    assert!(last.requests().is_empty());

    *granted.lock().unwrap() = true;
    let response = resume(&team, &stopped).await;

    [first, model, last]
        .iter()
        .for_each(ScriptedModel::assert_done);
    assert_eq!(texts(&response), ["wiped", "b wiped", "end"]);
    assert_eq!(response.end_reason(), &EndReason::Completed);
}

#[tokio::test(start_paused = true)]
async fn an_interruption_lets_the_members_beside_it_finish() {
    let granted = Arc::new(Mutex::new(false));
    let of = |members: Vec<Agent>| {
        // A race ends as soon as a member waits for a person.
        Agent::parallel("fan")
            .agents(members)
            .until(|r| r.text() == "b")
            .build()
            .unwrap()
    };
    let [(a, _), (c, _)] = ["a", "c"].map(|name| asking(name, &granted));
    let both = of(vec![a, agent("b", &saying("b", 5)), c]);
    assert_eq!(waits(&both.run("?").await.unwrap()), ["wipe_a", "wipe_c"]);

    let (asks, model) = asking("a", &granted);
    let beside = saying("b", 5);
    let team = of(vec![asks, agent("b", &beside)]);
    let stopped = team.run("?").await.unwrap();
    assert_eq!(waits(&stopped), ["wipe_a"]);
    assert_eq!(texts(&stopped), [""], "the open call stands last");

    *granted.lock().unwrap() = true;
    let response = resume(&team, &stopped).await;

    model.assert_done();
    beside.assert_done();
    assert_eq!(texts(&response), ["wiped", "a wiped", "b"]);
}

#[tokio::test]
async fn the_end_of_an_invocation_is_the_members_alone() {
    let ended = Agent::builder(ScriptedModel::new([]))
        .name("a")
        .on_agent(before_agent(|_| Err::<(), _>(Error::end_invocation())))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agents([ended, agent("b", &saying("b", 0))])
        .build()
        .unwrap();
    let response = team.run("?").await.unwrap();
    assert_eq!(
        (texts(&response), response.end_reason()),
        (vec!["b".to_owned()], &EndReason::Completed)
    );

    let never = ScriptedModel::new([]);
    let team = Agent::sequential("team")
        .agent(agent("a", &never))
        .on_agent(before_agent(|_| Err::<(), _>(Error::end_invocation())))
        .build()
        .unwrap();
    assert_eq!(
        team.run("?").await.unwrap().end_reason(),
        &EndReason::EndedByCallback
    );
    never.assert_done();
}

#[tokio::test(start_paused = true)]
async fn cancelling_or_dropping_a_run_drops_the_members() {
    let trace = Trace::default();
    let member = |name: &str| {
        Agent::builder(ScriptedModel::always(Turn::pending()))
            .name(name)
            .on_agent(trace.named(name))
            .build()
            .unwrap()
    };
    let team = Agent::parallel("fan")
        .agents([member("a"), member("b")])
        .on_agent(trace.named("fan"))
        .build()
        .unwrap();

    let token = CancellationToken::new();
    let run = team.run(AgentRequest::new("?").with_cancellation(token.clone()));
    let (result, ()) = tokio::join!(run, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        token.cancel();
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Cancelled);
    let all_dropped = |trace: String| {
        assert!(trace.starts_with("fan> a> b> "), "{trace}");
        ["a=", "b=", "fan="]
            .iter()
            .for_each(|end| assert!(trace.contains(end), "{trace}"));
        assert!(!trace.contains("done"), "{trace}");
    };
    all_dropped(trace.take());

    let mut run = Box::pin(team.run("?"));
    assert!(futures::poll!(&mut run).is_pending());
    drop(run);
    let dropped = trace.take();
    assert_eq!(dropped.matches("=dropped").count(), 3, "{dropped}");
    all_dropped(dropped);
}
