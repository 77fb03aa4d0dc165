//! The operator's view of the runs, and operations on them, in every database.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tower_agent::agent::SavedRequest;
use tower_agent::callback::{before_agent, before_tool};
use tower_agent::error::AnswerError;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Effect, Error, ErrorKind, ModelRequest, ModelResponse,
    Request, Resolution, Settings, State, Tool, ToolRequest,
};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{
    Journal, JournalError, RunInfo, RunKey, RunQuery, RunStatus, StepKind,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use super::input;
use crate::support::place::{Database, Place, Seen};
use crate::support::{
    Count, calling, counting, durable, journal_error, request, saying, waiting_as,
};

pub(crate) async fn a_run_is_seen_with_its_steps_and_what_it_waits_for_and_goes_on(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let runs = database.runs();
    let pay = Count::default();
    let agent = || {
        durable(
            calling(&["look", "pay"], &Count::default()),
            database.clone(),
        )
        .tool(counting("look", Effect::Pure, &Count::default()))
        .tool(counting("pay", Effect::Mutating, &pay))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap()
    };
    assert!(runs.list(&RunQuery::new()).await.unwrap().is_empty());
    let state = State::from_iter([("user".to_owned(), json!("ann"))]);
    let mut first = request().with_state(state);
    first.settings_mut().temperature = Some(0.5);
    agent().run(first).await.unwrap();
    let seen = runs.get("run 1").await.unwrap();
    assert_eq!(
        (seen.status, &*seen.agent, seen.epoch),
        (RunStatus::Waiting, "agent", 1)
    );
    assert_eq!(seen.interrupts[0].payload["tool"], "pay");
    let kinds = async || {
        let steps = runs.steps("run 1").await.unwrap();
        let kind = |kind: &StepKind| match kind {
            StepKind::Tool(name) => name.to_string(),
            _ => "model".to_owned(),
        };
        let seen = steps
            .iter()
            .map(|step| (kind(&step.id.kind), step.ended_at.is_some()));
        seen.collect::<Vec<_>>()
    };
    let is_done = |kinds: &[&str]| {
        kinds
            .iter()
            .map(|kind| ((*kind).to_owned(), true))
            .collect::<Vec<_>>()
    };
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
    assert_eq!(
        (seen.status, seen.interrupts.len(), pay.get()),
        (RunStatus::Completed, 0, 1)
    );
    assert_eq!(
        kinds().await,
        is_done(&["model", "look", "model", "pay", "model"])
    );
    assert_eq!(runs.list(&RunQuery::new()).await.unwrap().len(), 1);
}

pub(crate) async fn a_run_that_has_failed_goes_on_with_the_call_that_failed(
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
    assert_eq!(
        (seen.status, seen.error.unwrap().kind()),
        (RunStatus::Failed, ErrorKind::Auth)
    );
    let next = database.runs().request("run 1").await.unwrap();
    assert_eq!(agent(true).run(next).await.unwrap().text(), "Done.");
    assert_eq!((models.get(), pay.get()), (2, 1));
}

pub(crate) async fn a_run_that_was_cancelled_or_deleted_stops_before_its_next_step(
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
                    if is_deleted {
                        runs.delete("run 1").await
                    } else {
                        runs.cancel("run 1").await
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
            assert_eq!(
                runs.get("run 1").await.unwrap().status,
                RunStatus::Cancelled
            );
            let error = agent.run(request()).await.unwrap_err();
            assert!(matches!(
                journal_error(&error),
                JournalError::Cancelled { .. }
            ));
            assert!(matches!(
                runs.request("run 1").await,
                Err(JournalError::Cancelled { .. })
            ));
            runs.delete("run 1").await.unwrap();
        }
    }
    let runs = database.runs();
    assert!(matches!(
        runs.cancel("run 1").await,
        Err(JournalError::UnknownRun { .. })
    ));
    assert!(matches!(
        runs.delete("run 1").await,
        Err(JournalError::UnknownRun { .. })
    ));
    // Its id is free.
    let agent = durable(saying("Hi."), database.clone()).build().unwrap();
    let other = AgentRequest::new("Something else.").with_run_id("run 1");
    assert_eq!(agent.run(other).await.unwrap().text(), "Hi.");
}

fn is_other(result: tower_agent::Result<AgentResponse>) -> bool {
    result.is_err_and(|error| matches!(journal_error(&error), JournalError::OtherRequest { .. }))
}

