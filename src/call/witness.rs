//! Data that a redaction and a recording of the same call exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::extensions::Extensions;

/// Placed in a call by a recording, for a redaction inside it.
#[derive(Clone, Default)]
pub(crate) struct Witness {
    input_hidden: Arc<AtomicBool>,
}

/// Placed in a call by a redaction that hides its output from what is outside.
struct Redacted;

impl Witness {
    /// Places a witness in a call.
    pub(crate) fn enter(extensions: &mut Extensions) -> Self {
        let witness = Self::default();
        extensions.insert(witness.clone());
        witness
    }

    /// Returns whether a redaction inside has hidden a part of the request.
    pub(crate) fn is_input_hidden_inside(&self) -> bool {
        self.input_hidden.load(Ordering::Acquire)
    }

    /// Returns whether a redaction outside hides the output of this place.
    pub(crate) fn is_inside_redaction(extensions: &Extensions) -> bool {
        extensions.get::<Redacted>().is_some()
    }

    /// Notes that the output of everything inside is hidden from what is outside.
    #[cfg(feature = "redact")]
    pub(crate) fn note_redaction(extensions: &mut Extensions) {
        extensions.insert(Redacted);
    }

    /// Notes that a part of the request is hidden from here on.
    #[cfg(feature = "redact")]
    pub(crate) fn note_hidden_input(extensions: &Extensions) {
        if let Some(witness) = extensions.get::<Self>() {
            witness.input_hidden.store(true, Ordering::Release);
        }
    }
}
