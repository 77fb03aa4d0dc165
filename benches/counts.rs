//! Instructions and allocations, counted by valgrind. Between runs of one build, instructions
//! differ by less than 0.1 % and allocations not at all. Other compilers and incremental builds
//! give other counts; set `CARGO_INCREMENTAL=0` if incremental is the default.
//!
//! ```sh
//! cargo bench --bench counts                # shows them beside benches/counts.json
//! cargo bench --bench counts -- --check     # fails where one grew by more than 3 %, or faster than its size
//! cargo bench --bench counts -- --write     # renews the file
//! ```
//!
//! The bench runs itself under callgrind with two numbers of runs; the difference is the cost of
//! the runs alone, without startup. `--row <name> <runs>` does this part, and can also be used with
//! a profiler; so does `--row <name>: <size> <runs>` for work of growing size. `--growth` counts only that.

#[path = "support/counted.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared")]
mod counted;
#[path = "support/growing.rs"]
#[allow(unreachable_pub, reason = "beside what is shared")]
mod growing;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use tower_agent::BoxError;

use self::counted::{CLOSURES, Count, FILE, MARGIN, ROWS, Row};
use self::growing::{GROWTHS, Growth};

/// The two numbers of runs, after one warm-up run.
const RUNS: [usize; 2] = [10, 60];

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
    let is_steep = is_any_steep()?;
    if asked("--growth") {
        return Ok(exit_code(is_steep));
    }
    let mut counts = BTreeMap::new();
    for row in ROWS {
        counts.insert(row.name, count(row)?);
    }
    let [ten, twenty] = CLOSURES.map(|name| counts[name]);
    let each = |ten, twenty| (twenty - ten) / (20.0 * 39.0);
    let instructions = each(ten.instructions, twenty.instructions);
    let allocations = each(ten.allocations, twenty.allocations);
    counts.insert(counted::CLOSURE, rounded(instructions, allocations));
    let writes = asked("--write");
    let grew = if writes {
        fs::write(FILE, written(&counts)?)?;
        false
    } else {
        compare(&counts)
    };
    let fails = grew | is_any_dear(&counts) | is_steep;
    Ok(exit_code(fails && (writes || asked("--check"))))
}

