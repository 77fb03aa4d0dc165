//! The labels of messages of a request that callbacks or layers have changed.

use std::collections::HashMap;

use tower_agent::call::Request;
use tower_agent::error::Result;
use tower_agent::message::{Message, MessageId};
use tower_agent::model::ModelRequest;

use super::book::Book;
use super::history::{LastTurn, MessageOrigin, label_of};
use super::label::Label;
use super::reading::Reading;
use super::run::FlowRun;
use super::settings::FlowSettings;
use super::sum::Sum;
use super::vouch::{Vouched, Voucher};

/// Returns the label of the messages of a request, which may have been changed.
pub(super) fn label_of_changed(
    settings: &FlowSettings,
    request: &ModelRequest,
    reading: &Reading,
) -> Result<Sum> {
    let mut changed = Changed::of(settings, request, reading)?;
    let mut sum = Sum::of(changed.origin.base.clone());
    for message in request.messages() {
        changed.add(message, &mut sum);
    }
    Ok(sum)
}

/// Returns the label of what is made of these messages of a request, if a guard reads labels there.
pub(crate) fn joined_label<'m>(
    request: &'m ModelRequest,
    messages: impl IntoIterator<Item = &'m Message>,
) -> Result<Option<Label>> {
    let Some(reading) = request.extensions().get::<Reading>() else {
        return Ok(None);
    };
    let mut changed = Changed::of(&reading.guard, request, reading)?;
    let mut sum = Sum::default();
    for message in messages {
        changed.add(message, &mut sum);
    }
    Ok(Some(sum.label))
}

/// Reads the labels of messages that may be changed or added.
struct Changed<'r> {
    callbacks: &'r Label,
    book: Book<'r>,
    origin: MessageOrigin<'r>,
    unchanged: HashMap<&'r MessageId, &'r Message>,
    vouched: Option<&'r Vouched>,
    last: LastTurn<'r>,
}

impl<'r> Changed<'r> {
    fn of(
        settings: &'r FlowSettings,
        request: &'r ModelRequest,
        reading: &'r Reading,
    ) -> Result<Self> {
        let context = request.context();
        let run = FlowRun::of(context)?;
        let identified = reading.messages.iter();
        let unchanged = identified.filter_map(|message| Some((message.id()?, message)));
        Ok(Self {
            callbacks: &settings.callbacks,
            book: Book::of(context),
            origin: MessageOrigin::of(context, &run, settings),
            unchanged: unchanged.collect(),
            vouched: request.extensions().get(),
            last: None,
        })
    }

    /// Adds the label of a message.
    fn add(&mut self, message: &'r Message, sum: &mut Sum) {
        self.add_before(message, self.vouched.map_or(0, Vouched::len), sum);
    }

    /// Adds the label of a message. `before` is the number of vouchers that were there before it
    /// was written: a callback may have shortened what another has shortened or added.
    fn add_before(&mut self, message: &'r Message, before: usize, sum: &mut Sum) {
        let known = message.id().and_then(|id| self.unchanged.get(id));
        if known.is_some_and(|known| *known == message) {
            let label = label_of(&self.book, &self.origin, message, &mut self.last);
            sum.add(&label);
            return;
        }
        let found = self
            .vouched
            .and_then(|vouched| vouched.find(message, before));
        match found {
            Some((_, Voucher::Label(label))) => sum.add(&Sum::of(label.clone())),
            Some((at, Voucher::StandsFor(others))) => {
                for other in others {
                    self.add_before(other, at, sum);
                }
            }
            None => sum.add(&Sum::of(self.callbacks.clone())),
        }
    }
}
