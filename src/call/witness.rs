//! Data that a redaction and a recording of the same call exchange.

#[cfg(feature = "testing")]
use std::sync::Arc;
#[cfg(feature = "testing")]
use std::sync::atomic::{AtomicBool, Ordering};

use crate::context::Extensions;

/// Placed in a call by a recording, for a redaction inside it.
#[cfg(feature = "testing")]
#[derive(Clone, Default)]
pub(crate) struct Witness {
    input_hidden: Arc<AtomicBool>,
}

/// Placed in a call by a redaction that hides its output from what is outside.
struct HiddenOutput;

/// Placed in a call by the outermost part of a redaction.
struct Hiding;

#[cfg(feature = "testing")]
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
        extensions.get::<HiddenOutput>().is_some()
    }
}

impl Extensions {
    /// Notes that the output of everything inside this call is hidden from what is outside.
    ///
    /// **When:** a layer or a callback changes responses so that nothing outside sees what was in
    /// them, from its `before` on. A [recording](crate::testing::recording) inside then fails
    /// rather than writing to a file what the rest of the run must not see.
    ///
    /// ```
    /// use tower_agent::callback::{Bundle, after_model, before_model};
    ///
    /// let hide = Bundle::new()
    ///     .on_model(before_model(|request| request.extensions_mut().note_hidden_output()))
    ///     .on_model(after_model(|_, _| {/* replaces the response */}));
    /// # drop(hide);
    /// ```
    pub fn note_hidden_output(&mut self) {
        self.insert(HiddenOutput);
    }

    /// Notes that something outside hides what leaves this call.
    ///
    /// **When:** as [`note_hidden_output`](Self::note_hidden_output), for the outermost part of a
    /// redaction that has several, or acts on deltas alone. An observer is then told no
    /// [texts](crate::stream::FieldChange::texts) of what wrappers inside change.
    pub fn note_hiding(&mut self) {
        self.insert(Hiding);
    }

    /// Returns whether something outside hides what leaves this call.
    pub(crate) fn is_hidden(&self) -> bool {
        self.get::<Hiding>().is_some() || self.get::<HiddenOutput>().is_some()
    }

    /// Notes that a part of the request is hidden from everything inside.
    ///
    /// **When:** a layer or a callback has removed text from a request. A
    /// [recording](crate::testing::recording) outside, which has seen the text, then fails rather
    /// than writing it to a file.
    pub fn note_hidden_input(&self) {
        #[cfg(feature = "testing")]
        // Shared with the recording outside: this request may be a clone of the one that it has.
        if let Some(witness) = self.get::<Witness>() {
            witness.input_hidden.store(true, Ordering::Release);
        }
    }
}
