//! The rule for a response that is no answer, for what may have another one instead.

use tower_agent::call::Request;
use tower_agent::callback::{AtNoAnswer, at_no_answer};
use tower_agent::error::{Error, ErrorKind};

/// Returns whether the agent of a call does not accept a response that is [no
/// answer](tower_agent::ModelResponse::no_answer).
pub(crate) fn is_rejected(request: &impl Request) -> bool {
    at_no_answer(request.context()) != AtNoAnswer::Tell
}

/// Returns the error that stands for a response which is no answer, if the agent of the call does
/// not accept one.
pub(crate) fn rejection<R: Request>(request: &R, response: &R::Response) -> Option<Error> {
    let why = R::no_answer(response)?;
    let message = format!("the model gave no answer: {why}");
    // The same model may answer the next time.
    let error = || Error::new(ErrorKind::InvalidAnswer, message).with_retryable(true);
    is_rejected(request).then(error)
}
