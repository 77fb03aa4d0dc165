//! Forks, begun from the page.

use std::time::Duration;

use futures_util::future::select;
use http::request::Parts;
use http::{Response, StatusCode};
use serde::Deserialize;
use tower_agent::message::Messages;
use tower_agent::{Agent, BoxError, Settings};

use super::body::ResponseBody;
use super::input;
use super::reply::{self, Refusal};
use crate::console::{Console, Found};
use crate::fork::Fork;
use crate::lock::lock;
use crate::operator::Operator;

/// The maximum length of what is changed, in bytes.
const CHANGES: usize = 4 << 20;

/// The time in which a fork usually begins.
const BEGIN_TIME: Duration = Duration::from_secs(10);

/// The changes that an operator makes. What is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    messages: Option<Messages>,
    instructions: Option<String>,
    settings: Option<Settings>,
    model: Option<String>,
    message: Option<String>,
}

/// Returns what may be changed at a step: of those who see content alone.
pub(super) async fn step(
    console: &Console,
    operator: &Operator,
    run: &str,
    step: &str,
) -> Result<Response<ResponseBody>, Refusal> {
    may_fork(operator)?;
    let step = step.parse().map_err(|_| Refusal::not_found())?;
    is_here(console, run).await?;
    Ok(reply::json(&console.step(run, step).await?))
}

/// Begins a fork, and writes down who has.
pub(super) async fn begin<B>(
    console: &Console,
    operator: &Operator,
    run: &str,
    step: &str,
    parts: &Parts,
    body: B,
) -> Result<Response<ResponseBody>, Refusal>
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    let begun = fork(console, operator, run, step, parts, body).await;
    let begun = match begun {
        Ok((agent, fork)) => Ok(start(console, agent, fork).await),
        Err(refusal) => Err(refusal),
    };
    let (status, named) = match &begun {
        Ok(id) => (StatusCode::CREATED, format!(", as {id}")),
        Err(refusal) => (refusal.status(), String::new()),
    };
    let cut = |text: &str| text.chars().take(200).collect::<String>();
    console.inner.audited(
        operator,
        "fork",
        format!("run {} from step {}{named}", cut(run), cut(step)),
        status,
    );
    let mut response = reply::json(&serde_json::json!({ "run": begun? }));
    *response.status_mut() = status;
    Ok(response)
}

/// Starts a fork, and returns its id once the console has its run, which the page goes to next.
async fn start(console: &Console, agent: Agent, fork: Fork) -> String {
    let id = fork.run_id().to_owned();
    let collector = &console.inner.collector;
    let mut changed = collector.changed.subscribe();
    // It goes on, whether the operator stays or not.
    let running = tokio::spawn(console.inner.forks.clone().run(agent, fork));
    let is_told = async {
        loop {
            changed.mark_unchanged();
            collector.collect();
            let is_known = lock(&collector.store).number(&id).is_some();
            if is_known || changed.changed().await.is_err() {
                return;
            }
        }
    };
    // Something around the agent may hold it back, such as a limit. It is no error then: the run is
    // told of when it begins.
    let first = select(Box::pin(is_told), running);
    drop(tokio::time::timeout(BEGIN_TIME, first).await);
    id
}

async fn fork<B>(
    console: &Console,
    operator: &Operator,
    run: &str,
    step: &str,
    parts: &Parts,
    body: B,
) -> Result<(Agent, Fork), Refusal>
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    may_fork(operator)?;
    let step = step.parse().map_err(|_| Refusal::not_found())?;
    let changes: Changes = input::json(parts, body, CHANGES).await?;
    is_here(console, run).await?;
    let mut fork = console.fork(run, step).await?;
    let agent = console.inner.agent_named(fork.agent_name());
    let agent = agent.ok_or_else(|| {
        let why = "the console was not given the agent of this run: see `Console::agent`";
        Refusal::new(StatusCode::CONFLICT, "unknown_agent", why)
    })?;
    if let Some(messages) = changes.messages {
        fork = fork.messages(|all| *all = messages);
    }
    if let Some(instructions) = changes.instructions {
        fork = fork.instructions(instructions);
    }
    if let Some(settings) = changes.settings {
        fork = fork.all_settings(settings);
    }
    if let Some(model) = changes.model {
        fork = fork.model(model);
    }
    if let Some(message) = changes.message {
        fork = fork.message(tower_agent::Message::user(message));
    }
    Ok((agent, fork))
}

fn may_fork(operator: &Operator) -> Result<(), Refusal> {
    if operator.may_fork() {
        return Ok(());
    }
    let why = format!(
        "to fork a run, an operator sees content and has the role `{}`",
        Fork::ROLE
    );
    Err(Refusal::new(StatusCode::FORBIDDEN, "forbidden", why))
}

/// Fails if there is no such run: one of the database is told from one that never was.
async fn is_here(console: &Console, run: &str) -> Result<(), Refusal> {
    match console.inner.find(run).await? {
        Found::Nowhere => Err(Refusal::not_found()),
        _ => Ok(()),
    }
}
