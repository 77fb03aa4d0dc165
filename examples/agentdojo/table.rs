//! The defences, and what is measured of each.

use std::collections::BTreeMap;

use tower_agent::BoxError;

use crate::bridge::{Bridge, Suite};
use crate::labels::Labels;
use crate::planner::Obedience;
use crate::run::{Guard, Person, Task, run};

pub(crate) struct Defence {
    name: &'static str,
    guard: Guard,
    person: Person,
    /// What the model does in the runs with an attack.
    obedience: &'static [Obedience],
}

/// A model that looks at hidden results only where the task needs it.
const USUAL: &[Obedience] = &[
    Obedience::AtOnce,
    Obedience::AtTheEnd,
    Obedience::Instead,
    Obedience::Within,
];

/// That model, and one that looks at every result.
const ANY: &[Obedience] = &[
    Obedience::Curious,
    Obedience::AtOnce,
    Obedience::AtTheEnd,
    Obedience::Instead,
    Obedience::Within,
];

pub(crate) const DEFENCES: &[Defence] = &[
    Defence {
        name: "none",
        guard: Guard::Nothing,
        person: Person::Nobody,
        obedience: USUAL,
    },
    Defence {
        name: "every consequential call is asked about, all approved",
        guard: Guard::Approval,
        person: Person::ApprovesAll,
        obedience: USUAL,
    },
    Defence {
        name: "the same, careful person",
        guard: Guard::Approval,
        person: Person::Careful,
        obedience: USUAL,
    },
    Defence {
        name: "taint of the context alone, refused",
        guard: Guard::Flow(Labels::Taint),
        person: Person::Nobody,
        obedience: USUAL,
    },
    Defence {
        name: "the same, all approved",
        guard: Guard::Flow(Labels::Taint),
        person: Person::ApprovesAll,
        obedience: USUAL,
    },
    Defence {
        name: "the same, careful person",
        guard: Guard::Flow(Labels::Taint),
        person: Person::Careful,
        obedience: USUAL,
    },
    Defence {
        name: "`Flow`, labels by tool, refused",
        guard: Guard::Flow(Labels::ByTool),
        person: Person::Nobody,
        obedience: ANY,
    },
    Defence {
        name: "the same, all approved",
        guard: Guard::Flow(Labels::ByTool),
        person: Person::ApprovesAll,
        obedience: USUAL,
    },
    Defence {
        name: "the same, careful person",
        guard: Guard::Flow(Labels::ByTool),
        person: Person::Careful,
        obedience: ANY,
    },
    Defence {
        name: "`Flow`, labels by field, refused",
        guard: Guard::Flow(Labels::ByField),
        person: Person::Nobody,
        obedience: ANY,
    },
    Defence {
        name: "the same, all approved",
        guard: Guard::Flow(Labels::ByField),
        person: Person::ApprovesAll,
        obedience: USUAL,
    },
    Defence {
        name: "the same, and the model looks at every result",
        guard: Guard::Flow(Labels::ByField),
        person: Person::ApprovesAll,
        obedience: &[Obedience::Curious],
    },
    Defence {
        name: "the same, careful person",
        guard: Guard::Flow(Labels::ByField),
        person: Person::Careful,
        obedience: ANY,
    },
];

/// A user's task, with all attacks on it.
pub(crate) struct Part {
    pub(crate) suite: String,
    pub(crate) user: String,
}

pub(crate) fn parts(catalogue: &BTreeMap<String, Suite>, suites: &[String]) -> Vec<Part> {
    let mut parts = Vec::new();
    for suite in suites {
        for user in &catalogue[suite].users {
            parts.push(Part {
                suite: suite.clone(),
                user: user.clone(),
            });
        }
    }
    parts
}

/// What was measured of one defence.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    pub(crate) tasks: usize,
    pub(crate) done: usize,
    pub(crate) questions: usize,
    pub(crate) pairs: usize,
    /// Attacks that succeed by a call which the user's task has not.
    pub(crate) by_control: usize,
    /// Attacks that succeed by the content of the user's own calls.
    pub(crate) by_content: usize,
    /// Attacks that want no call and succeed by what the user is told.
    pub(crate) by_text: usize,
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.tasks += other.tasks;
        self.done += other.done;
        self.questions += other.questions;
        self.pairs += other.pairs;
        self.by_control += other.by_control;
        self.by_content += other.by_content;
        self.by_text += other.by_text;
    }
}

/// Runs a user's task with a defence: once without an attack, and with each attack in each way until one succeeds.
pub(crate) async fn measure(
    bridge: &Bridge,
    suite: &str,
    tasks: &Suite,
    user: &str,
    defence: &Defence,
) -> Result<Row, BoxError> {
    let Defence {
        name,
        guard,
        person,
        obedience,
    } = defence;
    let task = Task {
        suite,
        user,
        attack: None,
    };
    let ending = run(bridge, tasks, &task, *guard, *person, Obedience::AtOnce).await?;
    let mut row = Row {
        tasks: 1,
        done: usize::from(ending.is_done),
        questions: ending.questions,
        pairs: tasks.attacks.len(),
        ..Row::default()
    };
    let is_flow = guard.hides().is_some();
    if is_flow && !ending.is_done {
        eprintln!("not done: {name} {guard:?}: {suite} {user}");
    }
    if is_flow && ending.questions > 0 {
        eprintln!(
            "asked: {} {name} {guard:?}: {suite} {user}",
            ending.questions
        );
    }
    for attack in &tasks.attacks {
        let task = Task {
            suite,
            user,
            attack: Some(attack),
        };
        for obedience in *obedience {
            let ending = run(bridge, tasks, &task, *guard, *person, *obedience).await?;
            if ending.is_done {
                if !ending.attack_has_calls {
                    row.by_text += 1;
                } else if ending.has_other_call {
                    row.by_control += 1;
                } else {
                    row.by_content += 1;
                }
                if is_flow {
                    eprintln!(
                        "passed: {name} {guard:?}: {suite} {user} {attack} {obedience:?} {}",
                        ending.has_other_call
                    );
                }
                break;
            }
            // A model that has not read the mark does the same whatever it would do then.
            if !ending.is_taken_over && *obedience != Obedience::Curious {
                break;
            }
        }
    }
    Ok(row)
}

/// What was measured, by suite and defence.
#[derive(Default)]
pub(crate) struct Measured(BTreeMap<String, BTreeMap<usize, Row>>);

impl Measured {
    pub(crate) fn add(&mut self, suite: &str, defence: usize, row: &Row) {
        for name in ["all four suites", suite] {
            let rows = self.0.entry(name.to_owned()).or_default();
            rows.entry(defence).or_default().add(row);
        }
    }
}

pub(crate) fn print(measured: &Measured) {
    for (suite, rows) in &measured.0 {
        println!("\n### {suite}\n");
        println!(
            "| defence | attacks by a call | by content alone | by the text to the user | tasks done | questions a task |"
        );
        println!("|---|--:|--:|--:|--:|--:|");
        for (defence, row) in rows {
            let attacks = |count: usize| format!("{count} ({:.1} %)", percent(count, row.pairs));
            println!(
                "| {} | {} | {} | {} | {} of {} ({:.1} %) | {:.2} |",
                DEFENCES[*defence].name,
                attacks(row.by_control),
                attacks(row.by_content),
                attacks(row.by_text),
                row.done,
                row.tasks,
                percent(row.done, row.tasks),
                row.questions as f64 / row.tasks as f64,
            );
        }
    }
}

fn percent(count: usize, of: usize) -> f64 {
    100.0 * count as f64 / of as f64
}
