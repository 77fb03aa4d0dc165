use super::callback_semantics::CallbackSemantics;
use super::loop_semantics::LoopSemantics;
use crate::call::CallKind;
use crate::callback::{CallbackRules, LoopRules, Rules};

/// The semantics of an agent: what agent frameworks do differently.
///
/// `band` is about the callbacks of one call, `run` about the loop. The default is what the rest of
/// the documentation describes; the constructors are the semantics of four frameworks, so that
/// callbacks written for one of them keep their meaning. What all frameworks do alike has no field.
///
/// An agent without its own semantics inherits those of the agent that contains it: a member those
/// of its team, a sub-agent and an agent used as a tool those of its caller. This is resolved in
/// each run, so one agent can be part of two trees. Callbacks of the whole
/// [tree](crate::AgentBuilder::global_callbacks) follow the semantics of the agent that they are registered
/// with, and those [of a run](crate::AgentRequest::with_callbacks) the semantics of the called
/// agent; either may [have its own](crate::callback::Bundle::semantics).
///
/// ```
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::{Action, Agent, ModelResponse};
/// use tower_agent::callback::after_model;
/// use tower_agent::compat::Semantics;
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
    pub run: LoopSemantics,
}

impl Rules for Semantics {
    fn callbacks(&self, call: CallKind) -> CallbackRules {
        self.band.callbacks(call)
    }

    fn agent_loop(&self) -> LoopRules {
        self.run.into()
    }
}