pub(crate) async fn another_request_of_a_run_that_has_ended_is_refused(place: impl Place) {
    let journal = place.open().await;
    for (run, has_failed) in [("run 1", false), ("run 2", true)] {
        let (models, pay, fails) = <(Count, Count, Count)>::default();
        let fails = move |request: &mut ModelRequest| match request.messages().len() {
            3 if has_failed && fails.one() == 1 => Err(Error::new(ErrorKind::Auth, "no key")),
            _ => Ok(()),
        };
        let agent = durable(calling(&["pay"], &models), journal.clone())
            .tool(counting("pay", Effect::Mutating, &pay))
            .on_model(tower_agent::callback::before_model(fails))
            .build()
            .unwrap();
        let request = || AgentRequest::new("Do it.").with_run_id(run);
        assert_eq!(agent.run(request()).await.is_err(), has_failed);
        let mut settings = Settings::default();
        settings.temperature = Some(0.1);
        let others = [
            AgentRequest::new("Do it again.").with_run_id(run),
            request().with_settings(settings),
            request().with_state(State::from_iter([("now".to_owned(), json!(1))])),
        ];
        let before = (models.get(), pay.get());
        for other in others {
            assert!(is_other(agent.run(other).await), "{run}");
        }
        assert_eq!((models.get(), pay.get()), before);
        assert_eq!(agent.run(request()).await.unwrap().text(), "Done.");
        assert_eq!((models.get(), pay.get()), (2, 1));
    }
}

pub(crate) async fn a_run_that_has_completed_has_a_next_turn(place: impl Place) {
    let (journal, keys) = (place.open().await, Arc::<Mutex<Vec<String>>>::default());
    let seen = keys.clone();
    let pay = move |_: Value, request: ToolRequest| {
        seen.lock().unwrap().push(request.idempotency_key());
        "paid"
    };
    let agent = durable(calling(&["pay"], &Count::default()), journal)
        .tool(Tool::function_with("pay", "Pays.", pay))
        .build()
        .unwrap();
    let first = agent.run(request()).await.unwrap();
    // Without the first call, the second has its path.
    let next = |earlier: &AgentResponse, text: &str| {
        let checkpoint = earlier.checkpoint().with_messages(Messages::new());
        AgentRequest::resume(checkpoint).with_message(text)
    };
    let again = || next(&first, "Again.").with_run_id("run 1");
    let second = agent.run(again()).await.unwrap();
    assert_eq!(agent.run(again()).await.unwrap().text(), "Done.");
    let made = keys.lock().unwrap().clone();
    assert_eq!(made.len(), 2);
    assert_ne!(made[0], made[1]);

    // From before that turn, and from another run.
    assert!(is_earlier(
        agent
            .run(next(&first, "Something else.").with_run_id("run 1"))
            .await
    ));
    assert!(is_other(agent.run(request()).await));
    let elsewhere = agent.run(next(&second, "Elsewhere.")).await.unwrap();
    assert!(is_other(
        agent
            .run(next(&elsewhere, "And?").with_run_id("run 1"))
            .await
    ));
    assert_eq!(keys.lock().unwrap().len(), 3);
}

pub(crate) async fn a_run_that_has_completed_is_not_cancelled(
    place: impl Place<Journal: Database>,
) {
    let (database, models) = (place.open().await, Count::default());
    let agent = durable(calling(&[], &models), database.clone())
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    database.runs().cancel("run 1").await.unwrap();
    assert_eq!(
        database.runs().get("run 1").await.unwrap().status,
        RunStatus::Completed
    );
    assert_eq!(
        (agent.run(request()).await.unwrap().text(), models.get()),
        ("Done.".into(), 1)
    );
}

pub(crate) async fn a_request_that_comes_late_does_not_begin_the_run_again(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let (runs, pay, bill) = (database.runs(), Count::default(), Count::default());
    let agent = durable(
        calling(&["pay", "bill"], &Count::default()),
        database.clone(),
    )
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
    assert_eq!(
        (seen.status, pay.get(), bill.get()),
        (RunStatus::Completed, 1, 1)
    );
    // A queue delivers the first request twice, and a browser an approval.
    let last = answered.pop().unwrap();
    for late in [request(), answered.pop().unwrap().into()] {
        let error = agent.run(late).await.unwrap_err();
        let error = journal_error(&error);
        assert!(
            matches!(error, JournalError::EarlierRequest { .. }),
            "{error}"
        );
    }
    assert_eq!(agent.run(last).await.unwrap().text(), "Done.");
    let after = runs.get("run 1").await.unwrap();
    assert_eq!(
        (after.status, pay.get(), bill.get()),
        (RunStatus::Completed, 1, 1)
    );
}

