//! The label of all that a model reads, in the request from which its calls are made.

use std::borrow::Cow;
use std::sync::Arc;

use tower_agent::call::{Origin, Request};
use tower_agent::callback::{Action, Callback, Recovery};
use tower_agent::error::{Error, Result};
use tower_agent::message::{Messages, Role};
use tower_agent::model::{ModelRequest, ModelResponse};

use super::book::Book;
use super::changed::label_of_changed;
use super::inside::{note_error, note_read};
use super::label::Label;
use super::place::{Place, TurnId};
use super::reading::{Reading, TextAddress};
use super::resolve::references;
use super::settings::{FlowSettings, not_outside, two_guards};
use super::state::StateLabels;
use super::sum::Sum;
use super::turn::{Brought, Turn};
use crate::lock::lock;

/// The part of the guard outside everything else.
pub(super) struct OutermostReading {
    settings: Arc<FlowSettings>,
    /// A result of some tool may be hidden.
    may_hide: bool,
}

impl OutermostReading {
    pub(super) fn new(settings: Arc<FlowSettings>) -> Self {
        let may_hide = settings.may_hide();
        Self { settings, may_hide }
    }
}

impl Callback<ModelRequest> for OutermostReading {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let settings = &self.settings;
        match request.extensions().get::<Reading>() {
            Some(reading) if !Arc::ptr_eq(&reading.guard, settings) => return Err(two_guards()),
            Some(_) => {}
            None => {
                let reading = Reading::of(settings, request)?;
                let run = self.may_hide.then(|| reading.run.clone());
                request.extensions_mut().insert(reading);
                if let Some(run) = run {
                    run.declare_references(request.context(), references);
                    run.tools.apply(request);
                }
            }
        }
        if request.is_direct() {
            note_sent(settings, request)?;
        }
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let own;
        let reading = match request.extensions().get::<Reading>() {
            Some(reading) => reading,
            None => {
                // A callback has answered before this one was asked.
                own = Reading::of(&self.settings, request)?;
                &own
            }
        };
        let sent = lock(&reading.sent).clone();
        // A callback or a layer has answered in place of the model, perhaps after the model had
        // failed.
        let is_given = sent.is_none() || response.is_given();
        let is_replayed = sent.is_none() && response.origin() == Origin::Replay;
        let known = if request.is_direct() {
            reading.note_own_answer(response.message());
            Some(Label::trusted())
        } else {
            reading.label_of_answer(response.message())
        };
        let mut sum = sent.unwrap_or_else(|| reading.sum.clone());
        // Or in place of what the model has answered, without saying what that is.
        let written = known.filter(|_| !is_given);
        sum.add(&Sum::of(
            written.unwrap_or_else(|| self.settings.callbacks.clone()),
        ));
        if is_replayed {
            // The model had read them when it gave this response.
            sum.add(&label_of_tools(&self.settings, request));
            note_read(request.context(), &sum.label);
        }
        // A callback may have had it from another agent, or the model is one.
        if let Some(inside) = reading.run.take_inside(request.context()) {
            sum.add(&inside);
        }
        let Sum { label, sources } = sum;
        // The message that callbacks have written in place of the model's may have an id of its
        // own.
        let id = response.message().id().or(request.response_id());
        let Some(Place::Message(id)) = id.map(Place::of) else {
            return Ok(Action::Continue);
        };
        // People read them in a question: a history may have names that nobody knows.
        let mut sources = sources;
        sources.retain(|source| {
            let mut tools = request.tools().iter();
            let mut of_provider = request.settings().server_tools.iter();
            self.settings.knows(source)
                || tools.any(|tool| tool.name() == source)
                || of_provider.any(|tool| tool.kind.name() == source)
        });
        let mut turn = Turn::new(label, sources);
        for (index, call) in response.message().tool_calls().enumerate() {
            let is_known = request
                .tools()
                .iter()
                .any(|tool| tool.name() == &*call.name);
            if !is_known {
                // The run answers it itself, and no callback for tools is asked.
                turn.set_result(index, Brought::shown(turn.label.clone()));
            }
        }
        let context = request.context();
        if let Some(key) = request.output_key() {
            let labels = StateLabels::of(context.state(), context, &reading.run, &self.settings);
            let text = response.message().text();
            labels.add_output(key, context.iteration() == 0, &text, &turn.label);
        }
        let calls_before = calls_before(&id, &reading.messages);
        Book::of(request.context()).set_model_turn(&id, &turn, calls_before);
        Ok(Action::Continue)
    }

    async fn on_error(
        &self,
        request: &mut ModelRequest,
        error: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        let reading = request.extensions().get::<Reading>();
        let is_own = reading.is_some_and(|reading| {
            let mut failures = lock(&reading.failures);
            if request.is_direct() {
                failures.push(error.to_string());
            }
            failures.contains(&error.to_string())
        });
        note_error(request, error, is_own, &self.settings);
        Ok(Recovery::Propagate)
    }

    fn name(&self) -> Cow<'static, str> {
        "Flow(labels)".into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// The part of the guard directly around the model.
