//! A run that goes on from a step of another one.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tower_agent::call::{Origin, Witness};
use tower_agent::callback::{Action, Bundle, Callback, Wrap, before_model, wrap_tool};
use tower_agent::error::{Error, ErrorKind, Interrupt, ResolutionOutcome, Result};
use tower_agent::message::Messages;
use tower_agent::{
    AgentRequest, Checkpoint, Effect, Message, ModelRequest, Request, Settings, State, ToolRequest,
    ToolResponse,
};

use crate::content;
use crate::forked::{Edit, Edits, ForkOf, Forked};
use crate::kept::{Kept, KeptRun};
use crate::lock::lock;
use crate::not_recorded::NotRecorded;
use crate::past::{Known, Past, PastEntry, PastKind};

/// The part of a fork's id between that of the run and the one that tells its forks apart.
const FORK: &str = "-fork-";

/// A new run that goes on from a step of a recorded one, with changes: made by
/// [`Console::fork`](crate::Console::fork), and run by any agent that this console watches.
///
/// ```
/// use tower_agent::{Agent, AgentRequest};
/// use tower_agent_console::Console;
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// # let model = ScriptedModel::new([Turn::from_text("Grey."), Turn::from_text("Blue.")]);
/// let console = Console::new().record_content();
/// let agent = Agent::builder(model).global_callbacks(console.watch()).build()?;
/// agent.run(AgentRequest::new("The sky?").with_run_id("r1")).await?;
///
/// let fork = console.fork("r1", 0).await?.instructions("It is summer.").model("a-larger-one");
/// assert!(fork.run_id().starts_with("r1-fork-"));
/// assert_eq!(agent.run(fork).await?.text(), "Blue.");
/// # Ok(())
/// # }
/// ```
///
/// It becomes an [`AgentRequest`], which can be given more: the [state] and the [extensions] that
/// the run had are in no record, so give those that its tools need. Nor is its private state: what
/// a redaction has hidden stays a placeholder. In the console, its user is that of the run unless
/// the fork is [given](crate::Console::user_id) another: what is kept of it goes with the rest of
/// that person's data.
///
/// # What is done again
///
/// | a call of a tool | in the fork |
/// |---|---|
/// | that is [pure](Effect::Pure), an [agent](tower_agent::Agent::into_tool) or [a part of the loop](tower_agent::tool::ToolDeclaration::part_of_loop) | is made; what an agent calls is told apart again |
/// | another one, which the run has made after the step in the same agent with the same arguments, as the tool got them | is answered as the run's call was, once for each call of the run |
/// | any other | waits for an operator: the run is [interrupted](tower_agent::Interrupt) by a question for the role [`ROLE`](Self::ROLE), and the tool is called if the answer is `{ "approved": true }` |
///
/// The answer from the record is given in place of the tool: callbacks and layers around it are
/// asked, and what they have asked a person before is asked again. Model calls are made.
///
/// [`resume`](Self::resume) goes on with a fork that waits. It is no conversation of a user: an
/// agent refuses to resume one [without its fork](AgentRequest::with_guard), since its tools would
/// then be called.
///
/// [state]: AgentRequest::with_state
/// [extensions]: AgentRequest::with_extension
#[derive(Clone)]
#[must_use = "a fork does nothing until an agent runs it"]
pub struct Fork {
    id: Arc<str>,
    origin: ForkOf,
    user: Option<Arc<str>>,
    run: KeptRun,
    from: Checkpoint,
    more: Vec<Message>,
    /// The path of the outermost agent.
    #[cfg_attr(
        not(feature = "inbox"),
        expect(dead_code, reason = "the page asks for it")
    )]
    called: Arc<str>,
    /// The agent whose model call follows, which edits are for.
    agent: Arc<str>,
    edits: Edits,
    record: Arc<Record>,
}

/// The calls that the run has made after the step.
struct Record {
    calls: Vec<Made>,
    /// Of each, the call of the fork that it has answered.
    answers: Mutex<Vec<Option<Arc<str>>>>,
}

/// A call that was made, with its result.
struct Made {
    agent: Arc<str>,
    name: Arc<str>,
    /// The digest of the arguments that the tool got.
    arguments: String,
    result: Result<ToolResponse>,
}

