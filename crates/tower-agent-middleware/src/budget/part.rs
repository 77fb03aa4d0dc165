//! Parts of a budget for the agents that work for another.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::json;
use tower_agent::call::{Extensions, Request};
use tower_agent::callback::{Action, Bundle, Callback, Outcome, before_model, before_tool};
use tower_agent::context::{EffectLog, RunContext};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::{AgentRequest, AgentResponse};

use super::account::{Account, Spent};
use super::limits::Limit;
use super::{Budget, OfRun, OpenPart};
use crate::lock::lock;

/// The name of each callback of a part.
const NAME: &str = "BudgetPart";

impl Budget {
    /// Creates a part of this budget for an agent that works for another: each call of the agent
    /// has this much, and no more. It is set aside when the agent is called, so that nobody else
    /// uses it up, and what is left of it is given back when the agent ends. If the budget has less
    /// left, the agent is not called.
    ///
    /// The usage of the agent is charged to the budget at once, also if the run is cancelled. A
    /// limit that the part does not set is that of the whole budget.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Agent, Tool};
    /// use tower_agent_middleware::budget::{Account, Budget, Limit, Limits};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let account = Account::new(Limits::new().model_calls(10));
    /// let budget = Budget::of(account.clone());
    ///
    /// // It would go on for ever.
    /// let searching = ScriptedModel::always(Turn::tool("search", json!(null)));
    /// let searcher = Agent::builder(searching)
    ///     .name("searcher")
    ///     .tool(Tool::function("search", "Searches.", |_: ()| "nothing"))
    ///     .callbacks(budget.carve([Limit::ModelCalls(3)]))
    ///     .build()?;
    /// let model = ScriptedModel::new([
    ///     Turn::tool("searcher", json!({ "request": "Find it." })),
    ///     Turn::from_text("It was not found."),
    /// ]);
    /// let agent = Agent::builder(model)
    ///     .tool(searcher.into_tool("Finds things."))
    ///     .global_callbacks(budget)
    ///     .build()?;
    ///
    /// assert_eq!(agent.run("Where is it?").await?.text(), "It was not found.");
    /// assert_eq!(account.used().model_calls, 5);
    /// assert_eq!(account.left(), [Limit::ModelCalls(5)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Register the part with [`callbacks`](tower_agent::AgentBuilder::callbacks) on the agent, and
    /// the budget itself around it, with
    /// [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks): without that, the agent's
    /// calls fail.
    pub fn carve(&self, limits: impl IntoIterator<Item = Limit>) -> BudgetPart {
        BudgetPart {
            budget: self.clone(),
            limits: limits.into_iter().collect(),
        }
    }
}

/// A part of a budget for each call of an agent; created by [`Budget::carve`].
#[derive(Clone)]
#[must_use = "a part does nothing until it is registered"]
pub struct BudgetPart {
    budget: Budget,
    limits: Arc<[Limit]>,
}

impl BudgetPart {
    /// Sets the part of an agent aside.
    fn open(&self, context: &RunContext) -> Result<()> {
        let run = self.budget.of_run(context)?;
        let path = context.step_path();
        if lock(&run.parts)
            .iter()
            .any(|part| part.agent == path && !part.has_limits(&self.limits))
        {
            let problem = "an agent has two parts of one budget: give all limits to one `carve`";
            return Err(Error::new(ErrorKind::InvalidRequest, problem));
        }
        // Of an earlier attempt at the same call.
        self.close(&run, &path);
        let around = run.parts_for(context).into_iter().next();
        let whole = around.unwrap_or_else(|| run.clone());
        let name: Arc<str> = format!("{} {path}", self.budget.config.name).into();
        let limits = whole.account.prices().of_part(&self.limits)?;
        let used = self.used_before(context).unwrap_or_default();
        let account = whole.account.carve(limits, used, name.clone())?;
        let part = Arc::new(OfRun::new(account.clone()));
        let shares_name = run.shares_name.load(Ordering::Relaxed);
        part.shares_name.store(shares_name, Ordering::Relaxed);
        lock(&run.parts).push(OpenPart {
            agent: path,
            limits: self.limits.clone(),
            run: part,
        });
        // Calls that are made in another process are answered from its journal here.
        EffectLog::on_replay(context, name, move |calls, recorded| {
            account.charge_replayed(calls, recorded);
        });
        Ok(())
    }

    fn close(&self, run: &OfRun, path: &str) -> Option<Account> {
        let mut parts = lock(&run.parts);
        let mut open = parts.iter();
        let at = open.position(|part| part.agent == path && part.has_limits(&self.limits))?;
        let OpenPart { run: part, .. } = parts.swap_remove(at);
        drop(parts);
        part.account.give_back();
        Some(part.account.clone())
    }

    /// Returns what the agent had used of its part when the run paused, if this one goes on with
    /// it.
    fn used_before(&self, context: &RunContext) -> Option<Spent> {
        if !context.is_continuation() {
            return None;
        }
        let used = context.private_state().get(&self.key(context))?;
        // A form that cannot be read is not taken for nothing: everything is used.
        Some(serde_json::from_value(used).unwrap_or(Spent::ALL))
    }

    fn key(&self, context: &RunContext) -> String {
        let name = &self.budget.config.name;
        let agent = context.call_path();
        let key = format!("tower_agent_middleware::budget/{name}/{agent}");
        // Removed with the call that the agent works in.
        context.outer_call_key(&key).unwrap_or(key)
    }

    /// Fails if a call is not charged to the budget.
    fn check(&self, extensions: &Extensions) -> Result<()> {
        if self.budget.held(extensions).is_some() {
            return Ok(());
        }
        let problem = "a part of a budget is registered on this agent, and not the budget itself around it: \
                       register it with `global_callbacks` on the agent that calls this one";
        Err(Error::new(ErrorKind::InvalidRequest, problem))
    }
}

#[diagnostic::do_not_recommend]
impl Callback<AgentRequest> for BudgetPart {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        self.open(request.context())?;
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &AgentRequest, _: Outcome<'_, AgentResponse>) {
        let context = request.context();
        let Ok(run) = self.budget.of_run(context) else {
            return;
        };
        let Some(account) = self.close(&run, &context.step_path()) else {
            return;
        };
        if !context.interrupts().is_empty() {
            let used = json!(account.used());
            context.private_state().set(self.key(context), used);
        }
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl From<BudgetPart> for Bundle {
    fn from(part: BudgetPart) -> Self {
        let of_models = part.clone();
        let of_tools = part.clone();
        let model = before_model(move |request| of_models.check(request.extensions()));
        let tool = before_tool(move |request| of_tools.check(request.extensions()));
        Self::new()
            .on_agent(part)
            .on_model(model.named(NAME).guard())
            .on_tool(tool.named(NAME).guard())
    }
}

impl fmt::Debug for BudgetPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetPart")
            .field("budget", &self.budget)
            .field("limits", &self.limits)
            .finish()
    }
}
