//! A call whose effects are collected, and one that has those of a call that was made before.

use std::sync::Arc;

use super::effects::{Amounts, Collected, EffectLog, Effects};
use super::run_context::RunContext;
use crate::call_kind::CallKind;
use crate::error::Error;
use crate::message::Usage;

impl RunContext {
    /// Returns this context for a call whose [`Effects`] are collected, and their log. `id` names the
    /// call among all calls of all runs.
    ///
    /// A layer passes it to the call inside; everything else about it is the same:
    ///
    /// ```
    /// use tower_agent::RunContext;
    ///
    /// let context = RunContext::default();
    /// let (inside, log) = context.collecting_effects("run 7, call 1");
    /// inside.state().set("paid", true);
    /// context.state().set("seen", true);
    /// let effects = log.effects();
    ///
    /// // In another process:
    /// let context = RunContext::default();
    /// context.apply_effects("run 7, call 1", &effects);
    /// assert_eq!(context.state().get("paid"), Some(true.into()));
    /// assert_eq!(context.state().get("seen"), None);
    /// ```
    #[must_use]
    pub fn collecting_effects(&self, id: impl Into<Arc<str>>) -> (Self, EffectLog) {
        let outer = self.effects.clone();
        let log = Collected::new(id.into(), outer, self.state(), self.private_state());
        let log = Arc::new(log);
        (
            Self {
                effects: Some(log.clone()),
                ..self.clone()
            },
            EffectLog(log),
        )
    }

    /// Applies the effects of a call that is not made again. Amounts
    /// are handed to the handlers of [`on_replay`](Self::on_replay), with `id`.
    ///
    /// The run's [`values`](Self::values) are not part of them.
    pub fn apply_effects(&self, id: &str, effects: &Effects) {
        let Effects {
            usage,
            state,
            private_state,
            amounts,
            escalated,
        } = effects;
        if *usage != Usage::default() {
            self.add_usage(*usage);
        }
        self.state().apply(state);
        self.private_state().apply(private_state);
        if *escalated {
            self.escalate();
        }
        if amounts.is_empty() {
            return;
        }
        // With the calls around it: a handler may have counted this one as a part of them.
        let around = self.effects.iter().flat_map(|log| log.ids().cloned());
        let calls: Arc<[Arc<str>]> = std::iter::once(id.into()).chain(around).collect();
        for (name, amounts) in amounts {
            // A call around this one may be journaled too: what is replayed inside is its effect.
            if let Some(log) = &self.effects {
                log.record(name, amounts);
            }
            self.scope.run.replay_handlers.replay(name, &calls, amounts);
        }
    }

    /// Returns the ending that an `after` of this call, of this kind, has raised although the call has a
    /// response. It is not part of its effects.
    #[must_use]
    pub fn ending_after_response(&self, kind: CallKind) -> Option<Error> {
        self.ended_by(kind).filter(|_| !self.is_waiting(kind))
    }

    /// Returns whether this call, of this kind, waits for the answer to an interrupt, also if a layer
    /// has replaced the interrupt by a response: a resumed run makes it again.
    #[must_use]
    pub fn is_waiting(&self, kind: CallKind) -> bool {
        self.waits(kind)
    }

    /// Raises an ending of this call, which has a response, as its `after` did.
    pub fn end_after_response(&self, kind: CallKind, ending: &Error) {
        if ending.is_ending() {
            self.end(kind, ending, true);
        }
    }

    /// Returns the log of the innermost call whose effects are collected, if there is one.
    #[must_use]
    pub fn effect_log(&self) -> Option<EffectLog> {
        self.effects.clone().map(EffectLog)
    }

    /// Registers the handler of the amounts that calls record under `name`: it receives the
    /// amounts of each call whose effects are applied to this run instead of a call. Returns `false`, and
    /// drops the handler, if the name has one: one of two handlers would receive the other's
    /// amounts.
    ///
    /// **When:** before the first call that is counted. Amounts that were applied earlier are
    /// handed over at once.
    ///
    /// **Sees:** the ids of the call and of those around it, innermost first, and the amounts. If
    /// this process made the call before, it has counted some of them already:
    /// subtract what it counted for the first id.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use tower_agent::RunContext;
    /// use tower_agent::context::Amounts;
    ///
    /// let (inside, log) = RunContext::default().collecting_effects("run 7, call 1");
    /// if let Some(log) = inside.effect_log() {
    ///     log.record(&"pages".into(), &Amounts::from([("read".to_owned(), 3)]));
    /// }
    /// let effects = log.effects();
    ///
    /// // In another process:
    /// let context = RunContext::default();
    /// let read = Arc::new(AtomicU64::new(0));
    /// let counter = read.clone();
    /// context.on_replay("pages", move |_, amounts| {
    ///     counter.fetch_add(amounts["read"], Ordering::Relaxed);
    /// });
    /// context.apply_effects("run 7, call 1", &effects);
    /// assert_eq!(read.load(Ordering::Relaxed), 3);
    /// ```
    pub fn on_replay(
        &self,
        name: impl Into<Arc<str>>,
        handler: impl Fn(&[Arc<str>], &Amounts) + Send + Sync + 'static,
    ) -> bool {
        self.scope
            .run
            .replay_handlers
            .register(name.into(), Arc::new(handler))
    }
}