pub(crate) async fn a_second_answer_does_not_begin_the_run_again(
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
    for late in [
        Decision::Edit(json!({ "request": "y" })),
        Decision::Reject { reason: None },
    ] {
        let error = agent.run(answer(late)).await.unwrap_err();
        let error = journal_error(&error);
        assert!(
            matches!(error, JournalError::EarlierRequest { .. }),
            "{error}"
        );
    }
    let after = runs.get("run 1").await.unwrap();
    assert_eq!(
        (after.status, models.get(), pay.get()),
        (RunStatus::Completed, 2, 1)
    );
}

pub(crate) async fn a_late_answer_is_refused_and_the_next_request_has_the_outcome(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let (runs, pay) = (database.runs(), Count::default());
    let agent = durable(calling(&["pay"], &Count::default()), database.clone())
        .tool(counting("pay", Effect::Mutating, &pay))
        .on_tool(Approval::of_tools(["pay"]).deny_after(Duration::ZERO))
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    let asked = runs.get("run 1").await.unwrap().interrupts;
    let yes = Resolution::resolved(&asked[0].id, Decision::Approve);
    let next = SavedRequest::from(&runs.request("run 1").await.unwrap());
    let late = AgentRequest::from(next.clone()).with_resolutions([yes]);
    let error = agent.run(late).await.unwrap_err();
    let JournalError::Unfit { interrupt, why, .. } = journal_error(&error) else {
        panic!("{error}")
    };
    assert_eq!((interrupt, why), (&asked[0].id, &AnswerError::Late));
    let seen = runs.get("run 1").await.unwrap();
    assert_eq!(seen.status, RunStatus::Waiting);
    // Twice, as after a crash.
    for _ in 0..2 {
        let done = agent.run(AgentRequest::from(next.clone())).await.unwrap();
        assert_eq!((done.text(), pay.get()), ("Done.".into(), 0));
    }
}

/// One that does not fit the question, and one of somebody who may not give it.
pub(crate) async fn an_answer_that_does_not_count_leaves_the_question_open(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let runs = database.runs();
    let pay = Count::default();
    let approval = Approval::of_tools(["pay"]).not_by(|_| Some("ada".to_owned()));
    let agent = durable(calling(&["pay"], &Count::default()), database.clone())
        .tool(counting("pay", Effect::Mutating, &pay))
        .on_tool(approval)
        .build()
        .unwrap();
    agent.run(request()).await.unwrap();
    let waiting = runs.get("run 1").await.unwrap();
    let asked = waiting.interrupts[0].clone();
    let yes = Resolution::resolved(&asked.id, Decision::Approve);
    let refused = [
        Resolution::resolved(&asked.id, json!({ "approved": "maybe" })).with_name("kim"),
        yes.clone(),
        yes.clone().with_name("ada"),
    ];
    for answer in refused {
        let why = asked.check(&answer, SystemTime::now()).unwrap_err();
        let next = runs.request("run 1").await.unwrap();
        let error = agent
            .run(next.with_resolutions([answer]))
            .await
            .unwrap_err();
        let JournalError::Unfit { why: said, .. } = journal_error(&error) else {
            panic!("{error}")
        };
        assert_eq!(*said, why);
        let seen = runs.get("run 1").await.unwrap();
        assert_eq!(
            (seen.status, seen.epoch),
            (RunStatus::Waiting, waiting.epoch)
        );
        assert_eq!((&*seen.interrupts, pay.get()), (&[asked.clone()][..], 0));
    }
    let next = runs.request("run 1").await.unwrap();
    let done = agent
        .run(next.with_resolutions([yes.with_name("kim")]))
        .await;
    assert_eq!((done.unwrap().text(), pay.get()), ("Done.".into(), 1));
}

