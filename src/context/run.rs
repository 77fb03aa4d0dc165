use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio_util::sync::CancellationToken;

use super::extensions::Extensions;
use super::inherited::Inherited;
use super::latch::Latch;
use super::nesting::Nesting;
use super::replay::ReplayHandlers;
use super::tool_call_scope::ToolCallScope;
use super::values::Values;
use crate::call_kind::CallKind;
use crate::conversation::{CallName, ConversationRecord};
use crate::error::{Error, ErrorKind, Resolution};
use crate::lock::lock;
use crate::message::{Message, Usage};
use crate::state::State;
use crate::stream::{Listeners, ObservedRun};

/// The settings of a request for its run. The run chooses those that are not set.
#[derive(Clone, Default)]
pub(super) struct Given {
    pub(super) id: Option<Arc<str>>,
    pub(super) state: Option<State>,
    pub(super) private_state: Option<State>,
    pub(super) token: Option<CancellationToken>,
    pub(super) resolutions: Option<Resolutions>,
    pub(super) extensions: Extensions,
}

pub(super) type Resolutions = Arc<HashMap<String, Resolution>>;

/// Data shared by a whole tree of agents.
pub(super) struct Run {
    pub(super) id: Arc<str>,
    pub(super) state: State,
    pub(super) private_state: State,
    pub(super) values: Arc<Values>,
    pub(super) aborted: OnceLock<Error>,
    pub(super) replay_handlers: ReplayHandlers,
    begun: OnceLock<()>,
    conversations: AtomicU32,
    /// The run as its observers see it, once it has one.
    observed: OnceLock<Arc<ObservedRun>>,
}

impl Run {
    /// Marks that the first agent is called: from now on changes of the state are events.
    fn begin(&self) {
        self.begun.get_or_init(|| self.state.begin());
    }

    /// Returns the run as its observers see it.
    pub(super) fn observed(&self) -> Arc<ObservedRun> {
        let observed = self
            .observed
            .get_or_init(|| ObservedRun::new(self.id.clone()));
        observed.clone()
    }

    /// Returns the number of another conversation of the run's caller, from 0.
    pub(super) fn next_conversation(&self) -> u32 {
        self.conversations.fetch_add(1, Ordering::Relaxed)
    }
}

/// The place of an agent's messages.
#[derive(Clone, Default)]
pub(super) struct RecordPlace {
    pub(super) record: ConversationRecord,
    /// The path from the agent that opened the record to this one.
    pub(super) path: Arc<str>,
    /// The number of messages when this agent joined; `None` if it opened the record.
    pub(super) joined: Option<usize>,
}

impl RecordPlace {
    /// Returns the path of an agent that continues the conversation after this one.
    pub(super) fn below(&self, agent: &str) -> Arc<str> {
        match &*self.path {
            "" => agent.into(),
            path => format!("{path}/{agent}").into(),
        }
    }
}

/// The attempts that have failed at the calls of an agent.
#[derive(Default)]
struct Failures {
    /// The failures of the agent itself.
    agent: u32,
    /// The failures of the turn's model call.
    model: u32,
    /// The failures of tool calls, by names that are unique in the conversation.
    tools: Vec<(CallName, u32)>,
    /// The tokens that the agent had used by the last failure, or by the start of the turn.
    usage: Usage,
}

