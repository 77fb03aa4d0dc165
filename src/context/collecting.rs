//! A call whose effects are collected, and one that has those of a call that was made before.

use std::sync::{Arc, Mutex};

use super::carried::Carried;
use super::effects::{Amounts, Collected, EffectLog, Effects};
use super::run_context::RunContext;

impl EffectLog {
    /// Returns the context for a call whose [`Effects`] are collected, and their log. `id` names
    /// the call among all calls of all runs.
    ///
    /// A layer passes the context to the call inside; everything else about it is the same:
    ///
    /// ```
    /// use tower_agent::RunContext;
    /// use tower_agent::context::EffectLog;
    ///
    /// let context = RunContext::default();
    /// let (inside, log) = EffectLog::collect(&context, "run 7, call 1");
    /// inside.state().set("paid", true);
    /// context.state().set("seen", true);
    /// let effects = log.effects();
    ///
    /// // In another process:
    /// let context = RunContext::default();
    /// effects.apply(&context, "run 7, call 1");
    /// assert_eq!(context.state().get("paid"), Some(true.into()));
    /// assert_eq!(context.state().get("seen"), None);
    /// ```
    #[must_use]
    pub fn collect(context: &RunContext, id: impl Into<Arc<str>>) -> (RunContext, Self) {
        let log = Self(Arc::new(Collected {
            id: id.into(),
            effects: Mutex::default(),
            state: context.state().logged(),
            private_state: context.private_state().logged(),
            outer: context.effects().cloned(),
        }));
        let inside = RunContext {
            carried: Some(Carried::log(log.clone(), context.carried.clone())),
            // The log of the state is a part of it.
            ..context.clone()
        };
        (inside, log)
    }

    /// Returns the log of the innermost call around this one whose effects are collected, if there
    /// is one.
    #[must_use]
    pub fn of(context: &RunContext) -> Option<Self> {
        context.effects().cloned()
    }

    /// Registers the handler of the amounts that calls of the run record under `name`: it receives
    /// the amounts of each call whose effects are applied to the run instead of a call. Returns
    /// `false`, and drops the handler, if the name has one: one of two handlers would receive the
    /// other's amounts.
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
    /// use tower_agent::context::{Amounts, EffectLog};
    ///
    /// let (_, log) = EffectLog::collect(&RunContext::default(), "run 7, call 1");
    /// log.record(&"pages".into(), &Amounts::from([("read".to_owned(), 3)]));
    /// let effects = log.effects();
    ///
    /// // In another process:
    /// let context = RunContext::default();
    /// let read = Arc::new(AtomicU64::new(0));
    /// let counter = read.clone();
    /// EffectLog::on_replay(&context, "pages", move |_, amounts| {
    ///     counter.fetch_add(amounts["read"], Ordering::Relaxed);
    /// });
    /// effects.apply(&context, "run 7, call 1");
    /// assert_eq!(read.load(Ordering::Relaxed), 3);
    /// ```
    pub fn on_replay(
        context: &RunContext,
        name: impl Into<Arc<str>>,
        handler: impl Fn(&[Arc<str>], &Amounts) + Send + Sync + 'static,
    ) -> bool {
        let handlers = &context.scope.run.replay_handlers;
        handlers.register(name.into(), Arc::new(handler))
    }
}

impl Effects {
    /// Applies the effects of a call to its run in place of the call, which is not made again.
    /// Amounts are handed to the handlers of [`on_replay`](EffectLog::on_replay), with `id`.
    ///
    /// The run's [`values`](RunContext::values) are not part of them.
    pub fn apply(&self, context: &RunContext, id: &str) {
        context.add_usage(self.usage);
        context.state().apply(&self.state);
        context.private_state().apply(&self.private_state);
        if self.escalated {
            context.escalate();
        }
        if self.amounts.is_empty() {
            return;
        }
        // With the calls around it: a handler may have counted this one as a part of them.
        let around = context
            .effects()
            .into_iter()
            .flat_map(|log| log.calls().cloned());
        let calls: Arc<[Arc<str>]> = std::iter::once(id.into()).chain(around).collect();
        let handlers = &context.scope.run.replay_handlers;
        for (name, amounts) in &self.amounts {
            // A call around this one may be journaled too: what is replayed inside is its effect.
            if let Some(log) = context.effects() {
                log.record(name, amounts);
            }
            handlers.replay(name, &calls, amounts);
        }
    }
}
