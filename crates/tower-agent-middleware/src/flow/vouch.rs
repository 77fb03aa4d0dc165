//! Labels of messages that callbacks add to a request.

use tower_agent::message::Message;
use tower_agent::model::ModelRequest;

use super::label::Label;
use super::reading::Reading;

/// Messages that callbacks have added or changed: an extension of the request.
#[derive(Clone, Default)]
pub(super) struct Vouched(Vec<(Message, Option<Label>)>);

impl Vouched {
    /// Returns the label that was given to exactly this message: `Some(None)` is the one that it has by
    /// its id.
    pub(super) fn label(&self, message: &Message) -> Option<Option<&Label>> {
        let mut vouched = self.0.iter().rev();
        let found = vouched.find(|(known, _)| known.id() == message.id() && known == message);
        found.map(|(_, label)| label.as_ref())
    }
}

/// Gives a label to a message that a callback adds to a request, or has changed there. The guard compares:
/// it is the label of a message with exactly this content.
///
/// Without it, what callbacks add has the label that [`Flow::callbacks`](super::Flow::callbacks) says.
/// Has no effect without the guard.
///
/// ```
/// use tower_agent::Message;
/// use tower_agent::callback::before_model;
/// use tower_agent_middleware::flow::{Label, label_message};
///
/// let date = before_model(|request| {
///     let message = Message::user("Today is Monday.");
///     label_message(request, &message, Label::trusted());
///     request.messages_mut().push(message);
/// });
/// # drop(date);
/// ```
pub fn label_message(request: &mut ModelRequest, message: &Message, label: Label) {
    vouch(request, message, Some(label));
}

/// Records that a message still says what it said, for a callback of this crate that hides or shortens.
pub(crate) fn note_shortened(request: &mut ModelRequest, message: &Message) {
    vouch(request, message, None);
}

fn vouch(request: &mut ModelRequest, message: &Message, label: Option<Label>) {
    // Nobody reads it without the guard.
    if request.extensions().get::<Reading>().is_none() {
        return;
    }
    let mut vouched = request
        .extensions()
        .get::<Vouched>()
        .cloned()
        .unwrap_or_default();
    vouched.0.push((message.clone(), label));
    request.extensions_mut().insert(vouched);
}
