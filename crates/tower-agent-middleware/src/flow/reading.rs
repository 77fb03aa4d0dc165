//! The label of all that a model reads, in the request from which its calls are made.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback};
use tower_agent::context::RunContext;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Message, MessageId, Messages, Part, Role};
use tower_agent::model::{ModelRequest, ModelResponse};

use super::book::{Book, Brought, Turn, note_read};
use super::label::Label;
use super::place::Place;
use super::vouch::{Vouched, Voucher};
use super::{Flow, NAME, Settings};
use crate::lock::lock;

/// The request of a model call before callbacks and layers could change it: an extension of the request.
#[derive(Clone)]
pub(super) struct Reading {
    guard: Arc<Settings>,
    messages: Messages,
    instructions: Text,
    label: Label,
    sources: BTreeSet<String>,
    /// The label of the request as it was sent; `None` until it was. Of several attempts, all.
    sent: Arc<Mutex<Option<Sent>>>,
}

#[derive(Clone)]
struct Sent {
    label: Label,
    sources: BTreeSet<String>,
}

/// The address of a text that stays where it is for as long as the call lasts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Text(usize, usize);

impl Text {
    fn of(text: Option<&str>) -> Self {
        text.map_or(Self(0, 0), |text| Self(text.as_ptr() as usize, text.len()))
    }
}

/// The label of what is read, and the tools that it came from.
#[derive(Default)]
struct Sum {
    label: Label,
    sources: BTreeSet<String>,
}

impl Sum {
    fn add(&mut self, label: &Label, message: Option<&Message>) {
        if label.is_within(&self.label) && label.is_trusted() {
            return;
        }
        self.label = self.label.join(label);
        if label.is_trusted() {
            return;
        }
        let results = message.into_iter().flat_map(Message::tool_results);
        for result in results {
            if self.sources.len() < MAX_SOURCES {
                self.sources.insert(result.name.to_string());
            }
        }
    }
}

/// How many tools are named as the origin of what the model has read.
const MAX_SOURCES: usize = 16;

/// Returns the label of a message of the conversation.
fn label_of(book: &Book<'_>, base: &Label, message: &Message) -> Label {
    let unknown = Label::unknown;
    let place = message.id().map(Place::of);
    match (message.role(), place) {
        (_, Some(Place::Brought { by, call })) => book
            .turn(&by)
            .and_then(|turn| turn.results.get(&call).map(|brought| brought.label.clone()))
            .unwrap_or_else(unknown),
        (Role::Assistant, Some(Place::Message(id))) => {
            book.turn(&id).map_or_else(unknown, |turn| turn.label)
        }
        (Role::User | Role::System, Some(Place::Message(_))) if !has_result(message) => {
            base.clone()
        }
        _ => unknown(),
    }
}

/// Returns whether a message has a result of a tool: one that came too late is a part of a user message.
fn has_result(message: &Message) -> bool {
    let mut parts = message.parts().iter();
    parts.any(|part| matches!(part, Part::ToolResult(_)))
}

/// The part of the guard outside everything else.
pub(super) struct Outside(pub(super) Flow);

/// The part of the guard directly around the model.
pub(super) struct Inside(pub(super) Flow);

