//! Labels of messages that callbacks add to a request.

#[cfg(feature = "redact")]
use tower_agent::AgentRequest;
use tower_agent::message::Message;
use tower_agent::model::{ModelRequest, ModelResponse};

#[cfg(feature = "redact")]
use super::agent::Asked;
use super::label::Label;
use super::reading::Reading;

/// Messages that callbacks have added or changed, in order: an extension of a request that the
/// guard is around.
#[derive(Clone, Default)]
pub(super) struct Vouched(Vec<(Message, Voucher)>);

/// The reason why a message that a callback has written has a label.
#[derive(Clone)]
pub(super) enum Voucher {
    /// The callback says so.
    Label(Label),
    /// It says what these messages say, or less, and nothing else.
    StandsFor(Vec<Message>),
}

impl Vouched {
    /// Returns why exactly this message has a label, and what was known before it was written.
    pub(super) fn find(&self, message: &Message, before: usize) -> Option<(usize, &Voucher)> {
        let known = self.0.get(..before)?.iter().enumerate().rev();
        let mut same =
            known.filter(|(_, (known, _))| known.id() == message.id() && known == message);
        same.next().map(|(at, (_, voucher))| (at, voucher))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Gives a label to a message that a callback adds to a request, or has changed there. The guard
/// compares: it is the label of a message with exactly this content.
///
/// Without it, what callbacks add has the label that [`Flow::callbacks`](super::Flow::callbacks)
/// says. Has no effect without the guard.
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
    if is_guarded(request) {
        vouch(request, [(message.clone(), Voucher::Label(label))]);
    }
}

/// Records that a callback of this crate has hidden or left out a part of these messages, and added
/// nothing but words of its own: each with the message as it was.
pub(crate) fn note_shortened<'a>(
    request: &mut ModelRequest,
    messages: impl IntoIterator<Item = (&'a Message, &'a Message)>,
) {
    let shortened = messages
        .into_iter()
        .map(|(earlier, now)| (now.clone(), Voucher::StandsFor(vec![earlier.clone()])));
    vouch(request, shortened);
}

/// Gives a label to an answer that an `after_model` or a layer gives in place of the model's own,
/// as [`label_message`] does to a message of a request: it is joined with that of what the model
/// has read. Without it, such an answer has the label that
/// [`Flow::callbacks`](super::Flow::callbacks) says. Has no effect without the guard.
///
/// ```
/// use tower_agent::{Action, ModelRequest, ModelResponse};
/// use tower_agent::callback::after_model;
/// use tower_agent_middleware::flow::{Label, label_answer};
///
/// let polite = after_model(|request: &ModelRequest, response: &ModelResponse| {
///     let polite = response.clone().with_text("You are welcome.");
///     label_answer(request, &polite, Label::trusted());
///     Action::Respond(polite)
/// });
/// # drop(polite);
/// ```
pub fn label_answer(request: &ModelRequest, answer: &ModelResponse, label: Label) {
    if let Some(reading) = request.extensions().get::<Reading>() {
        reading.note_answer(answer.message(), label);
    }
}

/// Records that a callback of this crate has hidden a part of a model's answer, and added nothing
/// but words of its own.
#[cfg(feature = "redact")]
pub(crate) fn note_shortened_response(request: &ModelRequest, earlier: &Message, now: &Message) {
    if let Some(reading) = request.extensions().get::<Reading>()
        && let Some(label) = reading.label_of_answer(earlier)
    {
        reading.note_answer(now, label);
    }
}

/// Records the same of messages of an agent's response.
#[cfg(feature = "redact")]
pub(crate) fn note_shortened_answer(
    request: &AgentRequest,
    messages: impl IntoIterator<Item = (Message, Message)>,
) {
    if let Some(asked) = request.extensions().get::<Asked>() {
        asked.note_shortened(messages);
    }
}

/// Records that a message says what others say, such as a summary of them: its label is the join of
/// theirs.
pub(crate) fn note_stands_for(request: &mut ModelRequest, message: &Message, others: Vec<Message>) {
    vouch(request, [(message.clone(), Voucher::StandsFor(others))]);
}

/// Returns whether a guard reads the labels of this request.
pub(crate) fn is_guarded(request: &ModelRequest) -> bool {
    request.extensions().get::<Reading>().is_some()
}

fn vouch(request: &mut ModelRequest, messages: impl IntoIterator<Item = (Message, Voucher)>) {
    let mut vouched = request
        .extensions()
        .get::<Vouched>()
        .cloned()
        .unwrap_or_default();
    vouched.0.extend(messages);
    request.extensions_mut().insert(vouched);
}
