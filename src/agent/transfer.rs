//! Transfers the conversation to another agent.

use serde_json::{Value, json};

use super::agent::Agent;
use super::outline::Outline;
use crate::callback::LoopRules;
use crate::conversation::{NextStep, next_step};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Messages, Role};
use crate::run::TransferTarget;
use crate::tool::{Effect, Tool, ToolDeclaration, ToolRequest, ToolResponse};

pub(super) const NAME: &str = "transfer_to_agent";

/// Returns the tool for transfers to these agents, if there are any.
pub(super) fn tool(targets: Vec<TransferTarget>) -> Option<Tool> {
    if targets.is_empty() {
        return None;
    }
    let declaration = declaration(&targets);
    let service = tower::service_fn(move |request: ToolRequest| {
        std::future::ready(choose(&targets, request.arguments()))
    });
    Some(Tool::service(declaration, service))
}

/// Returns these agents as targets.
pub(super) fn targets(agents: &[Agent]) -> impl Iterator<Item = TransferTarget> {
    agents.iter().map(|agent| TransferTarget {
        name: agent.name().into(),
        description: agent.description().into(),
    })
}

fn declaration(targets: &[TransferTarget]) -> ToolDeclaration {
    let mut description =
        String::from("Transfers the conversation to another agent, which responds instead of you.");
    for target in targets {
        description.push_str("\n- `");
        description.push_str(&target.name);
        description.push('`');
        if !target.description.is_empty() {
            description.push_str(": ");
            description.push_str(&target.description);
        }
    }
    let names: Vec<_> = targets.iter().map(|target| &*target.name).collect();
    let name =
        json!({ "type": "string", "enum": names, "description": "The agent to transfer to." });
    ToolDeclaration::new(NAME, description)
        .with_parameters(json!({
            "type": "object",
            "properties": { "agent_name": name },
            "required": ["agent_name"],
        }))
        .with_effect(Effect::Idempotent)
        .of_transfer()
}

fn choose(targets: &[TransferTarget], arguments: &Value) -> Result<ToolResponse> {
    let chosen = arguments.get("agent_name").and_then(Value::as_str);
    match targets.iter().find(|target| Some(&*target.name) == chosen) {
        Some(target) => Ok(ToolResponse::new(taken_by(&target.name))),
        None => {
            let known: Vec<_> = targets.iter().map(|target| &*target.name).collect();
            let known = known.join(", ");
            let message = format!("`agent_name` must be one of these: {known}");
            Err(Error::new(ErrorKind::InvalidArguments, message))
        }
    }
}

const TAKEN: [&str; 2] = ["Transferred the conversation to `", "`."];

/// Returns the tool's result. It is in the transcript, where a resumed run finds it.
fn taken_by(agent: &str) -> String {
    let [before, after] = TAKEN;
    [before, agent, after].concat()
}

/// Returns the agent that a message with results of tools has transferred the conversation to.
pub(super) fn taker(results: &Message) -> Option<String> {
    let [before, after] = TAKEN;
    let takers = results.tool_results().filter_map(|answer| {
        let text = (&*answer.name == NAME && !answer.is_error).then(|| answer.text())?;
        let name = text.strip_prefix(before)?.strip_suffix(after)?;
        Some(name.to_owned())
    });
    takers.last()
}

/// Returns the agent that the last turn of these messages has transferred the conversation to. If
/// the model named several, the last one has it.
pub(super) fn successor(messages: &Messages) -> Option<String> {
    if matches!(next_step(messages), NextStep::Tools(_)) {
        return None;
    }
    let mut answers = messages
        .iter()
        .rev()
        .take_while(|message| message.role() == Role::Tool);
    answers.find_map(taker)
}

/// Returns the agent below `agent`, at `path`, that has the conversation after these messages, as
/// the path from there: the last one that spoke, if the conversation can go back from it.
pub(super) fn last_speaker(
    agents: &[Agent],
    path: &str,
    rules: &LoopRules,
    messages: &Messages,
) -> Option<String> {
    let mut said = messages.iter().rev().peekable();
    while said
        .next_if(|message| message.role() == Role::User)
        .is_some()
    {}
    // A transfer that nobody has answered: its target has failed, or was stopped.
    let asked = said.peek().and_then(|results| taker(results));
    let authors = said.filter_map(|message| match message.role() {
        Role::Assistant => message.author(),
        _ => None,
    });
    let mut authors = authors.peekable();
    let asked = asked.and_then(|name| {
        let by = authors.peek()?;
        let parent = by.rsplit_once('/').map(|(parent, _)| parent);
        if let Some(parent) = parent
            && parent.rsplit('/').next() == Some(&*name)
        {
            return Some(below(parent, path)?.to_owned());
        }
        let child = below(by, path).map(|by| join(by, &name));
        let peer = parent.and_then(|parent| Some(join(below(parent, path)?, &name)));
        let mut candidates = child.into_iter().chain(peer);
        candidates.find(|candidate| find(agents, candidate).is_some())
    });
    let speakers = asked
        .into_iter()
        .chain(authors.filter_map(|author| Some(below(author, path)?.to_owned())));
    for speaker in speakers {
        if speaker.is_empty() {
            return None;
        }
        if may_return(agents, &speaker, rules) {
            return Some(speaker);
        }
    }
    None
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

/// Returns an author's path from the agent at `path`.
fn below<'a>(author: &'a str, path: &str) -> Option<&'a str> {
    let below = author.strip_prefix(path)?;
    match below {
        "" => Some(""),
        below => below.strip_prefix('/'),
    }
}

/// Returns the agents on the way to this path.
fn find<'a>(agents: &'a [Agent], path: &str) -> Option<Vec<&'a Outline>> {
    let mut names = path.split('/');
    let first = names.next()?;
    let first = agents.iter().find(|agent| agent.name() == first)?;
    let mut way = vec![first.as_outline()];
    for name in names {
        let last = way.last().filter(|agent| !agent.is_team())?;
        let mut inside = last.inside.iter();
        way.push(inside.find(|agent| *agent.shell.name == *name)?);
    }
    Some(way)
}

/// Returns whether the conversation can come back from the agent at this path.
fn may_return(agents: &[Agent], path: &str, rules: &LoopRules) -> bool {
    let mut to_parent = rules.transfer_to_parent;
    find(agents, path).is_some_and(|way| {
        way.iter().all(|agent| {
            if let Some(own) = &agent.shell.rules {
                to_parent = own.agent_loop().transfer_to_parent;
            }
            !agent.is_team() && agent.shell.transfer_to_parent.unwrap_or(to_parent)
        })
    })
}
