use std::fmt;

use crate::call::CallKind;

/// The rules of a band and of the loop, where agent frameworks differ.
///
/// The defaults are what the documentation describes. An agent takes rules with
/// [`semantics`](crate::AgentBuilder::semantics), a list of callbacks with
/// [`with_semantics`](super::Callbacks::with_semantics). Implement it for a framework whose callbacks
/// should keep their meaning; [`compat`](crate::compat) has four.
///
/// ```
/// use tower_agent::call::CallKind;
/// use tower_agent::callback::{CallbackRules, Callbacks, Remaining, Rules};
/// use tower_agent::ModelRequest;
///
/// /// Every `before` runs, and the last response wins.
/// #[derive(Debug)]
/// struct LastWins;
///
/// impl Rules for LastWins {
///     fn callbacks(&self, _: CallKind) -> CallbackRules {
///         let mut rules = CallbackRules::default();
///         rules.before_response = Remaining::Run;
///         rules
///     }
/// }
///
/// let callbacks = Callbacks::<ModelRequest>::new().with_semantics(LastWins);
/// assert_eq!(callbacks.rules().before_response, Remaining::Run);
/// ```
pub trait Rules: fmt::Debug + Send + Sync + 'static {
    /// Returns the rules of a band around calls of this kind. Defaults to
    /// [`CallbackRules::default`].
    fn callbacks(&self, call: CallKind) -> CallbackRules {
        let _ = call;
        CallbackRules::DEFAULT
    }

    /// Returns the rules of an agent's loop. Defaults to [`LoopRules::default`].
    fn agent_loop(&self) -> LoopRules {
        LoopRules::DEFAULT
    }
}

/// The default rules.
#[derive(Debug)]
pub(super) struct DefaultRules;

impl Rules for DefaultRules {}

/// The effect of a decision on the remaining callbacks of a phase.
///
/// [Guards](super::Callback::is_guard) run in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remaining {
    /// They run, and a later decision replaces an earlier one.
    Run,
    /// They run, but what they return is ignored.
    Notify,
    /// They do not run.
    Skip,
}

/// The rules of a band around calls of one kind, one field for each question.
//
// Small and plain: a band copies it once for each call, and asks nobody after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallbackRules {
    /// The remaining `before`s after one has responded. Defaults to `Skip`: no call is made, so not
    /// even guards run.
    pub before_response: Remaining,
    /// The remaining `after`s after one has responded. Defaults to `Run`.
    pub after_response: Remaining,
    /// The remaining `on_error`s after one has responded. Defaults to `Skip`.
    pub fallback: Remaining,
    /// The remaining hooks after one has failed. Defaults to `Skip`: the call fails at once, with
    /// that error. Otherwise it fails with the first error once all hooks have run.
    pub failure: Remaining,
    /// An `after` sees the response of the `after` before it, instead of the service's.
    /// Defaults to `true`.
    pub after_composes: bool,
    /// A response from a `before` takes effect. Defaults to `true`.
    pub before_responds: bool,
    /// A response from an `after` takes effect. Defaults to `true`.
    pub after_responds: bool,
    /// `after` runs for a response from a `before`. Defaults to `true`.
    pub after_before: bool,
    /// `after` runs for a response from an `on_error`. Defaults to `true`.
    pub after_fallback: bool,
    /// `after` runs for an agent that was interrupted. Its response replaces text, but never
    /// a waiting call. Defaults to `false`.
    pub after_interrupt: bool,
    /// A [`Fail`](super::Recovery::Fail) counts as a failed hook, instead of changing the
    /// error that later `on_error`s see. Defaults to `false`.
    pub fail_is_failure: bool,
    /// A retry runs the `before`s again, with the request as it entered the band. Defaults
    /// to `false`.
    pub before_runs_again: bool,
    /// How often `on_error` may retry a call; `None` means as often as the agent may call its model.
    /// Defaults to three times.
    pub retries: Option<u32>,
    /// Callbacks of the [whole tree](crate::AgentBuilder::global_callbacks) with the same
    /// rules join the agent's first band, instead of being around it. Defaults to `false`.
    pub global_joins_band: bool,
}

impl CallbackRules {
    /// The number of retries by default, and without an agent that says how often it may call its
    /// model.
    pub(crate) const RETRIES: u32 = 3;

    // A constant: a call outside an agent, or in one without rules, asks no trait object.
    pub(crate) const DEFAULT: Self = Self {
        before_response: Remaining::Skip,
        after_response: Remaining::Run,
        fallback: Remaining::Skip,
        failure: Remaining::Skip,
        after_composes: true,
        before_responds: true,
        after_responds: true,
        after_before: true,
        after_fallback: true,
        after_interrupt: false,
        fail_is_failure: false,
        before_runs_again: false,
        retries: Some(Self::RETRIES),
        global_joins_band: false,
    };
}

impl Default for CallbackRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The rules of an agent's loop, one field for each question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopRules {
    /// Tool calls run that are in a response from a `before` or an `on_error`, instead of
    /// the response ending the run. Defaults to `true`.
    pub runs_calls_of_callbacks: bool,
    /// A response from `after_model` that was created from nothing keeps the model's tool
    /// calls. Defaults to `true`.
    pub after_model_keeps_calls: bool,
    /// A response from `after_model` ends the run. Defaults to `false`.
    pub after_model_ends_run: bool,
    /// A response from `after_agent` replaces all messages of the agent, instead of the
    /// last. Defaults to `false`.
    pub after_agent_replaces_all: bool,
    /// A failed tool fails the run, instead of the model reading the error. Defaults to
    /// `false`.
    pub failed_tool_fails_run: bool,
    /// Invalid arguments fail the run. Defaults to `false`.
    pub invalid_arguments_fail_run: bool,
    /// A call of an unknown tool passes through the tool callbacks. Defaults to `true`.
    pub callbacks_see_unknown_tools: bool,
    /// A call of an unknown tool fails the run. Defaults to `false`.
    pub unknown_tool_fails_run: bool,
    /// The tool calls of a turn run one after another. Defaults to `false`.
    pub one_tool_at_a_time: bool,
    /// A run that reaches its limit of model calls ends with its messages so far, instead of
    /// failing. Defaults to `false`.
    pub ends_at_limit: bool,
    /// `before_model` runs for the call beyond the limit, and may respond. Defaults to
    /// `false`.
    pub asks_beyond_limit: bool,
}

impl LoopRules {
    pub(crate) const DEFAULT: Self = Self {
        runs_calls_of_callbacks: true,
        after_model_keeps_calls: true,
        after_model_ends_run: false,
        after_agent_replaces_all: false,
        failed_tool_fails_run: false,
        invalid_arguments_fail_run: false,
        callbacks_see_unknown_tools: true,
        unknown_tool_fails_run: false,
        one_tool_at_a_time: false,
        ends_at_limit: false,
        asks_beyond_limit: false,
    };
}

impl Default for LoopRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}
