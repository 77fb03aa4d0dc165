use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::fault::{self, is_filter};
use super::provider::PROVIDER;
use super::response::{Interaction, InteractionEvent, InteractionUsage, StepDelta};
use super::step::{Step, StepKind, data, media};
use crate::json;
use crate::json::lenient::{exact_json_text, or_default};
use crate::protocol::{BegunCalls, Decoder, Event, Fault, Progress, ending};
use tower_agent::message::{Part, ProviderData};
use tower_agent::model::{FinishReason, ModelRequest, ModelResponse};
use tower_agent::stream::{Delta, Piece, Streamed};

/// Reads a response of the Interactions API.
///
/// Servers omit the events of the start or of the end of a step, and its index.
#[derive(Debug, Default)]
pub struct InteractionsReader {
    id: Option<String>,
    model: Option<String>,
    status: Option<String>,
    usage: InteractionUsage,
    is_blocked: bool,
    /// Facts about the response, which become the data of its message.
    about: Map<String, Value>,
    steps: Vec<Step>,
    /// The step that the last text or reasoning belongs to, if it can still grow.
    open: Option<usize>,
    /// The data that must be sent back with each call.
    calls: Vec<(Arc<str>, ProviderData)>,
    begun: BegunCalls,
}

/// The head of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StepHead {
    #[serde(rename = "type", deserialize_with = "or_default")]
    kind: String,
    #[serde(deserialize_with = "exact_json_text")]
    arguments: String,
}

impl InteractionsReader {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            begun: BegunCalls::new(request),
            ..Self::default()
        }
    }
}

