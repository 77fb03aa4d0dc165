use std::fmt;

use super::loop_rules::LoopRules;
use crate::call::CallKind;

/// The rules of a band and of the loop, where agent frameworks differ.
///
/// The defaults are what the documentation describes. An agent takes rules with
/// [`semantics`](crate::AgentBuilder::semantics), a list of callbacks with
/// [`with_semantics`](super::Callbacks::with_semantics). [`CallbackRules`] alone are the same rules
/// for every call, with the default loop. Implement this trait for a framework whose callbacks
/// should keep their meaning; [`compat`](crate::compat) has five.
///
/// ```
/// use tower_agent::callback::{CallbackRules, Callbacks, Remaining};
/// use tower_agent::ModelRequest;
///
/// // Every `before` runs, and the last response wins.
/// let mut rules = CallbackRules::default();
/// rules.before_response = Remaining::Run;
/// let callbacks = Callbacks::<ModelRequest>::new().with_semantics(rules);
/// assert_eq!(callbacks.rules(), rules);
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
        LoopRules::default()
    }
}

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
    /// that error. Otherwise it fails with the first error once all hooks have run, whatever they
    /// respond or retry; only an abort, an interrupt or an end of the invocation takes precedence.
    pub failure: Remaining,
    /// An `after` sees the response of the `after` before it, instead of the service's.
    /// Defaults to `true`.
    pub after_composes: bool,
    /// `after` and `on_error` run from the last callback to the first, so that callbacks nest as
    /// functions around the call would. Defaults to `false`: in the order of `before`.
    pub unwinds: bool,
    /// Layers are inside all callbacks of the agent, wherever they were registered; among
    /// themselves the first is the outermost. This is settled when the agent is built, so it holds
    /// for rules that the agent has itself, and not for those that it inherits. Defaults to
    /// `false`: a layer ends the band before it.
    pub layers_inside: bool,
    /// A response from a `before` takes effect. Defaults to `true`; otherwise it is ignored with a
    /// warning, unless it is [a guard's](super::Callback::is_guard).
    pub before_responds: bool,
    /// A response from an `after` takes effect, like one from a `before`. Defaults to `true`.
    pub after_responds: bool,
    /// `after` runs for a response from a `before`. Defaults to `true`.
    pub after_before: bool,
    /// `after` runs for a response from an `on_error`. Defaults to `true`.
    pub after_fallback: bool,
    /// `after` runs for an agent that was interrupted. Its response replaces text, but never
    /// a waiting call. Defaults to `false`.
    pub after_interrupt: bool,
    /// `after` runs for an agent that a callback has
    /// [ended](crate::Error::end_invocation). Its response replaces the text. Defaults to `false`.
    pub after_end: bool,
    /// A [`Fail`](super::Recovery::Fail) counts as a failed hook, instead of changing the
    /// error that later `on_error`s see. Defaults to `false`.
    pub fail_is_failure: bool,
    /// A retry runs the `before`s again, with the request as it entered the band. Defaults
    /// to `false`.
    pub before_runs_again: bool,
    /// The number of times that `on_error` may retry a call; `None` means as often as the agent may
    /// call its model. Defaults to three.
    pub retries: Option<u32>,
    /// Callbacks of the [whole tree](crate::AgentBuilder::global_callbacks) with the same rules
    /// come first in every phase of the agent's first band, as earlier callbacks of that band.
    /// Callbacks registered after a layer are in a later band, inside it.
    ///
    /// Defaults to `false`: they are around everything of the agent's own. Their `before`s run
    /// first, and their `after`s and `on_error`s last. If one of their `before`s responds, the
    /// agent's own callbacks do not run.
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
        unwinds: false,
        layers_inside: false,
        before_responds: true,
        after_responds: true,
        after_before: true,
        after_fallback: true,
        after_interrupt: false,
        after_end: false,
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

impl Rules for CallbackRules {
    fn callbacks(&self, _: CallKind) -> CallbackRules {
        *self
    }
}
