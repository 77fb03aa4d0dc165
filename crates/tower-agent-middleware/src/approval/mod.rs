//! Requires a person's approval for tool calls.
//!
//! ```text
//! Approval: Callback<ToolRequest>
//! ```
//!
//! A call that needs approval and has no resolution yet [interrupts](tower_agent::Error::interrupt)
//! the run. Parallel calls finish; the run then ends with
//! [`EndReason::Interrupted`](tower_agent::EndReason::Interrupted) and one
//! [`Interrupt`](tower_agent::Interrupt) for each call that waits. A run that
//! [resumes](tower_agent::AgentRequest::resume) with a [`Resolution`](tower_agent::Resolution)
//! continues with that call:
//!
//! | the resolution | the call |
//! |---|---|
//! | [`Decision::Approve`] | runs |
//! | [`Decision::Edit`], where [edits are allowed](Approval::allow_edits) | runs with the edited arguments, if they [fit the tool](tower_agent::tool::ToolDeclaration::check_arguments); the model reads what they are |
//! | [`Decision::Reject`] | does not run; the model reads the reason |
//! | [`Decision::Respond`], where [answers are allowed](Approval::allow_answers) | does not run; the model reads the answer as its result |
//! | none [in time](Approval::deny_after) | does not run; the model reads that nobody answered |
//! | [`ResolutionOutcome::Cancelled`](tower_agent::error::ResolutionOutcome::Cancelled) | does not run; the model reads that it was rejected |
//! | anything else | does not run; the interrupt is raised again, and its [`message`](tower_agent::Interrupt::message) says what was wrong |
//! | none with its [`Interrupt::id`](tower_agent::Interrupt::id) | does not run; the interrupt is raised again |
//!
//! ```
//! use serde_json::json;
//! use tower_agent_middleware::approval::{Approval, Decision};
//! use tower_agent::{Agent, AgentRequest, Resolution, Tool};
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let model = ScriptedModel::new([
//!     Turn::tool("pay", json!({ "value": 100 })),
//!     Turn::from_text("Paid 10."),
//! ]);
//! let agent = Agent::builder(model)
//!     .tool(Tool::function("pay", "Pays.", |amount: u32| format!("paid {amount}")))
//!     .on_tool(Approval::of_tools(["pay"]).allow_edits())
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
//! # What an approval covers
//!
//! An approval covers one call of one tool with the arguments that the person saw, or wrote where
//! [edits are allowed](Approval::allow_edits). The question is kept in the conversation's [private
//! state](tower_agent::RunContext::private_state) until the call has a result. Therefore:
//! - Resume the run from its [`Checkpoint`](tower_agent::Checkpoint). With the messages alone no
//!   question is known, and it is asked again.
//! - A call whose arguments differ from those in the question is asked about again, even if an
//!   `on_error` changed them for a retry.
//! - A later call with the same id is a different call.
//! - A tool that raises an interrupt of its own after the approval is not asked about twice. It
//!   must use an id other than the call's for its interrupt.
//! - Two approvals around one call by the same [approver](Approval::by_role), or a retry outside,
//!   share one decision. Those of different approvers ask one after the other, from the outside in,
//!   and the call runs once all have approved it.
//!
//! # Who approves
//!
//! By default the user of the run answers, which protects the user from the model. For a call by
//! which the user profits, such as a refund, let somebody else answer:
//! [`Approval::of_tools(["refund"]).by_role("support")`](Approval::by_role). Whoever has the role
//! may be the user as well: [`not_by`](Approval::not_by) keeps people from approving their own
//! calls, and [`by_two`](Approval::by_two) asks two. Who has answered is in the
//! [result](tower_agent::message::ToolResult::answered_by) of the call.
//!
//! # Where to register it
//!
//! Registered with [`on_tool`](tower_agent::AgentBuilder::on_tool) it covers the agent's own calls,
//! and none that a sub-agent or an agent used as a tool makes; with
//! [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) it covers those too. Callbacks
//! registered before it change the arguments before the person sees them. Callbacks after it, and
//! tower layers inside it, see the approved arguments; register argument checks there.

mod decision;
mod questions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use self::decision::Decision;

use self::questions::Questions;
use crate::asked;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Bundle, Callback};
use tower_agent::context::RunContext;
use tower_agent::error::{Answerer, BoxError, Error, ErrorKind, Result};
use tower_agent::message::Part;
use tower_agent::tool::{Effect, ToolRequest, ToolResponse};

/// Allows calls of some tools only after a person has approved them. See the [module](self).
///
/// Its [`Interrupt`](tower_agent::Interrupt)s have the reason `tool_call`, the [path of the
/// call](tower_agent::RunContext::call_path) as their id, with a [role](Self::by_role) behind it if
/// there is one, `{ "tool": .., "arguments": .. }` as their payload, and the JSON Schema of a
/// [`Decision`] about that tool.
#[derive(Clone)]
pub struct Approval {
    needed: Arc<dyn Fn(&ToolRequest) -> bool + Send + Sync>,
    named: Arc<[Arc<str>]>,
    allows_edits: bool,
    allows_answers: bool,
    approver: Answerer,
    /// Returns the name of the user of a run, who may not approve.
    user: Option<Arc<UserOf>>,
    /// The number of people that have to approve.
    people: usize,
    deny_after: Option<Duration>,
}

type UserOf = dyn Fn(&RunContext) -> Option<String> + Send + Sync;

/// The arguments that a person wrote for a call, kept with it.
#[derive(Clone)]
struct Edited(Value);

impl Approval {
    /// Requires approval for calls of these tools. [`build`](tower_agent::AgentBuilder::build)
    /// fails if the agent lacks one of them.
    #[must_use]
    pub fn of_tools(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let named: Arc<[Arc<str>]> = names
            .into_iter()
            .map(|name| Arc::from(name.into()))
            .collect();
        let names = named.clone();
        let needed = Self::when(move |request| names.iter().any(|name| **name == *request.name()));
        Self { named, ..needed }
    }

    /// Requires approval for calls of tools that are neither [pure](Effect::Pure) nor
    /// [idempotent](Effect::Idempotent). Undeclared tools count as [mutating](Effect::Mutating).
    #[must_use]
    pub fn of_effects() -> Self {
        Self::when(|request| {
            let effect = request
                .declaration()
                .map(|declaration| declaration.effect());
            !matches!(effect, Some(Effect::Pure | Effect::Idempotent))
        })
    }

    /// Requires approval when `needed` returns `true`. If it panics, the call fails.
    ///
    /// It sees arguments that the tool may still refuse. Let it return `true` for arguments that
    /// are missing or odd: a tool may have a default, or know the field by another name.
    ///
    /// ```
    /// use tower_agent_middleware::approval::Approval;
    ///
    /// let dear = Approval::when(|request| match request.arguments()["amount"].as_f64() {
    ///     Some(amount) => amount > 100.0,
    ///     None => true,
    /// });
    /// # drop(dear);
    /// ```
    #[must_use]
    pub fn when(needed: impl Fn(&ToolRequest) -> bool + Send + Sync + 'static) -> Self {
        Self {
            needed: Arc::new(needed),
            named: Arc::default(),
            allows_edits: false,
            allows_answers: false,
            approver: Answerer::User,
            user: None,
            people: 1,
            deny_after: None,
        }
    }

    /// Lets people with this role approve the calls, and not the user of the run. Servers for front
    /// ends take the decision only from a client that has the role.
    ///
    /// ```
    /// use tower_agent_middleware::approval::Approval;
    ///
    /// let refunds = Approval::of_tools(["refund"]).by_role("support").allow_edits();
    /// # drop(refunds);
    /// ```
    #[must_use]
    pub fn by_role(mut self, role: impl Into<String>) -> Self {
        self.approver = Answerer::Role(role.into());
        self
    }

    /// Rejects a call that nobody has approved within this time: the model reads that nobody
    /// answered, and later decisions are [refused](tower_agent::Interrupt::with_expiry). Defaults
    /// to no limit.
    ///
    /// The time begins when the call is asked about first. Asking again, as after an edit that does
    /// not fit the tool, does not extend it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_agent_middleware::approval::Approval;
    ///
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let refunds = Approval::of_tools(["refund"]).by_role("support").deny_after(day);
    /// # drop(refunds);
    /// ```
    #[must_use]
    pub fn deny_after(mut self, time: Duration) -> Self {
        self.deny_after = Some(time);
        self
    }

    /// Lets nobody approve calls of their own run: whoever approves must be known to the server [by
    /// name](tower_agent::Resolution::by), and not be the user, whose name this function returns
    /// from what the server has given the run. If it returns `None`, the call fails.
    ///
    /// Inboxes and servers refuse the answer of anybody else before anything runs. The name of who
    /// has approved stands in the [result](tower_agent::message::ToolResult::answered_by) of the
    /// call.
    ///
    /// ```
    /// use tower_agent_middleware::approval::Approval;
    ///
    /// /// Given by the server, with `AgentRequest::with_extension`.
    /// struct User(String);
    ///
    /// let refunds = Approval::of_tools(["refund"])
    ///     .by_role("support")
    ///     .not_by(|run| Some(run.extension::<User>().ok()?.0.clone()));
    /// # drop(refunds);
    /// ```
    #[must_use]
    pub fn not_by(
        mut self,
        user: impl Fn(&RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.user = Some(Arc::new(user));
        self
    }

    /// Lets a call run once two different people have approved it, whom the server knows [by
    /// name](tower_agent::Resolution::by). They are asked one after the other, each about the
    /// arguments as they are then; an edit counts as the approval of its own. One rejection is
    /// enough.
    ///
    /// ```
    /// use tower_agent_middleware::approval::Approval;
    ///
    /// let transfers = Approval::of_tools(["transfer"]).by_role("finance").by_two();
    /// # drop(transfers);
    /// ```
    #[must_use]
    pub fn by_two(mut self) -> Self {
        self.people = 2;
        self
    }

    /// Allows [`Decision::Edit`]: whoever answers may run the tool with any arguments that fit it,
    /// and not only the call that was shown. The model reads the new arguments with the result.
    ///
    /// Without this, an edit is asked about again.
    #[must_use]
    pub fn allow_edits(mut self) -> Self {
        self.allows_edits = true;
        self
    }

    /// Allows [`Decision::Respond`]: whoever answers may say what the call has returned, and the
    /// tool does not run. The model takes it for the tool's own result, whatever it is; one person
    /// is enough, also where [two](Self::by_two) must approve.
    ///
    /// Without this, such an answer is asked about again.
    #[must_use]
    pub fn allow_answers(mut self) -> Self {
        self.allows_answers = true;
        self
    }
}

#[diagnostic::do_not_recommend]
impl Callback<ToolRequest> for Approval {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let needed = (self.needed)(request);
        let mut questions = Questions::of(request, &self.approver);
        // Another approval may have an open question about this call.
        if !needed && !questions.is_open() {
            return Ok(Action::Continue);
        }
        let except = self.except(request)?;
        loop {
            match questions.decision(request, self.people) {
                Some(Decision::Approve) => return Ok(Action::Continue),
                // The arguments are those of a later question each time, so this ends.
                Some(Decision::Edit(arguments)) => {
                    // Kept with the call, so that `after` can tell the model what was run.
                    request.extensions_mut().insert(Edited(arguments.clone()));
                    *request.arguments_mut() = arguments;
                }
                Some(Decision::Reject { reason }) => {
                    let why = reason
                        .map(|reason| format!(": {reason}"))
                        .unwrap_or_default();
                    let refusal = format!("the approver rejected this call{why}");
                    request.context().because("the approver rejected the call");
                    return Ok(Action::Respond(ToolResponse::error(refusal)));
                }
                Some(Decision::Respond(result)) => {
                    request.context().because("the approver answered the call");
                    return Ok(Action::Respond(ToolResponse::new(result)));
                }
                None => self.decide(&mut questions, request, except.clone())?,
            }
        }
    }

    /// Tells the model which arguments the tool got.
    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        let Some(Edited(arguments)) = request.extensions().get() else {
            return Ok(Action::Continue);
        };
        let note = Part::from_text(format!(
            "\n(The approver changed the arguments to {arguments}.)"
        ));
        let mut parts = response.parts();
        // Another approval around the call may have said it.
        if parts.contains(&note) {
            return Ok(Action::Continue);
        }
        parts.push(note);
        Ok(Action::Respond(response.clone().with_parts(parts)))
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.named.to_vec()
    }
}

