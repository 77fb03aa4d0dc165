//! Data that a redaction and a recording of the same call exchange.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::context::Extensions;

/// Tells what keeps the texts of calls, such as a [recording], whether a redaction is in its way.
///
/// Something that keeps a request sees what a redaction inside hides from everything further in,
/// and something inside a redaction sees what that hides from the rest of the run. Neither is to
/// write it to a file.
///
/// ```
/// use tower_agent::ModelRequest;
/// use tower_agent::call::Witness;
///
/// let mut request = ModelRequest::new([]);
/// let witness = Witness::enter(request.extensions_mut());
/// assert!(!witness.is_input_hidden_inside());
/// request.extensions().note_hidden_input(); // as a redaction does
/// assert!(witness.is_input_hidden_inside());
/// ```
///
/// [recording]: https://docs.rs/tower-agent-test/latest/tower_agent_test/recording/
#[derive(Clone, Debug, Default)]
pub struct Witness {
    input_hidden: Arc<AtomicBool>,
    /// That of something further outside.
    outside: Option<Arc<Self>>,
}

/// Placed in a call by a redaction that hides its output from what is outside.
struct HiddenOutput;

/// Placed in a call by the outermost part of a redaction.
struct Hiding;

impl Witness {
    /// Places a witness in a call, for a redaction inside.
    pub fn enter(extensions: &mut Extensions) -> Self {
        let outside = extensions.get::<Self>().cloned().map(Arc::new);
        let witness = Self {
            outside,
            ..Self::default()
        };
        extensions.insert(witness.clone());
        witness
    }

    /// Returns whether a redaction inside has [hidden](Extensions::note_hidden_input) a part of the
    /// request. It is known once the call has ended.
    #[must_use]
    pub fn is_input_hidden_inside(&self) -> bool {
        self.input_hidden.load(Ordering::Acquire)
    }

    /// Returns whether a redaction outside [hides](Extensions::note_hidden_output) the output of
    /// this place.
    #[must_use]
    pub fn is_inside_redaction(extensions: &Extensions) -> bool {
        extensions.get::<HiddenOutput>().is_some()
    }
}

impl Extensions {
    /// Notes that the output of everything inside this call is hidden from what is outside.
    ///
    /// **When:** a layer or a callback changes responses so that nothing outside sees what was in
    /// them, from its `before` on. A [recording] inside then fails rather than writing to a file
    /// what the rest of the run must not see.
    ///
    /// [recording]: https://docs.rs/tower-agent-test/latest/tower_agent_test/recording/
    ///
    /// ```
    /// use tower_agent::callback::before_model;
    ///
    /// let hide = before_model(|request| request.extensions_mut().note_hidden_output());
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
    /// [recording] outside, which has seen the text, then fails rather than writing it to a file.
    ///
    /// [recording]: https://docs.rs/tower-agent-test/latest/tower_agent_test/recording/
    pub fn note_hidden_input(&self) {
        // Shared with the recording outside: this request may be a clone of the one that it has.
        let mut seen = self.get::<Witness>();
        while let Some(witness) = seen {
            witness.input_hidden.store(true, Ordering::Release);
            seen = witness.outside.as_deref();
        }
    }
}
