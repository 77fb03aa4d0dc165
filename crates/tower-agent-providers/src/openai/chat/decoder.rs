use serde_json::{Map, Value, json};

use super::about::{self, About};
use super::content::{Content, ContentPart};
use super::details::Details;
use super::own_media::OwnMedia;
use super::provider::{ABOUT, CALL_IDS, PROVIDER, ReceivedField, added, own};
use super::rejected_call::rejected_calls;
use super::response::{ChatCompletion, ChatMessage};
use super::tool_calls::ToolCalls;
use super::usage::CompletionUsage;
use crate::json::{self, Choices};
use crate::protocol::{Decoder, Event, Fault, Progress, ending, keep};
use tower_agent::message::{Metadata, Part};
use tower_agent::model::{FinishReason, ModelRequest, ModelResponse, Settings};
use tower_agent::stream::{Delta, Piece, Streamed};

/// Reads a response of chat completions.
#[derive(Debug)]
pub struct ChatReader {
    id: Option<String>,
    model: Option<String>,
    calls: ToolCalls,
    details: Details,
    /// The fields of the message that go back as they came.
    opaque: Map<String, Value>,
    about: About,
    media: OwnMedia,
    /// The last piece was reasoning.
    is_thinking: bool,
    /// The field in which the server sends reasoning.
    reasoning_field: Option<ReceivedField>,
    usage: Option<CompletionUsage>,
    /// The request asked for the usage of a stream.
    wants_usage: bool,
    /// The response ended before the usage.
    is_cut: bool,
    /// The server rejected a call of the model: the call is the answer, and nothing follows.
    is_rejected: bool,
    finish_reason: Option<String>,
    has_choice: bool,
    is_refusal: bool,
}

impl ChatReader {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            id: None,
            model: None,
            calls: ToolCalls::new(request.messages().len()),
            details: Details::default(),
            opaque: Map::new(),
            about: About::default(),
            media: OwnMedia::new(request.settings()),
            is_thinking: false,
            reasoning_field: None,
            usage: None,
            wants_usage: wants_usage(request.settings()),
            is_cut: false,
            is_rejected: false,
            finish_reason: None,
            has_choice: false,
            is_refusal: false,
        }
    }
}

impl Decoder for ChatReader {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        match event.data {
            // Not the finish reason: the usage comes in a chunk after it.
            "[DONE]" => {
                self.complete(out)?;
                return Ok(Progress::Done);
            }
            data if event.name == Some("error") => self.rejected(data.as_bytes(), out)?,
            data => {
                let mut chunk = ChatCompletion::default();
                json::read_text_into(data, "a chunk of the response", &mut chunk)?;
                self.read(data.as_bytes(), &mut chunk, out)?;
                let choice = &mut chunk.choices.first;
                // Some servers send a whole message in the chunks of a stream, and Perplexity the
                // message so far beside each delta.
                let delta = choice.delta.as_mut().or(choice.message.as_deref_mut());
                if let Some(delta) = delta {
                    self.message(delta, out);
                }
            }
        }
        if self.is_rejected {
            self.complete(out)?;
            return Ok(Progress::Done);
        }
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let mut completion = ChatCompletion::default();
        json::read_into(body, "the response", &mut completion)?;
        self.read(body, &mut completion, out)?;
        let choice = completion.choices.first;
        // Some servers send a delta in a plain response, and Perplexity an empty one beside the
        // message.
        let message = choice.message.map(|message| *message);
        let mut message = message.or(choice.delta).unwrap_or_default();
        // Each is complete, whatever its number: two calls with the same one are not pieces of one.
        let calls = std::mem::take(&mut message.tool_calls);
        self.message(&mut message, out);
        self.end_thinking(out);
        for call in calls {
            self.calls.push_whole(call, out);
        }
        self.complete(out)
    }

    /// Some servers send no `[DONE]`; a finish reason is enough.
    fn end(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        match self.finish_reason {
            Some(_) => {
                self.is_cut = self.wants_usage && self.usage.is_none();
                self.complete(out)
            }
            None => Err(Fault::incomplete()),
        }
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let mut response = ModelResponse::from(streamed);
        for (id, extra) in self.calls.extra_contents() {
            for part in response.message_mut().parts_mut() {
                match part {
                    Part::ToolCall(call) if *call.id == *id => {
                        call.provider
                            .set(PROVIDER, json!({ "extra_content": extra }));
                    }
                    _ => {}
                }
            }
        }
        CALL_IDS.keep(response.message_mut());
        let mut fields = self.opaque;
        if let Some(about) = self.about.into_value() {
            fields.insert(ABOUT.into(), about);
        }
        if !fields.is_empty() {
            let provider = response.message_mut().provider_mut();
            provider.set(PROVIDER, Value::Object(fields));
        }
        // Some servers send `stop` beside tool calls; the message itself decides then.
        let reason = match ending::reason(self.finish_reason.as_deref()) {
            None if self.is_refusal => Some(FinishReason::Refusal),
            reason => reason,
        };
        let response = match reason {
            Some(reason) => response.with_finish_reason(reason),
            None => response,
        };
        response.with_usage(self.usage.unwrap_or_default().into())
    }

    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn describe(&self, metadata: &mut Metadata) {
        metadata.is_cut = self.is_cut;
        metadata.cost = self.usage.and_then(|usage| usage.cost());
    }
}

