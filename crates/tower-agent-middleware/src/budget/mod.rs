//! Limits what runs may spend: model calls, tool calls, tokens, cost, time.
//!
//! ```text
//! Budget: Callback<AgentRequest> + Callback<ModelRequest> + Callback<ToolRequest>
//! ```
//!
//! Before a call runs, it reserves what it may spend; if the remaining budget is too small, the
//! call does not run. Parallel calls therefore cannot overspend together. When a call ends, it
//! gives back what it did not use:
//!
//! | the call | is charged |
//! |---|---|
//! | succeeds | one call, and the tokens that the response reports; if it reports none, the tokens reserved |
//! | is dropped, such as by a client that disconnects | one call, and the tokens reserved: what it used is not known |
//! | fails | one call, and no tokens |
//! | is interrupted | nothing: it has not run |
//!
//! A call that a callback fails after the model has responded counts as failed; to charge its
//! tokens, register the budget inside that callback's band. Calls are counted exactly. Tokens and
//! cost may exceed the limit by as much as running calls use beyond their reservation: the
//! request's `max_tokens`, or [a default](Limits::reservation) if it sets none.
//!
//! ```
//! use serde_json::json;
//! use tower_agent_middleware::budget::{Budget, Exceeded, Limit, Limits};
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, ErrorKind, Tool};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let agent = Agent::builder(ScriptedModel::always(Turn::tool("look", json!(null))))
//!     .tool(Tool::function("look", "Looks.", |_: ()| "nothing"))
//!     .global_callbacks(Budget::new(Limits::new().model_calls(3)))
//!     .build()?;
//!
//! let error = agent.run("Find it.").await.unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
//! let exceeded = error.downcast_ref::<Exceeded>().ok_or("typed")?;
//! assert_eq!(exceeded.limit, Limit::ModelCalls(3));
//! # Ok(())
//! # }
//! ```
//!
//! # Where to register it
//!
//! A budget counts the calls that pass it. Outside a retry it counts a call once, however many
//! attempts it takes; [inside](tower_agent::AgentBuilder::model_layer) the retry it counts every attempt.
//! Registered with [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) it covers the whole tree of agents;
//! registered on one agent it covers only that agent's own calls. Two agents with clones of one
//! budget share it. As a layer, a budget is a band of its own. To count every attempt of each of
//! two models:
//!
//! ```
//! use tower::ServiceBuilder;
//! use tower_agent_middleware::budget::{Budget, Limits};
//! use tower_agent_middleware::fallback::Fallback;
//! use tower_agent_middleware::retry::CallRetryLayer;
//! use tower_agent::Callbacks;
//! use tower_agent::model::ModelService;
//!
//! fn counted(large: impl ModelService, small: impl ModelService) -> impl ModelService {
//!     let budget = Callbacks::new().with(Budget::new(Limits::new().model_calls(20)));
//!     let attempts = ServiceBuilder::new().layer(CallRetryLayer::new()).layer(budget);
//!     Fallback::new(attempts.service(large)).or(attempts.service(small))
//! }
//! # let model = |_| async { Ok::<_, tower_agent::BoxError>(tower_agent::ModelResponse::from_text("")) };
//! # drop(counted(tower::service_fn(model), tower::service_fn(model)));
//! ```
//!
//! # Prices
//!
//! [`Limits::cost`] takes a function, [`Limits::cost_at`] a [`PriceTable`], such as the one that
//! LiteLLM publishes. A table prices cached, cache-written and reasoning tokens apart, and knows
//! where long prompts cost more. No call of a model without a price is free: the caller chooses
//! whether it [fails](UnknownModel::Fail) or is charged [an assumed price](UnknownModel::Assume).
//!
//! # What shares a budget
//!
//! A budget made by [`new`](Budget::new) is for one run, sub-agents included: each run starts with
//! the full amount. A run that pauses for answers and [goes
//! on](tower_agent::RunContext::is_continuation) is the same run: what it has spent is in the
//! conversation's [private state](tower_agent::RunContext::private_state), if the budget is a bundle and
//! the only one of its [name](Budget::named) in the run. A run that is resumed after any other end
//! counts as a new run. A budget made by [`of`](Budget::of) is shared by everything charged to that
//! account, across runs.

mod account;
mod limits;
mod litellm;
mod model_price;
mod price_table;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use self::account::{Account, Spent};
pub use self::limits::{Exceeded, Limit, Limits, OnExceeding};
pub use self::model_price::ModelPrice;
pub use self::price_table::{PriceTable, UnknownModel, UnknownPrice};