fn exit_code(fails: bool) -> ExitCode {
    if fails {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Runs a row this many times, after one warm-up run.
fn work_for(name: &str, runs: usize) -> Result<(), BoxError> {
    let mut run = match name.rsplit_once(": ") {
        Some((name, size)) => {
            let growth = GROWTHS.iter().find(|growth| growth.name == name);
            (growth.ok_or("there is no such growth")?.make)(size.parse()?)
        }
        None => {
            let row = ROWS.iter().find(|row| row.name == name);
            (row.ok_or("there is no such row")?.make)()
        }
    };
    (0..=runs).for_each(|_| run());
    Ok(())
}

/// The counts of one run of a row.
fn count(row: &Row) -> Result<Count, BoxError> {
    let [fewer, more] = RUNS;
    let (fewer_counted, more_counted) = (callgrind(row.name, fewer)?, callgrind(row.name, more)?);
    let each = |fewer_counted: u64, more_counted: u64| {
        (more_counted - fewer_counted) as f64 / ((more - fewer) * row.per_run) as f64
    };
    Ok(rounded(
        each(fewer_counted.instructions, more_counted.instructions),
        each(fewer_counted.allocations, more_counted.allocations),
    ))
}

/// Counts the work of growing size and prints it; returns whether some grows faster than its size.
fn is_any_steep() -> Result<bool, BoxError> {
    let mut steep = Vec::new();
    println!("| | sizes | instructions for one of them | exponent |");
    println!("|---|---|---|--:|");
    for growth in GROWTHS {
        let mut totals = Vec::new();
        for size in growth.sizes {
            totals.push(count_size(growth, size)?);
        }
        let [.., smaller, larger] = growth.sizes;
        let [.., of_smaller, of_larger] = totals[..] else {
            return Err("too few sizes".into());
        };
        let exponent = (of_larger / of_smaller).ln() / (larger as f64 / smaller as f64).ln();
        let each = totals
            .iter()
            .zip(growth.sizes)
            .map(|(total, size)| format!("{:.0}", total / size as f64));
        println!(
            "| {} | {} | {} | {exponent:.2} |",
            growth.name,
            growth.sizes.map(|size| size.to_string()).join(", "),
            each.collect::<Vec<_>>().join(", "),
        );
        if exponent > growth.most {
            steep.push((growth.name, growth.most));
        }
    }
    for (name, most) in &steep {
        println!(
            "\n{name}: the exponent is greater than {most}. Find what looks at everything before."
        );
    }
    println!();
    Ok(!steep.is_empty())
}

/// Returns the instructions of one run of this size.
fn count_size(growth: &Growth, size: usize) -> Result<f64, BoxError> {
    let name = format!("{}: {size}", growth.name);
    let [fewer, more] = RUNS_OF_SIZE;
    let without = callgrind(&name, fewer)?.instructions;
    let with = callgrind(&name, more)?.instructions;
    Ok((with - without) as f64)
}

fn rounded(instructions: f64, allocations: f64) -> Count {
    Count {
        instructions: instructions.round(),
        allocations: (allocations * 100.0).round() / 100.0,
    }
}

#[derive(Default)]
struct Profile {
    instructions: u64,
    allocations: u64,
}

fn callgrind(name: &str, runs: usize) -> Result<Profile, BoxError> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("counts.callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(env::current_exe()?)
        .args(["--row", name, &runs.to_string()])
        .output()
        .map_err(|error| format!("valgrind is needed, and does not start: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Profile::read(&fs::read_to_string(file)?)
}

impl Profile {
    /// Parses callgrind's format: the total instructions, and the number of allocator calls.
    fn read(text: &str) -> Result<Self, BoxError> {
        let mut profile = Self::default();
        let mut names = HashMap::new();
        let mut allocates = false;
        for line in text.lines() {
            let Some((key, value)) = line.split_once(['=', ':']) else {
                continue;
            };
            match key {
                "totals" => profile.instructions = value.trim().parse()?,
                // A name is written in full at its first use, and later by its number.
                "fn" | "cfn" => {
                    let (number, name) = value.split_once(' ').unwrap_or((value, ""));
                    let is_allocator = names.entry(number).or_insert_with(|| is_allocator(name));
                    allocates = *is_allocator;
                }
                "calls" if allocates => {
                    let times = value.split(' ').next().unwrap_or_default();
                    profile.allocations += times.parse::<u64>()?;
                }
                _ => {}
            }
        }
        if profile.instructions == 0 {
            Err("no total in what callgrind wrote".into())
        } else {
            Ok(profile)
        }
    }
}

fn is_allocator(function: &str) -> bool {
    [
        "malloc",
        "calloc",
        "realloc",
        "posix_memalign",
        "aligned_alloc",
    ]
    .contains(&function)
}

/// Prints the counts beside those of the file; returns whether one grew.
fn compare(counts: &BTreeMap<&str, Count>) -> bool {
    let expected = counted::expected();
    let (mut grew, mut fell) = (false, false);
    println!("| | instructions | | allocations | |");
    println!("|---|--:|--:|--:|--:|");
    for name in ROWS.iter().map(|row| row.name).chain([counted::CLOSURE]) {
        let (count, before) = (counts[name], expected.get(name));
        let mut change = |count: f64, before: Option<f64>| {
            let Some(before) = before else {
                grew = true;
                return "new".to_owned();
            };
            let change = count - before;
            grew |= change > before * MARGIN;
            fell |= -change > before * MARGIN;
            if change == 0.0 {
                String::new()
            } else {
                format!("{:+.1} %", 100.0 * change / before)
            }
        };
        let instructions = change(count.instructions, before.map(|before| before.instructions));
        let allocations = change(count.allocations, before.map(|before| before.allocations));
        let Count {
            instructions: counted,
            allocations: allocated,
        } = count;
        println!("| {name} | {counted} | {instructions} | {allocated} | {allocations} |");
    }
    if grew {
        println!(
            "\nA count grew by more than {} %. Make it smaller, or say why.",
            100.0 * MARGIN
        );
    }
    if grew || fell {
        println!("\nWhat changed for good: cargo bench --bench counts -- --write");
    }
    grew
}

/// Prints the protocols that cost too much beside chat completions, and telemetry that costs too much although
/// nobody receives it; returns whether there are any.
fn is_any_dear(counts: &BTreeMap<&str, Count>) -> bool {
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

/// Returns the counts in the file's format, one line each.
fn written(counts: &BTreeMap<&str, Count>) -> Result<String, BoxError> {
    let names = ROWS.iter().map(|row| row.name).chain([counted::CLOSURE]);
    let lines: Result<Vec<_>, BoxError> = names
        .map(|name| {
            Ok(format!(
                "    {}: {}",
                serde_json::to_string(name)?,
                line(counts[name])
            ))
        })
        .collect();
    Ok(format!("{{\n{}\n}}\n", lines?.join(",\n")))
}

fn line(
    Count {
        instructions,
        allocations,
    }: Count,
) -> String {
    format!(r#"{{ "instructions": {instructions}, "allocations": {allocations} }}"#)
}
