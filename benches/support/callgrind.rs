//! This program under callgrind.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{env, fs, panic, thread};

use object::{Object, ObjectSegment};
use tower_agent::BoxError;

/// The simulated caches: size, ways and line in bytes. They are given so that those of the
/// machine's CPU do not change a count. That of the instructions has one set: with 8 ways, as most
/// CPUs have, functions push each other out depending on where they lie, and the misses of the same
/// code differed by up to 6 % between two folders that it was built in.
const CACHES: [&str; 4] = [
    "--cache-sim=yes",
    "--I1=32768,512,64",
    "--D1=32768,8,64",
    "--LL=8388608,16,64",
];

/// Costs with the address of each instruction, written in full.
const ADDRESSES: [&str; 3] = ["--dump-instr=yes", "--dump-line=no", "--compress-pos=no"];

/// The two numbers of runs, after one warm-up run.
const RUNS: [usize; 2] = [10, 60];

/// This program and its code.
pub(crate) struct Program {
    path: PathBuf,
    /// The segments that are loaded, each with the address of its first byte.
    segments: Vec<(u64, Vec<u8>)>,
}

/// The counts of one execution of a program.
#[derive(Default)]
struct Profile {
    instructions: u64,
    allocations: u64,
    atomics: u64,
    misses: u64,
}

impl Program {
    /// Reads the running program.
    pub(crate) fn new() -> Result<Self, BoxError> {
        let path = env::current_exe()?;
        let bytes = fs::read(&path)?;
        let mut segments = Vec::new();
        for segment in object::File::parse(&*bytes)?.segments() {
            segments.push((segment.address(), segment.data()?.to_owned()));
        }
        Ok(Self { path, segments })
    }

    /// Returns all counts of so many runs of a row.
    fn profile(&self, row: &str, runs: usize) -> Result<Profile, BoxError> {
        let options = [&CACHES[..], &ADDRESSES].concat();
        self.read(&self.callgrind(&options, row, runs)?)
    }

    /// Returns the counts of one run of a row, of so many in each: instructions, allocations,
    /// atomic instructions, misses.
    pub(crate) fn each(&self, row: &str, per_run: usize) -> Result<[f64; 4], BoxError> {
        let [fewer, more] = RUNS;
        let of_fewer = self.profile(row, fewer)?;
        let of_more = self.profile(row, more)?;
        let each = |fewer_counted: u64, more_counted: u64| {
            // Two runs of a program differ a little: a row without misses may have one less.
            (more_counted as f64 - fewer_counted as f64) / ((more - fewer) * per_run) as f64
        };
        Ok([
            each(of_fewer.instructions, of_more.instructions),
            each(of_fewer.allocations, of_more.allocations),
            each(of_fewer.atomics, of_more.atomics),
            each(of_fewer.misses, of_more.misses),
        ])
    }

    /// Returns the instructions of so many runs of a row.
    pub(crate) fn instructions(&self, row: &str, runs: usize) -> Result<u64, BoxError> {
        Ok(self.read(&self.callgrind(&[], row, runs)?)?.instructions)
    }