impl Callback<ModelRequest> for Outside {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let settings = &self.0.0;
        if let Some(reading) = request.extensions().get::<Reading>() {
            return match Arc::ptr_eq(&reading.guard, settings) {
                true => Ok(Action::Continue),
                false => Err(two_guards()),
            };
        }
        let context = request.context();
        let base = base(context);
        let book = Book::of(context);
        let mut sum = Sum {
            label: base.clone(),
            ..Sum::default()
        };
        for message in request.messages() {
            sum.add(&label_of(&book, &base, message), Some(message));
        }
        let reading = Reading {
            guard: settings.clone(),
            messages: request.messages().clone(),
            instructions: Text::of(request.instructions()),
            label: sum.label,
            sources: sum.sources,
            sent: Arc::default(),
        };
        request.extensions_mut().insert(reading);
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let Some(reading) = request.extensions().get::<Reading>() else {
            return Err(not_outside());
        };
        let sent = lock(&reading.sent).clone();
        let Sent { label, sources } = sent.unwrap_or_else(|| Sent {
            // A callback or a layer has answered in place of the model.
            label: reading.label.join(&self.0.0.callbacks),
            sources: reading.sources.clone(),
        });
        let mut identified = response.clone();
        request.identify(&mut identified);
        let Some(Place::Message(id)) = identified.message().id().map(Place::of) else {
            return Ok(Action::Continue);
        };
        let mut turn = Turn {
            label: label.clone(),
            sources,
            ..Turn::default()
        };
        for (index, call) in response.message().tool_calls().enumerate() {
            let is_known = request.tools().iter().any(|tool| tool.name() == &*call.name);
            if !is_known {
                // The run answers it itself, and no callback for tools is asked.
                let brought = Brought {
                    label: label.clone(),
                    variable: None,
                };
                turn.results.insert(index, brought);
            }
        }
        Book::of(request.context()).set_turn(&id, &turn);
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Callback<ModelRequest> for Inside {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let Some(reading) = request.extensions().get::<Reading>() else {
            return Err(not_outside());
        };
        let settings = &self.0.0;
        let mut sum = Sum {
            label: reading.label.clone(),
            sources: reading.sources.clone(),
        };
        if *request.messages() != reading.messages {
            sum = self.changed(request, reading);
        }
        if Text::of(request.instructions()) != reading.instructions
            && request.instructions().is_some()
        {
            sum.add(&settings.callbacks, None);
        }
        for tool in request.tools() {
            if !settings.trusts_description(tool) {
                sum.add(&Label::untrusted(), None);
                sum.sources.insert(tool.name().to_owned());
                break;
            }
        }
        note_read(request.context(), &sum.label);
        let mut sent = lock(&reading.sent);
        let Sum { label, mut sources } = sum;
        let label = match &*sent {
            Some(earlier) => {
                sources.extend(earlier.sources.iter().cloned());
                earlier.label.join(&label)
            }
            None => label,
        };
        *sent = Some(Sent { label, sources });
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Inside {
    /// Returns the label of messages that callbacks or layers have changed.
    fn changed(&self, request: &ModelRequest, reading: &Reading) -> Sum {
        let context = request.context();
        let book = Book::of(context);
        let base = base(context);
        let mut unchanged: HashMap<&MessageId, &Message> = HashMap::new();
        for message in &reading.messages {
            if let Some(id) = message.id() {
                unchanged.insert(id, message);
            }
        }
        let none = Vouched::default();
        let vouched = request.extensions().get::<Vouched>().unwrap_or(&none);
        let mut sum = Sum {
            label: base.clone(),
            ..Sum::default()
        };
        for message in request.messages() {
            let mut source = message;
            let mut before = vouched.len();
            // A callback may have shortened what another has shortened or added.
            let label = loop {
                let known = source.id().and_then(|id| unchanged.get(id));
                if known.is_some_and(|known| *known == source) {
                    break label_of(&book, &base, source);
                }
                match vouched.find(source, before) {
                    Some((_, Voucher::Label(label))) => break label.clone(),
                    Some((at, Voucher::LessThan(earlier))) => {
                        source = earlier;
                        before = at;
                    }
                    None => break self.0.0.callbacks.clone(),
                }
            };
            sum.add(&label, Some(message));
        }
        sum
    }
}

/// Returns the label of the call that this agent works in, which has written its user messages.
fn base(context: &RunContext) -> Label {
    let Some(key) = context.outer_call_key(super::book::KEY) else {
        return Label::trusted();
    };
    // Without the guard around that call, nobody knows.
    let label = context.values().get::<Label>(&key).ok().flatten();
    label.map_or_else(Label::unknown, |label| Label::clone(&label))
}

fn two_guards() -> Error {
    let message = "two different `Flow` guards are around one call: register one, with \
                   `global_callbacks`, that declares all tools";
    Error::new(ErrorKind::InvalidRequest, message)
}

fn not_outside() -> Error {
    let message = "`Flow` is not around the whole call: register it with `global_callbacks` or \
                   `callbacks`, as a bundle";
    Error::new(ErrorKind::InvalidRequest, message)
}

pub(super) fn other_guard() -> Error {
    two_guards()
}
