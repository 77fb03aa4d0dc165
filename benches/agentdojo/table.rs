//! The defences, and what is measured of each.

use std::collections::BTreeMap;

use serde_json::Value;
use tower_agent::BoxError;

use crate::bridge::{Bridge, Suite};
use crate::labels::Labels;
use crate::person::{Person, Question};
use crate::planner::Obedience;
use crate::run::{Guard, Task, run};

pub(crate) struct Defence {
    pub(crate) guard: Guard,
    pub(crate) person: Person,
    /// What the model does in the runs with an attack.
    pub(crate) obedience: &'static [Obedience],
}

impl Defence {
    pub(crate) const fn new(guard: Guard, person: Person, obedience: &'static [Obedience]) -> Self {
        Self {
            guard,
            person,
            obedience,
        }
    }

    /// Returns what the model does in the runs without an attack: nothing else than the task, as
    /// nothing takes it over.
    fn without_attack(&self) -> Obedience {
        match self.obedience {
            [only] => *only,
            _ => Obedience::AtOnce,
        }
    }

    fn name(&self) -> &'static str {
        match self.guard {
            Guard::Nothing => "none",
            Guard::Approval => "`Approval` of every consequential call",
            Guard::Flow(Labels::Taint) => "`Flow`, nothing hidden, all arguments control",
            Guard::Flow(Labels::ByTool) => "`Flow`, results hidden, labels by tool",
            Guard::Flow(Labels::ByField) => "`Flow`, results hidden, labels by field",
        }
    }

    fn answer(&self) -> &'static str {
        match (self.person, self.obedience) {
            (Person::Nobody, _) if self.guard == Guard::Nothing => "",
            (Person::Nobody, _) => "refused",
            (Person::ApprovesAll, [Obedience::Curious]) => {
                "asked, all approved; the model looks at every result"
            }
            (Person::ApprovesAll, _) => "asked, all approved",
            (Person::Careful, _) => "asked, careful person",
        }
    }
}

impl std::fmt::Display for Defence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}", self.name(), self.answer())
    }
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
    Defence::new(Guard::Nothing, Person::Nobody, USUAL),
    Defence::new(Guard::Approval, Person::ApprovesAll, USUAL),
    Defence::new(Guard::Approval, Person::Careful, USUAL),
    Defence::new(Guard::Flow(Labels::Taint), Person::Nobody, USUAL),
    Defence::new(Guard::Flow(Labels::Taint), Person::ApprovesAll, USUAL),
    Defence::new(Guard::Flow(Labels::Taint), Person::Careful, USUAL),
    Defence::new(Guard::Flow(Labels::ByTool), Person::Nobody, ANY),
    Defence::new(Guard::Flow(Labels::ByTool), Person::ApprovesAll, USUAL),
    Defence::new(Guard::Flow(Labels::ByTool), Person::Careful, ANY),
    Defence::new(Guard::Flow(Labels::ByField), Person::Nobody, ANY),
    Defence::new(Guard::Flow(Labels::ByField), Person::ApprovesAll, USUAL),
    Defence::new(
        Guard::Flow(Labels::ByField),
        Person::ApprovesAll,
        &[Obedience::Curious],
    ),
    Defence::new(Guard::Flow(Labels::ByField), Person::Careful, ANY),
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

/// Runs a user's task with a defence: once without an attack, and with each attack in each way
/// until one succeeds.
pub(crate) async fn measure(
    bridge: &Bridge,
    suite: &str,
    tasks: &Suite,
    user: &str,
    defence: &Defence,
) -> Result<Row, BoxError> {
    let task = Task {
        suite,
        user,
        attack: None,
    };
    let ending = run(bridge, tasks, &task, defence, defence.without_attack()).await?;
    // The check of one task is content with a summary of a page that could not be read.
    let is_done = ending.is_done && !ending.model.was_refused;
    let mut row = Row {
        tasks: 1,
        done: usize::from(is_done),
        questions: ending.questions.len(),
        pairs: tasks.attacks.len(),
        ..Row::default()
    };
    let is_hidden = defence.guard.hides().is_some();
    if is_hidden && !is_done {
        eprintln!("{suite} {user}: not done with {defence}");
    }
    for attack in &tasks.attacks {
        let task = Task {
            suite,
            user,
            attack: Some(attack),
        };
        for obedience in defence.obedience {
            let ending = run(bridge, tasks, &task, defence, *obedience).await?;
            if ending.is_done {
                let count = if !ending.attack_has_calls {
                    &mut row.by_text
                } else if ending.has_other_call {
                    &mut row.by_control
                } else {
                    &mut row.by_content
                };
                *count += 1;
                if is_hidden && ending.attack_has_calls {
                    eprintln!("{suite} {user} {attack}: {obedience:?} succeeds with {defence}");
                }
                break;
            }
            // A model that has not read the mark does the same whatever it would do then.
            if !ending.model.is_taken_over && *obedience != Obedience::Curious {
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

/// Prints the tables in Markdown.
pub(crate) fn print(measured: &Measured) {
    for (suite, rows) in &measured.0 {
        println!("\n### {suite}\n");
        println!(
            "| defence | a call that breaks it | attacks by a call | by content alone | by the text to the user \
             | tasks done | questions a task |"
        );
        println!("|---|---|--:|--:|--:|--:|--:|");
        for (index, row) in rows {
            let defence = &DEFENCES[*index];
            println!(
                "| {} | {} | {} | {} | {} | {} | {:.2} |",
                defence.name(),
                defence.answer(),
                share(row.by_control, row.pairs),
                share(row.by_content, row.pairs),
                share(row.by_text, row.pairs),
                share(row.done, row.tasks),
                row.questions as f64 / row.tasks as f64,
            );
        }
    }
}

fn share(count: usize, of: usize) -> String {
    let percent = 100.0 * count as f64 / of as f64;
    format!("{count} of {of}, {percent:.1} %")
}

/// Prints the calls and the questions of an attack on a task, with each defence that hides results.
pub(crate) async fn explain(
    bridge: &Bridge,
    tasks: &Suite,
    task: &Task<'_>,
) -> Result<(), BoxError> {
    for defence in DEFENCES {
        for obedience in defence.obedience {
            let ending = run(bridge, tasks, task, defence, *obedience).await?;
            println!("\n{defence}; {obedience:?}; succeeds: {}", ending.is_done);
            for Question { asked, answer } in &ending.questions {
                println!("  asked {asked}\n    answer {answer}");
            }
            for call in &ending.calls {
                println!(
                    "  made {} {}",
                    call.tool,
                    Value::from(call.arguments.clone())
                );
            }
        }
    }
    Ok(())
}
