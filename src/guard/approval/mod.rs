//! Tools that need a person's approval.
//!
//! ```text
//! Approval: Callback<ToolRequest>
//! ```
//!
//! A call that needs approval and has no answer [interrupts](crate::Error::interrupt) the run.
//! Calls beside it finish; the run ends as [`Interrupted`](crate::End::Interrupted) with a
//! [`Pending`] for every call that waits. A run that [resumes](crate::AgentRequest::resume) with a
//! [`Resolution`] for it goes on with that call:
//!
//! | the answer | the call |
//! |---|---|
//! | [`Decision::Approve`] | is made |
//! | [`Decision::Edit`] | is made with other arguments |
//! | [`Decision::Reject`] | is not made; the model reads why |
//! | [`Answer::Cancelled`] | is not made; the model reads that it was rejected |
//! | anything else | is not made; the run waits again, and the [`Pending::message`] says what was wrong |
//! | none by its [`Pending::id`] | is not made; the run waits again |
//!
//! ```
//! use serde_json::json;
//! use tower_agent::guard::approval::{Approval, Decision};
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, AgentRequest, Resolution, Tool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let model = ScriptedModel::new([Turn::tool("pay", json!(100)), Turn::text("Paid 10.")]);
//! let agent = Agent::builder(model)
//!     .tool(Tool::function("pay", "Pays.", |amount: u32| format!("paid {amount}")))
//!     .on_tool(Approval::of_tools(["pay"]))
//!     .build()?;
//!
//! let paused = agent.run("Pay the bill.").await?;
//! let pending = &paused.pending()[0];
//! assert_eq!(pending.payload, json!({ "tool": "pay", "arguments": 100 }));
//!
//! let answer = Resolution::resolved(&pending.id, Decision::Edit(json!(10)));
//! let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
//! assert_eq!(agent.run(request).await?.text(), "Paid 10.");
//! # Ok(())
//! # }
//! ```
//!
//! # Where it stands
//!
//! Given to [`on_tool`](crate::AgentBuilder::on_tool) it is asked about the agent's own calls, given to
//! [`global`](crate::AgentBuilder::global) about those of every agent that works for it, too.
//! Callbacks registered before it act on the arguments before the person sees them; those after it,
//! and tower layers inside it, see them as the person left them. So whatever checks arguments
//! belongs after it. A retry outside it finds the same answer again, so that nobody is asked twice
//! about one call. Where a provider gives a later call the id of an earlier one, the answer serves
//! the earlier alone.

mod decision;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

pub use self::decision::Decision;

use crate::callback::{Action, Bundle, Callback};
use crate::context::RunContext;
use crate::error::{Answer, Error, Pending, Resolution, Result};
use crate::request::Request;
use crate::tool::{Effect, ToolRequest, ToolResponse};

/// Lets calls of some tools through once a person has approved of them. See the
/// [module](self).
///
/// Its [`Pending`]s have the reason `tool_call`, the [name of the call](RunContext::call_path) as
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
    /// use tower_agent::guard::approval::Approval;
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
        if !(self.needed)(request) {
            return Ok(Action::Continue);
        }
        let id = request.context().call_path();
        let Some(resolution) = answer_to(&id, request)? else {
            return Err(Error::interrupt(question(id, request)));
        };
        match decision(resolution) {
            Ok(Decision::Approve) => {}
            Ok(Decision::Edit(arguments)) => *request.arguments_mut() = arguments,
            Ok(Decision::Reject { reason }) => {
                let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                let refusal = format!("the user rejected this call{why}");
                return Ok(Action::Respond(ToolResponse::error(refusal)));
            }
            Err(error) => {
                let message = error.message().to_owned();
                tracing::warn!(id, message, "an approval was not understood");
                return Err(Error::interrupt(question(id, request).with_message(message)));
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

impl From<Approval> for Bundle {
    fn from(approval: Approval) -> Self {
        Self::new().on_tool(approval)
    }
}

/// The calls that have had their answer, by its id.
type Answered = HashMap<String, Arc<Value>>;

/// The answer to `id`, unless it was for an earlier call of the same name in this run.
fn answer_to<'a>(id: &str, request: &'a ToolRequest) -> Result<Option<&'a Resolution>> {
    let context: &RunContext = request.context();
    let Some(resolution) = context.resolution(id) else { return Ok(None) };
    // Every attempt at one call shares the arguments that the model gave; no other call does.
    let call = &request.call().arguments;
    let is_first = |answered: &mut Answered| {
        Arc::ptr_eq(answered.entry(id.to_owned()).or_insert_with(|| call.clone()), call)
    };
    let is_its = context.values().update("tower_agent::guard::approval", is_first)?;
    Ok(is_its.then_some(resolution))
}

fn decision(resolution: &Resolution) -> Result<Decision> {
    match &resolution.outcome {
        Answer::Resolved(payload) => Decision::from_payload(payload),
        Answer::Cancelled => Ok(Decision::Reject { reason: None }),
    }
}

fn question(id: String, request: &ToolRequest) -> Pending {
    let schema = Decision::schema_for(request.declaration().map(|tool| tool.parameters()));
    Pending::new(id, "tool_call")
        .with_message(format!("`{}` needs your approval", request.name()))
        .with_response_schema(schema)
        .with_payload(json!({ "tool": request.name(), "arguments": request.arguments() }))
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approval").finish_non_exhaustive()
    }
}
