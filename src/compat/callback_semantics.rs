use crate::call::CallKind;
use crate::callback::{CallbackRules, Remaining, Rules};

/// The semantics of a band: what agent frameworks do differently, one field for each question.
///
/// [Guards](crate::Callback::is_guard) run in every phase, whatever the semantics.
///
/// The default is what the rest of the documentation describes; the constructors, such as
/// [`potato`](Self::potato), are the semantics of four frameworks. A list of callbacks takes them
/// with [`with_semantics`](crate::Callbacks::with_semantics), an agent with
/// [`semantics`](crate::AgentBuilder::semantics).
///
/// ```
/// use tower_agent::{Callbacks, ModelRequest};
/// use tower_agent::compat::{BeforePolicy, CallbackSemantics};
///
/// let mut semantics = CallbackSemantics::default();
/// semantics.before = BeforePolicy::Last;
/// let callbacks = Callbacks::<ModelRequest>::new().with_semantics(semantics);
/// # drop(callbacks);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallbackSemantics {
    /// The treatment of the remaining `before`s when one responds.
    pub before: BeforePolicy,
    /// The treatment of the remaining `after`s when one responds.
    pub after: AfterPolicy,
    /// The treatment of the remaining hooks when one fails or panics.
    pub failure: HookFailure,
    /// Where an [`Action::Respond`](crate::Action::Respond) takes effect.
    pub respond: RespondScope,
    /// `after` runs for a response from a `before`.
    pub after_before: PerCall<bool>,
    /// `after` runs for a response from an `on_error`.
    pub after_fallback: PerCall<bool>,
    /// The `on_error` that decides.
    pub on_error: OnErrorPolicy,
    /// A retry runs the band's `before`s again, with the request as it entered the band.
    pub retry_before: PerCall<bool>,
    /// How often the band's `on_error`s may retry one call.
    pub retries: PerCall<Retries>,
    /// Where callbacks of the whole [tree](crate::AgentBuilder::global_callbacks) are placed.
    pub globals: PerCall<Globals>,
    /// `after_agent` runs for an agent that was interrupted. Its response replaces text,
    /// but never a waiting call.
    pub after_pause: bool,
}

/// Where the callbacks of a [whole tree](crate::AgentBuilder::global_callbacks) are placed in each agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Globals {
    /// Around everything of the agent's own. Their `before`s run first, and their `after`s and
    /// `on_error`s last. If one of their `before`s responds, the agent's own callbacks do not run.
    Around,
    /// First in every phase, in one band with the agent's own callbacks: their responses affect the
    /// agent's own callbacks like those of earlier callbacks in a band.
    ///
    /// The band is the agent's first. A layer ends it as usual: callbacks registered after a layer
    /// are inside it, and their `after`s run before those of the tree. Callbacks of the tree with
    /// semantics other than the agent's are placed around it.
    First,
}

/// The treatment of the remaining `before`s when one responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeforePolicy {
    /// The first response wins; the remaining callbacks do not run.
    First,
    /// The first response wins; the remaining callbacks still run, but what they return is ignored.
    FirstNotifyRest,
    /// All run; the last response wins.
    Last,
}

/// The treatment of the remaining `after`s when one responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterPolicy {
    /// Each sees the result of the previous one; the last result wins.
    Compose,
    /// The first response wins; the remaining callbacks do not run.
    First,
    /// The first response wins; the remaining callbacks still run with the original, but what they
    /// return is ignored.
    FirstNotifyRest,
    /// All run with the original; the last response wins.
    Last,
}

/// The treatment of the remaining hooks when one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookFailure {
    /// They do not run; the call fails with that error.
    Stop,
    /// They still run, but what they return is ignored; the call fails with that error.
    NotifyRest,
    /// They run as if nothing had happened; the call fails with the first error, which takes
    /// precedence over any response and any retry. Only an abort, an interrupt or an end of the
    /// invocation takes precedence over it.
    Continue,
}

/// Where a response takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RespondScope {
    /// In every hook.
    Everywhere,
    /// Only in the `after` of a model call; elsewhere it is ignored with a warning, unless it is [a
    /// guard's](crate::Callback::is_guard).
    AfterModel,
}