/// One agent's part of a run.
pub(super) struct Scope {
    pub(super) run: Arc<Run>,
    pub(super) path: Arc<str>,
    pub(super) max_iterations: u32,
    pub(super) nesting: Nesting,
    pub(super) latch: Latch,
    /// Why the response of an ended agent is not used.
    pub(super) withheld: OnceLock<Error>,
    pub(super) inherited: Inherited,
    /// Who is told what happens: the consumer, if the run is streamed, and observers.
    pub(super) listeners: Listeners,
    /// The attempts that have failed. Counted only if somebody is told.
    failures: Mutex<Failures>,
    /// Cancels this part of the run.
    pub(super) token: CancellationToken,
    /// An additional token of this part's request.
    pub(super) own_token: Option<CancellationToken>,
    pub(super) resolutions: Option<Resolutions>,
    /// The typed data that the caller gave this part of the run.
    pub(super) extensions: Extensions,
    /// Why no agent can be called with this.
    pub(super) misfit: Option<Error>,
    pub(super) place: RecordPlace,
    parent: Option<Arc<Scope>>,
    /// The tool call that the agent was called in.
    caller: Option<ToolCallScope>,
    usage: Mutex<Usage>,
    /// The messages with a text.
    texts: Mutex<Vec<Message>>,
    /// The number of texts. Outside the lock, since every turn asks.
    text_count: AtomicUsize,
    /// A team called this agent, so that an escalation stops here.
    member: bool,
    escalated: AtomicBool,
    /// Counts the agents called in this part that have conversations of their own.
    children: Mutex<BTreeMap<Arc<str>, u32>>,
    /// The number among those of the same place, from 1.
    number: u32,
}

impl Default for Scope {
    fn default() -> Self {
        Self::root(Given::default(), None)
    }
}

