//! A fleet on a simulated clock and network: users, two servers with agents, three providers, a
//! bank and a database. Servers crash, hosts lose each other, and providers answer badly, by a
//! seed. Whatever happens: nothing is paid twice or without an approval, no limit is passed, every
//! question can be answered, and nobody is stuck.
//!
//! In each seed, 16 users come within a minute. `SEEDS=1000` tries so many of them; `SEED=17` tries
//! one, and says what has happened. `WEEK=100000` makes a week of so many users, few of them at
//! night, with a fault every two minutes, by the seed of `SEED`: with `--profile at-length` in 12
//! minutes of one core and 600 MB. A week of 1,000 users has a hundredth of its time and of its
//! faults. With `AT_LENGTH=1` there are 1,000 seeds and such a part of a week, and each part of the
//! fleet that keeps a promise is left out, to see that the promise is then broken.

mod bank;
mod database;
mod provider;
mod server;
mod user;
mod wire;
mod world;

use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use mad_turmoil::time::SimClocksGuard;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower_agent::BoxError;

use self::database::{Database, Tables};
use self::server::PROVIDERS;
use self::user::SERVERS;
use self::world::{Part, Plan, World};

/// The number of seeds in which something must be found without a part.
const MOST_SEEDS: u64 = 100;

/// How long a fault lasts, at most.
const FAULT: Duration = Duration::from_secs(40);

/// A fault, and when it is over.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Crash(&'static str),
    Partition(&'static str, &'static str),
    NoDatabase(&'static str),
}

/// Makes all that a plan says, and returns the world. The clock and the random numbers are those of
/// the whole program: one simulation at a time.
fn simulate(plan: Plan) -> World {
    // In a thread of its own: the seeds of hash maps are kept by thread.
    std::thread::spawn(move || make(plan)).join().unwrap()
}

fn make(plan: Plan) -> World {
    *mad_turmoil::rand::get_rng() = StdRng::seed_from_u64(plan.seed);
    let world = World::new(plan.clone());
    let end = plan.time + Duration::from_secs(3600);
    let mut sim = turmoil::Builder::new()
        .rng_seed(plan.seed)
        .simulation_duration(end)
        .tick_duration(plan.tick)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(plan.tick * 4)
        // A connection that is refused takes its port for good.
        .ephemeral_ports(1024..=u16::MAX)
        .tcp_capacity(1 << 12)
        .build();
    for host in PROVIDERS {
        let world = world.clone();
        sim.host(host, move || hosted(provider::run(world.clone(), host)));
    }
    let of_bank = world.clone();
    sim.host("bank", move || hosted(bank::run(of_bank.clone())));
    let tables = Arc::new(Tables::new());
    for host in SERVERS {
        let world = world.clone();
        let database = Database::new(tables.clone(), world.clone(), host);
        sim.host(host, move || {
            hosted(server::run(world.clone(), database.clone()))
        });
    }
    let of_users = world.clone();
    sim.client("users", async move {
        let begin = Instant::now();
        let mut users = JoinSet::new();
        for (number, arrival) in (0..).zip(of_users.arrivals()) {
            sleep_until(begin + arrival).await;
            users.spawn(user::run(of_users.clone(), number));
            while let Some(gone) = users.try_join_next() {
                gone?;
            }
        }
        while let Some(gone) = users.join_next().await {
            gone?;
        }
        Ok(())
    });

    let mut faults: Vec<_> = (0..plan.faults)
        .map(|_| {
            let begin = world.time(plan.time);
            let last = Duration::from_secs(1) + world.time(FAULT);
            (begin, begin + last, fault(&world))
        })
        .collect();
    faults.sort_by_key(|(begin, ..)| *begin);
    let mut faults = faults.into_iter().peekable();
    let mut active: Vec<(Duration, Fault)> = Vec::new();
    loop {
        let now = sim.elapsed();
        while let Some((_, until, fault)) = faults.next_if(|(begin, ..)| *begin <= now) {
            active.push((until, fault));
            begin_fault(&mut sim, &world, fault);
        }
        active.retain(|(until, fault)| {
            let ends = *until <= now;
            if ends {
                end_fault(&mut sim, &world, *fault);
            }
            !ends
        });
        match sim.step() {
            Ok(true) => break,
            Ok(false) => {}
            Err(error) => {
                eprintln!("seed {}: {error}", plan.seed);
                break;
            }
        }
    }
    drop(sim);
    world
}

/// Makes a program one of a host.
async fn hosted(program: impl Future<Output = Result<(), BoxError>>) -> turmoil::Result {
    let ended = program.await;
    ended.map_err(|error| -> Box<dyn std::error::Error> { error })
}

fn fault(world: &World) -> Fault {
    let server = SERVERS[world.below(2) as usize];
    match world.below(4) {
        0 => Fault::Crash(server),
        1 => Fault::Partition(server, PROVIDERS[world.below(3) as usize]),
        2 => Fault::Partition(server, "bank"),
        _ => Fault::NoDatabase(server),
    }
}