/// The arguments change while the run waits, and the run is asked to go on without an answer.
pub(crate) async fn an_answer_to_a_question_that_has_changed_is_refused(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let runs = database.runs();
    let pay = Count::default();
    let agent = |cents: u32| {
        durable(calling(&["pay"], &Count::default()), database.clone())
            .tool(counting("pay", Effect::Mutating, &pay))
            .on_tool(before_tool(move |call| {
                call.arguments_mut()["cents"] = cents.into();
            }))
            .on_tool(Approval::of_tools(["pay"]))
            .build()
            .unwrap()
    };
    agent(10).run(request()).await.unwrap();
    let asked = async || runs.get("run 1").await.unwrap().interrupts[0].clone();
    let next = async |answers: Vec<Resolution>| {
        let next = runs.request("run 1").await.unwrap();
        next.with_resolutions(answers)
    };
    let yes = |id: &str| vec![Resolution::resolved(id, Decision::Approve)];
    let seen = asked().await;
    agent(900_000).run(next(vec![]).await).await.unwrap();
    let changed = asked().await;
    assert_ne!(changed.id, seen.id);
    let error = agent(900_000)
        .run(next(yes(&seen.id)).await)
        .await
        .unwrap_err();
    let JournalError::NotOpen { interrupt, .. } = journal_error(&error) else {
        panic!("{error}")
    };
    assert_eq!(*interrupt, seen.id);
    assert_eq!((asked().await, pay.get()), (changed.clone(), 0));
    let done = agent(900_000).run(next(yes(&changed.id)).await).await;
    assert_eq!((done.unwrap().text(), pay.get()), ("Done.".into(), 1));
}

/// As another version of the program does, in which the agent has another name or lacks a tool.
pub(crate) async fn a_program_that_may_not_go_on_leaves_a_run_as_it_was(place: impl Place) {
    let journal = place.open().await;
    let pay = Count::default();
    let agent = || {
        durable(
            calling(&["look", "pay"], &Count::default()),
            journal.clone(),
        )
    };
    let tool = || counting("pay", Effect::Mutating, &pay);
    let look = || counting("look", Effect::Pure, &Count::default());
    let asks = || Approval::of_tools(["pay"]);
    let payer = || agent().tool(look()).tool(tool()).on_tool(asks());
    let renamed = payer().name("clerk").build().unwrap();
    let unwilling = payer().on_agent(before_agent(|_| {
        Err::<(), _>(Error::new(ErrorKind::Auth, "closed"))
    }));
    let others = [renamed, unwilling.build().unwrap()];
    let payer = payer().build().unwrap();

    // Its process is lost in the first tool.
    let (look, _, has_begun) = waiting_as("look", &Count::default());
    let lost = agent().tool(look.effect(Effect::Pure)).tool(tool());
    let lost = lost.on_tool(asks()).build().unwrap();
    tokio::select! {
        ended = lost.run(request()) => panic!("{ended:?}"),
        has_begun = has_begun => has_begun.unwrap(),
    }
    for other in &others {
        other.run(request()).await.unwrap_err();
        let left = journal.info("run 1").await;
        assert_eq!((left.status, &*left.agent), (RunStatus::Running, "agent"));
    }

    let paused = payer.run(request()).await.unwrap();
    let waits = journal.info("run 1").await;
    let yes = vec![Resolution::resolved(
        &waits.interrupts[0].id,
        Decision::Approve,
    )];
    let next = |answers: Vec<Resolution>| {
        let next = AgentRequest::resume(paused.checkpoint()).with_run_id("run 1");
        next.with_resolutions(answers)
    };
    for other in &others {
        for answers in [vec![], yes.clone()] {
            other.run(next(answers)).await.unwrap_err();
            let left = journal.info("run 1").await;
            assert_eq!(left.status, RunStatus::Waiting);
            assert_eq!(left.interrupts, waits.interrupts);
            assert_eq!(left.agent, waits.agent);
        }
    }
    assert_eq!(pay.get(), 0);

    let done = payer.run(next(yes)).await.unwrap();
    assert_eq!((done.text(), pay.get()), ("Done.".into(), 1));
    assert_eq!(journal.info("run 1").await.status, RunStatus::Completed);
}