impl Fork {
    /// Returns the fork of a recorded run from a step. `later` are the runs that have gone on with
    /// it after it had waited for answers.
    pub(crate) fn of(
        past: &Past,
        later: &[Past],
        step: usize,
    ) -> std::result::Result<Self, NotRecorded> {
        let place = Place::find(past, step)?;
        let calls = made_after(past, later, place.after)?;
        let agent = past.agent_of(place.next);
        Ok(Self {
            id: name(&past.name),
            origin: ForkOf {
                run: past.id.clone(),
                step,
            },
            user: past.user.clone(),
            from: place.from,
            more: Vec::new(),
            called: past.agent.clone(),
            agent,
            edits: place.run.edits.clone(),
            run: place.run,
            record: Arc::new(Record {
                answers: Mutex::new(vec![None; calls.len()]),
                calls,
            }),
        })
    }

    /// The role of those who answer whether a fork may call a tool, and who may fork from the page.
    pub const ROLE: &str = "operator";

    /// Returns the id of the run, which begins with that of the first origin.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.id
    }

    /// Adds a message to the conversation, such as another one of the user. It closes the calls
    /// that are open at the step.
    pub fn message(mut self, message: impl Into<Message>) -> Self {
        self.more.push(message.into());
        self
    }

    /// Changes the messages of the outermost agent, which have their ids. Where one is changed,
    /// what the agents inside were about at the step is begun anew.
    pub fn messages(mut self, edit: impl FnOnce(&mut Messages)) -> Self {
        let mut messages = self.from.messages.clone();
        edit(&mut messages);
        if messages != self.from.messages {
            self.from = self.from.with_messages(messages);
        }
        self
    }

    /// Sets the instructions of the agent whose model call follows the step, in place of its own.
    pub fn instructions(self, instructions: impl Into<Arc<str>>) -> Self {
        self.edit(Edit::Instructions(instructions.into()))
    }

    /// Changes the settings of the model calls of that agent: what is set in these replaces its
    /// own, as by [`Settings::or`].
    pub fn settings(self, settings: Settings) -> Self {
        self.edit(Edit::Settings(settings.into()))
    }

    /// Sets the settings of the model calls of that agent, and unsets the others.
    #[cfg(feature = "inbox")]
    pub(crate) fn all_settings(self, settings: Settings) -> Self {
        self.edit(Edit::AllSettings(settings.into()))
    }

    /// Sets the model of that agent, by the [name](Settings::model) that its provider knows.
    pub fn model(self, name: impl Into<String>) -> Self {
        let mut settings = Settings::default();
        settings.model = Some(name.into());
        self.settings(settings)
    }

    fn edit(mut self, edit: Edit) -> Self {
        self.edits.add(self.agent.clone(), edit);
        self
    }

    /// Returns the user of the origin.
    #[cfg(feature = "inbox")]
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the name of the agent that was called.
    #[cfg(feature = "inbox")]
    pub(crate) fn agent_name(&self) -> &str {
        &self.called
    }

    /// Returns the request that resumes a run of this fork, such as one that waits for answers:
    /// with them, it goes on. What the record has answered before it does not answer again.
    pub fn resume(&self, checkpoint: Checkpoint) -> AgentRequest {
        // A run of its own, as every one that is resumed.
        self.request(checkpoint, name(&self.id))
    }

    fn request(&self, from: Checkpoint, id: Arc<str>) -> AgentRequest {
        AgentRequest::resume(from)
            .with_settings(self.run.settings.clone())
            .with_tools(self.run.tools.clone())
            .with_answer_format(self.run.answer_format.clone())
            .with_run_id(id)
            .with_extension(Forked {
                origin: self.origin.clone(),
                user: self.user.clone(),
                edits: self.edits.clone(),
            })
            .with_global_callbacks(self.around())
            .with_guard(
                "Fork",
                format!(
                    "it is a fork of the recorded run `{}`, whose tools are not to be called by \
                     themselves; resume it with `Fork::resume`, or begin another with its messages \
                     and `Checkpoint::new`",
                    self.origin.run
                ),
            )
    }

    /// Returns what is around the calls of the fork.
    fn around(&self) -> Bundle {
        let edits = self.edits.clone();
        let edit = before_model(move |request: &mut ModelRequest| edits.apply(request));
        Bundle::new()
            // Outside the console, which is to show what the agent has got.
            .outermost_model(edit.named("Fork"))
            .tool_layer(answer_whole())
            .at_tool(Guard(self.record.clone()))
    }
}

