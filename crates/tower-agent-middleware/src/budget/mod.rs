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
//! | has a response | one call, and the tokens that the response reports; if it reports none, or more than 100 million, the tokens reserved |
//! | is dropped, cancelled, refused or stopped by a time limit before it reaches the model | nothing |
//! | is dropped, cancelled or stopped afterwards, or its connection breaks in a stream | one call, and what is known: the tokens that the provider told, and for what it did not tell a fourth of the bytes of the prompt and of what was received |
//! | fails otherwise | one call, and no tokens |
//! | is interrupted before it reaches the model | nothing: it has not run |
//! | is answered by a callback | one call, and no tokens |
//! | is answered by a [replay](tower_agent::call::Origin::Replay), as of a cache inside | nothing; but there must be room for it |
//!
//! A budget charges the [attempts](tower_agent::call::Attempts) that the run itself knows of, as
//! its [usage](tower_agent::RunContext::usage) does, so that the two are equal but for what nobody
//! has told: those tokens are [said to be estimated](Spent::estimated_tokens). What a callback says
//! that its own response has used is in neither: a model that it asks is called [within the
//! run](tower_agent::call::BoxCallService::within_runs). All of them count that the budget is
//! around: a call that is tried again is one call, with the tokens of each attempt, also of one
//! whose answer was refused, replaced or lost to another, in layers or inside of what the agent has
//! for its model.
//!
//! An attempt that is cut and not streamed is charged its prompt, as is a model that was still
//! thinking, unseen: against a client that hangs up again and again, limit the model calls as well.
//! Calls are counted exactly. Tokens and cost may exceed the limit by as much as running calls use
//! beyond their reservation: the request's `max_tokens`, or [a default](Limits::reservation) if it
//! sets none.
//!
//! ```
//! use serde_json::json;
//! use tower_agent_middleware::budget::{Budget, Exceeded, Limit, Limits};
//! use tower_agent::{Agent, ErrorKind, Tool};
//! use tower_agent_test::{ScriptedModel, Turn};
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
//! attempts it takes: so do [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks), and
//! [`with_global_callbacks`](tower_agent::AgentRequest::with_global_callbacks) for one run.
//! [Inside](tower_agent::AgentBuilder::model_layer) the retry it counts every attempt, also with
//! [`with_callbacks`](tower_agent::AgentRequest::with_callbacks). Registered with
//! [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) it covers the whole tree of
//! agents; registered on one agent it covers only that agent's own calls. Two agents with clones of
//! one budget share it. As a layer, a budget is a band of its own. To count every attempt of each
//! of two models:
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
//! [`Limits::cost`] takes a function, [`Limits::cost_at`] a [`PriceTable`], such as [the one in
//! this crate](PriceTable::published). A table prices cached, cache-written and reasoning tokens
//! apart, and knows where long prompts cost more. No call of a model without a price is free: the
//! caller chooses whether it [fails](UnknownModel::Fail) or is charged [an assumed
//! price](UnknownModel::Assume).
//!
//! # What shares a budget
//!
//! A budget made by [`new`](Budget::new) is for one run, sub-agents included: each run starts with
//! the full amount. A run that pauses for answers and [goes
//! on](tower_agent::RunContext::is_continuation) is the same run: what it has spent is in the
//! conversation's [private state](tower_agent::RunContext::private_state), if the budget is a
//! bundle and the only one of its [name](Budget::named) in the run. A run that is resumed after any
//! other end counts as a new run. A budget made by [`of`](Budget::of) is shared by everything
//! charged to that account, across runs; one made by [`by`](Budget::by) finds the account of each
//! run, such as that of its user. An account is in memory: [save](Account::used) and
//! [restore](Account::restored) it.
//!
//! An agent that works for another has a [part](Budget::carve) of the budget in each call, if you
//! give it one: it can use no more, and nobody else uses it up meanwhile.

mod account;
mod limits;
mod litellm;
mod meter;
mod model_price;
mod part;
mod price_table;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use self::account::{Account, Spent};
pub use self::limits::{Exceeded, Limit, Limits, OnExceeding};
pub use self::model_price::ModelPrice;
pub use self::part::BudgetPart;
pub use self::price_table::{PriceTable, UnknownModel, UnknownPrice};

