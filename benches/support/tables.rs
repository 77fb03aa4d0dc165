//! The tables of `benches/README.md` that are made of counts, so that no figure there is copied by
//! hand.

use std::fs;

use tower_agent::BoxError;

use super::counted::middleware::{self, MIDDLEWARE};
use super::counted::recorded::{COLUMNS, Column, Counts};
use super::counted::{self, Row};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/README.md");

/// The line behind a table of the file. Before it is a line with the name of the table.
const END: &str = "<!-- end of counts -->";

/// Renews the tables of the file; `growth` is that of the work of growing size.
pub fn write(counts: &Counts, growth: &str) -> Result<(), BoxError> {
    let closure = [counted::CLOSURE];
    let runs = counted::RUNS.iter().map(|row| row.name).chain(closure);
    let tables = [
        ("aims", aims(counts)),
        ("runs", rows(counts, runs)),
        ("middleware", added(counts)),
        ("deltas", rows(counts, names(counted::DELTAS_OF_A_RUN))),
        ("protocols", rows(counts, names(counted::PROTOCOLS))),
        ("growth", growth.to_owned()),
    ];
    let mut text = fs::read_to_string(FILE)?;
    for (name, table) in tables {
        let begin = format!("<!-- counts: {name} -->\n");
        let missing = || format!("{FILE} has no place for the table `{name}`");
        let start = text.find(&begin).ok_or_else(missing)? + begin.len();
        let length = text[start..].find(END).ok_or_else(missing)?;
        text.replace_range(start..start + length, &table);
    }
    Ok(fs::write(FILE, text)?)
}

fn names(rows: &[Row]) -> impl Iterator<Item = &'static str> {
    rows.iter().map(|row| row.name)
}

/// The counts of some rows.
fn rows(counts: &Counts, names: impl Iterator<Item = &'static str>) -> String {
    let mut table = header(&COLUMNS);
    for name in names {
        let values = COLUMNS.map(|column| number(column.of(&counts[name])));
        table += &format!("| {name} | {} |\n", values.join(" | "));
    }
    table
}

/// What each middleware adds to a call that it is around.
fn added(counts: &Counts) -> String {
    // Misses are those of the whole run, whose code no longer fits into the cache, and belong to no
    // one call.
    let columns = &COLUMNS[..3];
    let mut table = header(columns);
    for middleware in MIDDLEWARE {
        let values = columns.iter().map(|column| {
            let added = added_to_a_call(counts, middleware.name, column);
            number(added)
        });
        table += &format!(
            "| {}, each of {} calls | {} |\n",
            middleware.name.trim_start_matches("agent, "),
            middleware.calls,
            values.collect::<Vec<_>>().join(" | "),
        );
    }
    table
}

fn added_to_a_call(counts: &Counts, name: &str, column: &Column) -> f64 {
    let calls = MIDDLEWARE.iter().find(|middleware| middleware.name == name);
    let calls = calls.map_or(f64::NAN, |middleware| middleware.calls as f64);
    (column.of(&counts[name]) - column.of(&counts[counted::AGENT])) / calls
}

/// An aim for something that is counted.
struct Aim {
    what: &'static str,
    most: f64,
    now: fn(&Counts) -> f64,
}

const AIMS: &[Aim] = &[
    Aim {
        what: "instructions of a run, times those of the loop by hand",
        most: 1.75,
        now: |counts| counts[counted::AGENT].instructions / counts[counted::BY_HAND].instructions,
    },
    Aim {
        what: "allocations of a run",
        most: 300.0,
        now: |counts| counts[counted::AGENT].allocations,
    },
    Aim {
        what: "atomic instructions of a run",
        most: 600.0,
        now: |counts| counts[counted::AGENT].atomics,
    },
    Aim {
        what: "instruction-cache misses of a run",
        most: 6_000.0,
        now: |counts| counts[counted::AGENT].misses,
    },
    Aim {
        what: "a sync closure, a call of an agent",
        most: 90.0,
        now: |counts| counts[counted::CLOSURE].instructions,
    },
    Aim {
        what: "one of 100 tool calls at once, the model's part included",
        most: 6_000.0,
        now: |counts| counts[counted::AT_ONCE_ROW].instructions,
    },
    Aim {
        what: "`Guardrail` that checks before, a model call of an agent",
        most: 2_500.0,
        now: |counts| instructions_added(counts, middleware::GUARDRAIL),
    },
    Aim {
        what: "`Budget`, a call of an agent",
        most: 2_500.0,
        now: |counts| instructions_added(counts, middleware::BUDGET),
    },
    Aim {
        what: "`Flow`, a call of an agent",
        most: 1_500.0,
        now: |counts| instructions_added(counts, middleware::FLOW),
    },
    Aim {
        what: "`Redact`, a call of an agent",
        most: 6_000.0,
        now: |counts| instructions_added(counts, middleware::REDACT),
    },
    Aim {
        what: "the journal in memory, a call of an agent",
        most: 40_000.0,
        now: |counts| instructions_added(counts, middleware::JOURNAL),
    },
    Aim {
        what: "`Redact`, a delta of seven characters",
        most: 1_500.0,
        now: |counts| {
            counts[counted::REDACTED_DELTA].instructions - counts[counted::DELTA].instructions
        },
    },
    Aim {
        what: "a delta, from the bytes of chat completions to those of AG-UI, in two rows",
        most: 7_500.0,
        now: |counts| {
            counts[counted::BY_CHAT[1]].instructions + counts[counted::TO_AGUI].instructions
        },
    },
];

fn instructions_added(counts: &Counts, name: &str) -> f64 {
    added_to_a_call(counts, name, &COLUMNS[0])
}

fn aims(counts: &Counts) -> String {
    let mut table = "| | aim | now | |\n|---|--:|--:|---|\n".to_owned();
    for aim in AIMS {
        let now = (aim.now)(counts);
        let verdict = if now <= aim.most { "met" } else { "missed" };
        let most = number(aim.most);
        table += &format!("| {} | {most} | {} | {verdict} |\n", aim.what, number(now));
    }
    table
}

fn header(columns: &[Column]) -> String {
    let names: Vec<_> = columns.iter().map(|column| column.name).collect();
    let lines = "--:|".repeat(columns.len());
    format!("| | {} |\n|---|{lines}\n", names.join(" | "))
}

/// A number with a comma before each three digits, and with decimals if it is small.
pub fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        let rounded = (value * 100.0).round() / 100.0;
        // No negative zero.
        return (rounded + 0.0).to_string();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let left = digits.len() - index;
        if left % 3 == 0 && text.ends_with(|before: char| before.is_ascii_digit()) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