impl From<Fork> for AgentRequest {
    fn from(mut fork: Fork) -> Self {
        let more = std::mem::take(&mut fork.more);
        let request = fork.request(fork.from.clone(), fork.id.clone());
        more.into_iter().fold(request, Self::with_message)
    }
}

/// Returns the id of a fork of this run.
fn name(run: &str) -> Arc<str> {
    let first = run.split_once(FORK).map_or(run, |(first, _)| first);
    let own = uuid::Uuid::new_v4().simple().to_string();
    format!("{}{FORK}{}", content::beginning(first, 200), &own[..12]).into()
}

/// Returns what a fork may change at a step.
#[cfg(feature = "inbox")]
pub(crate) fn shown(
    past: &Past,
    step: usize,
) -> std::result::Result<serde_json::Value, NotRecorded> {
    let place = Place::find(past, step)?;
    let known = past.known(place.next)?;
    let call = match &known {
        Known::Kept(kept) => match &**kept {
            Kept::Model { call, .. } => Some(&call.request),
            _ => None,
        },
        _ => None,
    };
    Ok(json!({
        "agent": past.agent_of(place.next),
        "messages": place.from.messages,
        "instructions": call.and_then(ModelRequest::instructions),
        "settings": call.map(ModelRequest::settings),
    }))
}

/// A step of a run.
struct Place<'a> {
    run: KeptRun,
    from: Checkpoint,
    /// The entry that follows it; `None` at the end.
    after: Option<&'a PastEntry>,
    /// The model call that follows it, or else the last one.
    next: &'a PastEntry,
}

impl<'a> Place<'a> {
    fn find(past: &'a Past, step: usize) -> std::result::Result<Self, NotRecorded> {
        let (root, run) = past.root()?;
        let calls: Vec<_> = past.entries.iter().filter(|call| call.is_model()).collect();
        let next = calls.get(step).or(calls.last()).copied().unwrap_or(root);
        let is_running = |entry| NotRecorded::Running {
            run: past.id.to_string(),
            call: past.words(entry),
        };
        let (from, after) = if step == 0 {
            (run.before.clone(), Some(root))
        } else if let Some(entry) = calls.get(step).copied() {
            let before = match past.known(entry)? {
                Known::Kept(kept) => match &*kept {
                    Kept::Model { before, .. } => before.clone(),
                    _ => None,
                },
                Known::Hidden(before) => before.map(|before| *before),
                Known::Nothing => None,
            };
            match before {
                Some(before) => (before, Some(entry)),
                None if entry.end.is_none() => return Err(is_running(entry)),
                None => {
                    return Err(NotRecorded::LeftOut {
                        run: past.id.to_string(),
                        call: past.words(entry),
                    });
                }
            }
        } else if step > calls.len() {
            return Err(NotRecorded::NoStep {
                run: past.id.to_string(),
                step,
                last: calls.len(),
            });
        } else if let Some(after) = &run.after {
            (after.clone(), None)
        } else {
            return Err(is_running(root));
        };
        Ok(Self {
            run,
            from,
            after,
            next,
        })
    }
}

/// Returns the calls that have reached their tools and are not in the conversation at the step,
/// also those of the runs that went on with this one after it had waited for answers.
fn made_after(
    past: &Past,
    later: &[Past],
    step: Option<&PastEntry>,
) -> std::result::Result<Vec<Made>, NotRecorded> {
    // A call that ran beside the step has no result there.
    let is_after = |entry: &&PastEntry| {
        step.is_some_and(|step| entry.n > step.n || entry.end.is_none_or(|end| end > step.at))
    };
    let mut calls = Vec::new();
    for entry in past.entries.iter().filter(is_after) {
        calls.extend(made(past, entry)?);
    }
    for run in later {
        for entry in &run.entries {
            calls.extend(made(run, entry)?);
        }
    }
    Ok(calls)
}

/// Returns a call of a tool that was made, or answered as one that was.
fn made(past: &Past, entry: &PastEntry) -> std::result::Result<Option<Made>, NotRecorded> {
    let PastKind::Tool { attempts, .. } = &entry.kind else {
        return Ok(None);
    };
    let Known::Kept(kept) = past.known(entry)? else {
        return Ok(None);
    };
    let Kept::Tool { call, arguments } = &*kept else {
        return Ok(None);
    };
    let Some(result) = call.result.clone() else {
        return Ok(None);
    };
    let is_made = match &result {
        Ok(response) => !attempts.is_empty() || response.origin() == Origin::Service,
        Err(error) => !attempts.is_empty() && error.kind() != ErrorKind::Interrupted,
    };
    Ok(is_made.then(|| Made {
        agent: past.agent_of(entry),
        name: call.request.name().into(),
        arguments: arguments.clone(),
        result,
    }))
}

