//! What an operator sees of the runs, and does with them, in every database.

use std::time::{Duration, SystemTime};

use serde_json::json;
use tower_agent::agent::SavedRequest;
use tower_agent::middleware::approval::{Approval, Decision};
use tower_agent::{
    AgentRequest, Effect, Error, ErrorKind, ModelRequest, Request, Resolution, State,
};
use tower_agent_durable::journal::{Journal, JournalError, RunInfo, RunStatus, StepKind};

use super::conformance::input;
use super::place::{Database, Place};
use super::{Count, calling, counting, durable, journal_error, request, saying};

pub(super) async fn a_run_is_seen_with_its_steps_and_what_it_waits_for_and_goes_on(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let runs = database.runs();
    let pay = Count::default();
    let agent = || {
        durable(calling(&["look", "pay"], &Count::default()), database.clone())
            .tool(counting("look", Effect::Pure, &Count::default()))
            .tool(counting("pay", Effect::Mutating, &pay))
            .on_tool(Approval::of_tools(["pay"]))
            .build()
            .unwrap()
    };
    assert!(runs.list().await.unwrap().is_empty());
    let state = State::from_iter([("user".to_owned(), json!("ann"))]);
    let mut first = request().with_state(state);
    first.settings_mut().temperature = Some(0.5);
    agent().run(first).await.unwrap();
    let seen = runs.get("run 1").await.unwrap();
    assert_eq!((seen.status, &*seen.agent, seen.epoch), (RunStatus::Waiting, "agent", 1));
    assert_eq!(seen.interrupts[0].payload["tool"], "pay");
    let kinds = async || {
        let steps = runs.steps("run 1").await.unwrap();
        let kind = |kind: &StepKind| match kind {
            StepKind::Tool(name) => name.to_string(),
            _ => "model".to_owned(),
        };
        let seen = steps.iter().map(|step| (kind(&step.id.kind), step.ended_at.is_some()));
        seen.collect::<Vec<_>>()
    };
    let is_done =
        |kinds: &[&str]| kinds.iter().map(|it| ((*it).to_owned(), true)).collect::<Vec<_>>();
    assert_eq!(kinds().await, is_done(&["model", "look", "model"]));

    // Without an answer it waits on; with one it goes on, with its state and settings.
    let next = runs.request("run 1").await.unwrap();
    assert_eq!(next.context().state().get("user"), Some(json!("ann")));
    assert_eq!(next.settings().temperature, Some(0.5));
    assert_eq!(agent().run(next).await.unwrap().interrupts().len(), 1);
    let yes = Resolution::resolved(&seen.interrupts[0].id, Decision::Approve);
    let next = runs.request("run 1").await.unwrap().with_resolutions([yes]);
    assert_eq!(agent().run(next).await.unwrap().text(), "Done.");
    let seen = runs.get("run 1").await.unwrap();
    assert_eq!((seen.status, seen.interrupts.len(), pay.get()), (RunStatus::Completed, 0, 1));
    assert_eq!(kinds().await, is_done(&["model", "look", "model", "pay", "model"]));
    assert_eq!(runs.list().await.unwrap().len(), 1);
}

pub(super) async fn a_run_that_has_failed_goes_on_with_the_call_that_failed(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let (models, pay) = <(Count, Count)>::default();
    let agent = |works: bool| {
        let broken = tower_agent::callback::before_model(move |request| {
            match request.context().iteration() {
                1 if !works => Err(Error::new(ErrorKind::Auth, "no key")),
                _ => Ok(()),
            }
        });
        durable(calling(&["pay"], &models), database.clone())
            .tool(counting("pay", Effect::Mutating, &pay))
            .on_model(broken)
            .build()
            .unwrap()
    };
    agent(false).run(request()).await.unwrap_err();
    let seen = database.runs().get("run 1").await.unwrap();
    assert_eq!((seen.status, seen.error.unwrap().kind()), (RunStatus::Failed, ErrorKind::Auth));
    let next = database.runs().request("run 1").await.unwrap();
    assert_eq!(agent(true).run(next).await.unwrap().text(), "Done.");
    assert_eq!((models.get(), pay.get()), (2, 1));
}

