//! The text of an error that the model reads.

use std::borrow::Cow;

use super::error::Error;
use super::kind::ErrorKind;

impl Error {
    /// Sets the text that the model reads about a tool's failure, instead of the error's kind and
    /// message. Callbacks, logs and the caller still receive the full error.
    ///
    /// ```
    /// use tower_agent::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Tool, "no column `balance` in `accounts_v2`")
    ///     .with_model_message("The bank cannot be reached just now.");
    /// assert_eq!(error.message(), "no column `balance` in `accounts_v2`");
    /// assert_eq!(error.model_message(), Some("The bank cannot be reached just now."));
    /// ```
    #[must_use]
    pub fn with_model_message(self, message: impl Into<Cow<'static, str>>) -> Self {
        self.update(|e| e.model_message = Some(message.into()))
    }

    /// Returns the text that the model reads about a tool's failure. `None` means the kind and the
    /// [message](Self::message).
    #[must_use]
    pub fn model_message(&self) -> Option<&str> {
        self.0.model_message.as_deref()
    }

    /// Sets the text for a failure that has none. Unknown tools, invalid arguments and refusals
    /// keep their own text, which the model needs to correct its call or to stop asking.
    pub(crate) fn or_model_message(self, message: Cow<'static, str>) -> Self {
        let is_for_model = matches!(
            self.kind(),
            ErrorKind::InvalidArguments | ErrorKind::UnknownTool | ErrorKind::Denied
        );
        // No model reads an ending, and a text that is set already comes from the tool itself.
        if is_for_model || self.is_ending() || self.0.model_message.is_some() {
            return self;
        }
        self.with_model_message(message)
    }
}