use self::account::{Amounts, Reservation};
use crate::lock::lock;
use tower_agent::call::Extensions;
use tower_agent::call::Origin;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Bundle, Callback, Outcome};
use tower_agent::context::{RunContext, ValueTypeError};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::tool::{ToolRequest, ToolResponse};
use tower_agent::{AgentRequest, AgentResponse};

/// Keeps calls within limits. See the [module](self). Clones share one budget.
///
/// As a [`Bundle`] it covers a whole agent or tree; used alone it is a callback for model calls or
/// for tool calls.
///
/// ```
/// use tower_agent_middleware::budget::{Account, Budget, Limits};
/// # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = tower::service_fn(|_: ModelRequest| async {
/// #     Ok::<_, BoxError>(ModelResponse::from_text("done"))
/// # });
/// let account = Account::new(Limits::new().tokens(1_000_000));
/// let agent = Agent::builder(model).global_callbacks(Budget::of(account.clone())).build()?;
///
/// agent.run("Hello").await?;
/// agent.run("Hello again").await?;
/// assert_eq!(account.used().model_calls, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Budget(Arc<BudgetConfig>);

#[derive(Debug)]
struct BudgetConfig {
    /// Tells the budgets of this process apart.
    number: u64,
    name: Arc<str>,
    scope: Scope,
}

#[derive(Debug)]
enum Scope {
    Run(Limits),
    Account(Account),
}

