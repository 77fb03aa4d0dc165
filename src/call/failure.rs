use std::sync::Arc;

use super::attempts::Attempts;
use super::request::Request;
use crate::error::ErrorKind;
use crate::stream::{EventKind, FailedAttempt, NextAttempt};

/// Tells the stream and the [observers](crate::stream::observer()) of the run that an attempt at
/// this call has failed and another follows, as [`EventKind::AttemptFailed`], and those who follow
/// its [attempts](Attempts). For a layer that repeats calls or falls back: the agent tells it of
/// its callbacks. Never waits.
///
/// ```
/// use std::time::Duration;
/// use tower_agent::call::tell_failure;
/// use tower_agent::stream::NextAttempt;
/// use tower_agent::{Error, Request};
///
/// /// The part of a retry that decides.
/// fn repeats<R: Request>(request: &R, error: &Error) -> bool {
///     let repeats = error.is_retryable() && request.is_repeatable();
///     if repeats {
///         tell_failure(request, error.kind(), NextAttempt::Retry(Duration::ZERO));
///     }
///     repeats
/// }
/// ```
pub fn tell_failure<R: Request>(request: &R, error: ErrorKind, next: NextAttempt) {
    // A clone, since what knows of the attempts may be changed by who has them.
    if let Some(Attempts {
        page: Some(page), ..
    }) = request.clone().attempts()
    {
        page.note_next(next);
    }
    let context = request.context();
    let listeners = context.listeners();
    if !listeners.is_told() {
        return;
    }
    let (attempt, usage) = context
        .scope()
        .tally
        .count_failure(R::CALL, context.own_tool_call());
    if let Some(sender) = request.delta_sender() {
        // For the event that discards what was shown of it.
        sender.fail(error);
    }
    listeners.note(EventKind::AttemptFailed(Arc::new(FailedAttempt {
        call: R::CALL,
        name: request.name().map(Into::into),
        tool_call: context
            .tool_call_message()
            .map(|(message, index)| message.tool_call(index)),
        attempt,
        error,
        usage,
        next,
    })));
}
