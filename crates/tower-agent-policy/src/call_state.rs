//! The knowledge of a rulebook about one call while it is made.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tower_agent::RunContext;
use tower_agent::call::{Extensions, Request};
use tower_agent::context::ValueTypeError;
use tower_agent::tool::ToolRequest;

use crate::counts::{Counts, count, uncount};

/// The key of the calls of a run in its values.
const CALLS: &str = "tower_agent.guard.policy decided";

/// Names a rulebook and how it is registered: several may stand around one call.
pub(crate) type GuardKey = (usize, bool);

/// The states of a call: an extension of its request.
#[derive(Clone, Default)]
struct States(Vec<(GuardKey, Arc<CallState>)>);

/// The knowledge of one rulebook about one call. Everything inside it shares it with what is
/// outside.
#[derive(Default)]
pub(crate) struct CallState {
    known: Mutex<Known>,
}

#[derive(Default)]
pub(crate) struct Known {
    /// The request that was let through last.
    pub(crate) allowed: Option<Allowed>,
    /// The guard has answered itself.
    pub(crate) is_refused: bool,
    /// A person has changed the arguments.
    pub(crate) is_edited: bool,
    /// The number of times that the call has come to the place around its tool.
    pub(crate) attempts: u32,
    /// The tool was called.
    pub(crate) is_made: bool,
}

/// A call that was let through.
pub(crate) struct Allowed {
    /// The arguments, if they are not the call's own.
    arguments: Option<Value>,
    /// The number of the set of rules.
    number: u64,
}

impl CallState {
    /// Returns the state of this rulebook, which is new at its outermost place.
    pub(crate) fn begin(key: GuardKey, request: &mut ToolRequest) -> Arc<Self> {
        if let Some(known) = Self::find(key, request.extensions()) {
            return known;
        }
        let states = request.extensions().get::<States>();
        let mut states = states.cloned().unwrap_or_default();
        let new = Arc::<Self>::default();
        states.0.push((key, new.clone()));
        request.extensions_mut().insert(states);
        new
    }

    pub(crate) fn find(key: GuardKey, extensions: &Extensions) -> Option<Arc<Self>> {
        let states = &extensions.get::<States>()?.0;
        let (_, state) = states.iter().find(|(other, _)| *other == key)?;
        Some(state.clone())
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the call may be made as it is now.
    pub(crate) fn allow(&self, request: &ToolRequest, number: u64) {
        let arguments = request.changed_arguments().cloned();
        let mut known = self.known();
        known.allowed = Some(Allowed { arguments, number });
        known.is_refused = false;
    }

    /// Notes that the guard has answered the call itself.
    pub(crate) fn refuse(&self) {
        let mut known = self.known();
        known.allowed = None;
        known.is_refused = true;
    }

    /// Notes that the call reaches its tool. Returns whether it does so as it was let through, for
    /// the first time and by the rules with this number.
    pub(crate) fn reach(&self, request: &ToolRequest, number: u64) -> bool {
        let mut known = self.known();
        known.attempts += 1;
        let is_first = known.attempts == 1;
        let allowed = known.allowed.as_ref();
        is_first
            && allowed.is_some_and(|allowed| allowed.number == number && allowed.is_same(request))
    }

    /// Returns the arguments that were let through last.
    pub(crate) fn arguments(&self, request: &ToolRequest) -> Value {
        let known = self.known();
        let changed = known.allowed.as_ref().and_then(|one| one.arguments.clone());
        changed.unwrap_or_else(|| request.arguments().clone())
    }
}

impl Allowed {
    fn is_same(&self, request: &ToolRequest) -> bool {
        match (&self.arguments, request.changed_arguments()) {
            // Both are the call's own, which need not be compared.
            (None, None) => true,
            (None, Some(now)) => now == request.call().arguments.value(),
            (Some(then), _) => then == request.arguments(),
        }
    }
}

/// The calls of a run that were decided: what is asked about their messages later has no request
/// of its own.
#[derive(Clone, Default)]
struct DecidedCalls(Arc<Mutex<ByStep>>);

/// Calls by the rulebook and the path of their execution.
type ByStep = HashMap<(GuardKey, String), Arc<CallState>>;

impl DecidedCalls {
    fn of(context: &RunContext) -> Result<Self, ValueTypeError> {
        if let Some(known) = context.values().get::<Self>(CALLS)? {
            return Ok(Self::clone(&known));
        }
        context.values().update(CALLS, |new: &mut Self| new.clone())
    }
}

/// Keeps the state of a call that has a response.
pub(crate) fn keep(
    key: GuardKey,
    context: &RunContext,
    state: &Arc<CallState>,
) -> Result<(), ValueTypeError> {
    let calls = DecidedCalls::of(context)?;
    let mut calls = calls.0.lock().unwrap_or_else(PoisonError::into_inner);
    calls.insert((key, context.step_path()), state.clone());
    Ok(())
}

/// Returns the state of a call that had a response before.
pub(crate) fn kept(
    key: GuardKey,
    context: &RunContext,
) -> Result<Option<Arc<CallState>>, ValueTypeError> {
    let calls = DecidedCalls::of(context)?;
    let calls = calls.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(calls.get(&(key, context.step_path())).cloned())
}

/// A rulebook, and whether it is the part directly around the tool.
pub(crate) type Counter = (GuardKey, bool);

/// The number of a call among those of its tool: an extension of its request, for all rulebooks.
#[derive(Clone)]
pub(crate) struct Numbered(Arc<Number>);

struct Number {
    counts: Counts,
    /// The part that has counted it.
    owner: Counter,
    is_made: AtomicBool,
}

impl Numbered {
    /// Counts the call, unless that is done.
    pub(crate) fn begin(
        owner: Counter,
        request: &mut ToolRequest,
    ) -> Result<Counts, ValueTypeError> {
        if let Some(Self(number)) = request.extensions().get::<Self>() {
            return Ok(number.counts);
        }
        let counts = count(request.context(), request.name())?;
        let number = Number {
            counts,
            owner,
            is_made: AtomicBool::new(false),
        };
        request.extensions_mut().insert(Self(Arc::new(number)));
        Ok(counts)
    }

    /// Notes that the call is made.
    pub(crate) fn make(request: &ToolRequest) {
        if let Some(Self(number)) = request.extensions().get::<Self>() {
            number.is_made.store(true, Ordering::Release);
        }
    }

    /// Takes the call back if it was not made.
    pub(crate) fn end(owner: Counter, request: &ToolRequest) {
        let Some(Self(number)) = request.extensions().get::<Self>() else {
            return;
        };
        if number.owner == owner && !number.is_made.swap(true, Ordering::AcqRel) {
            uncount(request.context(), request.name());
        }
    }
}
