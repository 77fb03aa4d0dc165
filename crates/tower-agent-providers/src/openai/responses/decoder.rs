use serde_json::{Map, Value};

use super::item::{Item, ItemKind, TextPosition};
use super::provider::{CALL_IDS, PROVIDER};
use super::response::{Response, ResponseEvent};
use crate::json;
use crate::protocol::ending::Promise;
use crate::protocol::{BegunCalls, Decoder, Event, Fault, Progress, ending};
use tower_agent::message::{Message, Part, ProviderData, Usage};
use tower_agent::model::{FinishReason, ModelRequest, ModelResponse};
use tower_agent::stream::{Delta, Piece, Streamed};

/// Reads a response of Responses.
///
/// Servers omit the events of items, of their parts or of their ends, and the index or the id of an
/// item; some send a new id with each event.
#[derive(Debug, Default)]
pub struct ResponsesDecoder {
    id: Option<String>,
    model: Option<String>,
    usage: Usage,
    /// The reason why the response is not complete, or its status.
    end: Option<String>,
    is_refusal: bool,
    items: Vec<Item>,
    /// The sources of the parts of the message, in the order in which they were passed on.
    parts: Vec<PartSource>,
    /// The last part can still grow.
    is_open: bool,
    /// A text, or reasoning, has been passed on in pieces and has not ended.
    is_saying: bool,
    is_thinking: bool,
    calls: BegunCalls,
}

/// The source of a part: an item by its number, and the position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartSource {
    Text(usize, TextPosition),
    Reasoning(usize),
    Call(usize),
    Other(usize),
}