    fn callgrind(&self, options: &[&str], row: &str, runs: usize) -> Result<String, BoxError> {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let valgrind = Command::new("valgrind")
            .args(["--tool=callgrind", "--quiet"])
            .args(options)
            .arg(format!(
                "--callgrind-out-file={}",
                directory.join("counts.%p").display()
            ))
            .arg(&self.path)
            .args(["--row", row, &runs.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("valgrind is needed, and does not start: {error}"))?;
        let file = directory.join(format!("counts.{}", valgrind.id()));
        let output = valgrind.wait_with_output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let text = fs::read_to_string(&file)?;
        fs::remove_file(file)?;
        Ok(text)
    }

    /// Parses callgrind's format: the totals, the number of allocator calls, and how often each
    /// atomic instruction of this program ran.
    fn read(&self, text: &str) -> Result<Profile, BoxError> {
        let mut profile = Profile::default();
        let mut functions = HashMap::new();
        let mut objects = HashMap::new();
        let mut miss_column = None;
        let mut is_allocator = false;
        let mut is_own = false;
        let mut is_of_call = false;
        for line in text.lines() {
            if line.starts_with("0x") {
                // The line below a call has the costs of the called function, which are listed
                // there too.
                if is_of_call {
                    is_of_call = false;
                } else if is_own {
                    profile.atomics += self.count_atomics(line)?;
                }
                continue;
            }
            let Some((key, value)) = line.split_once(['=', ':']) else {
                continue;
            };
            // A name is written in full at its first use, and later by its number.
            let (number, name) = value.split_once(' ').unwrap_or((value, ""));
            match key {
                "events" => {
                    miss_column = value.split_whitespace().position(|event| event == "I1mr");
                }
                "totals" => {
                    let totals: Vec<_> = value.split_whitespace().collect();
                    profile.instructions = totals.first().ok_or("no totals")?.parse()?;
                    if let Some(misses) = miss_column.and_then(|column| totals.get(column)) {
                        profile.misses = misses.parse()?;
                    }
                }
                "ob" | "cob" => {
                    let is_program = *objects
                        .entry(number)
                        .or_insert_with(|| Path::new(name) == self.path);
                    if key == "ob" {
                        is_own = is_program;
                    }
                }
                "fn" | "cfn" => {
                    is_allocator = *functions
                        .entry(number)
                        .or_insert_with(|| ALLOCATORS.contains(&name));
                }
                "calls" => {
                    is_of_call = true;
                    if is_allocator {
                        profile.allocations += number.parse::<u64>()?;
                    }
                }
                _ => {}
            }
        }
        if profile.instructions == 0 {
            return Err("no total in what callgrind wrote".into());
        }
        Ok(profile)
    }

    /// Returns how often the instruction of a line, such as `0x1a2b 40 0 1`, ran, if it is atomic.
    fn count_atomics(&self, line: &str) -> Result<u64, BoxError> {
        let mut numbers = line.split(' ');
        let address = numbers.next().unwrap_or_default().trim_start_matches("0x");
        let address = u64::from_str_radix(address, 16)?;
        let times = numbers.next().ok_or("an instruction without a cost")?;
        let code = self.segments.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(offset..)
        });
        let code = code.ok_or_else(|| format!("no code of this program at {address:#x}"))?;
        if is_atomic(code) {
            Ok(times.parse()?)
        } else {
            Ok(0)
        }
    }
}

/// Counts items, as many at a time as there are CPUs: a count does not depend on what runs beside
/// it.
pub(crate) fn in_parallel<T: Sync, C: Send>(
    items: &[T],
    count: impl Fn(&T) -> Result<C, BoxError> + Sync,
) -> Result<Vec<C>, BoxError> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut counted = Vec::new();
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(index) else {
                return Ok::<_, BoxError>(counted);
            };
            counted.push((index, count(item)?));
        }
    };
    let cpus = thread::available_parallelism()?.get();
    let mut counted = thread::scope(|scope| {
        let workers: Vec<_> = (0..cpus).map(|_| scope.spawn(work)).collect();
        let mut counted = Vec::new();
        for worker in workers {
            counted.extend(
                worker
                    .join()
                    .unwrap_or_else(|panic| panic::resume_unwind(panic))?,
            );
        }
        Ok::<_, BoxError>(counted)
    })?;
    counted.sort_by_key(|(index, _)| *index);
    Ok(counted.into_iter().map(|(_, count)| count).collect())
}

/// The functions whose calls are allocations.
const ALLOCATORS: [&str; 5] = [
    "malloc",
    "calloc",
    "realloc",
    "posix_memalign",
    "aligned_alloc",
];

/// Returns whether the x86-64 instruction that begins here is atomic: it has the prefix `lock`, or
/// is an `xchg` with memory, which locks without one.
fn is_atomic(code: &[u8]) -> bool {
    const LOCK: u8 = 0xf0;
    const XCHG: [u8; 2] = [0x86, 0x87];
    let is_legacy_prefix = |byte: &&u8| {
        matches!(
            **byte,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | LOCK | 0xf2 | 0xf3
        )
    };
    let prefixes = code.iter().take_while(is_legacy_prefix).count();
    let (prefixes, instruction) = code.split_at(prefixes);
    if prefixes.contains(&LOCK) {
        return true;
    }
    let has_rex = instruction.first().is_some_and(|byte| byte >> 4 == 4);
    let opcode = usize::from(has_rex);
    let Some([opcode, operands]) = instruction.get(opcode..opcode + 2) else {
        return false;
    };
    // With these two bits the second operand is a register.
    XCHG.contains(opcode) && operands >> 6 != 0b11
}