impl Approval {
    /// Takes the next person's decision about this call, or fails with the question.
    fn decide(
        &self,
        questions: &mut Questions<'_>,
        request: &ToolRequest,
        except: Option<Vec<String>>,
    ) -> Result<()> {
        let except = match (except, self.people) {
            (None, 1) => None,
            (except, _) => {
                let mut except = except.unwrap_or_default();
                except.extend(questions.approvers(request));
                Some(except)
            }
        };
        let schema = Decision::schema_for(
            request.declaration().map(|tool| tool.parameters()),
            self.allows_edits,
            self.allows_answers,
        );
        let interrupt = questions.interrupt(request, schema, except);
        // No resolution: a plain question, without a word about an earlier answer.
        let Some(resolution) = questions.resolution(request) else {
            return Err(questions.ask(request, interrupt, self.deny_after, None));
        };
        let rejection = Decision::Reject { reason: None };
        let decision = asked::answer(&resolution, Decision::from_payload, rejection);
        let decision = decision.and_then(|decision| {
            self.check(&decision, request)?;
            // Nobody has to be known for the call not to be made.
            if !matches!(decision, Decision::Reject { .. }) {
                let by = resolution.by.as_deref();
                interrupt.check_name(by).map_err(BoxError::from)?;
            }
            Ok(decision)
        });
        match decision {
            Ok(decision) => {
                questions.decide(request, decision, &resolution);
                Ok(())
            }
            Err(error) => {
                tracing::warn!(
                    run_id = request.context().run_id(),
                    id = request.context().call_path(),
                    "invalid approval decision"
                );
                let why = error.message().to_owned();
                Err(questions.ask(request, interrupt, self.deny_after, Some(why)))
            }
        }
    }

