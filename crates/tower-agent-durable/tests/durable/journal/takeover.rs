//! Two processes that work on one run.

use std::time::Duration;

use test_support::property::sample;
use tokio::runtime::{self, Runtime};
use tower_agent_durable::journal::{Journal, JournalError, StepState};

use super::kill::at_each;
use super::program::{Process, Program};
use crate::support::Count;
use crate::support::conformance::{input, intent, step};
use crate::support::fate::Fate;
use crate::support::kills::{end, lines};
use crate::support::server::Server;

const ASKS: &str = "stops at asks";

#[test]
fn a_process_in_a_file_that_another_overtakes_at_any_point_writes_no_more() {
    overtaken_at_each_point(Program::in_file);
}

#[test]
fn a_process_on_a_server_that_another_overtakes_at_any_point_writes_no_more() {
    let Some(server) = Server::start("journal-takeover") else {
        return;
    };
    overtaken_at_each_point(|| Program::on_server(&server));
}

/// One process is stopped at a point, and another makes the whole run; then the first goes on.
fn overtaken_at_each_point(new: impl Fn() -> Program + Sync) {
    let whole = new();
    assert!(whole.run(None).success());
    let expected = end(&whole.folder());
    let points = lines(&whole.folder(), "points").len();

    let (tried, stopped, refused, asked) = <(Count, Count, Count, Count)>::default();
    at_each(points, sample(4, 1), |point| {
        tried.one();
        let program = new();
        let root = program.folder();
        let mut slow = program.start([Fate::stop(point)]);
        // The order of parallel steps differs, and with it their number a little.
        if slow.report() == "ended" {
            return;
        }
        stopped.one();
        let at = lines(&root, "points").swap_remove(point - 1);
        let mut other = program.start([Fate::stop("asks")]);
        let mut report = other.report();
        let asks = report == ASKS;
        // Whoever looks whether a call was made has to know that nobody is about to make it.
        let last = slow.ends();
        if asks {
            asked.one();
            report = other.ends();
        }
        assert_eq!(report, "ended", "overtaken at `{at}`");
        if is_refused(&last) {
            refused.one();
        } else {
            // It asks for the run's latest request, or has it, and gets the same end.
            let is_between = at.ends_with(" a run starts") || at.ends_with(" a run has ended");
            assert!(last == "ended" && is_between, "{last}, at `{at}`");
        }
        assert_eq!(end(&root), expected, "overtaken at `{at}`");
    });
    let (tried, stopped, refused) = (tried.get(), stopped.get(), refused.get());
    println!(
        "{points} points, {stopped} of {tried} stopped, {refused} refused, {} asked",
        asked.get()
    );
    assert!(
        stopped + tried / 10 >= tried,
        "stopped at {stopped} of {tried} points"
    );
    // One of four is in the middle of each call of a tool.
    assert!(
        refused > 0 && asked.get() >= 2,
        "{refused} refused, {} asked",
        asked.get()
    );
}

/// Returns whether another process has done this one's next step.
fn is_refused(report: &str) -> bool {
    let refusals = [
        "was taken over by another process",
        "has moved past this request",
        "was started with another request",
    ];
    refusals.iter().any(|refusal| report.contains(refusal))
}

#[test]
fn processes_that_race_for_a_run_in_a_file_make_it_once() {
    race(Program::in_file);
}

#[test]
fn processes_that_race_for_a_run_on_a_server_make_it_once() {
    let Some(server) = Server::start("journal-race") else {
        return;
    };
    race(|| Program::on_server(&server));
}

fn race(new: impl Fn() -> Program + Sync) {
    let whole = new();
    assert!(whole.run(None).success());
    let expected = end(&whole.folder());
    for round in (0..30).step_by(sample(4, 1)) {
        let program = new();
        let mut processes = [(); 2].map(|()| program.start([Fate::stop(1), Fate::stop("asks")]));
        for process in &mut processes {
            assert_eq!(process.report(), "stops at 1");
        }
        processes.iter_mut().for_each(Process::go_on);
        // Each runs until it has ended or asks; of those that ask, one at a time goes on.
        let mut reports = processes.each_mut().map(Process::report);
        while let Some(asks) = reports.iter().position(|report| report == ASKS) {
            reports[asks] = processes[asks].ends();
        }
        let refused = reports.iter().filter(|report| is_refused(report)).count();
        let ended = reports.iter().filter(|report| **report == "ended").count();
        assert!(
            ended >= 1 && ended + refused == 2,
            "round {round}: {reports:?}"
        );
        assert_eq!(end(&program.folder()), expected, "round {round}");
    }
}

#[test]
fn a_process_that_is_stopped_in_a_transaction_does_not_keep_others_out() {
    let Some(server) = Server::start("journal-stopped") else {
        return;
    };
    // One runtime stands still while the other is used.
    let [slow, quick] = [(); 2].map(|()| runtime());
    let (one, other) = (
        slow.block_on(server.connect()),
        quick.block_on(server.connect()),
    );
    let input = quick.block_on(input("Do it.", "run 1"));
    let run = slow.block_on(one.start(&input)).unwrap();
    let (step, intent) = (step("run 1", "agent/c1"), intent());
    let mut begins = Box::pin(one.begin(&run, &step, &intent));
    // It has written to the run, and waits for the table.
    let table = server.lock("tower_agent_run_steps");
    let waiting = "SELECT count(*) FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND backend_type = 'client backend'";
    while server.query(waiting) != "1" {
        slow.block_on(async {
            assert!(futures::poll!(&mut begins).is_pending());
            tokio::task::yield_now().await;
        });
    }
    assert!(table.wait_with_output().unwrap().status.success());
    let taken = quick.block_on(async {
        let taken = tokio::time::timeout(Duration::from_secs(60), other.start(&input)).await;
        taken.expect("the stopped process keeps it out").unwrap()
    });
    assert_eq!(taken.epoch, 2);
    let error = slow.block_on(begins).unwrap_err();
    assert!(matches!(error, JournalError::Store(_)), "{error}");
    let begun = quick.block_on(other.begin(&taken, &step, &intent));
    assert!(matches!(begun, Ok(StepState::Fresh(_))), "{begun:?}");
}

fn runtime() -> Runtime {
    runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
