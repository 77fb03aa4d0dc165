use std::iter;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::inherited::LatestPrompt;
use super::latch::Latch;
use super::nesting::Nesting;
use super::node::Node;
use super::place::RecordPlace;
use super::run::Run;
use super::settings::{Given, PartSettings};
use super::tally::Tally;
use super::tool_call_scope::ToolCallScope;
use crate::call_kind::CallKind;
use crate::conversation::{Checkpoint, ConversationRecord};
use crate::error::CallSite;
use crate::state::State;
use crate::stream::Listeners;

/// One agent's part of a run.
pub(crate) struct Scope {
    pub(super) run: Arc<Run>,
    pub(super) parent: Option<Arc<Self>>,
    pub(crate) node: Node,
    pub(crate) settings: PartSettings,
    /// The listeners to what happens: the consumer, if the run is streamed, and observers.
    pub(super) listeners: Listeners,
    pub(crate) tally: Tally,
    pub(super) latch: Latch,
    pub(super) place: RecordPlace,
    pub(crate) prompt: Mutex<LatestPrompt>,
}

impl Default for Scope {
    fn default() -> Self {
        Self::root(Given::default(), None)
    }
}

impl Scope {
    /// Creates a run. Data that is not given is that of an earlier one, if there is one.
    pub(super) fn root(mut given: Given, earlier: Option<&Self>) -> Self {
        let mut extensions = std::mem::take(&mut given.extensions);
        if let Some(earlier) = earlier
            && extensions.is_empty()
        {
            extensions = earlier.settings.extensions.clone();
        }
        // Without a token of its own, a changed request is cancelled by the one that it had.
        let token = given.token.take();
        let token = token.or_else(|| Some(earlier?.settings.token.clone()));
        let token = token.unwrap_or_default();
        let settings = PartSettings {
            token: token.clone(),
            own_token: None,
            resolutions: given.resolutions.take(),
            extensions,
            misfit: None,
            nesting: Nesting::default(),
            max_iterations: 0,
            output_key: None,
            inherited: None,
        };
        let run = Run::new(given, token, earlier.map(|earlier| &*earlier.run));
        Self::new(Arc::new(run), None, Node::default(), settings)
    }

    pub(super) fn within(
        parent: &Arc<Self>,
        path: Arc<str>,
        caller: Option<ToolCallScope>,
    ) -> Self {
        Self::new(
            parent.run.clone(),
            Some(parent.clone()),
            Node::new(path, caller),
            parent.settings.clone(),
        )
    }

    /// Creates a part of a run for the same agent.
    pub(super) fn part(parent: &Arc<Self>, caller: Option<ToolCallScope>) -> Self {
        Self {
            listeners: parent.listeners.clone(),
            ..Self::within(parent, parent.node.path.clone(), caller)
        }
    }

    fn new(run: Arc<Run>, parent: Option<Arc<Self>>, node: Node, settings: PartSettings) -> Self {
        Self {
            run,
            parent,
            node,
            settings,
            listeners: Listeners::default(),
            tally: Tally::default(),
            latch: Latch::default(),
            place: RecordPlace::default(),
            prompt: Mutex::default(),
        }
    }

    pub(super) fn around(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |scope| scope.parent.as_deref())
    }

    /// Returns the part of the agent that called this one.
    fn caller(&self) -> Option<&Self> {
        let parent = self.parent.as_deref();
        parent.filter(|parent| !parent.node.path.is_empty())
    }

    pub(crate) fn is_outermost(&self) -> bool {
        self.caller().is_none()
    }

    pub(super) fn outermost(&self) -> &Self {
        iter::successors(Some(self), |scope| scope.caller())
            .last()
            .unwrap_or(self)
    }

    /// Returns the number of an agent that opens a conversation of its own.
    pub(super) fn number(&self) -> u32 {
        let Some(caller) = self.caller() else {
            return 1;
        };
        // Parts of one agent count together.
        let whole = caller
            .around()
            .take_while(|part| part.node.path == caller.node.path)
            .last()
            .unwrap_or(caller);
        let call = self.node.caller.as_ref();
        let place = match call.filter(|call| !whole.node.is_in(call)) {
            Some(call) => format!("{}/{}", call.name(), self.node.name()).into(),
            None => self.node.path.clone(),
        };
        whole.node.count(place)
    }

    /// Returns the path of the tool call that this agent works in, if it works in one.
    pub(super) fn outer_call_path(&self) -> Option<String> {
        let call = self.node.caller.as_ref()?;
        // Agents between this one and the call are in it as well.
        let mut around = self.around().skip(1);
        let scope = around.find(|scope| !scope.node.is_in(call))?;
        Some(scope.path_of_call(Some(call), false))
    }

    /// Returns the path of a call: the agents, perhaps numbered, and tool calls around it.
    pub(super) fn path_of_call(&self, tool: Option<&ToolCallScope>, is_numbered: bool) -> String {
        let node = &self.node;
        let mut path = match &self.parent {
            Some(parent) => parent.path_of_call(node.caller.as_ref(), is_numbered),
            // With room for most paths, which otherwise grow at every step.
            None => String::with_capacity(64),
        };
        // The caller's own part, with events.
        let is_caller = self
            .parent
            .as_ref()
            .is_some_and(|parent| parent.node.path == node.path);
        let agent = Some(node.name()).filter(|agent| !agent.is_empty() && !is_caller);
        let number = match node.number {
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
        // Calls outside the agent's own tool calls are still inside its caller's.
        if let Some(tool) = tool.filter(|tool| !node.is_in(tool)) {
            if !path.is_empty() {
                path.push('/');
            }
            tool.name().push_to(&mut path);
        }
        path
    }

    pub(crate) fn site(&self, kind: CallKind, name: Option<&str>) -> CallSite {
        CallSite {
            kind,
            name: name.map(Into::into),
            agent: self.node.path.clone(),
        }
    }

    /// Returns the private state for a checkpoint of this agent.
    pub(crate) fn private_state_to_save(&self) -> State {
        // It belongs to the whole run, so only the outermost agent's checkpoint has it.
        if self.is_outermost() {
            self.run.private_state.clone()
        } else {
            State::default()
        }
    }

    pub(crate) fn checkpoint(&self, record: &ConversationRecord) -> Checkpoint {
        let private_state = self.private_state_to_save().snapshot();
        let interrupts = self.latch.interrupts();
        Checkpoint::of(record, interrupts, private_state, self.notes_messages())
    }

    /// Lets checkpoints of the outermost agent say which messages the private state is saved with.
    pub(crate) fn note_messages(&self) {
        self.run.notes_messages.store(true, Ordering::Relaxed);
    }

    /// Returns whether a checkpoint of this agent says which messages it is saved with.
    pub(crate) fn notes_messages(&self) -> bool {
        self.is_outermost() && self.run.notes_messages.load(Ordering::Relaxed)
    }
}
