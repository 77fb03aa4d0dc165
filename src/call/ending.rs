//! The endings of a run, as its calls meet them.
//!
//! An abort, an interrupt or an end of the invocation is recorded where it leaves a call, and
//! nothing outside undoes it, because foreign code stands between any two calls. A cancelled token
//! is recorded by the first call that must not start because of it, or by the agent that it stops:
//!
//! | step of a call | what it does |
//! |---|---|
//! | `admit` | fails the call if its token is cancelled, or a recorded ending blocks it |
//! | `admit_target` | the same, directly before the model or the tool: also for a call that a guard holds, and for the model call beyond the limit |
//! | `admit_handle` | fails the call if its token is cancelled, or the run was aborted: a call of a handle that is not the agent's own |
//! | `latch` | records an ending; a call whose `after` raised it has a result all the same |
//! | `settle` | names the call in its error, records an ending, and restores one that the code inside has changed or swallowed |
//!
//! Each is passed where ours meets foreign code, and the loop looks once before each step:
//!
//! | passes | on entry | on exit |
//! |---|---|---|
//! | an agent | `admit` | `ending`, which takes precedence over any result |
//! | a band | `admit`, before its first hook, and `admit_further` after the last `before` | `settle`, of each failed attempt and of the call |
//! | a hook | | `latch`, since another hook may replace its error |
//! | a function around a call | `admit` | `settle` |
//! | a tower layer | | `settle`, of an error |
//! | a model or a tool | `admit_target` | `settle`, of an error |
//! | a handle that a layer or the application has | `admit_handle` | |
//! | the loop, or the plan of a team | `ending`, before each step of the loop | `settle` |
//! | the response of a team | | `latch`, of the interrupts of its members |
//! | a call of the loop | `admit`, of a tool call that may have waited for others | `settle`, of a response too: no band may be around the call |
//!
//! Parallel tool calls do not block each other, so the latch stores endings by call. What each
//! ending does to the hooks of a call is in the table of `callback/life.rs`.

use super::request::Request;
use crate::call_kind::CallKind;
use crate::context::{Endings, StaysOpen};
use crate::error::{Error, Result};

/// Fails if nothing of this call may start any more: its run has ended or was cancelled.
///
/// The service inside a layer asks this itself. A layer asks it before it calls another one, or
/// calls a service again that may not be an agent's, as a retry does.
///
/// ```
/// use tower_agent::call::admit;
/// use tower_agent::{CancellationToken, ErrorKind, ModelRequest, RunContext, State};
///
/// let token = CancellationToken::new();
/// let context = RunContext::new(State::default(), token.clone());
/// let request = ModelRequest::default().with_context(context);
/// assert!(admit(&request).is_ok());
/// token.cancel();
/// assert_eq!(admit(&request).unwrap_err().kind(), ErrorKind::Cancelled);
/// ```
///
/// # Errors
///
/// Returns what has ended the run.
pub fn admit<R: Request>(request: &R) -> Result<()> {
    let ending = request.context().endings().blocking::<R>();
    ending.map_or(Ok(()), Err)
}

/// Returns whether this call waits for the answer to an interrupt, also if a layer has replaced the
/// interrupt by a response: a resumed run makes it again.
#[must_use]
pub fn is_waiting<R: Request>(request: &R) -> bool {
    request.context().endings().waits(R::CALL)
}

/// Returns whether this is a tool call that was refused before it reached its tool, at each
/// attempt: a resumed run can make it, whatever its effect.
#[must_use]
pub fn is_unmade<R: Request>(request: &R) -> bool {
    R::CALL == CallKind::Tool && request.context().endings().is_unmade()
}

/// Returns whether a tool call has failed with this error because its agent may not make it, and
/// stays open: the agent lacks the tool, or a guard that has an open question about the call. The
/// run fails, and the agent that was interrupted can go on.
#[must_use]
pub fn stays_open(error: &Error) -> bool {
    error.downcast_ref::<StaysOpen>().is_some()
}

/// Returns the ending that an `after` of this call has raised although the call has a response. It
/// is not part of the call's [effects](crate::context::Effects).
#[must_use]
pub fn ending_after_response<R: Request>(request: &R) -> Option<Error> {
    let ending = request.context().endings().ended_by(R::CALL);
    ending.filter(|_| !is_waiting(request))
}

/// Raises an ending of this call, which has a response, as its `after` did: for a call that is
/// answered from a journal.
pub fn end_after_response<R: Request>(request: &R, ending: &Error) {
    if ending.is_ending() {
        request.context().endings().end(R::CALL, ending, true);
    }
}