pub(crate) async fn runs_that_have_ended_are_deleted_when_they_are_old(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let runs = database.runs();
    let agent = |works: bool| {
        let broken = move |_: &mut ModelRequest| {
            if works {
                Ok(())
            } else {
                Err(Error::new(ErrorKind::Auth, "no key"))
            }
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
    let next = runs
        .request("completed")
        .await
        .unwrap()
        .with_resolutions([yes]);
    agent(true).run(next).await.unwrap();
    runs.cancel("cancelled").await.unwrap();
    agent(false).run(named("failed")).await.unwrap_err();
    // Its process has stopped.
    database
        .start(&input("Do it.", "running").await)
        .await
        .unwrap();

    let statuses = async || {
        let mut all = Vec::new();
        for run in runs.list(&RunQuery::new()).await.unwrap() {
            assert_eq!(&*run.id, run.status.as_str());
            all.push(run.id);
        }
        all.sort();
        all
    };
    let all = ["cancelled", "completed", "failed", "running", "waiting"];
    assert_eq!(
        statuses().await.iter().map(|id| &**id).collect::<Vec<_>>(),
        all
    );
    let oldest = runs
        .list(&RunQuery::new())
        .await
        .unwrap()
        .iter()
        .map(|run| run.updated_at)
        .min()
        .unwrap();
    assert_eq!(runs.delete_ended(oldest).await.unwrap(), 0);
    let later = SystemTime::now() + Duration::from_secs(60);
    assert_eq!(runs.delete_ended(later).await.unwrap(), 3);
    assert_eq!(runs.delete_ended(later).await.unwrap(), 0);
    assert_eq!(
        statuses().await.iter().map(|id| &**id).collect::<Vec<_>>(),
        ["running", "waiting"]
    );
    let gone = runs.steps("completed").await;
    assert!(matches!(gone, Err(JournalError::UnknownRun { .. })));

    // Nobody has touched these either, since then.
    assert_eq!(runs.delete_untouched(oldest).await.unwrap(), 0);

    // The remaining runs continue.
    let yes = &runs.get("waiting").await.unwrap().interrupts[0].id;
    let yes = Resolution::resolved(yes, Decision::Approve);
    let next = runs
        .request("waiting")
        .await
        .unwrap()
        .with_resolutions([yes]);
    assert_eq!(agent(true).run(next).await.unwrap().text(), "Done.");
    // A deleted run is another when it is started again.
    assert_eq!(
        agent(true)
            .run(named("completed"))
            .await
            .unwrap()
            .interrupts()
            .len(),
        1
    );
    // One that waits, one that has no process, and one that has ended.
    assert_eq!(runs.delete_untouched(later).await.unwrap(), 3);
    assert!(runs.list(&RunQuery::new()).await.unwrap().is_empty());
}

pub(crate) async fn runs_are_listed_the_latest_first(place: impl Place<Journal: Database>) {
    let database = place.open().await;
    let agent = durable(saying("Hi."), database.clone()).build().unwrap();
    let ids = ["b", "a", "B", "b "];
    for id in ids {
        agent
            .run(AgentRequest::new("Do it.").with_run_id(id))
            .await
            .unwrap();
    }
    let listed = database.runs().list(&RunQuery::new()).await.unwrap();
    assert_eq!(listed.len(), ids.len());
    // Of one moment, in the order of their bytes.
    let key = |run: &RunInfo| std::cmp::Reverse((run.started_at, run.id.clone()));
    assert!(listed.iter().map(key).is_sorted());
    for id in ids {
        let run = database.runs().get(id).await.unwrap();
        assert_eq!(
            (&*run.id, run.status, run.updated_at >= run.started_at),
            (id, RunStatus::Completed, true)
        );
    }
}

pub(crate) async fn a_list_of_runs_has_pages_and_filters(place: impl Place<Journal: Database>) {
    let database = place.open().await;
    let runs = database.runs();
    let pays = || {
        durable(calling(&["pay"], &Count::default()), database.clone())
            .name("clerk")
            .tool(counting("pay", Effect::Mutating, &Count::default()))
            .on_tool(Approval::of_tools(["pay"]))
            .build()
            .unwrap()
    };
    let says = durable(saying("Hi."), database.clone()).build().unwrap();
    // Three of ann's, two of bob's with ids of hers, and one of nobody's.
    for id in ["1", "2", "3"] {
        let run = RunKey::new(id).of("ann");
        says.run(run.request(AgentRequest::new("Hello.")))
            .await
            .unwrap();
    }
    for id in ["1", "2"] {
        let run = RunKey::new(id).of("bob");
        pays()
            .run(run.request(AgentRequest::new("Pay.")))
            .await
            .unwrap();
    }
    says.run(AgentRequest::new("Hello.").with_run_id("1"))
        .await
        .unwrap();

    let list = async |query: RunQuery| runs.list(&query).await.unwrap();
    let all = list(RunQuery::new()).await;
    assert_eq!(all.len(), 6);
    // Pages of any size together are the whole list, each run once.
    let key = |run: &RunInfo| (run.user.clone(), run.id.clone());
    let keys = |runs: &[RunInfo]| runs.iter().map(key).collect::<Vec<_>>();
    for limit in 1..=7 {
        let mut query = RunQuery::new().limit(limit);
        let mut paged = Vec::new();
        loop {
            let page = list(query.clone()).await;
            assert!(page.len() <= limit as usize);
            let Some(last) = page.last() else { break };
            query = query.after(last);
            paged.extend(page);
        }
        assert_eq!(keys(&paged), keys(&all), "pages of {limit}");
    }

    // Each filter selects those of the whole list that have it.
    let selected = |has: &dyn Fn(&RunInfo) -> bool| {
        let selected: Vec<_> = all.iter().filter(|run| has(run)).cloned().collect();
        keys(&selected)
    };
    let clerks = list(RunQuery::of_agent("clerk")).await;
    assert_eq!(keys(&clerks), selected(&|run| &*run.agent == "clerk"));
    assert_eq!(clerks.len(), 2);
    assert!(clerks.iter().all(|run| run.interrupts.len() == 1));
    let anns = list(RunQuery::new().user("ann")).await;
    assert_eq!(
        keys(&anns),
        selected(&|run| run.user.as_deref() == Some("ann"))
    );
    assert_eq!(anns.len(), 3);
    let waiting = RunQuery::new().status(RunStatus::Waiting);
    assert_eq!(
        keys(&list(waiting.clone()).await),
        selected(&|run| run.status == RunStatus::Waiting)
    );
    assert!(list(waiting.user("ann")).await.is_empty());
    assert!(list(RunQuery::of_agent("nobody")).await.is_empty());
    let (first, last) = (all[5].started_at, all[0].started_at);
    assert_eq!(list(RunQuery::new().since(first)).await.len(), 6);
    assert!(list(RunQuery::new().before(first)).await.is_empty());
    let later = last + Duration::from_millis(1);
    assert!(list(RunQuery::new().since(later)).await.is_empty());
    assert_eq!(list(RunQuery::new().before(later)).await.len(), 6);
    // The second page of a filter.
    let second = RunQuery::new().user("ann").limit(2).after(&anns[1]);
    assert_eq!(keys(&list(second).await), keys(&anns[2..]));
}

/// The answer to the first question of a run that waits, from who has seen no more.
fn decided(paused: &AgentResponse, decision: Decision) -> AgentRequest {
    let answer = Resolution::resolved(&paused.interrupts()[0].id, decision);
    AgentRequest::resume(paused.checkpoint())
        .with_resolutions([answer])
        .with_run_id("run 1")
}

fn is_earlier(result: tower_agent::Result<AgentResponse>) -> bool {
    result.is_err_and(|error| matches!(journal_error(&error), JournalError::EarlierRequest { .. }))
}

pub(crate) async fn another_answer_is_refused_while_the_run_waits_for_more_or_has_failed(
    place: impl Place,
) {
    let journal = place.open().await;
    let (models, pay, bill, fails) = <(Count, Count, Count, Count)>::default();
    let fails = move |request: &mut ModelRequest| match request.messages().len() {
        5 if fails.one() == 1 => Err(Error::new(ErrorKind::Auth, "no key")),
        _ => Ok(()),
    };
    let agent = durable(calling(&["pay", "bill"], &models), journal.clone())
        .tool(counting("pay", Effect::Mutating, &pay))
        .tool(counting("bill", Effect::Mutating, &bill))
        .on_tool(Approval::of_tools(["pay", "bill"]))
        .on_model(tower_agent::callback::before_model(fails))
        .build()
        .unwrap();
    let first = agent.run(request()).await.unwrap();
    let second = agent.run(decided(&first, Decision::Approve)).await.unwrap();
    let no = || Decision::Reject { reason: None };
    let [first_no] = decided(&first, no())
        .context()
        .resolutions()
        .try_into()
        .unwrap();
    let late = || {
        [
            decided(&first, no()),
            // From who has seen what came after, too.
            AgentRequest::resume(second.checkpoint()).with_resolutions([first_no.clone()]),
            decided(&second, Decision::Approve).with_resolutions([first_no.clone()]),
            AgentRequest::resume(first.checkpoint()).with_message("Never mind."),
        ]
        .map(|request| request.with_run_id("run 1"))
    };
    for late in late() {
        assert!(is_earlier(agent.run(late).await));
    }
    let seen = journal.info("run 1").await;
    assert_eq!(
        (seen.status, seen.interrupts),
        (RunStatus::Waiting, second.interrupts().to_vec())
    );
    assert_eq!((models.get(), pay.get(), bill.get()), (2, 1, 0));

    agent
        .run(decided(&second, Decision::Approve))
        .await
        .unwrap_err();
    assert_eq!(journal.info("run 1").await.status, RunStatus::Failed);
    for late in late().into_iter().chain([decided(&second, no())]) {
        assert!(is_earlier(agent.run(late).await));
    }
    let done = agent
        .run(decided(&second, Decision::Approve))
        .await
        .unwrap();
    assert_eq!((done.text(), done.messages().len()), ("Done.".into(), 6));
    assert_eq!((models.get(), pay.get(), bill.get()), (3, 1, 1));
}

/// An agent that pays when it may, and then looks something up.
fn worker(name: &'static str, looks: &Count) -> Tool {
    let call = |id: &str, tool: &str| {
        Turn::response(ModelResponse::from_tool_calls([ToolCall::new(
            id,
            tool,
            json!({}),
        )]))
    };
    // A model that is called again calls the tool under another id.
    let turns = [
        call("pay", "pay"),
        call("look 1", "look"),
        Turn::from_text("Done."),
        call("look 2", "look"),
        Turn::from_text("Done."),
    ];
    let agent = Agent::builder(ScriptedModel::new(turns)).name(name);
    let tools = [("look", looks), ("pay", &Count::default())];
    let agent = agent.tools(tools.map(|(tool, count)| counting(tool, Effect::Mutating, count)));
    agent
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap()
        .into_tool("Works.")
}

pub(crate) async fn an_answer_from_before_another_one_repeats_nothing(place: impl Place) {
    let (journal, looks) = (place.open().await, Count::default());
    let calls = ["one", "two"].map(|name| ToolCall::new(name, name, json!({ "request": "Work." })));
    let asks = Turn::response(ModelResponse::from_tool_calls(calls));
    let model = ScriptedModel::new([asks, Turn::from_text("All done.")]);
    let agent =
        durable(model, journal.clone()).tools(["one", "two"].map(|name| worker(name, &looks)));
    let agent = agent.build().unwrap();
    let first = agent.run(request()).await.unwrap();
    let [one, two] = first.interrupts() else {
        panic!("{:?}", first.interrupts())
    };
    let answer = |paused: &AgentResponse, id: &str| {
        let yes = Resolution::resolved(id, Decision::Approve);
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);
        request.with_run_id("run 1")
    };
    let second = agent.run(answer(&first, &one.id)).await.unwrap();
    assert_eq!((second.interrupts().len(), looks.get()), (1, 1));
    // Two persons have seen the first pause, and each answers one question.
    assert!(is_earlier(agent.run(answer(&first, &two.id)).await));
    let done = agent.run(answer(&second, &two.id)).await.unwrap();
    assert_eq!((done.text(), looks.get()), ("All done.".into(), 2));
}

pub(crate) async fn a_run_whose_key_cannot_be_kept_is_refused_in_words(
    place: impl Place<Journal: Database>,
) {
    let database = place.open().await;
    let agent = durable(saying("Hi."), database.clone()).build().unwrap();
    let keys = [
        RunKey::new("a\0b"),
        RunKey::new("run 1").of("a\0b"),
        RunKey::new("run 1").of("u".repeat(513)),
    ];
    for key in keys {
        let error = agent.run(key.request("Do it.")).await.unwrap_err();
        let error = journal_error(&error);
        let is_id = matches!(error, JournalError::Store(StoreError::Id { .. }));
        assert!(is_id, "{error}");
        let error = database.runs().get(&key).await.unwrap_err();
        assert!(matches!(error, JournalError::Store(StoreError::Id { .. })));
    }
    // The longest that a database can have.
    let key = RunKey::new("\u{e9}".repeat(512)).of("\u{e9}".repeat(256));
    agent.run(key.request("Do it.")).await.unwrap();
    assert_eq!(database.runs().get(&key).await.unwrap().id, key.run);
}