impl Record {
    /// Returns the result of a call that the run has made, for one call of the fork.
    fn answer(&self, request: &ToolRequest) -> Option<Result<ToolResponse>> {
        let context = request.context();
        let place = context.tool_call_message();
        let asked = match place {
            Some((message, index)) => message.tool_call(index),
            None => request.id().into(),
        };
        let arguments = State::digest(request.arguments());
        let is_same = |made: &Made| {
            *made.agent == *context.path()
                && *made.name == *request.name()
                && made.arguments == arguments
        };
        let mut answers = lock(&self.answers);
        // A call that is made again, as by a retry, has its answer already.
        let known = |answer: &Option<Arc<str>>| answer.as_ref() == Some(&asked);
        let is_free = |answer: &Option<Arc<str>>| answer.is_none();
        let find = |is_meant: &dyn Fn(&Option<Arc<str>>) -> bool| {
            let mut calls = self.calls.iter().zip(answers.iter());
            calls.position(|(made, answer)| is_same(made) && is_meant(answer))
        };
        let index = find(&known).or_else(|| find(&is_free))?;
        answers[index] = Some(asked);
        Some(self.calls[index].result.clone())
    }
}

/// The result from the record, for what is around a call.
#[derive(Clone, Default)]
struct Answer(Arc<Mutex<Option<Result<ToolResponse>>>>);

/// Answers directly around the tool, so that whoever is asked about the call before is asked again.
struct Guard(Arc<Record>);

impl Callback<ToolRequest> for Guard {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let Some(tool) = request.declaration() else {
            return Ok(Action::Continue);
        };
        if tool.effect() == Effect::Pure || tool.is_agent() || tool.is_part_of_loop() {
            return Ok(Action::Continue);
        }
        if let Some(result) = self.0.answer(request) {
            let inside = match &result {
                Ok(response) => response.clone(),
                Err(error) => ToolResponse::error(error.message()),
            };
            if let Some(Answer(whole)) = request.extensions().get() {
                *lock(whole) = Some(result);
            }
            return Ok(Action::Respond(inside));
        }
        let answer = request.ask(question(request))?;
        match answer.outcome {
            ResolutionOutcome::Resolved(said) if said["approved"] == true => Ok(Action::Continue),
            _ => Ok(Action::Respond(ToolResponse::error(
                "an operator has not let this fork call the tool",
            ))),
        }
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn name(&self) -> Cow<'static, str> {
        "Fork".into()
    }
}

/// Returns what an operator is asked about a call that the run has not made.
fn question(request: &ToolRequest) -> Interrupt {
    // Arguments that a redaction outside hides are not shown; the answer counts for these alone.
    let arguments = if Witness::is_inside_redaction(request.extensions()) {
        request.call().arguments.value()
    } else {
        request.arguments()
    };
    let name = request.name();
    Interrupt::new(format!("fork {}", request.context().call_path()), "fork")
        .with_message(format!(
            "The recorded run has not made this call. May the fork call `{name}`?"
        ))
        .with_payload(json!({ "tool": name, "arguments": arguments }))
        .with_response_schema(json!({
            "type": "object",
            "properties": {
                "approved": { "type": "boolean" },
                "reason": { "type": "string" },
            },
            "required": ["approved"],
        }))
        .for_role(Fork::ROLE)
}

/// Replaces what callbacks have made of an answer from the record by what they had made of it then.
fn answer_whole() -> Wrap<ToolRequest> {
    let wrap = wrap_tool(|mut request: ToolRequest, mut next| async move {
        let answer = Answer::default();
        request.extensions_mut().insert(answer.clone());
        let result = next.run(request).await;
        let is_ending = result.as_ref().is_err_and(Error::is_ending);
        let recorded = lock(&answer.0).take();
        match recorded {
            Some(recorded) if !is_ending => recorded,
            _ => result,
        }
    });
    wrap.named("Fork")
}

impl fmt::Debug for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fork")
            .field("id", &self.id)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
