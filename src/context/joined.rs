use std::fmt;
use std::sync::{Arc, OnceLock};

use super::run_context::RunContext;
use super::scope::Scope;
use super::settings::Given;
use crate::error::Resolution;

/// The settings of a request for its run, and the context made on first use: clones of a request
/// that was never used are runs with ids of their own. Other clones share it until one is changed.
#[derive(Clone, Default)]
pub(crate) struct Joined {
    /// The call whose run it is part of; `None` for a new run.
    caller: Option<RunContext>,
    given: Option<Arc<Given>>,
    /// The context of its own run before the last change. Data that was read or written is kept.
    earlier: Option<Arc<RunContext>>,
    made: Arc<OnceLock<RunContext>>,
}

impl Joined {
    pub(crate) fn to(context: RunContext) -> Self {
        Self {
            caller: Some(context),
            ..Self::default()
        }
    }

    pub(crate) fn context(&self) -> &RunContext {
        match (&self.caller, &self.given) {
            (Some(caller), None) => caller,
            (Some(caller), Some(given)) => self.made.get_or_init(|| part(caller, given)),
            (None, given) => self.made.get_or_init(|| {
                let given = given.as_deref().cloned().unwrap_or_default();
                let earlier = self.earlier.as_ref().map(|earlier| &*earlier.scope);
                Scope::root(given, earlier).into()
            }),
        }
    }

    /// Returns the context, to change what this request carries in it. It stays in its run.
    pub(crate) fn context_mut(&mut self) -> &mut RunContext {
        if self.caller.is_none() || self.given.is_some() {
            *self = Self::to(self.context().clone());
        }
        self.caller.get_or_insert_default()
    }

    pub(crate) fn join(&mut self, caller: RunContext) {
        (self.caller, self.earlier) = (Some(caller), None);
        // Clones made before keep the run that they had.
        self.made = Arc::default();
    }

    /// For duplicate ids, the last one wins.
    pub(crate) fn add_resolutions(&mut self, more: impl IntoIterator<Item = Resolution>) {
        let mut more = more.into_iter().peekable();
        if more.peek().is_some() {
            self.give(|given| {
                let all = Arc::make_mut(given.resolutions.get_or_insert_default());
                all.extend(more.map(|resolution| (resolution.id.clone(), resolution)));
            });
        }
    }

    pub(crate) fn give(&mut self, change: impl FnOnce(&mut Given)) {
        change(Arc::make_mut(self.given.get_or_insert_default()));
        let made = std::mem::take(&mut self.made);
        if self.caller.is_none()
            && let Some(made) = made.get()
        {
            self.earlier = Some(Arc::new(made.clone()));
        }
    }
}

fn part(caller: &RunContext, given: &Given) -> RunContext {
    let mut scope = Scope::part(&caller.scope, caller.tool_call.clone());
    scope.settings.apply(given, &scope.run.id);
    RunContext {
        scope: Arc::new(scope),
        ..caller.clone()
    }
}

impl fmt::Debug for Joined {
    /// Makes no context: looking at a request does not change it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.made.get().or(self.caller.as_ref()) {
            Some(context) => context.fmt(f),
            None => f.write_str("a new run"),
        }
    }
}