impl Endings<'_> {
    /// Fails a call of this kind if it must not go on to its target.
    #[inline]
    pub(crate) fn admit<R: Request>(self) -> Result<()> {
        match self.blocking::<R>() {
            None => Ok(()),
            Some(ending) => Err(self.refuse::<R>(ending)),
        }
    }

    /// The same without a look at the token, for a call that meets another [`admit`](Self::admit).
    #[inline]
    pub(crate) fn admit_further<R: Request>(self) -> Result<()> {
        match self.recorded::<R>() {
            None => Ok(()),
            Some(ending) => Err(self.refuse::<R>(ending)),
        }
    }

    #[cold]
    fn refuse<R: Request>(self, ending: Error) -> Error {
        if R::CALL == CallKind::Tool {
            self.note_refused();
        }
        ending
    }

    /// Returns what has ended the run and blocks the call. The token is asked each time: code that
    /// blocks its thread may have come back since the run was polled.
    #[inline]
    fn blocking<R: Request>(self) -> Option<Error> {
        if !R::OUTLIVES_ABORT && self.is_cancelled() {
            return Some(self.cancel());
        }
        self.recorded::<R>()
    }

    /// Returns the recorded ending that blocks a call of this kind, without a look at the token.
    //
    // No `or_else` here and below: it is not inlined, and every call passes here several times.
    #[inline]
    fn recorded<R: Request>(self) -> Option<Error> {
        if let Some(abort) = self.abort_of::<R>() {
            return Some(abort);
        }
        self.closed_to(R::CALL)
    }

    /// Fails if the run was aborted or cancelled, for a call that may not be the agent's own.
    #[inline]
    pub(crate) fn admit_handle<R: Request>(self) -> Result<()> {
        if !R::OUTLIVES_ABORT && self.is_cancelled() {
            return Err(self.cancel());
        }
        self.abort_of::<R>().map_or(Ok(()), Err)
    }

    /// Fails if the target of a call must not be called, although callbacks and layers ran for it.
    pub(crate) fn admit_target<R: Request>(self) -> Result<()> {
        self.admit::<R>()?;
        // The limit stops only the target: under some rules, `before_model` may still answer beyond
        // it.
        if let Some(limit) = self.beyond_limit(R::CALL) {
            return Err(limit);
        }
        // The guard may not be registered in the agent that has resumed the conversation.
        if R::CALL == CallKind::Tool
            && self.0.private_state().has_data_about_calls()
            && let Some(held) = self.held()
        {
            return Err(held);
        }
        Ok(())
    }

    /// Returns the result to the code around a call: names the call in an error, records an ending,
    /// and restores one that the code inside has changed or swallowed.
    #[inline]
    pub(crate) fn settle<R: Request, T>(self, name: Option<&str>, result: Result<T>) -> Result<T> {
        if let Err(error) = result {
            return Err(self.settle_error::<R>(name, error));
        }
        self.settle_success::<R>()?;
        result
    }

    /// Fails with an abort that a result must not stand beside: half of [`settle`](Self::settle).
    #[inline]
    pub(crate) fn settle_success<R: Request>(self) -> Result<()> {
        match self.ending::<R>() {
            // A result stands beside any other ending.
            Some(ending) if ending.ends_run() => Err(ending),
            _ => Ok(()),
        }
    }

    /// Returns the error to the code around: the half of [`settle`](Self::settle) for errors.
    #[cold]
    pub(crate) fn settle_error<R: Request>(self, name: Option<&str>, error: Error) -> Error {
        let error = error.in_call(|| self.0.scope().site(R::CALL, name));
        // Recorded first, so that the ending below is this error, or an earlier one that it must
        // not replace.
        self.latch::<R>(&error, false);
        self.ending::<R>().unwrap_or(error)
    }

    /// Records an error that ends more than its call, which may have a result all the same.
    pub(crate) fn latch<R: Request>(self, error: &Error, is_answered: bool) {
        if error.ends_run() {
            self.abort(error);
            // Such a call is made after an abort, so it may raise one of its own as well.
            if !R::OUTLIVES_ABORT {
                return;
            }
        }
        if error.is_ending() {
            self.end(R::CALL, error, is_answered);
        }
    }

    /// Returns the ending that this very call has caused, whatever its result.
    #[inline]
    pub(crate) fn ending<R: Request>(self) -> Option<Error> {
        if let Some(abort) = self.abort_of::<R>() {
            return Some(abort);
        }
        self.ended_by(R::CALL)
    }

    #[inline]
    fn abort_of<R: Request>(self) -> Option<Error> {
        self.0.aborted().filter(|_| !R::OUTLIVES_ABORT).cloned()
    }
}
