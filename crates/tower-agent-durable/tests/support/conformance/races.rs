//! Several that work on one run at once, in every database.

use futures::future::join_all;
use serde_json::json;
use tower_agent::Effect;
use tower_agent_durable::journal::{Journal, JournalError, OpenRun, RunStatus, StepState};

use super::{input, intent, record, step};
use crate::support::place::{Place, Seen};
use crate::support::waiting;
use crate::support::{Count, calling, counting, durable, journal_error, request};

pub(crate) async fn the_later_of_two_workers_of_a_run_wins_and_the_other_writes_no_more(
    place: impl Place,
) {
    let (pay, models) = <(Count, Count)>::default();
    let (tool, go_on, has_begun) = waiting(&pay);
    let one = durable(calling(&["pay"], &models), place.open().await)
        .tool(tool)
        .build()
        .unwrap();
    let one = tokio::spawn(one.run(request()));
    has_begun.await.unwrap();

    let database = place.open().await;
    let pays = counting("pay", Effect::Mutating, &pay);
    let other = durable(calling(&["pay"], &models), database.clone())
        .tool(pays)
        .build()
        .unwrap();
    let paused = other.run(request()).await.unwrap();
    assert_eq!(paused.interrupts()[0].name, "unfinished agent/m1.0 1");

    go_on.notify_one();
    let error = one.await.unwrap().unwrap_err();
    assert!(
        matches!(journal_error(&error), JournalError::TakenOver { .. }),
        "{error}"
    );
    assert_eq!((pay.get(), models.get()), (1, 1));
    assert_eq!(database.info("run 1").await.status, RunStatus::Waiting);
}

pub(crate) async fn runs_that_start_at_once_have_one_winner(place: impl Place) {
    let looks = Count::default();
    let mut runs = Vec::new();
    for _ in 0..4 {
        let look = counting("look", Effect::Idempotent, &looks);
        let agent = durable(
            calling(&["look", "look"], &Count::default()),
            place.open().await,
        );
        let agent = agent.tool(look).build().unwrap();
        runs.push(tokio::spawn(async move { agent.run(request()).await }));
    }
    let (mut won, mut lost) = (0, 0);
    for run in runs {
        match run.await.unwrap() {
            Ok(response) => {
                assert_eq!(response.text(), "Done.");
                won += 1;
            }
            Err(error) => {
                let error = journal_error(&error);
                assert!(matches!(error, JournalError::TakenOver { .. }), "{error}");
                lost += 1;
            }
        }
    }
    // One that has ended before another begins is replayed by that.
    assert!(won >= 1 && won + lost == 4);
}

pub(crate) async fn starts_at_once_have_an_epoch_each<P: Place>(place: P) {
    let mut databases = Vec::new();
    for _ in 0..4 {
        databases.push(place.open().await);
    }
    for run in 0..5 {
        let input = input("Do it.", &format!("run {run}")).await;
        let start = |database: &P::Journal| {
            let (database, input) = (database.clone(), input.clone());
            tokio::spawn(async move { database.start(&input).await.unwrap() })
        };
        let runs = join_all(databases.iter().map(start))
            .await
            .into_iter()
            .map(Result::unwrap);
        let mut epochs: Vec<_> = runs
            .map(|run| (run.epoch, run.input, run.conversation))
            .collect();
        epochs.sort_unstable();
        assert_eq!(epochs, [(1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 1)]);
    }
}

/// Whoever takes a run over sees a commit, or it is refused.
pub(crate) async fn a_commit_during_a_takeover_is_seen_or_refused<P: Place>(place: P) {
    let (one, other) = (place.open().await, place.open().await);
    let (mut seen, mut refused) = (0, 0);
    for number in 0..P::RACES {
        let run = format!("run {number}");
        let input = input("Do it.", &run).await;
        let step = step(&run, "agent/c1");
        let open = one.start(&input).await.unwrap();
        let StepState::Fresh(lease) = one.begin(&open, &step, &intent()).await.unwrap() else {
            panic!("begun before")
        };
        let one = one.clone();
        let commits = tokio::spawn(async move { one.commit(&lease, &record(json!(1))).await });
        let other = other.clone();
        let takes = tokio::spawn(async move {
            let open: OpenRun = other.start(&input).await.unwrap();
            other.begin(&open, &step, &intent()).await.unwrap()
        });
        match (commits.await.unwrap(), takes.await.unwrap()) {
            (Ok(()), StepState::Done(..)) => seen += 1,
            (Err(JournalError::TakenOver { .. }), StepState::Unfinished(..)) => refused += 1,
            (commit, begun) => panic!("{commit:?}, but the other got {begun:?}"),
        }
    }
    assert_eq!(seen + refused, P::RACES);
}
