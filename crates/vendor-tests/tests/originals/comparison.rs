//! Runs the programs of a case file on an original, and compares what happened there and here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A program of a case file.
pub(super) trait Program: DeserializeOwned {
    /// What happened in it, in the form that the driver of the original prints.
    type Seen: DeserializeOwned;

    fn name(&self) -> &str;

    /// Returns what differs, each with its row among the deliberate differences of the framework's
    /// page.
    fn differs(&self) -> &BTreeMap<String, String>;

    /// Runs it here.
    async fn run(&self) -> Self::Seen;

    /// Returns each of the things seen here beside the same of the original.
    fn beside(ours: &Self::Seen, original: &Self::Seen) -> Vec<(&'static str, Value, Value)>;
}

/// Compares all programs of `cases.json` in a folder, whose driver is `original.py`. `page` has the
/// table of differences.
pub(super) async fn compare<P: Program>(python: &Path, folder: &Path, page: &str) {
    let cases = folder.join("cases.json");
    let programs: Vec<P> = serde_json::from_str(&std::fs::read_to_string(&cases).unwrap()).unwrap();
    let names: BTreeSet<_> = programs.iter().map(P::name).collect();
    assert_eq!(
        names.len(),
        programs.len(),
        "each case has a name of its own"
    );

    let output = Command::new(python)
        .args([folder.join("original.py"), cases])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    let originals: BTreeMap<String, P::Seen> = serde_json::from_slice(&output.stdout).unwrap();

    let mut wrong = Vec::new();
    for program in &programs {
        let ours = program.run().await;
        let name = program.name();
        for (what, ours, original) in P::beside(&ours, &originals[name]) {
            let row = program.differs().get(what);
            let is_right = match row {
                None => ours == original,
                Some(row) => ours != original && page.contains(&format!("\n| {row} |")),
            };
            if !is_right {
                wrong.push(format!(
                    "{name}: {what} {row:?}\n  original {original}\n  here     {ours}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} in {} programs differ:\n{}",
        wrong.len(),
        programs.len(),
        wrong.join("\n")
    );
}
