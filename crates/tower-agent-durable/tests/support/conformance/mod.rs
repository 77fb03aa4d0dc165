//! The contract of every journal.

pub(crate) mod programs;
pub(crate) mod questions;
mod races;
pub(crate) mod runs;

use std::sync::{Arc, Mutex};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use tower_agent::AgentRequest;
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{
    Input, Intent, Journal, JournalError, OpenRun, RunEnd, StepId, StepLease, StepOutcome,
    StepRecord, StepState,
};

use super::place::{Place, Seen};
use super::{durable, saying};

/// Runs all cases that need only the journal.
pub(crate) async fn keeps_runs<P: Place>(new: impl AsyncFn() -> P) {
    a_step_is_begun_once_until_it_is_released(new().await).await;
    a_step_is_kept_as_it_was_committed_and_once(new().await).await;
    steps_of_any_name_are_told_apart(new().await).await;
    starting_a_run_takes_it_over(new().await).await;
    a_request_is_the_same_or_another(new().await).await;
    runs::another_request_of_a_run_that_has_ended_is_refused(new().await).await;
    runs::a_run_that_has_completed_has_a_next_turn(new().await).await;
    runs::another_answer_is_refused_while_the_run_waits_for_more_or_has_failed(new().await).await;
    runs::an_answer_from_before_another_one_repeats_nothing(new().await).await;
    runs::a_program_that_may_not_go_on_leaves_a_run_as_it_was(new().await).await;
    programs::the_program_that_began_a_run_goes_on_with_it(&new).await;
    programs::a_program_that_does_not_come_to_what_was_done_is_refused(&new).await;
    programs::two_users_with_one_run_id_have_a_run_each(new().await).await;
    questions::an_answer_counts_in_a_run_of_any_id(new().await).await;
    questions::an_attempt_in_another_run_has_a_question_of_its_own(new().await).await;
    questions::a_call_has_one_key_whatever_callbacks_make_of_its_arguments(new().await).await;
    questions::layers_around_the_tool_change_nothing(new().await).await;
    races::the_later_of_two_workers_of_a_run_wins_and_the_other_writes_no_more(new().await).await;
    races::runs_that_start_at_once_have_one_winner(new().await).await;
    races::starts_at_once_have_an_epoch_each(new().await).await;
    races::a_commit_during_a_takeover_is_seen_or_refused(new().await).await;
}

/// Receives the request that starts a run, and does not start it.
#[derive(Clone, Default)]
struct Receiver(Arc<Mutex<Option<Input>>>);

impl Journal for Receiver {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        *self.0.lock().unwrap() = Some(input.clone());
        Err(StoreError::database("it only receives").into())
    }

    async fn earlier_steps(&self, _: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        unreachable!("the run was not started")
    }

    async fn begin(&self, _: &OpenRun, _: &StepId, _: &Intent) -> Result<StepState, JournalError> {
        unreachable!("the run was not started")
    }

    async fn begin_again(&self, _: StepLease) -> Result<StepLease, JournalError> {
        unreachable!("the run was not started")
    }

    async fn commit(&self, _: &StepLease, _: &StepRecord) -> Result<(), JournalError> {
        unreachable!("the run was not started")
    }

    async fn release(&self, _: &StepLease) -> Result<(), JournalError> {
        unreachable!("the run was not started")
    }

    async fn end(&self, _: &OpenRun, _: &RunEnd) -> Result<(), JournalError> {
        unreachable!("the run was not started")
    }
}

pub(crate) async fn input(text: &str, run: &str) -> Input {
    let receiver = Receiver::default();
    let agent = durable(saying("Done."), receiver.clone()).build().unwrap();
    agent
        .run(AgentRequest::new(text).with_run_id(run))
        .await
        .unwrap_err();
    receiver.0.lock().unwrap().take().unwrap()
}

pub(crate) fn step(run: &str, path: &str) -> StepId {
    let kind = json!({ "tool": "pay" });
    let step =
        json!({ "run": run, "input": 1, "path": path, "iteration": 0, "kind": kind, "nth": 0 });
    serde_json::from_value(step).unwrap()
}

pub(crate) fn intent() -> Intent {
    let intent = json!({ "fingerprint": [["tool", "00ff"]], "is_repeatable": false });
    serde_json::from_value(intent).unwrap()
}

pub(crate) fn record(response: Value) -> StepRecord {
    let effects = tower_agent::context::Effects::default();
    let outcome = json!({ "response": response });
    let record = json!({ "version": 1, "outcome": outcome, "effects": effects });
    serde_json::from_value(record).unwrap()
}

fn json(text: &RawValue) -> Value {
    serde_json::from_str(text.get()).unwrap()
}

fn fresh(begun: StepState) -> StepLease {
    match begun {
        StepState::Fresh(lease) => lease,
        begun => panic!("{begun:?}"),
    }
}

fn unfinished(begun: StepState) -> StepLease {
    match begun {
        StepState::Unfinished(lease, then) => {
            assert_eq!(then, intent());
            lease
        }
        begun => panic!("{begun:?}"),
    }
}

fn is_taken_over<T>(result: Result<T, JournalError>) -> bool {
    matches!(result, Err(JournalError::TakenOver { run }) if &*run == "run 1")
}