impl ResponsesDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            calls: BegunCalls::new(request),
            ..Self::default()
        }
    }
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        // Some gateways send it, though the protocol does not have it.
        if event.data == "[DONE]" {
            return Err(Fault::incomplete());
        }
        let mut read = ResponseEvent::default();
        json::read_text_into(event.data, "an event of the response", &mut read)?;
        let kind = std::mem::take(&mut read.kind);
        let kind = if kind.is_empty() {
            event.name.unwrap_or_default()
        } else {
            &kind
        };
        let delta = std::mem::take(&mut read.delta);
        match kind {
            "error" => return Err(Fault::reported(event.data)),
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                // The event's name counts more than the status in its data, which servers omit.
                // Only `response.done` does not say how the response ended.
                let status = kind
                    .strip_prefix("response.")
                    .filter(|status| *status != "done");
                let status = status.map(str::to_owned).or(read.response.status.take());
                read.response.status = status;
                self.complete(read.response, out)?;
                return Ok(Progress::Done);
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                self.learn(&mut read.response);
            }
            // Without its item the event says nothing; the deltas create the item.
            "response.output_item.added" | "response.output_item.done" if read.item.is_empty() => {}
            "response.output_item.added" => {
                let at = self.items.len();
                self.items.push(Item::new(
                    ItemKind::of(&read.item),
                    read.output_index,
                    id(&read.item),
                ));
                self.items[at].fields = read.item;
                self.begin_call(at, false, out)?;
            }
            "response.output_item.done" => {
                let at = self.item_for(&read, ItemKind::of(&read.item), Some(&id(&read.item)));
                self.item(at, read.item, out)?;
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                let at = self.item_for(&read, ItemKind::Message, None);
                let position = TextPosition::Content(read.content_index);
                self.is_saying |= !delta.is_empty();
                self.text(at, position, delta.into_owned(), out);
                self.is_refusal |= kind == "response.refusal.delta";
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_summary.delta" => {
                let at = self.item_for(&read, ItemKind::Reasoning, None);
                let position = TextPosition::Summary(read.summary_index);
                self.is_thinking |= !delta.is_empty();
                self.thought(at, position, delta.into_owned(), out);
            }
            "response.reasoning_text.delta" | "response.reasoning.delta" => {
                let at = self.item_for(&read, ItemKind::Reasoning, None);
                let position = TextPosition::Content(read.content_index);
                self.is_thinking |= !delta.is_empty();
                self.thought(at, position, delta.into_owned(), out);
            }
            "response.function_call_arguments.delta" => {
                let at = self.call_for(&read);
                if let ItemKind::Call { arguments, .. } = &mut self.items[at].kind {
                    arguments.push_str(&delta);
                }
                self.send_arguments(at, out);
            }
            kind if kind.ends_with(".done") => self.ended(kind, read, out)?,
            // What begins and is empty, and events that do not exist yet.
            _ => {}
        }
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let response: Response = json::read(body, "the response")?;
        if response.output.is_none() && response.error.as_ref().is_none_or(Value::is_null) {
            let fault = Fault::from_json(body);
            return Err(fault.unwrap_or_else(|| Fault::protocol("the response has no output")));
        }
        self.complete(response, out)
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let mut response = ModelResponse::from(streamed);
        // Before the ids are kept, which adds to the data of calls.
        self.add_data(response.message_mut());
        self.sort(response.message_mut());
        CALL_IDS.keep(response.message_mut());
        let response = match ending::reason(self.end.as_deref()) {
            Some(reason) => response.with_finish_reason(reason),
            None if self.is_refusal => response.with_finish_reason(FinishReason::Refusal),
            None => response,
        };
        response.with_usage(self.usage)
    }

    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl ResponsesDecoder {
    fn learn(&mut self, response: &mut Response) {
        self.id = response.id.take().or(self.id.take());
        self.model = response.model.take().or(self.model.take());
        // The first events say zero or nothing; the last that says anything counts.
        self.usage = response.usage().unwrap_or(self.usage);
    }

    /// Reads the response at its end.
    fn complete(&mut self, mut response: Response, out: &mut Vec<Piece>) -> Result<(), Fault> {
        self.learn(&mut response);
        if let Some(error) = response.error.filter(|error| !error.is_null()) {
            return Err(Fault::of(&error, &Value::Null));
        }
        let reason = response.incomplete_details.reason;
        match response.status.as_deref() {
            Some("failed") => return Err(Fault::new("the response failed")),
            Some("cancelled") => return Err(Fault::new("the response was cancelled")),
            Some(status @ ("queued" | "in_progress")) => {
                let message = format!("the response is incomplete: its status is `{status}`");
                return Err(Fault::protocol(message));
            }
            status => {
                self.end = reason.or_else(|| {
                    let is_known = |word: &&str| ending::promise(word) != Promise::Unknown;
                    status.filter(is_known).map(str::to_owned)
                })
            }
        }
        // The end repeats the whole output: only what no event brought is passed on. Items that are
        // added here cannot be repeated by it, so only the streamed ones are compared.
        let streamed = self.items.len();
        for (fields, index) in response.output.into_iter().flatten().zip(0..) {
            let kind = ItemKind::of(&fields);
            let id = id(&fields);
            let items = &self.items[..streamed];
            let found = items
                .iter()
                .position(|item| item.index == Some(index))
                // Some servers count the output anew here, or send no index with their events.
                .or_else(|| {
                    items
                        .iter()
                        .position(|item| !id.is_empty() && item.id == id)
                });
            let at = match found {
                // It has what its own end left out, if it is surely the same.
                Some(at) if items[at].is_done && items[at].is_same(&kind, &fields, &id) => at,
                Some(at) if items[at].is_done => continue,
                Some(at) if items[at].can_be(&kind) => at,
                _ => match items.iter().position(|item| item.can_be(&kind)) {
                    // Neither index nor id is known: an item that never ended is the same one.
                    Some(at) => at,
                    None => self.push(kind, Some(index), id),
                },
            };
            self.item(at, fields, out)?;
        }
        // Items that never ended have what their start said.
        for at in 0..self.items.len() {
            if !self.items[at].is_done && !matches!(self.items[at].kind, ItemKind::Other) {
                self.item(at, Map::new(), out)?;
            }
        }
        self.close(out);
        let is_nameless = self
            .items
            .iter()
            .any(|item| matches!(item.kind, ItemKind::Call { number: None, .. }));
        let end = self.end.as_deref();
        if is_nameless && !ending::is_cut(end) {
            return Err(Fault::nameless_call());
        }
        ending::check(end, self.calls.has_any())
    }

    fn push(&mut self, kind: ItemKind, index: Option<u64>, id: String) -> usize {
        self.items.push(Item::new(kind, index, id));
        self.items.len() - 1
    }

    /// Returns the item that an event belongs to, or else a new one.
    fn item_for(&mut self, event: &ResponseEvent<'_>, kind: ItemKind, id: Option<&str>) -> usize {
        let id = id.unwrap_or(&event.item_id);
        let index = event.output_index;
        let found = self.find(index, id, &kind);
        let Some(at) = found.filter(|&at| self.items[at].can_be(&kind)) else {
            return self.push(kind, index, id.to_owned());
        };
        // The first event of an item may lack what a later one says.
        let item = &mut self.items[at];
        item.index = item.index.or(index);
        if item.id.is_empty() {
            item.id = id.to_owned();
        }
        at
    }

    /// Returns the latest item of a kind with this index, or else with this id.
    fn find(&self, index: Option<u64>, id: &str, kind: &ItemKind) -> Option<usize> {
        // The index comes first: some servers send a new id with each event.
        if index.is_some()
            && let Some(at) = self
                .items
                .iter()
                .rposition(|item| item.index == index && item.kind.is(kind))
        {
            return Some(at);
        }
        if !id.is_empty()
            && let Some(at) = self
                .items
                .iter()
                .rposition(|item| item.id == id && item.kind.is(kind))
        {
            return Some(at);
        }
        // An item that no event has named can be the one that this event names.
        let unnamed = self
            .items
            .iter()
            .rposition(|item| item.index.is_none() && item.id.is_empty());
        if unnamed.is_some() {
            return unnamed;
        }
        // An event that names none continues the last one.
        if index.is_none() && id.is_empty() {
            return self.items.len().checked_sub(1);
        }
        None
    }

    /// Reads the end of a text, of reasoning or of arguments. It repeats the whole, which counts if
    /// nothing of it has come: many servers send no pieces, and the item without it.
    fn ended(
        &mut self,
        kind: &str,
        read: ResponseEvent<'_>,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let content = TextPosition::Content(read.content_index);
        let summary = TextPosition::Summary(read.summary_index);
        let (kind, position) = match kind {
            "response.output_text.done" | "response.refusal.done" => {
                self.is_refusal |= kind == "response.refusal.done";
                (ItemKind::Message, content)
            }
            "response.reasoning_text.done" | "response.reasoning.done" => {
                (ItemKind::Reasoning, content)
            }
            "response.reasoning_summary_text.done"
            | "response.reasoning_summary.done"
            | "response.reasoning_summary_part.done" => (ItemKind::Reasoning, summary),
            "response.content_part.done" => {
                let is_reasoning = read
                    .part
                    .get("type")
                    .is_some_and(|kind| kind == "reasoning_text");
                self.is_refusal |= is_refusal(&read.part);
                let kind = if is_reasoning {
                    ItemKind::Reasoning
                } else {
                    ItemKind::Message
                };
                (kind, content)
            }
            "response.function_call_arguments.done" => {
                let at = self.call_for(&read);
                if self.items[at].text("name").is_empty() && !read.name.is_empty() {
                    let name = read.name.into_owned().into();
                    self.items[at].fields.insert("name".into(), name);
                }
                self.begin_call(at, false, out)?;
                return self.whole_arguments(at, &read.whole, out);
            }
            _ => return Ok(()),
        };
        let text = match text_of(&read.part) {
            Some(text) => text.to_owned(),
            None => read.whole.clone().into_owned(),
        };
        if text.is_empty() {
            return Ok(());
        }
        let is_reasoning = matches!(kind, ItemKind::Reasoning);
        let has_pieces = std::mem::take(if is_reasoning {
            &mut self.is_thinking
        } else {
            &mut self.is_saying
        });
        let at = match self.known_item(&read, &kind) {
            Some(at) => at,
            // The pieces came under other names, as from servers with a new id in each event.
            None if has_pieces => return Ok(()),
            None => self.item_for(&read, kind, None),
        };
        let shown = &self.items[at].shown;
        if shown.contains(&position) {
            return Ok(());
        }
        if !is_reasoning {
            self.text(at, position, text, out);
        } else if shows_same_list(shown, position) {
            // The content of reasoning counts only if there is no summary, as in a whole item.
            self.thought(at, position, text, out);
        }
        Ok(())
    }

    /// Returns the item that an event is about, also if the item itself has ended.
    fn known_item(&self, event: &ResponseEvent<'_>, kind: &ItemKind) -> Option<usize> {
        self.find(event.output_index, &event.item_id, kind)
            .filter(|&at| self.items[at].kind.is(kind))
    }

    /// Returns the call that an event is about, or else a new one.
    fn call_for(&mut self, event: &ResponseEvent<'_>) -> usize {
        let is_call = |item: &Item| item.can_be(&ItemKind::CALL);
        let known = self.known_item(event, &ItemKind::CALL);
        // Pieces whose names do not agree with those of the start are about the call that is open.
        let known = known.or_else(|| self.items.iter().rposition(is_call));
        known.unwrap_or_else(|| self.item_for(event, ItemKind::CALL, None))
    }

    /// Reads a complete item and passes on what has not been yet.
    fn item(
        &mut self,
        at: usize,
        fields: Map<String, Value>,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let item = &mut self.items[at];
        item.end(fields);
        match item.kind {
            ItemKind::Message => {
                let content = item.fields.get("content").and_then(Value::as_array);
                self.is_refusal |= content
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_object)
                    .any(is_refusal);
                for (position, text) in item.texts() {
                    if !self.items[at].shown.contains(&position) {
                        self.text(at, position, text, out);
                    }
                }
            }
            ItemKind::Reasoning => {
                if item.shown.is_empty() {
                    for (position, text) in item.texts() {
                        self.thought(at, position, text, out);
                    }
                }
                // Encrypted reasoning may have no text.
                if !self.parts.contains(&PartSource::Reasoning(at)) {
                    self.begin(PartSource::Reasoning(at), out);
                }
                if self.parts.last() == Some(&PartSource::Reasoning(at)) {
                    self.close(out);
                }
            }
            ItemKind::Call { .. } => self.call(at, out)?,
            ItemKind::Other => {
                let mut data = ProviderData::default();
                data.set(PROVIDER, Value::Object(item.fields.clone()));
                self.begin(PartSource::Other(at), out);
                out.push(Part::Provider(data).into());
            }
        }
        Ok(())
    }

    fn text(&mut self, at: usize, position: TextPosition, text: String, out: &mut Vec<Piece>) {
        if !text.is_empty() {
            self.items[at].show(position);
            self.begin(PartSource::Text(at, position), out);
            out.push(Delta::Text(text).into());
        }
    }

    fn thought(&mut self, at: usize, position: TextPosition, text: String, out: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        // The message has one reasoning for each item, so its paragraphs are joined by a blank
        // line.
        let is_first = self.items[at].shown.is_empty();
        let is_next = self.items[at].show(position) && !is_first;
        self.begin(PartSource::Reasoning(at), out);
        if is_next {
            out.push(Delta::Reasoning("\n\n".to_owned()).into());
        }
        out.push(Delta::Reasoning(text).into());
    }

    /// Passes on what has not been yet of a complete call.
    fn call(&mut self, at: usize, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let whole = match self.items[at].fields.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        self.whole_arguments(at, &whole, out)?;
        self.begin_call(at, true, out)
    }

    /// Passes on the start of a call and its arguments so far, unless it has been or, if more can
    /// come, its id or its name is missing.
    fn begin_call(&mut self, at: usize, is_last: bool, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let item = &self.items[at];
        if !matches!(item.kind, ItemKind::Call { number: None, .. }) {
            return Ok(());
        }
        let name = item.text("name");
        let id = Some(item.text("call_id"))
            .filter(|id| !id.is_empty())
            .unwrap_or(&item.id);
        // The item's own id is not that of the call: it serves only once nothing better can come.
        if name.is_empty() || !is_last && item.text("call_id").is_empty() {
            return Ok(());
        }
        let (index, id) = self.calls.begin(id);
        let name = name.into();
        if let ItemKind::Call { number, .. } = &mut self.items[at].kind {
            *number = Some(index);
        }
        self.begin(PartSource::Call(at), out);
        out.push(Delta::ToolCall { index, id, name }.into());
        self.send_arguments(at, out);
        Ok(())
    }

    /// Reads the arguments as a whole. They add to the pieces what is missing there.
    fn whole_arguments(
        &mut self,
        at: usize,
        whole: &str,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        // An item that does not repeat them has none, or the empty object.
        if matches!(whole.trim(), "" | "{}" | "null") {
            return Ok(());
        }
        let item = &mut self.items[at];
        let ItemKind::Call { arguments, .. } = &mut item.kind else {
            return Ok(());
        };
        if whole.starts_with(&**arguments) {
            whole.clone_into(arguments);
            self.send_arguments(at, out);
            return Ok(());
        }
        let is_same = match (
            serde_json::from_str::<Value>(whole),
            serde_json::from_str::<Value>(arguments),
        ) {
            (Ok(whole), Ok(pieces)) => whole == pieces,
            // A whole that was cut off itself says no more than the pieces.
            (Err(_), Ok(_)) => true,
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        // Which of them the model has written is not known, and the call may do something.
        let name = item.text("name");
        let message =
            format!("the server sent two versions of the arguments of a call of `{name}`");
        Err(Fault::protocol(message))
    }

    /// Passes on the arguments that have not been yet, once the call has started.
    fn send_arguments(&mut self, at: usize, out: &mut Vec<Piece>) {
        if let ItemKind::Call {
            number: Some(index),
            arguments,
            sent,
        } = &mut self.items[at].kind
            && *sent < arguments.len()
        {
            let index = *index;
            let json = arguments[*sent..].to_owned();
            *sent = arguments.len();
            out.push(Delta::Arguments { index, json }.into());
        }
    }

    /// Begins a part, unless the last one is from the same source and can still grow.
    fn begin(&mut self, source: PartSource, out: &mut Vec<Piece>) {
        if self.is_open && self.parts.last() == Some(&source) {
            return;
        }
        self.close(out);
        self.parts.push(source);
        self.is_open = true;
    }

    /// Ends the last part. Reasoning without text becomes a part here.
    fn close(&mut self, out: &mut Vec<Piece>) {
        if !std::mem::take(&mut self.is_open) {
            return;
        }
        // Calls and parts of the provider's own are pieces without an end.
        match self.parts.last() {
            Some(PartSource::Text(..)) => out.push(Piece::TextEnd(ProviderData::default())),
            Some(PartSource::Reasoning(_)) => {
                out.push(Piece::ReasoningEnd(ProviderData::default()))
            }
            _ => {}
        }
    }

    /// Moves items of unknown kinds to where the output has them: they are passed on when they end,
    /// and several run at once. What the consumer has seen keeps its order.
    fn sort(&self, message: &mut Message) {
        let mut last = 0;
        let mut positions = Vec::with_capacity(self.parts.len());
        for source in &self.parts {
            let (PartSource::Text(at, _)
            | PartSource::Reasoning(at)
            | PartSource::Call(at)
            | PartSource::Other(at)) = *source;
            let index = self.items[at].index.unwrap_or(last);
            if matches!(source, PartSource::Other(_)) {
                positions.push(index);
            } else {
                last = last.max(index);
                positions.push(last);
            }
        }
        // Asking for mutable parts copies them if they are shared.
        if positions.is_sorted() || positions.len() != message.parts().len() {
            return;
        }
        let parts = std::mem::take(message.parts_mut());
        let mut sorted: Vec<_> = positions.into_iter().zip(parts).collect();
        sorted.sort_by_key(|(position, _)| *position);
        message
            .parts_mut()
            .extend(sorted.into_iter().map(|(_, part)| part));
    }

    /// Adds to each part of the message what must be sent back with it.
    fn add_data(&self, message: &mut Message) {
        let data = self
            .parts
            .iter()
            .enumerate()
            .map(|(number, source)| match *source {
                PartSource::Text(at, position) => text_data(&self.items[at], position),
                // A part that was interrupted by another is sent back once.
                PartSource::Reasoning(_) if self.parts[..number].contains(source) => Map::new(),
                PartSource::Reasoning(at) => self.items[at].fields_without(&["type"]),
                PartSource::Call(at) => {
                    self.items[at].fields_without(&["type", "call_id", "name", "arguments"])
                }
                PartSource::Other(_) => Map::new(),
            });
        let data: Vec<_> = data.collect();
        if data.iter().all(Map::is_empty) {
            return;
        }
        // Each source began one part of the message, in this order.
        for (part, data) in message.parts_mut().iter_mut().zip(data) {
            let provider = match part {
                Part::Text(text) => &mut text.provider,
                Part::Reasoning(reasoning) => &mut reasoning.provider,
                Part::ToolCall(call) => &mut call.provider,
                _ => continue,
            };
            if !data.is_empty() {
                provider.set(PROVIDER, Value::Object(data));
            }
        }
    }
}