impl Scope {
    /// Creates a run. Data that is not given is that of an earlier one, if there is one.
    pub(super) fn root(given: Given, earlier: Option<&Self>) -> Self {
        let Given {
            id,
            state,
            private_state,
            token,
            resolutions,
            mut extensions,
        } = given;
        if let Some(earlier) = earlier.filter(|_| extensions.is_empty()) {
            extensions = earlier.extensions.clone();
        }
        // Without a token of its own, a changed request is cancelled by the one that it had.
        let token = token
            .or_else(|| Some(earlier?.token.clone()))
            .unwrap_or_default();
        let earlier = earlier.map(|earlier| &*earlier.run);
        let id = id.or_else(|| Some(earlier?.id.clone()));
        let state = state.or_else(|| Some(earlier?.state.clone()));
        let private_state = private_state.or_else(|| Some(earlier?.private_state.clone()));
        let run = Run {
            id: id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string().into()),
            state: state.unwrap_or_default(),
            private_state: private_state.unwrap_or_default(),
            values: earlier
                .map(|earlier| earlier.values.clone())
                .unwrap_or_default(),
            aborted: OnceLock::new(),
            replay_handlers: ReplayHandlers::default(),
            begun: OnceLock::new(),
            conversations: AtomicU32::new(0),
            observed: OnceLock::new(),
        };
        Self {
            resolutions,
            extensions,
            ..Self::new(Arc::new(run), Arc::from(""), None, token)
        }
    }

    pub(super) fn child(
        parent: &Arc<Self>,
        caller: Option<ToolCallScope>,
        agent: &str,
        max_iterations: u32,
        inherited: Inherited,
    ) -> Self {
        let path = match &*parent.path {
            "" => Arc::from(agent),
            path => Arc::from(format!("{path}/{agent}")),
        };
        // Changes before the first agent belong to the request, not to the stream of the run.
        parent.run.begin();
        Self {
            caller,
            max_iterations,
            inherited,
            ..Self::within(parent, path)
        }
    }

    /// Creates a part of a run for the same agent.
    pub(super) fn part(parent: &Arc<Self>, caller: Option<ToolCallScope>) -> Self {
        Self {
            caller,
            max_iterations: parent.max_iterations,
            inherited: parent.inherited.clone(),
            listeners: parent.listeners.clone(),
            ..Self::within(parent, parent.path.clone())
        }
    }

    fn within(parent: &Arc<Self>, path: Arc<str>) -> Self {
        Self {
            own_token: parent.own_token.clone(),
            resolutions: parent.resolutions.clone(),
            extensions: parent.extensions.clone(),
            misfit: parent.misfit.clone(),
            nesting: parent.nesting,
            ..Self::new(
                parent.run.clone(),
                path,
                Some(parent.clone()),
                parent.token.clone(),
            )
        }
    }

    fn new(
        run: Arc<Run>,
        path: Arc<str>,
        parent: Option<Arc<Self>>,
        token: CancellationToken,
    ) -> Self {
        Self {
            run,
            path,
            max_iterations: 0,
            nesting: Nesting::default(),
            latch: Latch::default(),
            withheld: OnceLock::new(),
            inherited: None,
            listeners: Listeners {
                emitter: None,
                observed: None,
            },
            failures: Mutex::default(),
            token,
            own_token: None,
            resolutions: None,
            extensions: Extensions::new(),
            misfit: None,
            place: RecordPlace::default(),
            parent,
            caller: None,
            usage: Mutex::default(),
            texts: Mutex::default(),
            text_count: AtomicUsize::new(0),
            member: false,
            escalated: AtomicBool::new(false),
            children: Mutex::default(),
            number: 1,
        }
    }

    /// Numbers an agent that opens a conversation of its own.
    pub(super) fn count(&mut self) {
        let Some(mut parent) = self.parent.clone().filter(|parent| !parent.path.is_empty()) else {
            return;
        };
        // Parts of one agent count together.
        while let Some(whole) = parent
            .parent
            .clone()
            .filter(|whole| whole.path == parent.path)
        {
            parent = whole;
        }
        let call = self.caller.as_ref().filter(|call| !parent.is_in(call));
        let called_at = match call {
            Some(call) => format!("{}/{}", call.name(), self.name()).into(),
            None => self.path.clone(),
        };
        let mut children = lock(&parent.children);
        let count = children.entry(called_at).or_default();
        *count += 1;
        self.number = *count;
    }

    /// Applies the settings of a request inside another run.
    pub(super) fn apply(&mut self, given: &Given) {
        if let Some(more) = &given.resolutions {
            let all = Arc::make_mut(self.resolutions.get_or_insert_default());
            all.extend(
                more.iter()
                    .map(|(id, resolution)| (id.clone(), resolution.clone())),
            );
        }
        self.extensions.extend(&given.extensions);
        if let Some(token) = &given.token {
            // A child, so that the run's token cancels this part as well.
            self.token = self.token.child_token();
            self.own_token = Some(token.clone());
        }
        // Settings of a whole run, and this is a part of another.
        let whole = [
            ("a run id", given.id.is_some()),
            ("a state", given.state.is_some()),
            (
                "a checkpoint with private state",
                given.private_state.is_some(),
            ),
        ];
        if let Some((what, _)) = whole.iter().find(|(_, is_set)| *is_set) {
            let message = format!(
                "the request is part of run `{}` and was given {what} of its own: leave that out, \
                 or leave out the context to make it a run of its own",
                self.run.id,
            );
            self.misfit = Some(Error::new(ErrorKind::InvalidRequest, message));
        }
    }

    /// Returns the path of a call of this agent: the agents and tool calls that contain it.
    pub(super) fn call_path(&self, tool: Option<&ToolCallScope>) -> String {
        self.path_of_call(tool, false)
    }

    /// Returns the path of the tool call that this agent works in, if it works in one.
    pub(super) fn outer_call_path(&self) -> Option<String> {
        let call = self.caller.as_ref()?;
        let mut scope = self.parent.as_ref()?;
        // Agents between this one and the call are in it as well.
        while scope.is_in(call) {
            scope = scope.parent.as_ref()?;
        }
        Some(scope.call_path(Some(call)))
    }

    /// Returns the path of a call of this agent with the numbers of the agents.
    pub(super) fn step_path(&self, tool: Option<&ToolCallScope>) -> String {
        self.path_of_call(tool, true)
    }

    fn path_of_call(&self, tool: Option<&ToolCallScope>, is_numbered: bool) -> String {
        let mut path = match &self.parent {
            Some(parent) => parent.path_of_call(self.caller.as_ref(), is_numbered),
            // With room for most paths, which otherwise grow at every step.
            None => String::with_capacity(64),
        };
        // Calls outside the agent's own tool calls are still inside its caller's.
        let own = tool.filter(|tool| !self.is_in(tool));
        // The caller's own part, with events.
        let is_caller = self
            .parent
            .as_ref()
            .is_some_and(|parent| parent.path == self.path);
        let agent = self.path.rsplit('/').next();
        let agent = agent.filter(|agent| !agent.is_empty() && !is_caller);
        let number = match self.number {
            number if is_numbered && number > 1 => Some(format!("/{number}")),
            _ => None,
        };
        let steps = agent.into_iter().chain(number.as_deref());
        for step in steps {
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(step);
        }
        if let Some(tool) = own {
            if !path.is_empty() {
                path.push('/');
            }
            tool.name().push_to(&mut path);
        }
        path
    }

    /// Returns the agent's name.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Returns whether the agent was called in this tool call.
    pub(super) fn is_in(&self, call: &ToolCallScope) -> bool {
        self.caller.as_ref() == Some(call)
    }

    /// Returns the part of the outermost agent.
    pub(super) fn outermost(&self) -> &Self {
        let mut scope = self;
        while let Some(parent) = &scope.parent
            && !parent.path.is_empty()
        {
            scope = parent;
        }
        scope
    }

    /// Returns whether no agent is above this one.
    pub(super) fn is_outermost(&self) -> bool {
        self.parent
            .as_ref()
            .is_none_or(|parent| parent.path.is_empty())
    }

    /// Makes this the part of a team member.
    pub(super) fn of_member(self) -> Self {
        Self {
            member: true,
            ..self
        }
    }

    /// Records an escalation on the nearest team member, from here outwards.
    pub(super) fn escalate(&self) {
        let mut next = Some(self);
        while let Some(scope) = next {
            if scope.member {
                // Only the nearest: outer teams continue.
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

    /// Counts attempts at the model call of another turn.
    pub(super) fn begin_call(&self) {
        let usage = self.usage();
        let mut failures = lock(&self.failures);
        failures.model = 0;
        failures.usage = usage;
    }

    /// Returns the number of attempts that have failed at a call: at the agent, at this tool call, or at the
    /// model call of the turn.
    pub(super) fn failed_attempts(&self, kind: CallKind, tool: Option<&CallName>) -> u32 {
        let failures = lock(&self.failures);
        let tool = match (kind, tool) {
            (CallKind::Agent, _) => return failures.agent,
            (_, None) => return failures.model,
            (_, Some(tool)) => tool,
        };
        let mut counted = failures.tools.iter();
        counted
            .find(|(name, _)| name == tool)
            .map_or(0, |(_, count)| *count)
    }

    /// Counts an attempt that has failed; returns its number, and the tokens of a model call that it has used.
    pub(super) fn count_failure(&self, kind: CallKind, tool: Option<&CallName>) -> (u32, Usage) {
        let usage = self.usage();
        let mut failures = lock(&self.failures);
        let tool = match (kind, tool) {
            (CallKind::Agent, _) => {
                failures.agent += 1;
                return (failures.agent - 1, Usage::default());
            }
            (_, None) => {
                failures.model += 1;
                // As a difference: layers inside may have made several calls for one attempt.
                let used = usage - std::mem::replace(&mut failures.usage, usage);
                return (failures.model - 1, used);
            }
            (_, Some(tool)) => tool,
        };
        let at = failures.tools.iter().position(|(name, _)| name == tool);
        let at = at.unwrap_or_else(|| {
            failures.tools.push((tool.clone(), 0));
            failures.tools.len() - 1
        });
        let count = &mut failures.tools[at].1;
        *count += 1;
        // Calls of a turn run at the same time, and the difference would be that of all of them.
        (*count - 1, Usage::default())
    }

    pub(super) fn root_usage(&self) -> Usage {
        let mut scope = self;
        // Counted in every scope, so the outermost has the sum.
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
        let texts = lock(&self.texts)
            .get(range.clone())
            .unwrap_or_default()
            .to_vec();
        texts.iter().map(|message| message.text().into()).collect()
    }

    pub(super) fn text_count(&self) -> usize {
        self.text_count.load(Ordering::Acquire)
    }

    pub(super) fn push_text(&self, message: Message) {
        let mut texts = lock(&self.texts);
        texts.push(message);
        self.text_count.store(texts.len(), Ordering::Release);
    }
}