impl Budget {
    /// Creates a budget that each run has for itself.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self::in_scope(Scope::Run(limits))
    }

    /// Creates a budget for everything that is charged to `account`.
    #[must_use]
    pub fn of(account: Account) -> Self {
        Self::in_scope(Scope::Account(account))
    }

    fn in_scope(scope: Scope) -> Self {
        // Not the address: a budget that was dropped could leave its own to another.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(Arc::new(BudgetConfig {
            number,
            name: "budget".into(),
            scope,
        }))
    }

    /// Sets the name, by which a run that goes on in another process knows what it has spent. Defaults
    /// to `budget`; a durable run with several budgets needs a name for each.
    #[must_use]
    pub fn named(self, name: impl Into<Arc<str>>) -> Self {
        let config = Arc::try_unwrap(self.0).unwrap_or_else(|shared| {
            // A clone that is in use keeps its name.
            let BudgetConfig {
                number,
                name,
                scope,
            } = &*shared;
            let scope = match scope {
                Scope::Run(limits) => Scope::Run(limits.clone()),
                Scope::Account(account) => Scope::Account(account.clone()),
            };
            BudgetConfig {
                number: *number,
                name: name.clone(),
                scope,
            }
        });
        Self(Arc::new(BudgetConfig {
            name: name.into(),
            ..config
        }))
    }

    /// Returns the account that a run is charged to, for example for a callback to read.
    ///
    /// ```
    /// use tower_agent_middleware::budget::{Budget, Limits};
    /// use tower_agent::Request;
    /// use tower_agent::callback::{Bundle, after_model};
    ///
    /// let budget = Budget::new(Limits::new().tokens(50_000));
    /// let look = after_model({
    ///     let budget = budget.clone();
    ///     move |request, _| {
    ///         println!("left: {:?}", budget.account(request.context())?.left());
    ///         Ok(())
    ///     }
    /// });
    /// let bundle = Bundle::from(budget).on_model(look);
    /// # drop(bundle);
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if a value of another type is stored under this budget's key.
    pub fn account(&self, context: &RunContext) -> Result<Account, ValueTypeError> {
        Ok(self.of_run(context)?.account.clone())
    }

    fn of_run(&self, context: &RunContext) -> Result<Arc<OfRun>, ValueTypeError> {
        let mut new = None;
        let key = format!("tower_agent_middleware::budget/{}", self.0.number);
        let of_run = context
            .values()
            .update(&key, |stored: &mut Option<Arc<OfRun>>| {
                let run = stored.get_or_insert_with(|| {
                    let account = match &self.0.scope {
                        Scope::Run(limits) => {
                            let earlier = self.spent_before(context);
                            Account::restored(limits.clone(), earlier.unwrap_or_default())
                        }
                        Scope::Account(account) => account.clone(),
                    };
                    new = Some(account.clone());
                    Arc::new(OfRun {
                        account,
                        shares_name: AtomicBool::new(false),
                        state: Mutex::default(),
                    })
                });
                run.clone()
            })?;
        if let Some(account) = new {
            // Outside the update above, which holds a lock on the values of the run.
            let is_only = context.on_replay(self.0.name.clone(), move |calls, recorded| {
                account.charge_replayed(calls, recorded);
            });
            // Two of one name are an error only where calls are recorded: see `log`.
            of_run.shares_name.store(!is_only, Ordering::Relaxed);
        }
        Ok(of_run)
    }

    /// Returns what the run had spent when it paused, if this one goes on with it.
    fn spent_before(&self, context: &RunContext) -> Option<Spent> {
        if !context.is_continuation() {
            return None;
        }
        let spent = context.private_state().get(&self.spent_key())?;
        // A form that cannot be read is not taken for nothing: everything is spent.
        Some(serde_json::from_value(spent).unwrap_or(Spent::ALL))
    }

    /// Keeps what a run has spent that pauses.
    fn keep_spent(&self, context: &RunContext) {
        let Ok(run) = self.of_run(context) else {
            return;
        };
        let is_for_run = matches!(self.0.scope, Scope::Run(_));
        if is_for_run && !run.shares_name.load(Ordering::Relaxed) {
            let spent = serde_json::json!(run.account.used());
            context.private_state().set(self.spent_key(), spent);
        }
    }

    fn spent_key(&self) -> String {
        format!("tower_agent_middleware::budget/{}", self.0.name)
    }

    /// Makes what a call is charged part of the effects of a call around it.
    fn log(&self, run: &OfRun, context: &RunContext, reservation: &mut Reservation) -> Result<()> {
        let Some(effects) = context.effect_log() else {
            return Ok(());
        };
        let name = &self.0.name;
        if run.shares_name.load(Ordering::Relaxed) {
            return Err(Error::abort(format!(
                "the run has several budgets named `{name}`, which another process could not tell \
                 apart; give each a name with `Budget::named`"
            )));
        }
        reservation.log(effects, name.clone());
        Ok(())
    }

    /// Stores a call's reservation with the call.
    fn attach(&self, extensions: &mut Extensions, reservation: Reservation) {
        let mut reservations = extensions
            .get::<Reservations>()
            .cloned()
            .unwrap_or_default();
        reservations
            .0
            // A retry runs `before` again: dropping the earlier reservation charges the attempt
            // that failed.
            .retain(|(budget, _)| !Arc::ptr_eq(&budget.0, &self.0));
        reservations.0.push((self.clone(), Arc::new(reservation)));
        extensions.insert(reservations);
    }

    fn reservation<'a>(&self, extensions: &'a Extensions) -> Option<&'a Reservation> {
        let mut reservations = extensions.get::<Reservations>()?.0.iter();
        reservations
            .find(|(budget, _)| Arc::ptr_eq(&budget.0, &self.0))
            .map(|(_, reservation)| &**reservation)
    }

    /// Settles a call. `spent` computes what a successful call has used of its reservation.
    fn close<T>(
        &self,
        extensions: &Extensions,
        outcome: Outcome<'_, T>,
        spent: impl FnOnce(&T, Amounts) -> Amounts,
    ) {
        let Some(reservation) = self.reservation(extensions) else {
            return;
        };
        match outcome {
            Outcome::Done(response) => reservation.settle(|held| spent(response, held)),
            Outcome::Failed(error) if error.kind() == ErrorKind::Interrupted => {
                reservation.release();
            }
            Outcome::Failed(_) => reservation.fail(),
            // The use of a dropped call is not known, so it is charged what it reserved; so is
            // a call with an outcome that is newer than this crate.
            _ => reservation.settle(|held| held),
        }
    }
}

/// The reservations of one call, one for each budget.
#[derive(Clone, Default)]
struct Reservations(Vec<(Budget, Arc<Reservation>)>);

/// The state of a budget in one run.
#[derive(Debug)]
struct OfRun {
    account: Account,
    /// Another budget of the run has the same name.
    shares_name: AtomicBool,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    /// Why a tool call was refused: the model has read it, so the run must end.
    exceeded: Option<Exceeded>,
    /// The one concluding call of each agent: the agent's call, and its number of messages.
    concluding: HashMap<String, (u32, usize)>,
}

impl OfRun {
    fn exceeded(&self) -> Option<Exceeded> {
        lock(&self.state).exceeded
    }

    fn exceed(&self, exceeded: Exceeded) {
        let mut state = lock(&self.state);
        state.exceeded.get_or_insert(exceeded);
    }