pub(super) struct InnermostReading(pub(super) Arc<FlowSettings>);

impl Callback<ModelRequest> for InnermostReading {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        note_sent(&self.0, request)?;
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        if let Some(reading) = request.extensions().get::<Reading>() {
            reading.note_answer(response.message(), Label::trusted());
        }
        Ok(Action::Continue)
    }

    async fn on_error(
        &self,
        request: &mut ModelRequest,
        error: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        if let Some(reading) = request.extensions().get::<Reading>() {
            lock(&reading.failures).push(error.to_string());
        }
        Ok(Recovery::Propagate)
    }

    fn name(&self) -> Cow<'static, str> {
        "Flow(notes)".into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// Records the label of a request as it is sent.
fn note_sent(settings: &FlowSettings, request: &ModelRequest) -> Result<()> {
    let Some(reading) = request.extensions().get::<Reading>() else {
        return Err(not_outside());
    };
    let mut sum = reading.sum.clone();
    if *request.messages() != reading.messages {
        sum = label_of_changed(settings, request, reading)?;
    }
    if TextAddress::of(request.instructions()) != reading.instructions
        && request.instructions().is_some()
    {
        sum.add(&Sum::of(settings.callbacks.clone()));
    }
    if !request.shown_state().is_empty() {
        let context = request.context();
        let labels = StateLabels::of(context.state(), context, &reading.run, settings);
        for key in request.shown_state() {
            let label = labels.get(key);
            sum.add(&Sum::of(
                label.unwrap_or_else(|| settings.callbacks.clone()),
            ));
        }
    }
    sum.add(&label_of_tools(settings, request));
    note_read(request.context(), &sum.label);
    lock(&reading.sent).get_or_insert_default().add(&sum);
    Ok(())
}

/// Returns the label of what the tools of a request tell the model.
fn label_of_tools(settings: &FlowSettings, request: &ModelRequest) -> Sum {
    let mut sum = Sum::of(Label::trusted());
    for tool in &request.settings().server_tools {
        // The result of such a tool is a part of the model's own message.
        let name = tool.kind.name();
        sum.add(&Sum {
            label: settings.server_tool(name),
            sources: vec![name.to_owned()],
        });
    }
    for tool in request.tools() {
        if !settings.trusts_description(tool) {
            sum.add(&Sum {
                label: Label::untrusted(),
                sources: vec![tool.name().to_owned()],
            });
        }
    }
    sum
}

/// Returns how many calls the message of the model has that comes before this one in the
/// conversation, if the model has read it.
fn calls_before(id: &TurnId<'_>, messages: &Messages) -> Option<usize> {
    let mut earlier = messages.iter().rev();
    let before = earlier.find(|message| message.role() == Role::Assistant)?;
    let place = before.id()?.place().filter(|place| place.call.is_none())?;
    let follows = match id {
        TurnId::OfRun {
            conversation,
            number,
        } => place.conversation == conversation && place.number.checked_add(1) == Some(*number),
        TurnId::Other(_) => false,
    };
    follows.then(|| before.tool_calls().count())
}
