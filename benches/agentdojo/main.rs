//! Measures the guard `flow` on AgentDojo, with a model that obeys the attacker. See the README.

mod bridge;
mod channels;
mod chat;
mod knowledge;
mod labels;
mod person;
mod planner;
mod run;
mod table;
mod tasks;
#[cfg(test)]
mod tests;
mod values;

use std::sync::Arc;

use tower_agent::BoxError;

use crate::bridge::Bridge;
use crate::run::Task;
use crate::table::{DEFENCES, Measured, Part, parts, print};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let catalogue = Arc::new(Bridge::start()?.catalogue().await?);
    if let [suite, user, attack] = &arguments[..] {
        let tasks = catalogue.get(suite).ok_or("no such suite")?;
        let task = Task {
            suite,
            user,
            attack: Some(attack),
        };
        return table::explain(&Bridge::start()?, tasks, &task).await;
    }
    let suites = match &arguments[..] {
        [] => catalogue.keys().cloned().collect(),
        [suite] if catalogue.contains_key(suite) => vec![suite.clone()],
        _ => return Err("usage: run [SUITE [USER_TASK INJECTION_TASK]]".into()),
    };
    let parts = Arc::new(parts(&catalogue, &suites));
    let workers = std::thread::available_parallelism()?.get();
    let mut running = Vec::new();
    for worker in 0..workers {
        let parts = parts.clone();
        let catalogue = catalogue.clone();
        running.push(tokio::spawn(async move {
            let bridge = Bridge::start()?;
            let mut measured = Vec::new();
            for Part { suite, user } in parts.iter().skip(worker).step_by(workers) {
                let tasks = &catalogue[suite];
                for (index, defence) in DEFENCES.iter().enumerate() {
                    let result = table::measure(&bridge, suite, tasks, user, defence).await?;
                    measured.push((suite.clone(), index, result));
                }
            }
            Ok::<_, BoxError>(measured)
        }));
    }
    let mut measured = Measured::default();
    for worker in running {
        for (suite, defence, result) in worker.await?? {
            measured.add(&suite, defence, &result);
        }
    }
    print(&measured);
    Ok(())
}