    /// Returns whether this is its agent's concluding call, or another attempt at it.
    fn concludes(&self, request: &ModelRequest) -> bool {
        let context = request.context();
        let call = (context.iteration(), request.messages().len());
        let mut state = lock(&self.state);
        *state.concluding.entry(context.call_path()).or_insert(call) == call
    }
}

#[diagnostic::do_not_recommend]
impl Callback<AgentRequest> for Budget {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        self.account(request.context())?.begin();
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &AgentRequest, _: Outcome<'_, AgentResponse>) {
        if !request.context().interrupts().is_empty() {
            self.keep_spent(request.context());
        }
    }

    fn is_guard(&self) -> bool {
        true
    }
}

#[diagnostic::do_not_recommend]
impl Callback<ModelRequest> for Budget {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let run = self.of_run(request.context())?;
        let wanted = wanted(run.account.limits(), request)?;
        // A tool call that was refused ends the run at the next model call, even if the model would
        // fit.
        let room = run
            .exceeded()
            .map_or_else(|| run.account.reserve(wanted), Err);
        let mut reservation = match room {
            Ok(reservation) => reservation,
            Err(exceeded) => {
                if !run.account.limits().finishes() || !run.concludes(request) {
                    return Err(exceeded.into());
                }
                conclude(request, exceeded);
                run.account.reserve_beyond(wanted)
            }
        };
        self.log(&run, request.context(), &mut reservation)?;
        self.attach(request.extensions_mut(), reservation);
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ModelRequest, outcome: Outcome<'_, ModelResponse>) {
        self.close(request.extensions(), outcome, |response, held| {
            let Ok(account) = self.account(request.context()) else {
                return held;
            };
            spent(account.limits(), request, response, held)
        });
    }

    fn is_guard(&self) -> bool {
        true
    }
}

#[diagnostic::do_not_recommend]
impl Callback<ToolRequest> for Budget {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let run = self.of_run(request.context())?;
        match run.account.reserve(Amounts {
            tool_calls: 1,
            ..Amounts::default()
        }) {
            Ok(mut reservation) => {
                self.log(&run, request.context(), &mut reservation)?;
                self.attach(request.extensions_mut(), reservation);
            }
            Err(exceeded) => {
                run.exceed(exceeded);
                if !run.account.limits().finishes() {
                    return Err(exceeded.into());
                }
                return Ok(Action::Respond(ToolResponse::error(format!(
                    "tool call blocked: {exceeded}"
                ))));
            }
        }
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ToolRequest, outcome: Outcome<'_, ToolResponse>) {
        self.close(request.extensions(), outcome, |_, held| held);
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl From<Budget> for Bundle {
    fn from(budget: Budget) -> Self {
        Self::new()
            .on_agent(budget.clone())
            .on_model(budget.clone())
            .on_tool(budget)
    }
}

/// Returns what a model call may spend.
fn wanted(limits: &Limits, request: &ModelRequest) -> Result<Amounts> {
    let max_tokens = request.settings().max_tokens;
    let tokens = max_tokens.map_or(limits.default_reservation(), u64::from);
    let cost = limits.cost_of_reservation(request, tokens)?;
    Ok(Amounts {
        model_calls: 1,
        tokens,
        cost,
        ..Amounts::default()
    })
}

/// Returns what a model call with the reservation `held` has spent.
fn spent(
    limits: &Limits,
    request: &ModelRequest,
    response: &ModelResponse,
    held: Amounts,
) -> Amounts {
    let usage = response.usage();
    let is_given = matches!(response.origin(), Origin::Before | Origin::Fallback);
    if usage.total() == 0 && !is_given {
        return held;
    }
    let cost = limits.cost_of(request, response);
    Amounts {
        tokens: usage.total(),
        cost: cost.billionths.unwrap_or(held.cost),
        // A response of a callback names no model and costs nothing.
        unpriced_calls: u64::from(!cost.is_priced && !is_given),
        ..held
    }
}

/// Makes a request the run's last: no tools, and an instruction to conclude.
fn conclude(request: &mut ModelRequest, exceeded: Exceeded) {
    request.tools_mut().clear();
    let settings = request.settings_mut();
    // A choice of tools without any tools is an error at some providers.
    settings.tool_choice = None;
    settings.parallel_tool_calls = None;
    request.add_instructions(&format!(
        "The budget of {} is exhausted. Conclude now: answer with what you know, without calling any tool.",
        exceeded.limit
    ));
}