pub(super) async fn a_run_that_was_cancelled_or_deleted_stops_before_its_next_step(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    for is_deleted in [false, true] {
        let (models, runs) = (Count::default(), database.runs());
        let stop = {
            let runs = runs.clone();
            let tool = move |_: serde_json::Value| {
                let runs = runs.clone();
                async move {
                    match is_deleted {
                        true => runs.delete("run 1").await,
                        false => runs.cancel("run 1").await,
                    }
                }
            };
            tower_agent::Tool::function("stop", "Stops.", tool)
        };
        let agent = durable(calling(&["stop"], &models), database.clone());
        let agent = agent.tool(stop).build().unwrap();
        let error = agent.run(request()).await.unwrap_err();
        match journal_error(&error) {
            JournalError::Cancelled { .. } => assert!(!is_deleted),
            JournalError::UnknownRun { .. } => assert!(is_deleted),
            error => panic!("{error}"),
        }
        assert_eq!(models.get(), 1);
        if !is_deleted {
            assert_eq!(runs.get("run 1").await.unwrap().status, RunStatus::Cancelled);
            let error = agent.run(request()).await.unwrap_err();
            assert!(matches!(journal_error(&error), JournalError::Cancelled { .. }));
            assert!(matches!(runs.request("run 1").await, Err(JournalError::Cancelled { .. })));
            runs.delete("run 1").await.unwrap();
        }
    }
    let runs = database.runs();
    assert!(matches!(runs.cancel("run 1").await, Err(JournalError::UnknownRun { .. })));
    assert!(matches!(runs.delete("run 1").await, Err(JournalError::UnknownRun { .. })));
    // Its id is free.
    let agent = durable(saying("Hi."), database.clone()).build().unwrap();
    let other = AgentRequest::new("Something else.").with_run_id("run 1");
    assert_eq!(agent.run(other).await.unwrap().text(), "Hi.");
}

pub(super) async fn a_run_that_has_completed_does_not_answer_the_calls_of_the_next_conversation(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let (models, pay) = <(Count, Count)>::default();
    let agent = durable(calling(&["pay"], &models), database.clone());
    let agent = agent.tool(counting("pay", Effect::Mutating, &pay)).build().unwrap();
    agent.run(request()).await.unwrap();
    let other = || AgentRequest::new("Do it again.").with_run_id("run 1");
    for _ in 0..2 {
        assert_eq!(agent.run(other()).await.unwrap().text(), "Done.");
        assert_eq!((models.get(), pay.get()), (4, 2));
    }
}

pub(super) async fn a_request_that_comes_late_does_not_begin_the_run_again(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let (runs, pay, bill) = (database.runs(), Count::default(), Count::default());
    let agent = durable(calling(&["pay", "bill"], &Count::default()), database.clone())
        .tool(counting("pay", Effect::Mutating, &pay))
        .tool(counting("bill", Effect::Mutating, &bill))
        .on_tool(Approval::of_tools(["pay", "bill"]))
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    let mut answered = Vec::new();
    for _ in 0..2 {
        // The same request again, while its outcome is the latest, has the same outcome.
        assert_eq!(agent.run(request()).await.is_ok(), answered.is_empty());
        let asked = runs.get("run 1").await.unwrap().interrupts;
        let yes = Resolution::resolved(&asked[0].id, Decision::Approve);
        let next = runs.request("run 1").await.unwrap().with_resolutions([yes]);
        answered.push(SavedRequest::from(&next));
        agent.run(next).await.unwrap();
    }
    let seen = runs.get("run 1").await.unwrap();
    assert_eq!((seen.status, pay.get(), bill.get()), (RunStatus::Completed, 1, 1));
    // A queue delivers the first request twice, and a browser an approval.
    let last = answered.pop().unwrap();
    for late in [request(), answered.pop().unwrap().into()] {
        let error = agent.run(late).await.unwrap_err();
        let error = journal_error(&error);
        assert!(matches!(error, JournalError::EarlierRequest { .. }), "{error}");
    }
    assert_eq!(agent.run(last).await.unwrap().text(), "Done.");
    let after = runs.get("run 1").await.unwrap();
    assert_eq!((after.status, pay.get(), bill.get()), (RunStatus::Completed, 1, 1));
}

