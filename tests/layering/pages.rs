//! The pages of conformance name tests and programs that are there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where the files are that pages name by less than their path.
const FOLDERS: &[&str] = &[
    ".",
    "crates/tower-agent-middleware/tests/middleware",
    "tests/callbacks/trpc",
    "tests/callbacks",
    "crates/tower-agent-agui/tests/agui/translate",
    "crates/tower-agent-agui/tests/agui/server",
];

/// Returns the texts between these marks.
fn between(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// Reads a file by the name that a page gives it. `programs` is that of its programs.
fn read(named: &str, programs: &Path) -> Option<String> {
    if named == "cases.json" {
        return fs::read_to_string(programs).ok();
    }
    let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(named));
    // Two folders may have a file of one name.
    let texts: Vec<_> = paths.flat_map(fs::read_to_string).collect();
    (!texts.is_empty()).then(|| texts.concat())
}

/// Returns whether a text has a test or a program of this name.
fn is_in(text: &str, name: &str) -> bool {
    text.contains(&format!("fn {name}(")) || text.contains(&format!("\"name\": \"{name}\""))
}

/// What the rows of a page name that is not there.
fn missing(page: &str, programs: &Path, found: &mut usize) -> Vec<String> {
    let mut missing = Vec::new();
    let mut texts = BTreeMap::new();
    // A file in the first column is that of the rows below it as well.
    let mut of_column = None;
    for row in page.lines().filter_map(|line| line.strip_prefix("| ")) {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        for (column, cell) in cells.iter().enumerate() {
            let is_last = column + 1 == cells.len();
            let mut file = None;
            for part in cell.split("; ") {
                file = of_column.filter(|_| is_last).or(file);
                for name in between(part, '`') {
                    if name.ends_with(".rs") || name == "cases.json" {
                        file = Some(name);
                        let text = texts.entry(name).or_insert_with(|| read(name, programs));
                        if text.is_none() {
                            missing.push(format!("the file `{name}`"));
                        }
                    } else if let Some(Some(text)) = file.and_then(|file| texts.get(file)) {
                        *found += 1;
                        if !is_in(text, name) {
                            missing.push(format!("`{name}`"));
                        }
                    }
                }
            }
            if column == 0 && file.is_some() {
                of_column = file;
            }
            if let Some((_, named)) = cell.split_once("beside the original") {
                let programs = read("cases.json", programs).unwrap_or_default();
                let gone = between(named, '*').filter(|name| !is_in(&programs, name));
                missing.extend(gone.map(|name| format!("the program *{name}*")));
            }
        }
    }
    missing
}

#[test]
fn the_tests_that_pages_name_are_there() {
    let mut found = 0;
    for entry in fs::read_dir("src/guide/conformance").unwrap() {
        let path = entry.unwrap().path();
        let framework = path.file_stem().unwrap().to_str().unwrap();
        let framework = framework.strip_suffix("_python").unwrap_or(framework);
        let originals = Path::new("crates/vendor-tests/tests/originals");
        let programs = originals.join(framework).join("cases.json");
        let page = fs::read_to_string(&path).unwrap();
        let missing = missing(&page, &programs, &mut found);
        assert!(
            missing.is_empty(),
            "{}: no {}",
            path.display(),
            missing.join(", no ")
        );
    }
    // The test has read something.
    assert!(found > 300, "{found}");
}
