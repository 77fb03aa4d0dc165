//! Instructions, allocations, atomic instructions and misses of the instruction cache, counted by
//! valgrind in the profile that users get, `release`. Runs of one build differ by less than 1 % in
//! instructions, since some hash with random keys, and hardly in the others. Other compilers and
//! incremental builds give other counts; set `CARGO_INCREMENTAL=0` if incremental is the default.
//! Atomic instructions are read from x86-64 code.
//!
//! ```sh
//! cargo bench --bench counts                # shows them beside benches/counts.json
//! cargo bench --bench counts -- --check     # fails where one grew by more than its margin, or faster than its size
//! cargo bench --bench counts -- --write     # renews the file, and the tables of benches/README.md
//! ```
//!
//! The bench runs itself under callgrind with two numbers of runs; the difference is the cost of
//! the runs alone, without startup. `--row <name> <runs>` does this part, and can also be used with
//! a profiler; so does `--row <name>: <size> <runs>` for work of growing size. `--growth` counts
//! only that.

#[path = "support/callgrind.rs"]
mod callgrind;
#[path = "support/counted.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared")]
mod counted;
#[path = "support/growing.rs"]
#[allow(unreachable_pub, reason = "beside what is shared")]
mod growing;
#[path = "support/tables.rs"]
#[allow(unreachable_pub, reason = "beside what is shared")]
mod tables;

use std::env;
use std::process::ExitCode;

use tower_agent::BoxError;

use self::callgrind::{Program, in_parallel};
use self::counted::recorded::{self, COLUMNS, Counts, exit_code, rounded};
use self::counted::{CLOSURES, rows};
use self::growing::{GROWTHS, Growth};

/// The two numbers of runs of work of growing size, most of which is large.
const RUNS_OF_SIZE: [usize; 2] = [0, 1];

fn main() -> Result<ExitCode, BoxError> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    if let [flag, name, runs] = &arguments[..]
        && flag == "--row"
    {
        work_for(name, runs.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let asked = |flag| arguments.iter().any(|argument| argument == flag);
    let program = Program::new()?;
    let (growth, is_steep) = grown(&program)?;
    if asked("--growth") {
        return Ok(exit_code(is_steep));
    }
    let rows = rows();
    let counted = in_parallel(&rows, |row| {
        Ok(rounded(program.each(row.name, row.per_run)?))
    })?;
    let mut counts: Counts = rows.iter().map(|row| row.name).zip(counted).collect();
    let [ten, twenty] = CLOSURES.map(|name| counts[name]);
    let closure = rounded(COLUMNS.map(|column| (column.of(&twenty) - column.of(&ten)) / 780.0));
    counts.insert(counted::CLOSURE, closure);
    let writes = asked("--write");
    let grew = if writes {
        recorded::write(&counts, names())?;
        tables::write(&counts, &growth)?;
        false
    } else {
        recorded::compare(&counts, names())
    };
    let fails = grew | is_any_dear(&counts) | is_steep;
    Ok(exit_code(fails && (writes || asked("--check"))))
}

/// Runs a row this many times, after one warm-up run.
fn work_for(name: &str, runs: usize) -> Result<(), BoxError> {
    let mut run = match name.rsplit_once(": ") {
        Some((name, size)) => {
            let growth = GROWTHS.iter().find(|growth| growth.name == name);
            (growth.ok_or("there is no such growth")?.make)(size.parse()?)
        }
        None => {
            let row = rows().into_iter().find(|row| row.name == name);
            row.ok_or("there is no such row")?.make()
        }
    };
    (0..=runs).for_each(|_| run());
    Ok(())
}

/// Counts the work of growing size and prints it; returns the table, and whether some grows faster
/// than its size.
fn grown(program: &Program) -> Result<(String, bool), BoxError> {
    let mut steep = Vec::new();
    let mut table = "| | sizes | instructions for one of them | exponent | at most |\n".to_owned();
    table += "|---|---|---|--:|--:|\n";
    for growth in GROWTHS {
        let totals = in_parallel(&growth.sizes, |size| count_size(program, growth, *size))?;
        let [.., smaller, larger] = growth.sizes;
        let [.., of_smaller, of_larger] = totals[..] else {
            return Err("too few sizes".into());
        };
        let exponent = (of_larger / of_smaller).ln() / (larger as f64 / smaller as f64).ln();
        let sizes = growth.sizes.map(|size| tables::number(size as f64));
        let each = totals
            .iter()
            .zip(growth.sizes)
            .map(|(total, size)| tables::number(total / size as f64));
        table += &format!(
            "| {} | {} | {} | {exponent:.2} | {} |\n",
            growth.name,
            sizes.join("; "),
            each.collect::<Vec<_>>().join("; "),
            growth.most,
        );
        if exponent > growth.most {
            steep.push((growth.name, growth.most));
        }
    }
    println!("{table}");
    for (name, most) in &steep {
        println!(
            "{name}: the exponent is greater than {most}. Find what looks at everything before."
        );
    }
    Ok((table, !steep.is_empty()))
}

/// Returns the instructions of one run of this size.
fn count_size(program: &Program, growth: &Growth, size: usize) -> Result<f64, BoxError> {
    let name = format!("{}: {size}", growth.name);
    let [fewer, more] = RUNS_OF_SIZE;
    let without = program.instructions(&name, fewer)?;
    let with = program.instructions(&name, more)?;
    Ok((with - without) as f64)
}

/// The names of all counts, in the order of the output.
fn names() -> impl Iterator<Item = &'static str> {
    rows()
        .into_iter()
        .map(|row| row.name)
        .chain([counted::CLOSURE])
}

/// Prints the protocols that cost too much beside chat completions, and telemetry that costs too
/// much although nobody receives it; returns whether there are any.
fn is_any_dear(counts: &Counts) -> bool {
    let of_chat = counted::BY_CHAT.map(|name| (name.trim_end_matches(counted::CHAT), counts[name]));
    let mut is_any = false;
    for (name, count) in counts {
        let beside = of_chat.iter().find(|(kind, _)| name.starts_with(kind));
        let Some((_, chat)) = beside else { continue };
        let ratio = count.instructions / chat.instructions;
        if ratio > counted::TIMES_CHAT {
            println!("\n{name}: {ratio:.2} times the instructions of chat completions");
            is_any = true;
        }
    }
    for (with, without, most) in counted::UNHEARD {
        let more = counts[with].instructions - counts[without].instructions;
        if more > most {
            println!("\n{with}: {more} instructions more, of at most {most}");
            is_any = true;
        }
    }
    is_any
}