/// Returns whether the usage of a stream is requested, which it is unless the caller's fields say
/// otherwise.
fn wants_usage(settings: &Settings) -> bool {
    match settings.extra.get("stream_options") {
        None => true,
        Some(Value::Object(options)) => {
            let include = options.get("include_usage");
            include.is_none_or(|include| *include == true)
        }
        Some(_) => false,
    }
}

impl ChatReader {
    fn complete(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        if !self.has_choice {
            return Err(Fault::protocol("the response has no choices"));
        }
        self.end_thinking(out);
        out.extend(self.media.take().into_iter().map(Piece::Part));
        let word = self.finish_reason.as_deref();
        self.calls.end(ending::is_cut(word), out)?;
        ending::check(word, !self.calls.is_empty())
    }

    /// Reads what a response or a chunk has beside the message of its first choice.
    fn read(
        &mut self,
        json: &[u8],
        completion: &mut ChatCompletion<'_>,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        // Before the error, so that its report names the request and the model.
        keep(&mut self.id, completion.id.as_deref());
        keep(&mut self.model, completion.model.as_deref());
        if completion.error.is_some() || completion.object.as_deref() == Some("error") {
            // A field beside an error is no part of an answer.
            completion.choices = Choices::default();
            return self.rejected(json, out);
        }
        if let Some(usage) = completion.take_usage() {
            self.usage = Some(usage);
            // Some servers tell it in every chunk, which counts if the rest does not come.
            out.push(Piece::Usage(usage.into()));
        }
        if about::has_more(completion) {
            self.beside(json, out);
        }
        // The chunk with the usage has no choice.
        if !completion.choices.has_first {
            return Ok(());
        }
        let choice = &completion.choices.first;
        if let Some(error) = &choice.error {
            return Err(Fault::of(error, &Value::Null));
        }
        self.has_choice = true;
        match choice.finish_reason.as_deref() {
            None | Some("") => {}
            Some(word) => keep(&mut self.finish_reason, Some(word)),
        }
        Ok(())
    }

    /// Reads an error: a call that the server rejected is given to the caller, which says to the
    /// model what is wrong with it.
    fn rejected(&mut self, json: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let Ok(whole) = serde_json::from_slice(json) else {
            return Err(Fault::new(String::from_utf8_lossy(json).into_owned()));
        };
        let calls = rejected_calls(&whole);
        // A call that was passed on in part cannot be taken back.
        if calls.is_empty() || !self.calls.is_empty() {
            return Err(Fault::read(&whole).unwrap_or_else(|| Fault::of(&whole, &whole)));
        }
        self.end_thinking(out);
        for call in calls {
            self.calls.push_whole(call, out);
        }
        self.has_choice = true;
        self.is_rejected = true;
        // The error says nothing of the tokens, which are charged.
        self.is_cut = true;
        Ok(())
    }