impl Decoder for InteractionsReader {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        if event.data == "[DONE]" {
            return Err(Fault::incomplete());
        }
        let is_error = event.name == Some("error");
        // An error is reported even if it is plain text: its text is worth more than the complaint
        // that it is no JSON.
        let read: InteractionEvent<'_> = match json::read_text(event.data, "an event") {
            Err(_) if is_error => return Err(Fault::reported(event.data)),
            read => read?,
        };
        if let Some(usage) = read.usage {
            self.usage.set(usage);
            out.push(Piece::Usage(self.usage.total()));
        }
        // The data names its own kind; only servers that omit it are read by the event's name.
        let named = event.name.filter(|_| read.kind.is_empty());
        match (named.unwrap_or(&read.kind), read.step, read.delta) {
            ("step.delta", _, Some(delta)) => self.delta(read.index, delta, event.data, out),
            ("step.start", Some(step), _) => drop(self.start(read.index, step, out)?),
            ("step.stop", ..) => {
                // The latest step, since without an index every open step would match.
                if let Some(at) = self.open_step(read.index) {
                    self.stop(at, out);
                }
            }
            ("interaction.completed", ..) => {
                self.complete(read.interaction.unwrap_or_default(), out)?;
                return Ok(Progress::Done);
            }
            (kind, ..) if kind == "error" || read.error.as_ref().is_some_and(Value::is_object) => {
                self.failed(read.error.unwrap_or_else(|| event.data.into()))?;
                // Not a fault: the answer was blocked, and the steps so far belong to it.
                self.close_all(out)?;
                return Ok(Progress::Done);
            }
            _ => {
                self.status = read.status.or(self.status.take());
                self.learn(read.interaction.unwrap_or_default());
            }
        }
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let response: Interaction<'_> = json::read(body, "the response")?;
        if let Some(error) = response.error.filter(|error| !error.is_null()) {
            return Err(fault::read(body).unwrap_or_else(|| fault::of(&error)));
        }
        // Every field is optional in what is read, so any JSON object gets here: one without both
        // is no answer of this protocol.
        if response.steps.is_none() && response.status.is_none() {
            let fault = fault::read(body);
            return Err(fault.unwrap_or_else(|| Fault::protocol("the response has no steps")));
        }
        self.complete(
            Interaction {
                error: None,
                ..response
            },
            out,
        )
    }

    fn finish(mut self, streamed: Streamed) -> ModelResponse {
        let mut response = ModelResponse::from(streamed).with_usage(self.usage.total());
        let message = response.message_mut();
        if !self.about.is_empty() {
            message
                .provider_mut()
                .set(PROVIDER, Value::Object(self.about));
        }
        for part in message.parts_mut() {
            let Part::ToolCall(call) = part else { continue };
            if let Some((_, data)) = self.calls.iter_mut().find(|(id, _)| *id == call.id) {
                call.provider = std::mem::take(data);
            }
        }
        let reason = match self.status.as_deref() {
            _ if self.is_blocked => FinishReason::ContentFilter,
            word => match ending::reason(word) {
                Some(reason) => reason,
                None => return response,
            },
        };
        response.with_finish_reason(reason)
    }

    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl InteractionsReader {
    fn learn(&mut self, interaction: Interaction<'_>) {
        // It is empty if nothing is stored.
        self.id = interaction
            .id
            .filter(|id| !id.is_empty())
            .or(self.id.take());
        self.model = interaction.model.or(self.model.take());
        self.status = interaction.status.or(self.status.take());
        self.usage.set(interaction.usage.unwrap_or_default());
        if let Some(token) = interaction
            .continuation_token
            .filter(|token| !token.is_empty())
        {
            self.about.insert("continuation_token".into(), token.into());
        }
    }

    /// Reads the interaction at its end.
    fn complete(
        &mut self,
        mut interaction: Interaction<'_>,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let errors = std::mem::take(&mut interaction.errors);
        let steps = interaction.steps.take().unwrap_or_default();
        self.learn(interaction);
        // The last event of a stream repeats all steps; they are read only if nothing was streamed.
        if self.steps.is_empty() {
            for (step, index) in steps.into_iter().zip(0..) {
                let at = self.start(Some(index), step, out)?;
                self.stop(at, out);
            }
        }
        // Before the status: the pieces of a response that failed are passed on as well.
        self.close_all(out)?;
        match self.status.as_deref() {
            Some("failed") => {
                let error = errors.into_iter().next().or(self.about.remove("error"));
                match error {
                    Some(error) => self.failed(error),
                    None => Err(Fault::new("the response failed")),
                }
            }
            Some("cancelled") => Err(Fault::new("the response was cancelled")),
            Some(status @ ("queued" | "in_progress")) => {
                let message = format!("the response is incomplete: its status is `{status}`");
                Err(Fault::protocol(message))
            }
            word => ending::check(word, self.begun.has_any()),
        }
    }

    /// Reads why there is no answer, or only a part of one: it was blocked, or else it is an error.
    fn failed(&mut self, error: Value) -> Result<(), Fault> {
        let code = error["code"].as_str().unwrap_or_default();
        if !is_filter(code) && !matches!(code, "language" | "image_other") {
            return Err(fault::of(&error));
        }
        self.is_blocked = true;
        self.about.insert("error".into(), error);
        Ok(())
    }

    fn start(
        &mut self,
        index: Option<u64>,
        step: &RawValue,
        out: &mut Vec<Piece>,
    ) -> Result<usize, Fault> {
        let head: StepHead = json::read_text(step.get(), "a step of the response")?;
        let kind = StepKind::of(&head.kind, head.arguments);
        // A model can nest arguments deeper than a JSON value may be, so those of a call stay text.
        let fields = match kind {
            StepKind::Call { .. } => fields_of_call(step)?,
            _ => json::read_text(step.get(), "a step of the response")?,
        };
        let at = self.push(kind, index, fields);
        match self.steps[at].kind {
            StepKind::Output => {
                for content in self.steps[at].take_list("content") {
                    self.content(at, content, out);
                }
            }
            StepKind::Thought => {
                for item in self.steps[at].take_list("summary") {
                    self.summary(at, item, false, out);
                }
            }
            StepKind::Call { .. } => self.begin_call(at, out),
            StepKind::Input | StepKind::Other => {}
        }
        Ok(at)
    }

    fn push(&mut self, kind: StepKind, index: Option<u64>, fields: Map<String, Value>) -> usize {
        self.steps.push(Step::new(kind, index, fields));
        self.steps.len() - 1
    }

    /// Returns the latest step that an event with this index, or without one, can be about.
    fn open_step(&self, index: Option<u64>) -> Option<usize> {
        self.steps.iter().rposition(|step| step.is_open_at(index))
    }

    /// Returns the step that a piece belongs to, or else a new one.
    fn step_for(&mut self, index: Option<u64>, kind: StepKind) -> usize {
        match self.open_step(index) {
            Some(at) if self.steps[at].kind.is(&kind) => at,
            // A piece of another kind: the server omitted the start of its step.
            _ => self.push(kind, index, Map::new()),
        }
    }

    /// Returns the call that arguments belong to: the one that is open, if no call has their index.
    fn call_for(&mut self, index: Option<u64>) -> usize {
        let call = StepKind::of("function_call", String::new());
        let is_call = |step: &Step| step.kind.is(&call);
        match self.open_step(index).filter(|&at| is_call(&self.steps[at])) {
            Some(at) => at,
            None => {
                let is_open = |step: &Step| is_call(step) && step.is_open_at(None);
                let open = self.steps.iter().rposition(is_open);
                open.unwrap_or_else(|| self.push(call, index, Map::new()))
            }
        }
    }

    fn delta(&mut self, index: Option<u64>, delta: StepDelta, whole: &str, out: &mut Vec<Piece>) {
        match &*delta.kind {
            "text" => {
                let at = self.step_for(index, StepKind::Output);
                self.words(at, delta.text, out);
            }
            "text_annotation_delta" | "text_annotation" => {
                let at = self.step_for(index, StepKind::Output);
                self.steps[at].annotations.extend(delta.annotations);
            }
            "image" | "audio" | "video" | "document" => {
                let at = self.step_for(index, StepKind::Output);
                self.content(at, Value::Object(fields_of(whole)), out);
            }
            "thought_summary" => {
                let at = self.step_for(index, StepKind::Thought);
                self.summary(at, delta.content.unwrap_or_default(), true, out);
            }
            "thought_signature" => {
                let at = self.step_for(index, StepKind::Thought);
                self.steps[at].sign(delta.signature);
            }
            "arguments_delta" => {
                let at = self.call_for(index);
                self.steps[at].sign(delta.signature);
                self.arguments(at, delta.arguments, out);
            }
            // Deltas of the provider's own tools contain what their steps lack.
            _ => {
                let found = self
                    .steps
                    .iter_mut()
                    .rfind(|step| step.is_open_at(index) && step.kind.is(&StepKind::Other));
                if let Some(step) = found {
                    // The type of a delta is not that of its step.
                    let mut more = fields_of(whole);
                    more.remove("type");
                    step.fields.extend(more);
                }
            }
        }
    }

    /// Adds to the text or to the reasoning of a step.
    fn words(&mut self, at: usize, text: String, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        // Deltas belong to the part that was begun last, so the other one must end first.
        if self.open != Some(at) {
            self.close(out);
            self.open = Some(at);
        }
        out.push(match self.steps[at].kind {
            StepKind::Thought => Delta::Reasoning(text).into(),
            _ => Delta::Text(text).into(),
        });
    }

    /// Adds a content of its own.
    fn content(&mut self, at: usize, content: Value, out: &mut Vec<Piece>) {
        let Value::Object(mut fields) = content else {
            return;
        };
        self.close(out);
        if fields.get("type").is_some_and(|kind| kind != "text") {
            out.push(media(fields).into());
            return;
        }
        fields.remove("type");
        if let Some(Value::String(text)) = fields.remove("text") {
            self.words(at, text, out);
        }
        let data = data(fields);
        // Data belongs to this text alone: text that follows must not be joined with it.
        if !data.is_empty() {
            out.push(Piece::TextEnd(data));
            self.open = None;
        }
    }

    /// Adds to the summary of reasoning.
    fn summary(&mut self, at: usize, item: Value, continues: bool, out: &mut Vec<Piece>) {
        let text = item["text"].as_str().unwrap_or_default().to_owned();
        self.steps[at].summarise(item, continues);
        self.words(at, text, out);
    }

    /// Passes on the start of a call, unless it has been or its name is missing.
    fn begin_call(&mut self, at: usize, out: &mut Vec<Piece>) {
        let step = &mut self.steps[at];
        let StepKind::Call {
            number: number @ None,
            ..
        } = &mut step.kind
        else {
            return;
        };
        let name = step
            .fields
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if name.is_empty() {
            return;
        }
        let name = name.into();
        let id = step
            .fields
            .get("id")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let (index, id) = self.begun.begin(id);
        *number = Some(index);
        step.fields.retain(|name, _| name != "id" && name != "name");
        self.calls.push((id.clone(), ProviderData::default()));
        self.close(out);
        out.push(Delta::ToolCall { index, id, name }.into());
    }

    fn arguments(&mut self, at: usize, json: String, out: &mut Vec<Piece>) {
        if let StepKind::Call {
            number: Some(index),
            arguments,
            ..
        } = &mut self.steps[at].kind
            && !json.is_empty()
        {
            // Deltas replace the arguments that the step began with.
            arguments.clear();
            out.push(
                Delta::Arguments {
                    index: *index,
                    json,
                }
                .into(),
            );
        }
    }

    /// Ends a step, and passes on what has not been yet.
    fn stop(&mut self, at: usize, out: &mut Vec<Piece>) {
        // The name may have come in a delta, after the start.
        self.begin_call(at, out);
        let step = &mut self.steps[at];
        step.is_done = true;
        match &mut step.kind {
            StepKind::Output => {
                if let Some(error) = step.fields.remove("error").filter(|error| !error.is_null()) {
                    self.about.insert("error".into(), error);
                }
                let annotations = std::mem::take(&mut step.annotations);
                if !annotations.is_empty() {
                    let fields = [("annotations".to_owned(), annotations.into())];
                    let data = data(fields.into_iter().collect());
                    self.end(at, data, Piece::TextEnd, out);
                }
            }
            StepKind::Thought => {
                let data = step.take_data();
                if !data.is_empty() {
                    self.end(at, data, Piece::ReasoningEnd, out);
                }
            }
            StepKind::Call { number, arguments } => {
                let number = *number;
                let arguments = std::mem::take(arguments);
                let data = step.take_data();
                if let Some((_, call)) = number.and_then(|number| self.calls.get_mut(number)) {
                    *call = data;
                }
                // Empty if deltas replaced them.
                self.arguments(at, arguments, out);
            }
            StepKind::Other => {
                let mut data = ProviderData::default();
                data.set(PROVIDER, Value::Object(std::mem::take(&mut step.fields)));
                self.close(out);
                out.push(Part::Provider(data).into());
            }
            StepKind::Input => {}
        }
        if self.open == Some(at) {
            self.close(out);
        }
    }

    /// Ends the text or the reasoning of a step with its data.
    fn end(
        &mut self,
        at: usize,
        data: ProviderData,
        end: fn(ProviderData) -> Piece,
        out: &mut Vec<Piece>,
    ) {
        if self.open != Some(at) {
            self.close(out);
        }
        self.open = None;
        out.push(end(data));
    }

    /// Ends the text or the reasoning that can still grow.
    fn close(&mut self, out: &mut Vec<Piece>) {
        let Some(open) = self.open.take() else { return };
        out.push(match self.steps[open].kind {
            StepKind::Thought => Piece::ReasoningEnd(ProviderData::default()),
            _ => Piece::TextEnd(ProviderData::default()),
        });
    }

    /// Ends all steps.
    fn close_all(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        for at in 0..self.steps.len() {
            if !self.steps[at].is_done {
                self.stop(at, out);
            }
        }
        let mut steps = self.steps.iter();
        let is_nameless =
            steps.any(|step| matches!(step.kind, StepKind::Call { number: None, .. }));
        if is_nameless && !ending::is_cut(self.status.as_deref()) {
            return Err(Fault::nameless_call());
        }
        Ok(())
    }
}

/// Returns the fields of a call other than its arguments, which may be nested too deep to be read.
fn fields_of_call(step: &RawValue) -> Result<Map<String, Value>, Fault> {
    let all: BTreeMap<String, &RawValue> = json::read_text(step.get(), "a step of the response")?;
    let others = all.into_iter().filter(|(name, _)| name != "arguments");
    Ok(others
        .filter_map(|(name, value)| Some((name, serde_json::from_str(value.get()).ok()?)))
        .collect())
}

/// Returns the fields of an event's delta.
fn fields_of(event: &str) -> Map<String, Value> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Whole {
        delta: Map<String, Value>,
    }
    serde_json::from_str::<Whole>(event)
        .unwrap_or_default()
        .delta
}
