use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio_util::sync::CancellationToken;

use super::carried::Carried;
use super::latch::Latch;
use super::{State, Values};
use crate::call::CallKind;
use crate::error::{Error, ErrorKind};
use crate::lock::lock;
use crate::message::Usage;
use crate::stream::Outlet;

/// What a whole tree of agents shares.
pub(super) struct Run {
    pub(super) id: Arc<str>,
    pub(super) state: State,
    pub(super) values: Values,
    pub(super) cancellation: CancellationToken,
    pub(super) aborted: OnceLock<Error>,
    begun: OnceLock<()>,
}

impl Run {
    pub(super) fn new(state: State, cancellation: CancellationToken) -> Self {
        let id = uuid::Uuid::new_v4().to_string().into();
        let (values, aborted, begun) = Default::default();
        Self { id, state, values, cancellation, aborted, begun }
    }

    /// Another run that is asked for in the same way.
    pub(super) fn again(&self) -> Self {
        let (id, state) = (self.id.clone(), self.state.clone());
        let (values, aborted, begun) = Default::default();
        Self { id, state, values, cancellation: self.cancellation.clone(), aborted, begun }
    }

    /// Its first agent is called: from here on changes of the state count.
    fn begin(&self) {
        self.begun.get_or_init(|| self.state.begin());
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
    usage: Mutex<Usage>,
    texts: Mutex<Vec<Arc<str>>>,
    /// Whether a team called this agent, so that an escalation goes no further.
    member: bool,
    escalated: AtomicBool,
}

impl Default for Scope {
    fn default() -> Self {
        Self::root(Run::new(State::default(), CancellationToken::new()))
    }
}

impl Scope {
    pub(super) fn root(run: Run) -> Self {
        Self::new(Arc::new(run), Arc::from(""), None)
    }

    pub(super) fn child(
        parent: &Arc<Self>,
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
        Self { max_iterations, carried, ..Self::new(run, path, Some(parent.clone())) }
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
            usage: Mutex::default(),
            texts: Mutex::default(),
            member: false,
            escalated: AtomicBool::new(false),
        }
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
        lock(&self.texts).get(range.clone()).unwrap_or_default().to_vec()
    }

    pub(super) fn text_count(&self) -> usize {
        lock(&self.texts).len()
    }

    pub(super) fn push_text(&self, text: String) {
        lock(&self.texts).push(text.into());
    }

    pub(super) fn latch(&self, kind: CallKind, turn: u32, tool: Option<&Arc<str>>, error: &Error) {
        match error.kind() {
            ErrorKind::Aborted => drop(self.run.aborted.set(error.clone())),
            ErrorKind::Interrupted | ErrorKind::Ended => self.latch.set(kind, turn, tool, error),
            _ => {}
        }
    }

    pub(super) fn refusal(
        &self,
        kind: CallKind,
        turn: u32,
        tool: Option<&Arc<str>>,
    ) -> Option<Error> {
        self.run.aborted.get().cloned().or_else(|| self.latch.refusal(kind, turn, tool))
    }

    pub(super) fn ending(
        &self,
        kind: CallKind,
        turn: u32,
        tool: Option<&Arc<str>>,
    ) -> Option<Error> {
        self.run.aborted.get().cloned().or_else(|| self.latch.ending(kind, turn, tool))
    }
}