pub(super) async fn a_second_answer_does_not_begin_the_run_again(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let (runs, models, pay) = (database.runs(), Count::default(), Count::default());
    let agent = durable(calling(&["pay"], &models), database.clone())
        .tool(counting("pay", Effect::Mutating, &pay))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    let asked = runs.get("run 1").await.unwrap().interrupts;
    // Two persons see the question, and each answers in their own way.
    let seen = SavedRequest::from(&runs.request("run 1").await.unwrap());
    let answer = |decision: Decision| {
        let answer = Resolution::resolved(&asked[0].id, decision);
        AgentRequest::from(seen.clone()).with_resolutions([answer])
    };
    agent.run(answer(Decision::Approve)).await.unwrap();
    for late in [Decision::Edit(json!({ "request": "y" })), Decision::Reject { reason: None }] {
        let error = agent.run(answer(late)).await.unwrap_err();
        let error = journal_error(&error);
        assert!(matches!(error, JournalError::EarlierRequest { .. }), "{error}");
    }
    let after = runs.get("run 1").await.unwrap();
    assert_eq!((after.status, models.get(), pay.get()), (RunStatus::Completed, 2, 1));
}

pub(super) async fn runs_that_have_ended_are_deleted_when_they_are_old(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let runs = database.runs();
    let agent = |works: bool| {
        let broken = move |_: &mut ModelRequest| match works {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Auth, "no key")),
        };
        durable(calling(&["pay"], &Count::default()), database.clone())
            .tool(counting("pay", Effect::Mutating, &Count::default()))
            .on_model(tower_agent::callback::before_model(broken))
            .on_tool(Approval::of_tools(["pay"]))
            .build()
            .unwrap()
    };
    let named = |id: &str| AgentRequest::new("Do it.").with_run_id(id);
    for id in ["waiting", "completed", "cancelled"] {
        agent(true).run(named(id)).await.unwrap();
    }
    let yes = &runs.get("completed").await.unwrap().interrupts[0].id;
    let yes = Resolution::resolved(yes, Decision::Approve);
    let next = runs.request("completed").await.unwrap().with_resolutions([yes]);
    agent(true).run(next).await.unwrap();
    runs.cancel("cancelled").await.unwrap();
    agent(false).run(named("failed")).await.unwrap_err();
    // Its process has stopped.
    database.start(&input("Do it.", "running").await).await.unwrap();

    let statuses = async || {
        let mut all = Vec::new();
        for run in runs.list().await.unwrap() {
            assert_eq!(&*run.id, run.status.as_str());
            all.push(run.id);
        }
        all.sort();
        all
    };
    let all = ["cancelled", "completed", "failed", "running", "waiting"];
    assert_eq!(statuses().await.iter().map(|id| &**id).collect::<Vec<_>>(), all);
    let oldest = runs.list().await.unwrap().iter().map(|run| run.updated_at).min().unwrap();
    assert_eq!(runs.delete_ended(oldest).await.unwrap(), 0);
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(runs.delete_ended(later).await.unwrap(), 3);
    assert_eq!(runs.delete_ended(later).await.unwrap(), 0);
    assert_eq!(statuses().await.iter().map(|id| &**id).collect::<Vec<_>>(), ["running", "waiting"]);
    let gone = runs.steps("completed").await;
    assert!(matches!(gone, Err(JournalError::UnknownRun { .. })));

    // What is left goes on.
    let yes = &runs.get("waiting").await.unwrap().interrupts[0].id;
    let yes = Resolution::resolved(yes, Decision::Approve);
    let next = runs.request("waiting").await.unwrap().with_resolutions([yes]);
    assert_eq!(agent(true).run(next).await.unwrap().text(), "Done.");
    // A deleted run is another when it is started again.
    assert_eq!(agent(true).run(named("completed")).await.unwrap().interrupts().len(), 1);
}

pub(super) async fn runs_are_listed_the_latest_first(place: impl Place<Journal: Database>) {
    let database = place.open().await;
    let agent = durable(saying("Hi."), database.clone()).build().unwrap();
    let ids = ["b", "a", "B", "b "];
    for id in ids {
        agent.run(AgentRequest::new("Do it.").with_run_id(id)).await.unwrap();
    }
    let listed = database.runs().list().await.unwrap();
    assert_eq!(listed.len(), ids.len());
    // Of one moment, in the order of their bytes.
    let key = |run: &RunInfo| (std::cmp::Reverse(run.started_at), run.id.clone());
    assert!(listed.iter().map(key).is_sorted());
    for id in ids {
        let run = database.runs().get(id).await.unwrap();
        assert_eq!(
            (&*run.id, run.status, run.updated_at >= run.started_at),
            (id, RunStatus::Completed, true)
        );
    }
}
