use crate::call::CallKind;
use crate::context::Carried;

/// How a band answers the questions that agent frameworks answer differently, one field a
/// question.
///
/// Whatever it says, [guards](super::Callback::is_guard) are asked in every phase.
///
/// The default is what the rest of the documentation describes; the constructors, such as
/// [`potato`](Self::potato), are what four frameworks do. A list of callbacks takes it by
/// [`with_semantics`](super::Callbacks::with_semantics), an agent by
/// [`semantics`](crate::AgentBuilder::semantics).
///
/// ```
/// use tower_agent::{Callbacks, ModelRequest};
/// use tower_agent::compat::{BeforePolicy, CallbackSemantics};
///
/// let mut semantics = CallbackSemantics::default();
/// semantics.before = BeforePolicy::Last;
/// let callbacks = Callbacks::<ModelRequest>::new().with_semantics(semantics);
/// assert_eq!(callbacks.semantics(), semantics);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallbackSemantics {
    /// Several `before`s: what becomes of the rest when one responds.
    pub before: BeforePolicy,
    /// Several `after`s: what becomes of the rest when one responds.
    pub after: AfterPolicy,
    /// A hook fails, or panics: what becomes of the rest.
    pub failure: HookFailure,
    /// Where an [`Action::Respond`](super::Action::Respond) counts.
    pub respond: RespondScope,
    /// Whether `after` is asked about a response that a `before` gave.
    pub after_before: PerCall<bool>,
    /// Whether `after` is asked about a response that an `on_error` gave.
    pub after_fallback: PerCall<bool>,
    /// Several `on_error`s: which decides.
    pub on_error: OnErrorPolicy,
    /// Whether a retry asks the band's `before`s again, about the request as it entered the band.
    pub retry_before: PerCall<bool>,
    /// How often the band's `on_error`s may have one call made again.
    pub retries: PerCall<Retries>,
    /// Where callbacks of the whole [tree](crate::AgentBuilder::global) stand.
    pub globals: PerCall<Globals>,
    /// Whether `after_agent` is asked about an agent that pauses, because something in it was
    /// interrupted. What it answers takes the place of words, and never of a call that waits.
    pub after_pause: bool,
}

/// Where the callbacks of a [whole tree](crate::AgentBuilder::global) stand in each agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Globals {
    /// Around everything that the agent has of its own. Their `before`s run first, and their
    /// `after`s and `on_error`s last; a response of theirs in a `before` is all that they and
    /// nothing of the agent's own see.
    Around,
    /// First in every phase, in one band with the agent's own: a response of theirs does to the
    /// agent's own callbacks what one of an earlier callback of the band does.
    ///
    /// The band is the agent's first. A layer closes it as ever: callbacks registered behind one
    /// are inside of it, and their `after`s run before those of the tree. Callbacks of the tree
    /// that follow other semantics than the agent's own stand around it.
    First,
}

/// What becomes of the rest of the `before`s when one responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BeforePolicy {
    /// The first response wins; the rest are not asked.
    First,
    /// The first response wins; the rest are told all the same, and their answers ignored.
    FirstNotifyRest,
    /// All are asked; the last response wins.
    Last,
}

/// What becomes of the rest of the `after`s when one responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterPolicy {
    /// Each sees what the one before it made; the last one's stands.
    Compose,
    /// The first response wins; the rest are not asked.
    First,
    /// The first response wins; the rest are told of the original all the same, and their answers
    /// ignored.
    FirstNotifyRest,
    /// All are asked about the original; the last response wins.
    Last,
}

/// What becomes of the rest when a hook fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookFailure {
    /// They are not asked; the call fails with that error.
    Stop,
    /// They are told all the same, and their answers ignored; the call fails with that error.
    NotifyRest,
    /// They are asked as if nothing had happened; the call fails with the first error, which beats
    /// any response and any retry. Only an ending of more than the call beats it.
    Continue,
}

/// Where a response counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RespondScope {
    /// In every hook.
    Everywhere,
    /// In the `after` of a model call alone; elsewhere it is ignored with a warning, unless it is
    /// [a guard's](super::Callback::is_guard).
    AfterModel,
}

/// Which `on_error` decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnErrorPolicy {
    /// The first retry or fallback wins; a [`Fail`](super::Recovery::Fail) changes the error that
    /// the next one sees.
    First,
    /// As the `after`s do: they are its error half. A fallback is a response, and clears the error;
    /// a `Fail` is a failing hook. A retry is made at once, unless a hook has failed.
    LikeAfter,
}

/// How often a call may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retries {
    /// So often.
    AtMost(u32),
    /// As often as the agent may call its model; three times outside an agent.
    MaxIterations,
}

/// One answer for each call.
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
    /// The same answer for all.
    pub const fn all(answer: T) -> Self {
        Self { model: answer, tool: answer, agent: answer, other: answer }
    }

    pub(crate) const fn of(model: T, tool: T, agent: T, other: T) -> Self {
        Self { model, tool, agent, other }
    }

    /// The answer for `call`.
    pub const fn get(&self, call: CallKind) -> T {
        match call {
            CallKind::Model => self.model,
            CallKind::Tool => self.tool,
            CallKind::Agent => self.agent,
            _ => self.other,
        }
    }
}

impl CallbackSemantics {
    /// How often.
    pub(crate) const RETRIES: u32 = 3;

    pub(crate) const DEFAULT: Self = Self {
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

    /// Those that agents have for the calls made in them; the default outside of an agent.
    pub(crate) fn of_agent(around: &Carried) -> Self {
        around.global.get().copied().unwrap_or(Self::DEFAULT)
    }
}

impl Default for CallbackSemantics {
    fn default() -> Self {
        Self::DEFAULT
    }
}
