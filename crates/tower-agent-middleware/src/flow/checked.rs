//! A tool call that the guard has looked at.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tower_agent::call::Request;
use tower_agent::context::StateTrace;
use tower_agent::message::MessageId;
use tower_agent::tool::ToolRequest;

use super::declaration::ToolFlow;
use super::label::Label;
use super::place::TurnId;
use super::resolve::Substitution;
use super::run::FlowRun;
use super::settings::FlowSettings;
use super::state::StateLabels;

/// A call that the guard has looked at: an extension of the request.
pub(super) struct Checked {
    pub(super) guard: Arc<FlowSettings>,
    run: Arc<FlowRun>,
    call: CallPlace,
    /// The label of all that the model had read.
    pub(super) context: Label,
    /// The resolved arguments that were checked, if they are not the call's own.
    pub(super) arguments: Option<Arc<Value>>,
    pub(super) substitutions: Vec<Substitution>,
    /// The use that the call makes of the state; `None` if the call is not made.
    pub(super) trace: Option<StateTrace>,
    /// The guard has answered the call itself.
    pub(super) is_refused: bool,
    /// The result of the call is recorded.
    is_recorded: AtomicBool,
}

/// The message with a tool call, and the place of the call there.
#[derive(Clone)]
pub(super) struct CallPlace {
    /// `None` outside a run, where a call has no message, and so no label.
    message: Option<MessageId>,
    pub(super) index: usize,
}

impl CallPlace {
    pub(super) fn of(request: &ToolRequest) -> Self {
        match request.context().tool_call_message() {
            Some((message, index)) => Self {
                message: Some(message.clone()),
                index,
            },
            None => Self {
                message: None,
                index: 0,
            },
        }
    }

    /// Returns the message.
    pub(super) fn turn(&self) -> TurnId<'_> {
        match &self.message {
            Some(message) => TurnId::of(message),
            // No message has an empty id, so nothing is known about it.
            None => TurnId::Other("".into()),
        }
    }
}

impl Checked {
    pub(super) fn new(
        guard: Arc<FlowSettings>,
        run: Arc<FlowRun>,
        call: CallPlace,
        context: Label,
    ) -> Self {
        Self {
            guard,
            run,
            call,
            context,
            arguments: None,
            substitutions: Vec::new(),
            trace: None,
            is_refused: false,
            is_recorded: AtomicBool::new(false),
        }
    }

    /// Returns the message with the call.
    pub(super) fn turn(&self) -> TurnId<'_> {
        self.call.turn()
    }

    /// Returns the place of the call in its message.
    pub(super) fn index(&self) -> usize {
        self.call.index
    }

    /// Returns the label of what decided the call and of all its arguments.
    pub(super) fn label(&self) -> Label {
        let labels = self.substitutions.iter().map(|one| &one.label);
        labels.fold(self.context.clone(), |all, label| all.join(label))
    }

    /// Returns the tools whose results are in the arguments, each once.
    pub(super) fn origin(&self) -> Vec<String> {
        let mut tools = Vec::new();
        for tool in self.substitutions.iter().flat_map(|one| &one.from) {
            if !tools.contains(tool) {
                tools.push(tool.clone());
            }
        }
        tools
    }

    /// Returns the arguments that were checked.
    pub(super) fn arguments<'a>(&'a self, request: &'a ToolRequest) -> &'a Value {
        let own = request.call().arguments.value();
        self.arguments.as_deref().unwrap_or(own)
    }

    /// Returns whether what the call has brought is recorded, and that it is from now on: of a
    /// guard that is registered twice, one does so.
    pub(super) fn begin_record(&self) -> bool {
        self.is_recorded.swap(true, Ordering::AcqRel)
    }

    /// Lets agents that work in this call find its label, and others that of what it writes.
    pub(super) fn begin_call(&self, flow: &ToolFlow) {
        if let Some(message) = &self.call.message {
            let label = self.label();
            let writes = flow.label_of_any().join(&label);
            self.run.begin_call(message, self.call.index, label, writes);
        }
    }

    /// Returns whether the call has used the state. Few do.
    pub(super) fn uses_state(&self) -> bool {
        self.trace.as_ref().is_some_and(StateTrace::is_used)
    }

    /// Returns the labels of the state that the call uses, if it does.
    pub(super) fn state_labels<'a>(
        &'a self,
        request: &'a ToolRequest,
    ) -> Option<(&'a StateTrace, StateLabels<'a>)> {
        let trace = self.trace.as_ref().filter(|trace| trace.is_used())?;
        let context = request.context();
        let labels = StateLabels::of(trace.state(), context, &self.run, &self.guard);
        Some((trace, labels))
    }

    /// Ends what [`begin_call`](Self::begin_call) has begun.
    pub(super) fn end_call(&self) {
        if let Some(message) = &self.call.message {
            self.run.end_call(message, self.call.index);
        }
    }
}