use self::account::{Amounts, Reservation};
use self::meter::Meter;
use crate::estimate::prompt_tokens;
use crate::lock::lock;
use tower_agent::call::{AttemptEnd, Attempts, Extensions, Request};
use tower_agent::callback::{Action, Bundle, Callback, Outcome};
use tower_agent::context::{EffectLog, RunContext};
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
pub struct Budget {
    config: Arc<BudgetConfig>,
}

#[derive(Debug)]
struct BudgetConfig {
    /// The key of its state in a run, which tells the budgets of this process apart.
    key: Arc<str>,
    name: Arc<str>,
    scope: Scope,
    /// The tools whose calls it counts; `None` for every call of the run.
    tools: Option<Arc<[Arc<str>]>>,
}

enum Scope {
    Run(Limits),
    Account(Account),
    By(Arc<AccountOf>),
}

/// Returns the account that a run is charged to.
type AccountOf = dyn Fn(&RunContext) -> Result<Account> + Send + Sync;

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

    /// Creates a budget that charges each run to the account which `account` returns for it, such
    /// as that of its user. It is asked once a run, sub-agents included; its error fails the call.
    ///
    /// Registered once, it holds for every run of the agent: also for one that is resumed, in this
    /// process or in another.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use std::sync::{Mutex, PoisonError};
    /// use tower_agent::{Agent, AgentRequest, ErrorKind, RunContext};
    /// use tower_agent_middleware::budget::{Account, Budget, Limits};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// struct Customer(String);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let accounts = Mutex::new(HashMap::<String, Account>::new());
    /// let budget = Budget::by(move |run: &RunContext| {
    ///     let Customer(name) = run.extension()?;
    ///     let mut accounts = accounts.lock().unwrap_or_else(PoisonError::into_inner);
    ///     let new = || Account::new(Limits::new().model_calls(1));
    ///     Ok(accounts.entry(name.clone()).or_insert_with(new).clone())
    /// });
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
    ///     .global_callbacks(budget)
    ///     .build()?;
    ///
    /// let of = |name: &str| AgentRequest::new("Hello").with_extension(Customer(name.to_owned()));
    /// agent.run(of("ada")).await?;
    /// agent.run(of("grace")).await?;
    /// let error = agent.run(of("ada")).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(account: impl Fn(&RunContext) -> Result<Account> + Send + Sync + 'static) -> Self {
        Self::in_scope(Scope::By(Arc::new(account)))
    }

    fn in_scope(scope: Scope) -> Self {
        // Not the address: a budget that was dropped could leave its own to another.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let config = BudgetConfig {
            key: format!("tower_agent_middleware::budget/{number}").into(),
            name: "budget".into(),
            scope,
            tools: None,
        };
        Self {
            config: Arc::new(config),
        }
    }

    /// Counts calls of these tools alone, all of them together, and no other call: a limit of one
    /// tool. [`build`](tower_agent::AgentBuilder::build) fails if the agent lacks one of them.
    ///
    /// The budget's [name](Self::named) is that of the tools. Several budgets can be in one run.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Agent, Tool};
    /// use tower_agent_middleware::budget::{Budget, Limits, OnExceeding};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let search = || Turn::tool("search", json!({ "value": "fox" }));
    /// # let model = ScriptedModel::new([search(), search(), Turn::from_text("A fox.")]);
    /// let once = Limits::new().tool_calls(1).on_exceeding(OnExceeding::Refuse);
    /// let agent = Agent::builder(model)
    ///     .tool(Tool::function("search", "Searches.", |_: String| "a fox"))
    ///     .callbacks(Budget::new(once).of_tools(["search"]))
    ///     .build()?;
    /// let response = agent.run("What is it?").await?;
    /// assert_eq!(response.text(), "A fox.");
    /// let mut results = response.new_messages().flat_map(|message| message.tool_results());
    /// assert!(results.nth(1).is_some_and(|result| result.is_error));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn of_tools(self, names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        let tools: Arc<[Arc<str>]> = names.into_iter().map(Into::into).collect();
        let name = format!("budget of {}", tools.join(", ")).into();
        self.changed(|config| {
            config.name = name;
            config.tools = Some(tools);
        })
    }

    /// Sets the name, by which a run that goes on in another process knows what it has spent.
    /// Defaults to `budget`; a durable run with several budgets needs a name for each.
    #[must_use]
    pub fn named(self, name: impl Into<Arc<str>>) -> Self {
        self.changed(|config| config.name = name.into())
    }

    fn changed(self, change: impl FnOnce(&mut BudgetConfig)) -> Self {
        let mut config = Arc::try_unwrap(self.config).unwrap_or_else(|shared| {
            // A clone that is in use stays as it is.
            let BudgetConfig {
                key,
                name,
                scope,
                tools,
            } = &*shared;
            let scope = match scope {
                Scope::Run(limits) => Scope::Run(limits.clone()),
                Scope::Account(account) => Scope::Account(account.clone()),
                Scope::By(account) => Scope::By(account.clone()),
            };
            BudgetConfig {
                key: key.clone(),
                name: name.clone(),
                scope,
                tools: tools.clone(),
            }
        });
        change(&mut config);
        Self {
            config: Arc::new(config),
        }
    }

    /// Returns the account that a call is charged to, for example for a callback to read: that of
    /// the run, or the [part](Self::carve) of it that the calling agent has.
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
    /// Fails if a value of another type is stored under this budget's key, and with the error of
    /// the function that [chooses the account](Self::by).
    pub fn account(&self, context: &RunContext) -> Result<Account> {
        Ok(self.of_call(context)?.account.clone())
    }

    /// Returns the state for a call: that of the part of the budget that it is charged to, if there
    /// is one.
    fn of_call(&self, context: &RunContext) -> Result<Arc<OfRun>> {
        let run = self.of_run(context)?;
        Ok(run.parts_for(context).into_iter().next().unwrap_or(run))
    }

    fn of_run(&self, context: &RunContext) -> Result<Arc<OfRun>> {
        let key = &*self.config.key;
        if let Some(known) = context.values().get::<Option<Arc<OfRun>>>(key)?
            && let Some(run) = &*known
        {
            return Ok(run.clone());
        }
        // Before the update below, which holds a lock on the values of the run: the caller's
        // function may use them. Of two calls that begin at once, one finds the account of the
        // other.
        let account = match &self.config.scope {
            Scope::Run(limits) => {
                let earlier = self.spent_before(context);
                Account::restored(limits.clone(), earlier.unwrap_or_default())
            }
            Scope::Account(account) => account.clone(),
            Scope::By(account) => account(context)?,
        };
        let mut is_new = false;
        let of_run = context
            .values()
            .update(key, |stored: &mut Option<Arc<OfRun>>| {
                let run = stored.get_or_insert_with(|| {
                    is_new = true;
                    Arc::new(OfRun::new(account))
                });
                run.clone()
            })?;
        if is_new {
            let account = of_run.account.clone();
            let is_only =
                EffectLog::on_replay(context, self.config.name.clone(), move |calls, recorded| {
                    account.charge_replayed(calls, recorded);
                });
            // Two of one name are an error only where calls are recorded: see `log`.
            of_run.shares_name.store(!is_only, Ordering::Relaxed);
        }
        Ok(of_run)
    }

    /// Notes that a tool call was refused, in everything that has no room for it.
    fn exceed(&self, context: &RunContext, exceeded: Exceeded) -> Result<()> {
        let run = self.of_run(context)?;
        for part in run.parts_for(context) {
            part.exceed(exceeded);
            // The others go on: it is the part's own limit.
            if part.has_limit(exceeded.limit) {
                return Ok(());
            }
        }
        run.exceed(exceeded);
        Ok(())
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
        let is_for_run = matches!(self.config.scope, Scope::Run(_));
        if is_for_run && !run.shares_name.load(Ordering::Relaxed) {
            let spent = serde_json::json!(run.account.used());
            context.private_state().set(self.spent_key(), spent);
        }
    }

    fn spent_key(&self) -> String {
        format!("tower_agent_middleware::budget/{}", self.config.name)
    }

    /// Makes what a call is charged part of the effects of a call around it.
    fn log(&self, run: &OfRun, context: &RunContext, reservation: &mut Reservation) -> Result<()> {
        let Some(effects) = EffectLog::of(context) else {
            return Ok(());
        };
        let name = &self.config.name;
        if run.shares_name.load(Ordering::Relaxed) {
            return Err(Error::abort(format!(
                "the run has several budgets named `{name}`, which another process could not tell \
                 apart; give each a name with `Budget::named`"
            )));
        }
        reservation.log(effects, name.clone());
        Ok(())
    }

    /// Stores a call's reservation with the call, whose attempts it follows from here on.
    fn attach<R: Request>(
        &self,
        request: &mut R,
        reservation: Reservation,
        extensions: impl FnOnce(&mut R) -> &mut Extensions,
    ) {
        let attempts = request.attempts().map(Attempts::follow);
        let extensions = extensions(request);
        let mut reservations = extensions
            .get::<Reservations>()
            .cloned()
            .unwrap_or_default();
        reservations
            .0
            // A retry runs `before` again: dropping the earlier reservation charges the attempt
            // that failed.
            .retain(|(budget, _)| !Arc::ptr_eq(&budget.config, &self.config));
        let held = Arc::new(Held {
            reservation,
            attempts: attempts.unwrap_or_default(),
        });
        reservations.0.push((self.clone(), held));
        extensions.insert(reservations);
    }

    /// Returns whether a call of this tool counts.
    fn counts(&self, tool: &str) -> bool {
        let tools = self.config.tools.as_deref();
        tools.is_none_or(|tools| tools.iter().any(|counted| **counted == *tool))
    }

    fn held<'a>(&self, extensions: &'a Extensions) -> Option<&'a Held> {
        let mut reservations = extensions.get::<Reservations>()?.0.iter();
        reservations
            .find(|(budget, _)| Arc::ptr_eq(&budget.config, &self.config))
            .map(|(_, held)| &**held)
    }
}

