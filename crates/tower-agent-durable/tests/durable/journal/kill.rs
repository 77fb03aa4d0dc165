//! A process that is killed at every point, and another that goes on.

use std::sync::atomic::{AtomicUsize, Ordering};

use test_support::property::sample;

use super::program::Program;
use crate::support::Count;
use crate::support::fate::Fate;
use crate::support::kills::{check_no_step_is_repeated, check_questions, end, lines, spent};
use crate::support::server::Server;

#[test]
fn a_run_in_a_file_that_is_killed_at_any_point_ends_as_if_it_had_not_been() {
    let (points, asked, compared) = kill_at_each_point(Program::in_file, 1);
    assert!(asked >= 6, "asked {asked} times");
    assert!(compared >= points, "compared {compared} passes");
}

#[test]
fn a_run_on_a_server_that_is_killed_at_any_point_ends_as_if_it_had_not_been() {
    let Some(server) = Server::start("journal-kill") else {
        return;
    };
    let (points, asked, compared) =
        kill_at_each_point(|| Program::on_server(&server), sample(4, 1));
    // One of four is in the middle of each call of a tool.
    assert!(asked >= 2, "asked {asked} times");
    assert!(compared >= points, "compared {compared} passes");
}

#[test]
fn a_run_in_a_session_that_is_killed_at_any_point_ends_as_if_it_had_not_been() {
    let (_, asked, _) = kill_at_each_point(|| Program::in_file().in_session(), 1);
    assert!(asked >= 6, "asked {asked} times");
}

/// Returns the number of points, of questions about unfinished calls, and of passes whose costs
/// were compared.
fn kill_at_each_point(new: impl Fn() -> Program + Sync, apart: usize) -> (u32, u32, u32) {
    let whole = new();
    assert!(whole.run(None).success());
    let (expected, budget) = (end(&whole.folder()), spent(&whole.folder()));
    let points = lines(&whole.folder(), "points");
    assert!(
        points.iter().any(|point| point.ends_with("a model fails")),
        "no retry"
    );
    assert_eq!(
        expected.effects.values().copied().collect::<Vec<_>>(),
        [1, 1, 1]
    );
    assert!(points.len() > 60, "{} points", points.len());

    let (tried, killed, asked, compared) = <(Count, Count, Count, Count)>::default();
    at_each(points.len(), apart, |point| {
        tried.one();
        let program = new();
        let root = program.folder();
        let first = program.run(Some(Fate::kill(point)));
        let points = lines(&root, "points");
        let at = points.last().unwrap();
        // The order of parallel steps differs, and with it their number a little.
        if !first.success() {
            killed.one();
            assert!(
                !root.join("end.json").exists() || at.ends_with("a run has ended"),
                "{at}"
            );
            assert!(program.run(None).success(), "killed at `{at}`");
        }
        assert_eq!(end(&root), expected, "killed at `{at}`");
        check_no_step_is_repeated(&root, at);
        if !first.success() {
            check_questions(&root, &points, at);
        }
        for (pass, spent) in spent(&root) {
            if let Some(expected) = budget.get(&pass) {
                assert_eq!(&spent, expected, "pass {pass}, killed at `{at}`");
                compared.one();
            }
        }
        lines(&root, "asked").iter().for_each(|_| {
            asked.one();
        });
    });
    let (tried, killed) = (tried.get(), killed.get());
    assert!(
        killed + tried / 10 >= tried,
        "killed at {killed} of {tried} points"
    );
    println!(
        "{} points, {tried} tried, {killed} killed, {} asked",
        points.len(),
        asked.get()
    );
    (tried, asked.get(), compared.get())
}

/// Does something at points so far apart, two at a time.
pub(super) fn at_each(points: usize, apart: usize, act: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(1);
    let work = || {
        loop {
            let point = next.fetch_add(apart, Ordering::Relaxed);
            if point > points {
                return;
            }
            act(point);
        }
    };
    std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    });
}
