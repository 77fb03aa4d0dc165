use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio_util::sync::CancellationToken;

use super::carried::Carried;
use super::latch::{Call, Latch};
use super::suspended::Suspended;
use super::{State, Values};
use crate::call::CallKind;
use crate::error::{Error, ErrorKind, Resolution};
use crate::lock::lock;
use crate::message::{Message, Usage};
use crate::stream::Outlet;

/// What a run is given to begin with.
#[derive(Clone, Default)]
pub(super) struct Given {
    /// Random unless chosen.
    pub(super) id: Option<Arc<str>>,
    pub(super) state: State,
    pub(super) cancellation: CancellationToken,
    pub(super) resolutions: Option<Arc<HashMap<String, Resolution>>>,
    pub(super) suspended: Suspended,
}

/// What a whole tree of agents shares.
pub(super) struct Run {
    pub(super) id: Arc<str>,
    pub(super) given: Given,
    pub(super) values: Values,
    /// Those that nobody has gone on with, and those of this run.
    pub(super) suspended: Mutex<Suspended>,
    pub(super) aborted: OnceLock<Error>,
    begun: OnceLock<()>,
}

impl Run {
    pub(super) fn new(given: Given) -> Self {
        Self {
            id: given.id.clone().unwrap_or_else(|| uuid::Uuid::new_v4().to_string().into()),
            suspended: Mutex::new(given.suspended.clone()),
            given,
            values: Values::default(),
            aborted: OnceLock::new(),
            begun: OnceLock::new(),
        }
    }

    /// Its first agent is called: from here on changes of the state count.
    fn begin(&self) {
        self.begun.get_or_init(|| self.given.state.begin());
    }
}

/// One agent's part of a run.
pub(super) struct Scope {
    pub(super) run: Arc<Run>,
    pub(super) path: Arc<str>,
    pub(super) max_iterations: u32,
    pub(super) latch: Latch,
    pub(super) carried: Carried,
    /// Where to tell what happens, if somebody watches.
    pub(super) outlet: Option<Outlet>,
    parent: Option<Arc<Scope>>,
    /// The tool call that the agent was called in.
    caller: Option<Arc<str>>,
    usage: Mutex<Usage>,
    /// The answers that have a text.
    texts: Mutex<Vec<Message>>,
    /// Whether a team called this agent, so that an escalation goes no further.
    member: bool,
    escalated: AtomicBool,
}

impl Default for Scope {
    fn default() -> Self {
        Self::root(Run::new(Given::default()))
    }
}

impl Scope {
    pub(super) fn root(run: Run) -> Self {
        Self::new(Arc::new(run), Arc::from(""), None)
    }

    pub(super) fn child(
        parent: &Arc<Self>,
        caller: Option<Arc<str>>,
        agent: &str,
        max_iterations: u32,
        carried: Carried,
    ) -> Self {
        let path = match &*parent.path {
            "" => Arc::from(agent),
            path => Arc::from(format!("{path}/{agent}")),
        };
        let run = parent.run.clone();
        run.begin();
        Self { caller, max_iterations, carried, ..Self::new(run, path, Some(parent.clone())) }
    }

    fn new(run: Arc<Run>, path: Arc<str>, parent: Option<Arc<Self>>) -> Self {
        Self {
            run,
            path,
            max_iterations: 0,
            latch: Latch::default(),
            carried: Carried::default(),
            outlet: None,
            parent,
            caller: None,
            usage: Mutex::default(),
            texts: Mutex::default(),
            member: false,
            escalated: AtomicBool::new(false),
        }
    }

    /// Names a call of this agent, by the agents and the tool calls that it is made in.
    pub(super) fn call_path(&self, tool: Option<&Arc<str>>) -> String {
        let mut path = match &self.parent {
            Some(parent) => parent.call_path(self.caller.as_ref()),
            None => String::new(),
        };
        // What an agent does outside of its own tool calls is still done in its caller's.
        let own =
            tool.filter(|&tool| !self.caller.as_ref().is_some_and(|it| Arc::ptr_eq(it, tool)));
        // Its caller's own place, watched.
        let is_caller = self.parent.as_ref().is_some_and(|parent| parent.path == self.path);
        let agent = self.path.rsplit('/').next();
        let agent = agent.filter(|agent| !agent.is_empty() && !is_caller);
        for step in agent.into_iter().chain(own.map(|tool| &**tool)) {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(step);
        }
        path
    }

    /// The same part of the run, played by a member of a team.
    pub(super) fn of_member(self) -> Self {
        Self { member: true, ..self }
    }

    /// Notes an escalation on the nearest member of a team, from here outwards.
    pub(super) fn escalate(&self) {
        let mut next = Some(self);
        while let Some(scope) = next {
            if scope.member {
                return scope.escalated.store(true, Ordering::Release);
            }
            next = scope.parent.as_deref();
        }
    }

    pub(super) fn escalated(&self) -> bool {
        self.escalated.load(Ordering::Acquire)
    }

    pub(super) fn usage(&self) -> Usage {
        *lock(&self.usage)
    }

    pub(super) fn root_usage(&self) -> Usage {
        let mut scope = self;
        while let Some(parent) = &scope.parent {
            scope = parent;
        }
        scope.usage()
    }

    pub(super) fn add_usage(&self, usage: Usage) {
        let mut next = Some(self);
        while let Some(scope) = next {
            *lock(&scope.usage) += usage;
            next = scope.parent.as_deref();
        }
    }

    pub(super) fn texts(&self, range: &Range<usize>) -> Vec<Arc<str>> {
        let said = lock(&self.texts).get(range.clone()).unwrap_or_default().to_vec();
        said.iter().map(|message| message.text().into()).collect()
    }

    pub(super) fn text_count(&self) -> usize {
        lock(&self.texts).len()
    }

    pub(super) fn push_text(&self, message: Message) {
        lock(&self.texts).push(message);
    }

    pub(super) fn latch(&self, call: Call, error: &Error, answered: bool) {
        match error.kind() {
            ErrorKind::Aborted => {
                drop(self.run.aborted.set(error.clone()));
                if is_told(&call) {
                    self.latch.set(call, error, answered);
                }
            }
            ErrorKind::Interrupted | ErrorKind::Ended => self.latch.set(call, error, answered),
            _ => {}
        }
    }

    pub(super) fn refusal(&self, call: &Call) -> Option<Error> {
        self.aborted(call).or_else(|| self.latch.refusal(call))
    }

    pub(super) fn ending(&self, call: &Call) -> Option<Error> {
        self.aborted(call).or_else(|| self.latch.ending(call))
    }

    fn aborted(&self, call: &Call) -> Option<Error> {
        self.run.aborted.get().filter(|_| !is_told(call)).cloned()
    }
}

/// Whether the call tells what has happened: it goes on after the run was aborted, until it is
/// aborted itself.
fn is_told(call: &Call) -> bool {
    call.kind == CallKind::Translate
}
