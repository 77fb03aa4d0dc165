//! Counts of rows, and a file with those of before.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use serde::Deserialize;
use tower_agent::BoxError;

/// The counts, by row.
pub type Counts = BTreeMap<&'static str, Count>;

/// The recorded counts of a row.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Count {
    pub instructions: f64,
    pub allocations: f64,
    /// Instructions that lock the bus or the line: each reference counted, each lock taken or
    /// released.
    pub atomics: f64,
    /// Fetches of code that is not in the simulated first-level cache.
    pub misses: f64,
}

/// A column of the counts.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in the table.
    pub name: &'static str,
    /// Its name in the file.
    pub key: &'static str,
    field: fn(&Count) -> f64,
    /// The part of the recorded count by which another one may exceed it, and by which it must be
    /// lower to be recorded again.
    pub margin: f64,
    /// How much a count may exceed the recorded one beyond the margin, whatever is recorded.
    pub slack: f64,
}

/// The columns, in the order of the output.
pub const COLUMNS: [Column; 4] = [
    Column {
        name: "instructions",
        key: "instructions",
        field: |count| count.instructions,
        margin: MARGIN,
        slack: 0.0,
    },
    Column {
        name: "allocations",
        key: "allocations",
        field: |count| count.allocations,
        margin: MARGIN,
        slack: 0.0,
    },
    Column {
        name: "atomic instructions",
        key: "atomics",
        field: |count| count.atomics,
        // Rows with random keys differ in the second decimal.
        margin: MARGIN,
        slack: 0.05,
    },
    Column {
        name: "instruction-cache misses",
        key: "misses",
        field: |count| count.misses,
        // The same program, built in another folder, lays its functions out otherwise: rows then
        // differ by up to 10 %, functions that shared a line have lines of their own.
        margin: 0.15,
        slack: 5.0,
    },
];

impl Column {
    /// Returns the count in this column.
    pub fn of(&self, count: &Count) -> f64 {
        (self.field)(count)
    }
}

/// The margin of a count that only the program decides.
pub const MARGIN: f64 = 0.03;

/// The content of the file, by row name.
pub fn expected() -> BTreeMap<String, Count> {
    serde_json::from_slice(&fs::read(FILE).unwrap()).unwrap()
}

/// The file of the package whose bench this is.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.json");

/// The counts as they are written, in the order of the columns.
pub fn rounded([instructions, allocations, atomics, misses]: [f64; 4]) -> Count {
    let hundredths = |count: f64| (count * 100.0).round() / 100.0;
    Count {
        instructions: instructions.round(),
        allocations: hundredths(allocations),
        atomics: hundredths(atomics),
        misses: hundredths(misses),
    }
}

/// Prints the counts beside those of the file; returns whether one grew.
pub fn compare(counts: &Counts, names: impl IntoIterator<Item = &'static str>) -> bool {
    let expected = expected();
    let mut grew = false;
    let mut fell = false;
    println!("| | {} |", COLUMNS.map(|column| column.name).join(" | | "));
    println!("|---{}|", "|--:|--:".repeat(COLUMNS.len()));
    for name in names {
        print!("| {name} |");
        for column in COLUMNS {
            let count = column.of(&counts[name]);
            let Some(before) = expected.get(name).map(|before| column.of(before)) else {
                grew = true;
                print!(" {count} | new |");
                continue;
            };
            let change = count - before;
            let room = before * column.margin + column.slack;
            grew |= change > room;
            fell |= -change > room;
            if change == 0.0 {
                print!(" {count} | |");
            } else if before == 0.0 {
                print!(" {count} | {change:+} |");
            } else {
                print!(" {count} | {:+.1} % |", 100.0 * change / before);
            }
        }
        println!();
    }
    if grew {
        let room = COLUMNS.map(|column| {
            let percent = 100.0 * column.margin;
            format!("{percent} % and {} {}", column.slack, column.name)
        });
        println!(
            "\nA count grew by more than {}. Make it smaller, or say why.",
            room.join(", ")
        );
    }
    if grew || fell {
        println!("\nWhat changed for good: the same with `--write` in place of `--check`.");
    }
    grew
}

/// Renews the file, with one line for each row.
pub fn write(
    counts: &Counts,
    names: impl IntoIterator<Item = &'static str>,
) -> Result<(), BoxError> {
    let lines: Result<Vec<_>, BoxError> = names
        .into_iter()
        .map(|name| {
            Ok(format!(
                "    {}: {}",
                serde_json::to_string(name)?,
                line(counts[name])
            ))
        })
        .collect();
    Ok(fs::write(
        FILE,
        format!("{{\n{}\n}}\n", lines?.join(",\n")),
    )?)
}

fn line(count: Count) -> String {
    let fields = COLUMNS.map(|column| format!(r#""{}": {}"#, column.key, column.of(&count)));
    format!("{{ {} }}", fields.join(", "))
}

/// Returns what a program ends with.
pub fn exit_code(fails: bool) -> ExitCode {
    if fails {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