/// The `on_error` that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnErrorPolicy {
    /// The first retry or fallback wins; a [`Fail`](crate::Recovery::Fail) changes the error that
    /// the next one sees.
    First,
    /// As for `after`: a fallback counts as a response and clears the error; a `Fail` counts as a
    /// failing hook. A retry is made at once, unless a hook has failed.
    LikeAfter,
}

/// How often a call may be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retries {
    /// At most this many times.
    AtMost(u32),
    /// As often as the agent may call its model; three times outside an agent.
    MaxIterations,
}

/// One value for each call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PerCall<T> {
    /// For model calls.
    pub model: T,
    /// For tool calls.
    pub tool: T,
    /// For agent calls.
    pub agent: T,
    /// For every other call.
    pub other: T,
}

impl<T: Copy> PerCall<T> {
    /// Creates the same value for all calls.
    pub const fn all(answer: T) -> Self {
        Self {
            model: answer,
            tool: answer,
            agent: answer,
            other: answer,
        }
    }

    pub(super) const fn of(model: T, tool: T, agent: T, other: T) -> Self {
        Self {
            model,
            tool,
            agent,
            other,
        }
    }

    /// Returns the value for `call`.
    pub const fn get(&self, call: CallKind) -> T {
        match call {
            CallKind::Model => self.model,
            CallKind::Tool => self.tool,
            CallKind::Agent => self.agent,
            CallKind::Other(_) => self.other,
        }
    }
}

impl CallbackSemantics {
    /// The default number of retries.
    pub(super) const RETRIES: u32 = CallbackRules::RETRIES;

    pub(super) const DEFAULT: Self = Self {
        before: BeforePolicy::First,
        after: AfterPolicy::Compose,
        failure: HookFailure::Stop,
        respond: RespondScope::Everywhere,
        after_before: PerCall::all(true),
        after_fallback: PerCall::all(true),
        on_error: OnErrorPolicy::First,
        retry_before: PerCall::all(false),
        retries: PerCall::all(Retries::AtMost(Self::RETRIES)),
        globals: PerCall::all(Globals::Around),
        after_pause: false,
    };
}

impl Default for CallbackSemantics {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Rules for CallbackSemantics {
    fn callbacks(&self, call: CallKind) -> CallbackRules {
        let (after_response, after_composes) = self.after.rules();
        CallbackRules {
            before_response: match self.before {
                BeforePolicy::First => Remaining::Skip,
                BeforePolicy::FirstNotifyRest => Remaining::Notify,
                BeforePolicy::Last => Remaining::Run,
            },
            after_response,
            after_composes,
            // Under `LikeAfter`, a fallback counts as a response of an `after`.
            fallback: match (self.on_error, self.after) {
                (OnErrorPolicy::LikeAfter, AfterPolicy::FirstNotifyRest) => Remaining::Notify,
                (OnErrorPolicy::LikeAfter, AfterPolicy::Last) => Remaining::Run,
                (OnErrorPolicy::LikeAfter, AfterPolicy::First | AfterPolicy::Compose)
                | (OnErrorPolicy::First, _) => Remaining::Skip,
            },
            failure: match self.failure {
                HookFailure::Stop => Remaining::Skip,
                HookFailure::NotifyRest => Remaining::Notify,
                HookFailure::Continue => Remaining::Run,
            },
            before_responds: self.respond == RespondScope::Everywhere,
            after_responds: match self.respond {
                RespondScope::Everywhere => true,
                RespondScope::AfterModel => call == CallKind::Model,
            },
            after_before: self.after_before.get(call),
            after_fallback: self.after_fallback.get(call),
            after_interrupt: self.after_pause,
            fail_is_failure: self.on_error == OnErrorPolicy::LikeAfter,
            before_runs_again: self.retry_before.get(call),
            retries: match self.retries.get(call) {
                Retries::AtMost(most) => Some(most),
                Retries::MaxIterations => None,
            },
            global_joins_band: self.globals.get(call) == Globals::First,
        }
    }
}

impl AfterPolicy {
    /// Returns what happens to the remaining `after`s, and whether each sees the result of the
    /// previous one.
    const fn rules(self) -> (Remaining, bool) {
        match self {
            Self::Compose => (Remaining::Run, true),
            Self::First => (Remaining::Skip, false),
            Self::FirstNotifyRest => (Remaining::Notify, false),
            Self::Last => (Remaining::Run, false),
        }
    }
}
