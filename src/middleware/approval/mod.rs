//! Tools that need a person's approval.
//!
//! ```text
//! Approval: Callback<ToolRequest>
//! ```
//!
//! A call that needs approval and has no answer [interrupts](crate::Error::interrupt) the run.
//! Calls beside it finish; the run ends as [`Interrupted`](crate::EndReason::Interrupted) with a
//! [`Interrupt`](crate::Interrupt) for every call that waits. A run that [resumes](crate::AgentRequest::resume) with a
//! [`Resolution`](crate::Resolution) for it goes on with that call:
//!
//! | the answer | the call |
//! |---|---|
//! | [`Decision::Approve`] | is made |
//! | [`Decision::Edit`] | is made with other arguments, if they [fit the tool](crate::tool::ToolDeclaration::check_arguments) |
//! | [`Decision::Reject`] | is not made; the model reads why |
//! | [`ResolutionOutcome::Cancelled`] | is not made; the model reads that it was rejected |
//! | anything else | is not made; the run waits again, and the [`Interrupt::message`](crate::Interrupt::message) says what was wrong |
//! | none by its [`Interrupt::id`](crate::Interrupt::id) | is not made; the run waits again |
//!
//! ```
//! use serde_json::json;
//! use tower_agent::middleware::approval::{Approval, Decision};
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, AgentRequest, Resolution, Tool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let model = ScriptedModel::new([
//!     Turn::tool("pay", json!({ "value": 100 })),
//!     Turn::from_text("Paid 10."),
//! ]);
//! let agent = Agent::builder(model)
//!     .tool(Tool::function("pay", "Pays.", |amount: u32| format!("paid {amount}")))
//!     .on_tool(Approval::of_tools(["pay"]))
//!     .build()?;
//!
//! let paused = agent.run("Pay the bill.").await?;
//! let interrupts = &paused.interrupts()[0];
//! assert_eq!(interrupts.payload, json!({ "tool": "pay", "arguments": { "value": 100 } }));
//!
//! let answer = Resolution::resolved(&interrupts.id, Decision::Edit(json!({ "value": 10 })));
//! let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
//! assert_eq!(agent.run(request).await?.text(), "Paid 10.");
//! # Ok(())
//! # }
//! ```
//!
//! # What an answer is for
//!
//! For one call of one tool with the arguments that the person saw, as the question says them. The
//! question is kept with the conversation, in its
//! [private state](crate::RunContext::private_state), until the call has its answer. So
//! - a run resumes from the [`Checkpoint`](crate::Checkpoint): with the messages alone nothing was
//!   asked, and the question is asked again;
//! - a call with other arguments than those asked about is asked about anew, also where an
//!   `on_error` has changed them for a retry;
//! - a later call by the same id is another call;
//! - a tool that asks something of its own after the approval is not asked about twice. It takes
//!   another id than the call's for its own question;
//! - two approvals around one call, or a retry outside, share one answer.
//!
//! # Where it stands
//!
//! Given to [`on_tool`](crate::AgentBuilder::on_tool) it is asked about the agent's own calls, given to
//! [`global`](crate::AgentBuilder::global) about those of every agent that works for it, too.
//! Callbacks registered before it act on the arguments before the person sees them; those after it,
//! and tower layers inside it, see them as the person left them. So whatever checks arguments
//! belongs after it.

mod decision;
mod questions;

use std::fmt;
use std::sync::Arc;

pub use self::decision::Decision;

use self::questions::Questions;
use crate::callback::{Action, Bundle, Callback};
use crate::error::{ResolutionOutcome, Result};
use crate::request::Request;
use crate::tool::{Effect, ToolRequest, ToolResponse};

/// Lets calls of some tools through once a person has approved of them. See the
/// [module](self).
///
/// Its [`Interrupt`](crate::Interrupt)s have the reason `tool_call`, the [name of the call](crate::RunContext::call_path) as
/// their id, `{ "tool": .., "arguments": .. }` as their payload, and the JSON Schema of a
/// [`Decision`] for that tool.
#[derive(Clone)]
pub struct Approval {
    needed: Arc<dyn Fn(&ToolRequest) -> bool + Send + Sync>,
    named: Arc<[Arc<str>]>,
}

impl Approval {
    /// For calls of these tools. Building an agent that lacks one of them fails.
    #[must_use]
    pub fn of_tools(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let named: Arc<[Arc<str>]> = names.into_iter().map(|name| Arc::from(name.into())).collect();
        let names = named.clone();
        let needed = Self::when(move |request| names.iter().any(|name| **name == *request.name()));
        Self { named, ..needed }
    }

    /// For calls of tools that are neither [pure](Effect::Pure) nor
    /// [idempotent](Effect::Idempotent). A tool that nobody has declared may do anything.
    #[must_use]
    pub fn of_effects() -> Self {
        Self::when(|request| {
            let effect = request.declaration().map(|declaration| declaration.effect());
            !matches!(effect, Some(Effect::Pure | Effect::Idempotent))
        })
    }

    /// For calls of which `needed` says so. One that panics fails the call.
    ///
    /// ```
    /// use tower_agent::middleware::approval::Approval;
    ///
    /// let dear = Approval::when(|request| request.arguments()["amount"].as_f64() > Some(100.0));
    /// # drop(dear);
    /// ```
    #[must_use]
    pub fn when(needed: impl Fn(&ToolRequest) -> bool + Send + Sync + 'static) -> Self {
        Self { needed: Arc::new(needed), named: Arc::default() }
    }
}

#[diagnostic::do_not_recommend]
impl Callback<ToolRequest> for Approval {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let needed = (self.needed)(request);
        let mut questions = Questions::of(request);
        // A question that another approval has asked is open all the same.
        if !needed && !questions.is_open() {
            return Ok(Action::Continue);
        }
        let decision = match questions.decision(request) {
            Some(decided) => decided,
            None => match self.answer(&mut questions, request) {
                Ok(answered) => answered,
                Err(why) => return Err(questions.ask(request, why)?),
            },
        };
        match decision {
            Decision::Approve => {}
            Decision::Edit(arguments) => *request.arguments_mut() = arguments,
            Decision::Reject { reason } => {
                let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                let refusal = format!("the user rejected this call{why}");
                return Ok(Action::Respond(ToolResponse::error(refusal)));
            }
        }
        Ok(Action::Continue)
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.named.to_vec()
    }
}

impl Approval {
    /// The answer to the question about this call. `Err` with what to say when it is asked again.
    fn answer(
        &self,
        questions: &mut Questions,
        request: &ToolRequest,
    ) -> Result<Decision, Option<String>> {
        let resolution = questions.resolution(request).ok_or(None)?;
        let decision = match &resolution.outcome {
            ResolutionOutcome::Resolved(payload) => Decision::from_payload(payload),
            ResolutionOutcome::Cancelled => Ok(Decision::Reject { reason: None }),
        };
        let fits = |decision: &Decision| match (decision, request.declaration()) {
            (Decision::Edit(edited), Some(tool)) => tool.check_arguments(edited),
            _ => Ok(()),
        };
        let decision = decision.and_then(|decision| fits(&decision).map(|()| decision));
        let decision = decision.map_err(|error| {
            tracing::warn!(id = request.context().call_path(), "an approval was not understood");
            Some(error.message().to_owned())
        })?;
        questions.decide(request, &decision);
        Ok(decision)
    }
}

impl From<Approval> for Bundle {
    fn from(approval: Approval) -> Self {
        Self::new().on_tool(approval)
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approval").finish_non_exhaustive()
    }
}