async fn a_step_is_begun_once_until_it_is_released(place: impl Place) {
    let journal = place.open().await;
    let run = journal
        .start(&input("Do it.", "run 1").await)
        .await
        .unwrap();
    let step = step("run 1", "agent/c1");
    let begin = async || journal.begin(&run, &step, &intent()).await.unwrap();
    let first = fresh(begin().await);
    assert_eq!((first.attempt, unfinished(begin().await).attempt), (1, 1));
    let again = journal.begin_again(first.clone()).await.unwrap();
    assert_eq!((again.attempt, unfinished(begin().await).attempt), (2, 2));
    // The first attempt has nothing to say any more.
    assert!(is_taken_over(journal.begin_again(first.clone()).await));
    assert!(is_taken_over(
        journal.commit(&first, &record(json!(1))).await
    ));
    assert!(is_taken_over(journal.release(&first).await));
    assert_eq!(unfinished(begin().await).attempt, 2);
    journal.release(&again).await.unwrap();
    assert_eq!(fresh(begin().await).attempt, 1);
}

async fn a_step_is_kept_as_it_was_committed_and_once(place: impl Place) {
    let journal = place.open().await;
    let run = journal
        .start(&input("Do it.", "run 1").await)
        .await
        .unwrap();
    let kept = json!({ "\u{0}\u{1f600}'; --": [0.1, 1e300, u64::MAX, null, "\u{e9}"] });
    for path in [
        "agent/c1",
        "agent/C1",
        "agent/c1 ",
        "agent/c%",
        "agent/c\u{e9}",
    ] {
        let step = step("run 1", path);
        let begin = async || journal.begin(&run, &step, &intent()).await.unwrap();
        let lease = fresh(begin().await);
        journal.commit(&lease, &record(kept.clone())).await.unwrap();
        assert!(is_taken_over(
            journal.commit(&lease, &record(json!(2))).await
        ));
        assert!(is_taken_over(journal.release(&lease).await));
        assert!(is_taken_over(journal.begin_again(lease).await));
        let StepState::Done(
            then,
            StepRecord {
                outcome: StepOutcome::Response(response),
                ..
            },
        ) = begin().await
        else {
            panic!("it is not kept")
        };
        assert_eq!((then, json(&response)), (intent(), kept.clone()));
    }
}

/// Messages of a client may have long ids, of which the names of calls are made.
async fn steps_of_any_name_are_told_apart(place: impl Place) {
    let journal = place.open().await;
    let input = input("Do it.", "run 1").await;
    let run = journal.start(&input).await.unwrap();
    let long = "x\u{1f600}".repeat(2_000);
    let names = [
        format!("{long}1"),
        format!("{long}2"),
        "a\0b".to_owned(),
        "a".to_owned(),
    ];
    for name in &names {
        let step = step("run 1", name);
        let lease = fresh(journal.begin(&run, &step, &intent()).await.unwrap());
        journal.commit(&lease, &record(json!(name))).await.unwrap();
    }
    for name in &names {
        let step = step("run 1", name);
        let StepState::Done(_, record) = journal.begin(&run, &step, &intent()).await.unwrap()
        else {
            panic!("it is not kept")
        };
        assert!(
            matches!(record.outcome, StepOutcome::Response(kept) if json(&kept) == json!(name))
        );
    }
}

async fn starting_a_run_takes_it_over(place: impl Place) {
    let (one, other) = (place.open().await, place.open().await);
    let input = input("Do it.", "run 1").await;
    let old = one.start(&input).await.unwrap();
    let step = step("run 1", "agent/c1");
    let lease = fresh(one.begin(&old, &step, &intent()).await.unwrap());
    let new = other.start(&input).await.unwrap();
    assert_eq!((old.epoch, new.epoch), (1, 2));
    assert!(is_taken_over(one.begin(&old, &step, &intent()).await));
    assert!(is_taken_over(one.commit(&lease, &record(json!(1))).await));
    assert!(is_taken_over(one.release(&lease).await));
    assert!(is_taken_over(one.begin_again(lease).await));
    let end = RunEnd::Failed(tower_agent::Error::new(
        tower_agent::ErrorKind::Tool,
        "broken",
    ));
    assert!(is_taken_over(one.end(&old, &end).await));
    // Nothing of that was written.
    assert_eq!(other.info("run 1").await.status.as_str(), "running");
    let lease = unfinished(other.begin(&new, &step, &intent()).await.unwrap());
    assert_eq!((lease.attempt, lease.run.epoch), (1, 2));
    other.commit(&lease, &record(json!(1))).await.unwrap();
    other.end(&new, &end).await.unwrap();
    assert_eq!(one.info("run 1").await.error.unwrap().message(), "broken");
}

async fn a_request_is_the_same_or_another(place: impl Place) {
    let journal = place.open().await;
    let (one, other) = (
        input("Do it.", "run 1").await,
        input("Do more.", "run 1").await,
    );
    let numbers = |run: &OpenRun| (run.epoch, run.input, run.conversation);
    assert_eq!(numbers(&journal.start(&one).await.unwrap()), (1, 1, 1));
    let refused = journal.start(&other).await;
    assert!(matches!(refused, Err(JournalError::OtherRequest { run }) if &*run == "run 1"));
    // A refused process has taken nothing over.
    let run = journal.start(&one).await.unwrap();
    assert_eq!(numbers(&run), (2, 1, 1));
    let end = RunEnd::Failed(tower_agent::Error::new(
        tower_agent::ErrorKind::Tool,
        "broken",
    ));
    journal.end(&run, &end).await.unwrap();
    assert_eq!(numbers(&journal.start(&one).await.unwrap()), (3, 1, 1));
    let run = journal.start(&one).await.unwrap();
    journal.end(&run, &end).await.unwrap();
    // It continues nothing.
    let refused = journal.start(&other).await;
    assert!(matches!(refused, Err(JournalError::OtherRequest { run }) if &*run == "run 1"));
    assert_eq!(numbers(&journal.start(&one).await.unwrap()), (5, 1, 1));
}
