//! The request of a model, before callbacks and layers can change it.

use std::sync::{Arc, Mutex};

use tower_agent::call::Request;
use tower_agent::error::Result;
use tower_agent::message::{Message, Messages};
use tower_agent::model::ModelRequest;

use super::book::Book;
use super::history::{MessageOrigin, label_of};
use super::label::Label;
use super::run::{FlowRun, Reader};
use super::settings::FlowSettings;
use super::sum::Sum;
use crate::lock::lock;

/// The request of a model call before callbacks and layers could change it: an extension of the
/// request.
pub(super) struct Reading {
    pub(super) guard: Arc<FlowSettings>,
    pub(super) run: Arc<FlowRun>,
    /// Nothing was between the guard and the model that it was made for.
    is_direct: bool,
    pub(super) messages: Messages,
    pub(super) instructions: TextAddress,
    pub(super) sum: Sum,
    /// The label of the request as it was sent; `None` until it was. Of several attempts, all.
    pub(super) sent: Mutex<Option<Sum>>,
    /// The answers of the model itself, of each attempt, and what callbacks that say so have made
    /// of them: each with what its words add to the label of what the model has read.
    answers: Mutex<Vec<(Message, Label)>>,
    /// The errors that the model itself has raised.
    pub(super) failures: Mutex<Vec<String>>,
}

impl Reading {
    pub(super) fn of(guard: &Arc<FlowSettings>, request: &ModelRequest) -> Result<Self> {
        let context = request.context();
        let messages = request.messages();
        let run = FlowRun::of(context)?;
        let origin = MessageOrigin::of(context, &run, guard);
        let reader = Reader::of(request, context, &origin.base);
        let book = Book::of(context);
        let mut last = None;
        let mut add = |message, sum: &mut Sum| {
            sum.add(&label_of(&book, &origin, message, &mut last));
        };
        let sum = match reader {
            Some(reader) => run.read(reader, messages, add),
            None => {
                let mut sum = Sum::of(origin.base.clone());
                messages.iter().for_each(|message| add(message, &mut sum));
                sum
            }
        };
        Ok(Self {
            guard: guard.clone(),
            run,
            is_direct: request.is_direct(),
            messages: messages.clone(),
            instructions: TextAddress::of(request.instructions()),
            sum,
            sent: Mutex::default(),
            answers: Mutex::default(),
            failures: Mutex::default(),
        })
    }

    /// Records an answer of the model, or one in its place with a label.
    pub(super) fn note_answer(&self, message: &Message, label: Label) {
        lock(&self.answers).push((message.clone(), label));
    }

    /// Records an answer that is the model's own, if others than the caller may ask.
    pub(super) fn note_own_answer(&self, message: &Message) {
        if !self.is_direct {
            self.note_answer(message, Label::trusted());
        }
    }

    /// Returns the label of the words of this answer, beside that of what the model has read.
    /// `None` if neither the model has given it nor anybody has said what it is.
    pub(super) fn label_of_answer(&self, message: &Message) -> Option<Label> {
        let answers = lock(&self.answers);
        let known = answers.iter().rfind(|(known, _)| known == message)?;
        Some(known.1.clone())
    }
}

/// The address of a text that stays where it is for as long as the call lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TextAddress(usize, usize);

impl TextAddress {
    pub(super) fn of(text: Option<&str>) -> Self {
        text.map_or(Self(0, 0), |text| Self(text.as_ptr() as usize, text.len()))
    }
}
