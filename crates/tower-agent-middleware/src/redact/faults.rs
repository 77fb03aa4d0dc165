//! Redacts errors.

use std::error::Error as StdError;
use std::fmt;

use super::Hider;
use tower_agent::error::Error;
use tower_agent::message::Metadata;

/// The text of an error's cause.
struct Words {
    words: String,
    cause: Option<Box<Words>>,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Words").field(&self.words).finish()
    }
}

impl StdError for Words {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.cause.as_deref()?)
    }
}

impl Hider {
    /// Returns the redacted error, or `None` if it contains no match. Its causes then keep only
    /// their text, since their types may reveal more.
    pub(super) fn error(&self, error: &Error) -> Option<Error> {
        let words = || causes(error).into_iter().map(ToString::to_string);
        let is_clean = !self.finds(error.message())
            && !error.model_message().is_some_and(|message| self.finds(message))
            && !words().any(|words| self.finds(&words))
            // The debug form as well, which logs may print and which has fields that the text
            // leaves out.
            && !self.finds(&format!("{error:?}"));
        if is_clean {
            return None;
        }
        let mut hidden = Error::new(error.kind(), self.seen(error.message()))
            .with_retryable(error.is_retryable())
            .with_metadata(self.metadata(error.metadata()));
        let redacted: Vec<_> = words().map(|words| self.seen(&words)).collect();
        let cause = redacted
            .into_iter()
            // From the inside out: each cause needs the one below it.
            .rev()
            .fold(None, |cause, words| Some(Box::new(Words { words, cause })));
        if let Some(cause) = cause {
            hidden = hidden.with_source(*cause);
        }
        if let Some(call) = error.call() {
            hidden = hidden.with_call(call.clone());
        }
        // Without it the model would read the error, which the tool keeps from it.
        if let Some(message) = error.model_message() {
            hidden = hidden.with_model_message(self.seen(message));
        }
        Some(match error.retry_after() {
            Some(after) => hidden.with_retry_after(after),
            None => hidden,
        })
    }

    fn metadata(&self, original: &Metadata) -> Metadata {
        let seen = |text: &Option<String>| text.as_deref().map(|text| self.seen(text));
        let mut hidden = Metadata::default();
        hidden.is_cut = original.is_cut;
        hidden.cost = original.cost;
        hidden.status = original.status;
        hidden.request_id = seen(&original.request_id);
        hidden.response_id = seen(&original.response_id);
        hidden.model = seen(&original.model);
        let limits = original.rate_limits.iter();
        hidden.rate_limits = limits
            .map(|(name, value)| (self.seen(name), self.seen(value)))
            .collect();
        hidden
    }

    fn seen(&self, text: &str) -> String {
        self.text(text).unwrap_or_else(|| text.to_owned())
    }
}

fn causes(error: &Error) -> Vec<&(dyn StdError + 'static)> {
    let mut causes = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    causes
}