/// The reservations of one call, one for each budget.
#[derive(Clone, Default)]
struct Reservations(Vec<(Budget, Arc<Held>)>);

/// The share of a budget that is held for one call.
struct Held {
    reservation: Reservation,
    attempts: Attempts,
}

impl Held {
    /// Settles a call. `response` is that of the call, if it has one that is no replay. `given`
    /// computes what one has used that is of no attempt, and `prompt` the tokens of the request.
    fn settle<T>(
        &self,
        run: Option<&RunContext>,
        response: Option<&T>,
        given: impl FnOnce(&Meter<'_>, &T) -> Amounts,
        prompt: impl Fn() -> u64,
    ) {
        if !self.reservation.is_open() {
            return;
        }
        let mut has_run = false;
        let mut has_answer = false;
        self.attempts.for_each(|attempt| {
            // A tool or an agent that waits for an answer is called again with it.
            has_run |= attempt.end != AttemptEnd::Failed(ErrorKind::Interrupted);
            has_answer |= attempt.end == AttemptEnd::Answered;
        });
        if !has_run && response.is_none() {
            self.reservation.release();
            return;
        }
        self.reservation.settle(run, |held| {
            let limits = self.reservation.prices();
            let meter = Meter { limits, held };
            let mut used = meter.used(&self.attempts, prompt);
            if let Some(response) = response
                && !has_answer
            {
                used += given(&meter, response);
            }
            used
        });
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Of an attempt that failed: a call that has ended or was dropped is settled.
        self.settle::<()>(None, None, |_, ()| Amounts::default(), || 0);
    }
}

/// Returns the response of a call, if it has one. `is_given` says that a callback has given it
/// instead of the target.
fn answer<R: Request>(
    outcome: Outcome<'_, R::Response>,
    is_given: fn(&R::Response) -> bool,
) -> Option<&R::Response> {
    let Outcome::Done(response) = outcome else {
        return None;
    };
    // A replay, perhaps one that a callback has changed, was counted with the call that was made.
    let is_replay = is_counted::<R>(response) && !is_given(response);
    (!is_replay).then_some(response)
}

/// Returns whether a response is that of an attempt, or known to be of none.
fn is_counted<R: Request>(response: &R::Response) -> bool {
    !R::count(&mut response.clone())
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(limits) => f.debug_tuple("Run").field(limits).finish(),
            Self::Account(account) => f.debug_tuple("Account").field(account).finish(),
            Self::By(_) => f.debug_tuple("By").finish_non_exhaustive(),
        }
    }
}

