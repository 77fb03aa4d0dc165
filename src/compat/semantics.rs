use crate::call::CallKind;
use crate::callback::{CallbackRules, LoopRules, Rules};

/// The semantics of an agent: what agent frameworks do differently.
///
/// `band` is about the callbacks of one call, `run` about the loop. The default is what the rest of
/// the documentation describes; the constructors are the semantics of five frameworks, so that
/// callbacks written for one of them keep their meaning. What all frameworks do alike has no field.
///
/// An agent without its own semantics inherits those of the agent that contains it: a member those
/// of its team, a sub-agent and an agent used as a tool those of its caller. This is resolved in
/// each run, so one agent can be part of two trees. Callbacks of the whole
/// [tree](crate::AgentBuilder::global_callbacks) follow the semantics of the agent that they are
/// registered with, and those [of a run](crate::AgentRequest::with_callbacks) the semantics of the
/// called agent; either may [have its own](crate::callback::Bundle::semantics).
///
/// ```
/// use tower_agent::{Action, Agent, ModelResponse};
/// use tower_agent::callback::after_model;
/// use tower_agent::compat::Semantics;
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// // The first response wins, as in Google's ADK; by default each sees the result of the previous one.
/// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hello")]))
///     .semantics(Semantics::adk_python())
///     .on_model(after_model(|_, _| Action::Respond(ModelResponse::from_text("first"))))
///     .on_model(after_model(|_, _| Action::Respond(ModelResponse::from_text("second"))))
///     .build()?;
/// assert_eq!(agent.run("hi").await?.text(), "first");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Semantics {
    /// The callbacks of one call.
    pub band: CallbackSemantics,
    /// The loop.
    pub run: LoopRules,
}

impl Rules for Semantics {
    fn callbacks(&self, call: CallKind) -> CallbackRules {
        self.band.callbacks(call)
    }

    fn agent_loop(&self) -> LoopRules {
        self.run
    }
}

/// The semantics of bands: what agent frameworks do differently, for each call.
///
/// The default is what the rest of the documentation describes; the constructors, such as
/// [`potato`](Self::potato), are the semantics of five frameworks. A list of callbacks takes them
/// with [`with_semantics`](crate::Callbacks::with_semantics).
///
/// ```
/// use tower_agent::ModelRequest;
/// use tower_agent::callback::{Callbacks, Remaining};
/// use tower_agent::compat::CallbackSemantics;
///
/// let mut semantics = CallbackSemantics::adk_python();
/// semantics.model.before_response = Remaining::Run;
/// let callbacks = Callbacks::<ModelRequest>::new().with_semantics(semantics);
/// assert_eq!(callbacks.rules(), semantics.model);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallbackSemantics {
    /// The rules for model calls.
    pub model: CallbackRules,
    /// The rules for tool calls.
    pub tool: CallbackRules,
    /// The rules for agent calls.
    pub agent: CallbackRules,
    /// The rules for every other call.
    pub other: CallbackRules,
}

impl CallbackSemantics {
    pub(super) const fn all(rules: CallbackRules) -> Self {
        Self {
            model: rules,
            tool: rules,
            agent: rules,
            other: rules,
        }
    }

    /// Changes the rules for every call.
    #[must_use]
    pub fn with_each(mut self, change: impl Fn(&mut CallbackRules)) -> Self {
        change(&mut self.model);
        change(&mut self.tool);
        change(&mut self.agent);
        change(&mut self.other);
        self
    }
}

impl Rules for CallbackSemantics {
    fn callbacks(&self, call: CallKind) -> CallbackRules {
        match call {
            CallKind::Model => self.model,
            CallKind::Tool => self.tool,
            CallKind::Agent => self.agent,
            CallKind::Other(_) => self.other,
        }
    }
}
