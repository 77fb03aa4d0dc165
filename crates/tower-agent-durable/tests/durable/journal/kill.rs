//! A process that is killed at every point, and another that goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use serde_json::Value;

use super::Count;
use super::world::World;
use crate::database::Folder;

const FOLDER: &str = "TOWER_AGENT_TEST_FOLDER";
const KILL_AT: &str = "TOWER_AGENT_TEST_KILL_AT";

const IN_SESSION: &str = "TOWER_AGENT_TEST_IN_SESSION";

/// The program: it goes on with the run, if a test asks for it.
#[test]
fn a_process_that_goes_on_with_a_run() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let kill_at = std::env::var(KILL_AT).ok().map(|point| point.parse().unwrap());
    let world = World::new(Path::new(&folder), kill_at);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match std::env::var_os(IN_SESSION) {
        Some(_) => runtime.block_on(world.go_on_in_session()).unwrap(),
        None => runtime.block_on(world.go_on()).unwrap(),
    }
}

pub(crate) fn process(folder: &Path, kill_at: Option<u32>) -> ExitStatus {
    command(folder, kill_at).status().unwrap()
}

fn command(folder: &Path, kill_at: Option<u32>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "journal::kill::a_process_that_goes_on_with_a_run"]);
    command.env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some(point) = kill_at {
        command.env(KILL_AT, point.to_string());
    }
    command
}

fn process_in_session(folder: &Path, kill_at: Option<u32>) -> ExitStatus {
    command(folder, kill_at).env(IN_SESSION, "1").status().unwrap()
}

/// What is the same whatever happened on the way.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    run: Value,
    /// How often each tool that changes something has run.
    effects: BTreeMap<String, usize>,
}

pub(crate) fn end(folder: &Path) -> End {
    let run = std::fs::read_to_string(folder.join("end.json")).unwrap();
    let mut effects = BTreeMap::new();
    for line in World::done(folder) {
        let made = line.strip_prefix("made ").and_then(|made| made.split(' ').next());
        if let Some(tool @ ("charge" | "pay" | "note")) = made {
            *effects.entry(tool.to_owned()).or_default() += 1;
        }
    }
    let mut run: Value = serde_json::from_str(&run).unwrap();
    if !lines(folder, "asked").is_empty() {
        // A result that was waited for comes after those that were there.
        let messages = run["messages"].as_array_mut().unwrap();
        let is_result = |message: &Value| message["role"] == "tool";
        messages.chunk_by_mut(|one, other| is_result(one) && is_result(other)).for_each(|turn| {
            turn.sort_by_key(|message| message["parts"][0]["call_id"].to_string());
        });
    }
    // What such a call has changed in the state died with its process.
    for tool in lines(folder, "asked").iter().filter_map(|it| it.strip_suffix(" true")) {
        run["state"][tool] = 1.into();
    }
    End { run, effects }
}

pub(crate) fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// What each pass from one message to another has spent.
pub(crate) fn spent(folder: &Path) -> BTreeMap<String, String> {
    let spent = lines(folder, "spent").into_iter();
    spent
        .filter_map(|line| line.split_once(' ').map(|(at, spent)| (at.into(), spent.into())))
        .collect()
}

/// Fails if a step was made after it was kept.
pub(crate) fn check_no_step_is_repeated(folder: &Path, what: &str) {
    let mut kept = Vec::new();
    for line in World::done(folder) {
        let words: Vec<_> = line.split(' ').collect();
        let kind = match words[1] {
            "model" | "Model" => "model",
            tool => tool.trim_start_matches("Tool(\"").trim_end_matches("\")"),
        };
        let place = match kind {
            "model" => format!("model {} {} {}", words[2], words[3], words[4]),
            tool => format!("{tool} {}", words[2]),
        };
        match words[0] {
            "kept" => kept.push(place),
            _ => assert!(!kept.contains(&place), "{what}: `{place}` was made again"),
        }
    }
}

/// Fails unless somebody was asked once about each call that was being made when a process was killed and
/// that changes something, and about no other. `points` are those of that process.
pub(crate) fn check_questions(folder: &Path, points: &[String], what: &str) {
    let mut last = BTreeMap::from([("charge", "never"), ("note", "never"), ("pay", "never")]);
    for point in points {
        let Some((did, call)) = point.split_once(" 1 tool ") else { continue };
        let tool = match call.rsplit('/').next() {
            Some("c2") => "charge",
            Some("n1") => "note",
            Some("c4") => "pay",
            _ => continue,
        };
        let last = last.get_mut(tool).unwrap();
        if *last != "has committed" {
            *last = did.split_once(' ').unwrap().1;
        }
    }
    let asked = lines(folder, "asked");
    for (tool, last) in last {
        let asked = asked.iter().filter(|it| it.split(' ').next() == Some(tool)).count();
        let expected = match last {
            // A call that waits for an approval has begun, too, until it is released.
            "has begun" => 1..=1,
            // The journal may have written that, or not.
            "begins" | "commits" | "releases" => 0..=1,
            _ => 0..=0,
        };
        assert!(
            expected.contains(&asked),
            "{what}: asked {asked} times about `{tool}`, {points:#?}"
        );
    }
}

type Process = fn(&Path, Option<u32>) -> ExitStatus;

#[test]
fn a_run_that_is_killed_at_any_point_ends_as_if_it_had_not_been() {
    let (points, asked, compared) = kill_at_each_point("killed", process);
    assert!(asked >= 6, "asked {asked} times");
    assert!(compared >= points, "compared {compared} passes");
}

#[test]
fn a_run_in_a_session_that_is_killed_at_any_point_ends_as_if_it_had_not_been() {
    let (_, asked, _) = kill_at_each_point("killed-in-session", process_in_session);
    assert!(asked >= 6, "asked {asked} times");
}

/// Returns the number of points, of questions about unfinished calls, and of passes whose costs were
/// compared.
fn kill_at_each_point(name: &str, process: Process) -> (u32, u32, u32) {
    let whole = Folder::new(&format!("{name}-never"));
    assert!(process(&whole.file(""), None).success());
    let (expected, budget) = (end(&whole.file("")), spent(&whole.file("")));
    let points = lines(&whole.file(""), "points");
    assert!(points.iter().any(|point| point.ends_with("a model fails")), "no retry");
    let points = points.len();
    assert_eq!(expected.effects.values().copied().collect::<Vec<_>>(), [1, 1, 1]);
    assert!(points > 60, "{points} points");

    let next = std::sync::atomic::AtomicU32::new(1);
    let (killed, asked, compared) = <(Count, Count, Count)>::default();
    let work = || {
        loop {
            let point = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if point > u32::try_from(points).unwrap() {
                return;
            }
            let folder = Folder::new(&format!("{name}-at-{point}"));
            let root = folder.file("");
            let first = process(&root, Some(point));
            let points = lines(&root, "points");
            let at = points.last().unwrap();
            // The order of parallel steps differs, and with it their number a little.
            if !first.success() {
                killed.one();
                assert!(!root.join("end.json").exists() || at.ends_with("a run has ended"), "{at}");
                assert!(process(&root, None).success(), "killed at `{at}`");
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
        }
    };
    std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let points = u32::try_from(points).unwrap();
    assert!(killed.get() + points / 10 >= points, "killed at {} of {points} points", killed.get());
    println!("{points} points, {} killed", killed.get());
    (points, asked.get(), compared.get())
}