/// A part that is set aside while an agent works.
#[derive(Debug)]
struct OpenPart {
    /// The step path of the agent that it is for.
    agent: String,
    limits: Arc<[Limit]>,
    run: Arc<OfRun>,
}

impl OpenPart {
    /// Returns whether these are the limits of the part, and not of another with the same ones.
    fn has_limits(&self, limits: &Arc<[Limit]>) -> bool {
        Arc::ptr_eq(&self.limits, limits)
    }
}

/// The state of a budget in one run.
#[derive(Debug)]
struct OfRun {
    account: Account,
    /// Another budget of the run has the same name.
    shares_name: AtomicBool,
    state: Mutex<BudgetState>,
    parts: Mutex<Vec<OpenPart>>,
}

#[derive(Debug, Default)]
struct BudgetState {
    /// The reason why a tool call was refused: the model has read it, so the run must end.
    exceeded: Option<Exceeded>,
    /// The one concluding call of each agent: the agent's call, and its number of messages.
    concluding: HashMap<String, (u32, usize)>,
}

impl OfRun {
    fn new(account: Account) -> Self {
        Self {
            account,
            shares_name: AtomicBool::new(false),
            state: Mutex::default(),
            parts: Mutex::default(),
        }
    }

    /// Returns the parts of the agents that this call is made by, or in, innermost first.
    fn parts_for(&self, context: &RunContext) -> Vec<Arc<Self>> {
        let parts = lock(&self.parts);
        // Most runs have none, and need no path.
        if parts.is_empty() {
            return Vec::new();
        }
        let path = context.step_path();
        let mut around: Vec<_> = parts
            .iter()
            .filter(|part| is_within(&path, &part.agent))
            .collect();
        around.sort_by_key(|part| std::cmp::Reverse(part.agent.len()));
        around.into_iter().map(|part| part.run.clone()).collect()
    }

