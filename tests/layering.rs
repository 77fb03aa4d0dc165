//! Dependencies point up the list of folders only, and leaves never import one another.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Which floor a folder or file of `src` stands on. Nothing imports from a floor above its own;
/// on the last floor nothing imports from a neighbour either.
const FLOORS: [&[&str]; 6] = [
    &[
        "any_value",
        "boxed",
        "call",
        "caught",
        "context",
        "error",
        "function",
        "latched",
        "lock",
        "maybe_future",
        "message",
        "on_drop",
        "panic",
        "state",
        "stream",
        "type_name",
    ],
    &["model", "run", "tool"],
    &["callback"],
    &["agent"],
    &["agui", "guide", "middleware", "provider", "testing"],
    &["compat"],
];

fn floor(room: &str) -> usize {
    FLOORS
        .iter()
        .position(|rooms| rooms.contains(&room))
        .unwrap_or_else(|| panic!("`{room}` stands on no floor: add it to FLOORS"))
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The rooms that a line of code names as `crate::room`, however deep in a braced `use`.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        &rest[..end]
    })
}

#[test]
fn imports_point_up_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut seen = BTreeSet::new();
    for file in files {
        let inside = file.strip_prefix(&root).unwrap();
        let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if matches!(room, "lib" | "prelude") {
            continue;
        }
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            assert!(
                !code.contains("crate::{"),
                "{}:{}: import one room a line, so that this test can read it",
                inside.display(),
                number + 1,
            );
            for other in imported(line).filter(|other| *other != room) {
                // A name of the crate's root comes from some room below; the code inside the
                // crate names the room.
                let (here, there) = (floor(room), floor(other));
                let leaf = here == FLOORS.len() - 1;
                assert!(
                    there < here || (there == here && !leaf),
                    "{}:{}: `{room}` must not import `{other}`",
                    inside.display(),
                    number + 1,
                );
                seen.insert((room.to_owned(), other.to_owned()));
            }
        }
    }
    // The test has read something.
    assert!(seen.contains(&("agent".to_owned(), "callback".to_owned())));
    assert!(seen.contains(&("callback".to_owned(), "error".to_owned())));
}