fn begin_fault(sim: &mut turmoil::Sim<'_>, world: &World, fault: Fault) {
    match fault {
        Fault::Crash(host) => {
            world.fault("crash");
            sim.crash(host);
        }
        Fault::Partition(one, other) => {
            world.fault("partition");
            sim.partition(one, other);
        }
        Fault::NoDatabase(host) => {
            world.seen().cut_off.insert(host);
        }
    }
}

fn end_fault(sim: &mut turmoil::Sim<'_>, world: &World, fault: Fault) {
    match fault {
        Fault::Crash(host) => sim.bounce(host),
        Fault::Partition(one, other) => sim.repair(one, other),
        Fault::NoDatabase(host) => {
            world.seen().cut_off.remove(host);
        }
    }
}

/// Tries the seeds of a process; returns whether all promises were kept.
fn try_seeds(seeds: impl Iterator<Item = u64>) -> bool {
    let mut are_kept = true;
    for seed in seeds {
        let world = simulate(Plan::minute(seed, None));
        for violation in world.violations() {
            println!("SEED={seed}: {violation}");
            are_kept = false;
        }
    }
    are_kept
}

/// Tries a week of so many users, and says what has happened; returns whether all promises were
/// kept.
fn try_week(seed: u64, users: u32) -> bool {
    let world = simulate(Plan::week(seed, users));
    let violations = world.violations();
    for violation in &violations {
        println!("WEEK={users} SEED={seed}: {violation}");
        for note in world.notes_about(violation) {
            println!("    {note}");
        }
    }
    let seen = world.seen();
    println!(
        "WEEK={users} SEED={seed}: {} users were there",
        seen.done.len()
    );
    println!(
        "paid {}, told to be paid {}",
        seen.paid.len(),
        seen.told.len()
    );
    println!("requests {}", seen.requests.values().sum::<u64>());
    for (provider, calls) in &seen.calls {
        println!("calls of {provider} {}", calls.len());
    }
    println!("questions {:?}", seen.asked);
    println!("faults {:?}", seen.faults);
    println!("hash of all notes {:016x}", seen.hash);
    violations.is_empty()
}

/// Leaves out each part, and looks for a seed in which the promise that it keeps is broken.
fn is_each_part_needed() -> bool {
    let mut are_needed = true;
    for (part, broken) in [
        (Part::Journal, "times"),
        (Part::Timeouts, "is stuck"),
        (Part::Approval, "without an approval"),
        (Part::RateLimit, "too often"),
        (Part::Budget, "model calls for"),
    ] {
        let violations = |seed| simulate(Plan::minute(seed, Some(part))).violations();
        let mut found = (0..MOST_SEEDS).flat_map(|seed| {
            let violations = violations(seed).into_iter();
            violations.map(move |violation| (seed, violation))
        });
        match found.find(|(_, violation)| violation.contains(broken)) {
            Some((seed, violation)) => println!("without {part:?}: {violation} (seed {seed})"),
            None => {
                println!("without {part:?}: nothing is lost");
                are_needed = false;
            }
        }
    }
    are_needed
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Starts this program for every second seed.
fn start(seeds: u64, first: u64) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env("SEEDS", seeds.to_string());
    command.env("FIRST", first.to_string()).spawn()
}

/// Not libtest's: it waits by a clock, which stands still here.
fn main() -> std::io::Result<ExitCode> {
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(0));
    let _clocks = SimClocksGuard::init();
    if let Some(users) = number("WEEK") {
        let seed = number("SEED").unwrap_or_default();
        let users = u32::try_from(users).unwrap_or(u32::MAX);
        return Ok(exit(try_week(seed, users)));
    }
    if let Some(seed) = number("SEED") {
        let world = simulate(Plan::minute(seed, None));
        println!("{:#?}", world.seen());
        return Ok(exit(world.violations().is_empty()));
    }
    let is_long = std::env::var_os("AT_LENGTH").is_some();
    let usual = if is_long { 1000 } else { 10 };
    let seeds = number("SEEDS").unwrap_or(usual);
    if let Some(first) = number("FIRST") {
        return Ok(exit(try_seeds((first..seeds).step_by(2))));
    }
    let mut halves = [start(seeds, 0)?, start(seeds, 1)?];
    let mut results = Vec::new();
    for half in &mut halves {
        results.push(half.wait()?.success());
    }
    if is_long {
        results.push(try_week(0, 1000));
        results.push(is_each_part_needed());
    }
    let failed = results.iter().filter(|is_good| !**is_good).count();
    println!("{} passed, {failed} failed", results.len() - failed);
    Ok(exit(failed == 0))
}

fn exit(is_good: bool) -> ExitCode {
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