    /// Returns the names of those who may not approve calls of this run.
    fn except(&self, request: &ToolRequest) -> Result<Option<Vec<String>>> {
        let Some(user) = &self.user else {
            return Ok(None);
        };
        let Some(user) = user(request.context()) else {
            let why = format!(
                "`{}` needs the approval of somebody else than the user, and it is not known who \
                 that is",
                request.name()
            );
            return Err(Error::new(ErrorKind::Denied, why));
        };
        Ok(Some(vec![user]))
    }

    /// Fails if this decision cannot be made about this call.
    fn check(&self, decision: &Decision, request: &ToolRequest) -> Result<()> {
        match (decision, request.declaration()) {
            (Decision::Edit(_), _) if !self.allows_edits => {
                let why = "the arguments cannot be edited: approve the call as it is, or reject it";
                Err(Error::new(ErrorKind::InvalidRequest, why))
            }
            (Decision::Respond(_), _) if !self.allows_answers => {
                let why = "the call cannot be answered: approve it, or reject it";
                Err(Error::new(ErrorKind::InvalidRequest, why))
            }
            (Decision::Edit(edited), Some(tool)) => tool.check_arguments(edited),
            _ => Ok(()),
        }
    }
}

impl From<Approval> for Bundle {
    fn from(approval: Approval) -> Self {
        Self::new().on_tool(approval)
    }
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approval")
            .field("approver", &self.approver)
            .field("people", &self.people)
            .field("allows_edits", &self.allows_edits)
            .field("allows_answers", &self.allows_answers)
            .field("deny_after", &self.deny_after)
            .finish_non_exhaustive()
    }
}
