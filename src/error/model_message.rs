//! What a model reads of an error.

use std::borrow::Cow;

use super::{Error, ErrorKind};

impl Error {
    /// Sets what the model reads of a tool's failure, in the place of the error's kind and message.
    /// Callbacks, logs and the caller have the whole error all the same.
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

    /// What the model reads of a tool's failure. `None`: the kind and the
    /// [message](Self::message).
    #[must_use]
    pub fn model_message(&self) -> Option<&str> {
        self.0.model_message.as_deref()
    }

    /// What the model reads of a failure for which nothing was set. What it needs to call a tool
    /// better, that there is no such tool or what is wrong with its arguments, it reads as it is.
    pub(crate) fn or_model_message(self, message: Cow<'static, str>) -> Self {
        let is_for_it = matches!(self.kind(), ErrorKind::InvalidArguments | ErrorKind::UnknownTool);
        if is_for_it || self.is_ending() || self.0.model_message.is_some() {
            return self;
        }
        self.with_model_message(message)
    }
}
