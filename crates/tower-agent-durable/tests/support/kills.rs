//! Files that a run leaves in its folder, and what they must say after a kill.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::world::World;

/// The facts that are the same whatever happened on the way.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    run: Value,
    /// How often each tool that changes something has run.
    pub(crate) effects: BTreeMap<String, usize>,
}

pub(crate) fn end(folder: &Path) -> End {
    let run = std::fs::read_to_string(folder.join("end.json")).unwrap();
    let mut effects = BTreeMap::new();
    for line in World::done(folder) {
        let made = line
            .strip_prefix("made ")
            .and_then(|made| made.split(' ').next());
        if let Some(tool @ ("charge" | "pay" | "note")) = made {
            *effects.entry(tool.to_owned()).or_default() += 1;
        }
    }
    let mut run: Value = serde_json::from_str(&run).unwrap();
    // The same ids each time, but for the name of the run that they begin with.
    let first = run["messages"][0]["id"].as_str().unwrap();
    let (name, _) = first.rsplit_once('-').unwrap();
    run = serde_json::from_str(&run.to_string().replace(&format!("{name}-"), "run-")).unwrap();
    // The change of the state by a call that was asked about died with its process.
    for tool in lines(folder, "asked")
        .iter()
        .filter_map(|line| line.strip_suffix(" true"))
    {
        run["state"][tool] = 1.into();
    }
    End { run, effects }
}

pub(crate) fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The cost of each pass from one message to another.
pub(crate) fn spent(folder: &Path) -> BTreeMap<String, String> {
    let spent = lines(folder, "spent").into_iter();
    spent
        .filter_map(|line| {
            line.split_once(' ')
                .map(|(at, spent)| (at.into(), spent.into()))
        })
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

/// Fails unless somebody was asked once about each call that was being made when a process was
/// killed and that changes something, and about no other. `points` are those of that process.
pub(crate) fn check_questions(folder: &Path, points: &[String], what: &str) {
    let mut last = BTreeMap::from([("charge", "never"), ("note", "never"), ("pay", "never")]);
    for point in points {
        let Some((did, call)) = point.split_once(" 1 tool ") else {
            continue;
        };
        let tool = match call {
            "boss/m1.0" => "charge",
            "boss/m1.2/worker/m1.0" => "note",
            "boss/m2.0" => "pay",
            _ => continue,
        };
        let last = last.get_mut(tool).unwrap();
        if *last != "has committed" {
            *last = did.split_once(' ').unwrap().1;
        }
    }
    let asked = lines(folder, "asked");
    for (tool, last) in last {
        let asked = asked
            .iter()
            .filter(|line| line.split(' ').next() == Some(tool))
            .count();
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