    /// Reads what a response or a chunk has beside text, reasoning and calls.
    fn beside(&mut self, json: &[u8], out: &mut Vec<Piece>) {
        let whole: Value = serde_json::from_slice(json).unwrap_or_default();
        let message = about::message(&whole);
        self.about.add(&whole, message);
        self.media.add_images(message);
        self.media.add_audio(message);
        let transcript = message["audio"]["transcript"].as_str();
        self.say(transcript.unwrap_or_default(), out);
    }

    fn message(&mut self, message: &mut ChatMessage<'_>, out: &mut Vec<Piece>) {
        if !message.reasoning_content.is_empty() {
            // Servers that send both take this one.
            self.reasoning_field = Some(ReceivedField::ReasoningContent);
        } else if !message.reasoning.is_empty() {
            self.reasoning_field.get_or_insert(ReceivedField::Reasoning);
        } else if !message.reasoning_text.is_empty() {
            (self.reasoning_field).get_or_insert(ReceivedField::ReasoningText);
        }
        for (name, value) in message.opaque.drain(..) {
            self.keep_opaque(name, value);
        }
        let thought = message.take_thoughts();
        if !thought.is_empty() {
            self.think(thought, out);
        }
        for detail in message.reasoning_details.drain(..) {
            // Encrypted reasoning has no text, and is a part all the same.
            self.is_thinking = true;
            self.details.push(detail);
        }
        // The model refuses in words of its own, which are its answer.
        self.is_refusal |= !message.refusal.is_empty();
        match &message.content {
            Content::Text(text) => self.say(text, out),
            Content::Parts(parts) => {
                for part in parts {
                    match part {
                        ContentPart::Text(text) => self.say(text, out),
                        ContentPart::Thought(thought) => self.think(thought.clone(), out),
                    }
                }
            }
        }
        self.say(&message.refusal, out);
        for piece in message.tool_calls.drain(..) {
            self.end_thinking(out);
            self.calls.push(piece, out);
        }
    }

    /// Keeps a field that goes back as it came, or adds the next piece of it.
    fn keep_opaque(&mut self, name: &str, value: Value) {
        match (self.opaque.get_mut(name), value) {
            (_, Value::Null) => {}
            (Some(Value::Object(fields)), Value::Object(more)) => fields.extend(more),
            (known, Value::Array(more)) => {
                let mut list = match known.map(Value::take) {
                    Some(Value::Array(earlier)) => Details::from(earlier),
                    _ => Details::default(),
                };
                more.into_iter().for_each(|item| list.push(item));
                if let Some(list) = list.into_value() {
                    self.opaque.insert(name.into(), list);
                }
            }
            (_, value) => drop(self.opaque.insert(name.into(), value)),
        }
    }

    fn think(&mut self, thought: String, out: &mut Vec<Piece>) {
        self.is_thinking = true;
        out.push(Delta::Reasoning(thought).into());
    }

    fn say(&mut self, text: &str, out: &mut Vec<Piece>) {
        if !text.is_empty() {
            self.end_thinking(out);
            out.push(Delta::Text(text.to_owned()).into());
        }
    }

    /// Ends a part of reasoning. It is marked as that of a server of this protocol, so that it is
    /// sent back, and carries its details and what only the server can read: a guard that changes
    /// its text then drops them as well.
    fn end_thinking(&mut self, out: &mut Vec<Piece>) {
        if !std::mem::take(&mut self.is_thinking) {
            return;
        }
        let details = std::mem::take(&mut self.details);
        let mut data = own(details.into_value(), self.reasoning_field);
        if !self.opaque.is_empty() {
            let mut fields = std::mem::take(&mut self.opaque);
            fields.extend(added(&data).cloned().unwrap_or_default());
            data.set(PROVIDER, Value::Object(fields));
        }
        out.push(Piece::ReasoningEnd(data));
    }
}