/// Returns the fields of a text's item and of the text itself, apart from one another.
fn text_data(item: &Item, position: TextPosition) -> Map<String, Value> {
    let mut data = Map::new();
    let fields = item.fields_without(&["type", "role", "content"]);
    if !fields.is_empty() {
        data.insert("item".into(), fields.into());
    }
    if let TextPosition::Content(at) = position {
        // Beside the fields of the content, as they are not sent back.
        if let Some(logprobs) = item.logprobs(at) {
            data.insert("logprobs".into(), logprobs.clone());
        }
        let fields = item.content_fields(at);
        if !fields.is_empty() {
            data.insert("content".into(), fields.into());
        }
    }
    data
}

/// Returns the text of a content part. A refusal is the answer's text under another name.
fn text_of(part: &Map<String, Value>) -> Option<&str> {
    ["text", "refusal"]
        .iter()
        .find_map(|name| part.get(*name)?.as_str())
}

fn is_refusal(part: &Map<String, Value>) -> bool {
    part.get("type").is_some_and(|kind| kind == "refusal")
}

/// Returns whether a position is in the list of those that have been shown, if any have been.
fn shows_same_list(shown: &[TextPosition], position: TextPosition) -> bool {
    let is_same = |first| std::mem::discriminant(first) == std::mem::discriminant(&position);
    shown.first().is_none_or(is_same)
}

fn id(item: &Map<String, Value>) -> String {
    item.get("id")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
