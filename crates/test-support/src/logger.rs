//! A callback that records its hooks.

use std::borrow::Cow;

use tower_agent::callback::Outcome;
use tower_agent::{Action, Callback, Error, Recovery, Request, Result};

use super::trace::Trace;

/// Records `a>`, `<a`, `a!why` and optionally `a=done`.
#[derive(Clone, Debug)]
pub struct Logger {
    name: Cow<'static, str>,
    trace: Trace,
    ends: bool,
}

impl Logger {
    pub fn new(name: impl Into<Cow<'static, str>>, trace: &Trace) -> Self {
        Self {
            name: name.into(),
            trace: trace.clone(),
            ends: false,
        }
    }

    pub fn with_ends(self) -> Self {
        Self { ends: true, ..self }
    }
}

impl<R: Request> Callback<R> for Logger {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.trace.push(format!("{}>", self.name));
        Ok(Action::Continue)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.trace.push(format!("<{}", self.name));
        Ok(Action::Continue)
    }

    async fn on_error(&self, _: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        self.trace.push(format!("{}!{}", self.name, error.kind()));
        Ok(Recovery::Propagate)
    }

    fn on_end(&self, _: &R, outcome: Outcome<'_, R::Response>) {
        let word = match outcome {
            _ if !self.ends => return,
            Outcome::Done(_) => "done",
            Outcome::Failed(_) => "failed",
            Outcome::Dropped => "dropped",
            _ => "otherwise",
        };
        self.trace.push(format!("{}={word}", self.name));
    }

    fn name(&self) -> Cow<'static, str> {
        self.name.clone()
    }
}
