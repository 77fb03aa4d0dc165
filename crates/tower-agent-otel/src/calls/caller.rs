//! The agent or the team that makes calls, as its calls find it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry::Context;
use tower_agent::Message;
use tower_agent::call::CallKind;
use tower_agent::message::Messages;

/// An agent or a team whose call is recorded. It is in the context of everything inside that call.
#[derive(Debug, Default)]
pub(super) struct Caller {
    inference_calls: AtomicU64,
    tool_calls: AtomicU64,
    /// The agent or team around it, if it takes part in the conversation of that one.
    continues: Option<Arc<Caller>>,
    reports: Mutex<Reports>,
}

/// The reports of the agent's model calls, added up.
#[derive(Debug, Default)]
struct Reports {
    /// The finish reason of the last call.
    finish_reason: Option<String>,
    /// The messages that the first call has sent, after all callbacks.
    input: Option<Messages>,
    /// The responses, as their spans have recorded them.
    outputs: Vec<Message>,
}

/// The report of one model call to its agent.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) finish_reason: Option<String>,
    /// The messages that were sent; `None` if content is not recorded.
    pub(super) input: Option<Messages>,
    /// The response; `None` if content is not recorded.
    pub(super) output: Option<Message>,
}

/// The place of a call: a value of the context, which is all that the calls of a run share.
#[derive(Clone)]
struct Place {
    caller: Arc<Caller>,
    /// It is inside a tool call of that agent.
    is_in_tool: bool,
}

impl Caller {
    /// Creates the caller of everything inside this context.
    pub(super) fn enter(context: &mut Context) -> Arc<Self> {
        let around = Place::current();
        let caller = Arc::new(Self {
            // An agent that is used as a tool has a conversation of its own; a member of a team and
            // an agent that takes over go on with the one around them.
            continues: around
                .filter(|around| !around.is_in_tool)
                .map(|around| around.caller),
            ..Self::default()
        });
        *context = context.with_value(Place {
            caller: caller.clone(),
            is_in_tool: false,
        });
        caller
    }

    /// Marks everything inside this context as part of a tool call.
    pub(super) fn enter_tool(context: &mut Context) {
        if let Some(place) = Place::current() {
            *context = context.with_value(Place {
                is_in_tool: true,
                ..place
            });
        }
    }

    /// Returns the nearest one: that of the call that is made here.
    pub(super) fn current() -> Option<Arc<Self>> {
        Place::current().map(|place| place.caller)
    }

    /// Counts a call that this agent makes itself.
    pub(super) fn count(&self, kind: CallKind) {
        let calls = if kind == CallKind::Tool {
            &self.tool_calls
        } else {
            &self.inference_calls
        };
        calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn inference_calls(&self) -> u64 {
        self.inference_calls.load(Ordering::Relaxed)
    }

    pub(super) fn tool_calls(&self) -> u64 {
        self.tool_calls.load(Ordering::Relaxed)
    }

    /// Adds the report of a model call, also to those whose conversation this is.
    pub(super) fn report(&self, report: &Report) {
        let mut reports = self.reports();
        reports.finish_reason.clone_from(&report.finish_reason);
        if reports.input.is_none() {
            reports.input.clone_from(&report.input);
        }
        reports.outputs.extend(report.output.clone());
        drop(reports);
        if let Some(around) = &self.continues {
            around.report(report);
        }
    }

    pub(super) fn finish_reason(&self) -> Option<String> {
        self.reports().finish_reason.clone()
    }

    /// Returns the messages that its first model call has sent.
    pub(super) fn input(&self) -> Option<Messages> {
        self.reports().input.clone()
    }

    /// Returns whether a message is the response of a model call, as the call's span shows it.
    /// Another one was written by a callback of the agent, and redaction may be outside that.
    pub(super) fn has_recorded(&self, message: &Message) -> bool {
        self.reports().outputs.contains(message)
    }

    fn reports(&self) -> MutexGuard<'_, Reports> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn current() -> Option<Self> {
        Context::map_current(|context| context.get::<Self>().cloned())
    }
}