    /// Returns whether this limit is one of its own, and not of what it is a part of.
    fn has_limit(&self, limit: Limit) -> bool {
        self.account.limits().each().any(|own| own == limit)
    }

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

/// Returns whether a step path is that of an agent, or of a call in it.
fn is_within(path: &str, agent: &str) -> bool {
    path.strip_prefix(agent).is_some_and(|inside| {
        // Two slashes come before the number of another agent of this name.
        inside.is_empty() || (inside.starts_with('/') && !inside.starts_with("//"))
    })
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
        let run = self.of_call(request.context())?;
        if self.config.tools.is_some() && run.exceeded().is_none() {
            return Ok(Action::Continue);
        }
        let wanted = wanted(run.account.prices(), request)?;
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
        self.attach(request, reservation, ModelRequest::extensions_mut);
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ModelRequest, outcome: Outcome<'_, ModelResponse>) {
        if let Some(held) = self.held(request.extensions()) {
            held.settle(
                Some(request.context()),
                answer::<ModelRequest>(outcome, ModelResponse::is_given),
                |meter, response| meter.given(request, response),
                || prompt_tokens(request),
            );
        }
    }

    fn is_guard(&self) -> bool {
        true
    }
}

#[diagnostic::do_not_recommend]
impl Callback<ToolRequest> for Budget {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        if !self.counts(request.name()) {
            return Ok(Action::Continue);
        }
        let run = self.of_call(request.context())?;
        match run.account.reserve(Amounts {
            tool_calls: 1,
            ..Amounts::default()
        }) {
            Ok(mut reservation) => {
                self.log(&run, request.context(), &mut reservation)?;
                self.attach(request, reservation, ToolRequest::extensions_mut);
            }
            Err(exceeded) => {
                let limits = run.account.limits();
                if !limits.refuses() {
                    self.exceed(request.context(), exceeded)?;
                }
                if !limits.finishes() && !limits.refuses() {
                    return Err(exceeded.into());
                }
                request
                    .context()
                    .because("a limit of the budget is reached");
                return Ok(Action::Respond(ToolResponse::error(format!(
                    "tool call blocked: {exceeded}"
                ))));
            }
        }
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ToolRequest, outcome: Outcome<'_, ToolResponse>) {
        if let Some(held) = self.held(request.extensions()) {
            let response = answer::<ToolRequest>(outcome, |_| false);
            held.settle(
                Some(request.context()),
                response,
                |_, _| Amounts::default(),
                || 0,
            );
        }
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.config.tools.as_deref().unwrap_or_default().to_vec()
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
