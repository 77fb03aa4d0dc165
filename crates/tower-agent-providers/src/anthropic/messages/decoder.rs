use std::collections::HashMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::data::data;
use super::provider::{CALL_IDS, PROVIDER};
use super::response::{
    self, Block, BlockDelta, Ending, MessagesEvent, MessagesResponse, MessagesUsage, fields,
    fields_beside,
};
use crate::json;
use crate::protocol::{BegunCalls, Decoder, Event, Fault, Progress, ending};
use tower_agent::message::{Metadata, Part, ProviderData};
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::stream::{self, Piece, Streamed};

/// Reads a response of Anthropic's Messages API.
#[derive(Debug, Default)]
pub struct MessagesReader {
    id: Option<String>,
    model: Option<String>,
    usage: MessagesUsage,
    stop_reason: Option<String>,
    /// Data of the message.
    details: Map<String, Value>,
    has_begun: bool,
    /// A block has come that is kept as it is.
    has_other: bool,
    /// The block that is being read.
    open: Option<OpenBlock>,
    /// The tool call that each block is.
    calls: HashMap<u64, usize>,
    /// The further fields of tool calls, which must be sent back.
    extra: Vec<(Arc<str>, Map<String, Value>)>,
    begun: BegunCalls,
}

/// A block that is being read.
#[derive(Debug)]
enum OpenBlock {
    Text {
        fields: Map<String, Value>,
    },
    Thinking {
        fields: Map<String, Value>,
    },
    /// `whole` are the arguments if no fragments follow.
    ToolUse {
        call: usize,
        whole: Option<String>,
    },
    /// A block that is kept as it is. `input` are the fragments of its arguments.
    Other {
        block: Map<String, Value>,
        input: String,
    },
}

impl MessagesReader {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            begun: BegunCalls::new(request),
            ..Self::default()
        }
    }
}

impl Decoder for MessagesReader {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        // By the event's name first: the data of an error may not be JSON at all.
        let received: MessagesEvent<'_> = match event.name {
            Some("error") => return Err(reported(event.data)),
            _ => json::read_text(event.data, "an event of the response")?,
        };
        if received.error.is_some_and(|error| !error.is_null()) {
            return Err(reported(event.data));
        }
        match received.r#type.as_deref().or(event.name) {
            Some("error") => return Err(reported(event.data)),
            Some("message_start") => {
                // A gateway that asked again: the calls of both would be made.
                if self.has_begun {
                    let why = "the server began a second answer in one stream";
                    return Err(Fault::protocol(why));
                }
                let answer = received.message.unwrap_or_default();
                self.has_begun = true;
                self.answer(*answer, out)?;
                // The prompt's tokens are told here, for an answer that is cut off.
                out.push(Piece::Usage(self.usage.into()));
            }
            Some("content_block_start") => {
                if let Some(block) = received.content_block {
                    self.start(received.index, block, out)?;
                }
            }
            Some("content_block_delta") => {
                if let Some(delta) = received.delta {
                    self.delta(received.index, delta, out)?;
                }
            }
            Some("content_block_stop") => self.stop(out),
            Some("message_delta") => {
                // Some servers do not send the end of the last block.
                self.stop(out);
                let ending = received
                    .delta
                    .map(|delta| read(delta, "the end of the message"));
                self.ended(ending.transpose()?.unwrap_or_default());
                let answer = received.message.map(|answer| answer.usage);
                let usage = received.usage.map(|usage| *usage).or(answer);
                self.usage.update(usage.unwrap_or_default());
                out.push(Piece::Usage(self.usage.into()));
            }
            Some("message_stop") => {
                // Some servers tell it only here.
                let answer = received.message.map(|answer| answer.usage);
                if let Some(usage) = received.usage.map(|usage| *usage).or(answer) {
                    self.usage.update(usage);
                }
                self.complete(out)?;
                return Ok(Progress::Done);
            }
            // `ping`, and events that do not exist yet.
            _ => {}
        }
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let answer: MessagesResponse = json::read(body, "the response")?;
        if answer.error.as_ref().is_some_and(|error| !error.is_null()) {
            return Err(response::fault(body).unwrap_or_else(Fault::incomplete));
        }
        self.has_begun = answer.content.is_some();
        self.answer(answer, out)?;
        self.complete(out)
    }

    /// Some servers send no `message_stop`; a stop reason is enough.
    fn end(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        match self.stop_reason {
            Some(_) => self.complete(out),
            None => Err(Fault::incomplete()),
        }
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let mut response = ModelResponse::from(streamed);
        let message = response.message_mut();
        // Asking for mutable parts copies them if they are shared, and most answers have none of
        // these.
        if !self.extra.is_empty() {
            for part in message.parts_mut() {
                let Part::ToolCall(call) = part else { continue };
                if let Some((_, fields)) = self.extra.iter().find(|(id, _)| *id == call.id) {
                    call.provider.set(PROVIDER, Value::Object(fields.clone()));
                }
            }
        }
        CALL_IDS.keep(message);
        // Read first, since asking for mutable parts copies them if they are shared.
        if message.parts().last().is_some_and(is_unsigned)
            && let Some(Part::Reasoning(last)) = message.parts_mut().last_mut()
        {
            // Reasoning that was cut off would be rejected.
            last.provider = ProviderData::default();
        }
        if !self.details.is_empty() {
            message
                .provider_mut()
                .set(PROVIDER, Value::Object(self.details));
        }
        let response = match ending::reason(self.stop_reason.as_deref()) {
            Some(reason) => response.with_finish_reason(reason),
            None => response,
        };
        response.with_usage(self.usage.into())
    }

    fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    fn describe(&self, metadata: &mut Metadata) {
        metadata.long_cache_write_tokens = self.usage.long_cache_write_tokens();
    }
}

impl MessagesReader {
    fn answer(&mut self, answer: MessagesResponse, out: &mut Vec<Piece>) -> Result<(), Fault> {
        self.id = answer.id.or(self.id.take());
        self.model = answer.model.or(self.model.take());
        self.usage.update(answer.usage);
        self.ended(answer.ending);
        for (index, block) in (0..).zip(answer.content.unwrap_or_default()) {
            self.start(Some(index), &block, out)?;
            self.stop(out);
        }
        Ok(())
    }

    fn ended(&mut self, ending: Ending) {
        self.stop_reason = ending.stop_reason.or(self.stop_reason.take());
        let details = [
            ("container", ending.container),
            ("stop_details", ending.stop_details),
        ];
        for (name, value) in details {
            if let Some(value) = value.filter(|value| !value.is_null()) {
                self.details.insert(name.into(), value);
            }
        }
    }

    fn complete(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        self.stop(out);
        // A stream of nothing but `message_stop` is no empty answer.
        if !self.has_begun {
            return Err(Fault::protocol("the response has no message"));
        }
        // A block that is kept as it is may be a call that the server itself makes.
        let has_call = self.begun.has_any() || self.has_other;
        ending::check(self.stop_reason.as_deref(), has_call)
    }

    fn start(
        &mut self,
        index: Option<u64>,
        raw: &RawValue,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        // Some servers do not send the end of a block.
        self.stop(out);
        self.has_begun = true;
        let block: Block = read(raw, "a block of the response")?;
        self.open = Some(match &*block.r#type {
            "text" => {
                push_text(block.text, out);
                let mut fields = fields_beside(&["type", "text"], raw);
                fields.retain(|_, value| value.as_array().is_none_or(|list| !list.is_empty()));
                OpenBlock::Text { fields }
            }
            "thinking" => {
                push_thinking(block.thinking, out);
                OpenBlock::Thinking {
                    fields: fields_beside(&["type", "thinking"], raw),
                }
            }
            "redacted_thinking" => {
                // It comes whole, so that no block stays open.
                out.push(Piece::ReasoningEnd(data(fields(raw))));
                return Ok(());
            }
            "tool_use" => {
                if block.name.is_empty() {
                    return Err(Fault::nameless_call());
                }
                let (call, id) = self.begun.begin(block.id);
                if let Some(index) = index {
                    self.calls.insert(index, call);
                }
                let fields = fields_beside(&["type", "id", "name", "input"], raw);
                if !fields.is_empty() {
                    self.extra.push((id.clone(), fields));
                }
                let name = block.name.into();
                out.push(
                    stream::Delta::ToolCall {
                        index: call,
                        id,
                        name,
                    }
                    .into(),
                );
                // A stream begins with `{}` and sends the arguments in fragments. Other servers
                // send them whole here, which is known only once the block ends without a fragment.
                let whole = block.input.map(|input| input.get().to_owned());
                OpenBlock::ToolUse {
                    call,
                    whole: whole.filter(|json| json != "{}" && json != "null"),
                }
            }
            _ => {
                self.has_other = true;
                OpenBlock::Other {
                    block: fields(raw),
                    input: String::new(),
                }
            }
        });
        Ok(())
    }

    fn delta(
        &mut self,
        index: Option<u64>,
        raw: &RawValue,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        // Before its kind is read: the deltas of a block that does not exist yet are added blindly.
        if let Some(OpenBlock::Other { block, input }) = &mut self.open {
            add(block, input, fields_beside(&["type"], raw));
            return Ok(());
        }
        let delta: BlockDelta = read(raw, "a piece of the response")?;
        match delta.r#type.as_deref().unwrap_or_default() {
            "text_delta" => push_text(delta.text, out),
            "thinking_delta" => push_thinking(delta.thinking, out),
            "signature_delta" if !delta.signature.is_empty() => {
                if let Some(OpenBlock::Thinking { fields }) = &mut self.open {
                    fields.insert("signature".into(), delta.signature.into());
                }
            }
            "citations_delta" => {
                if let (Some(OpenBlock::Text { fields }), Some(citation)) =
                    (&mut self.open, delta.citation)
                {
                    let all = fields
                        .entry("citations")
                        .or_insert_with(|| Value::Array(Vec::new()));
                    if let Value::Array(all) = all {
                        all.push(citation);
                    }
                }
            }
            "input_json_delta" => self.arguments(index, delta.partial_json, out)?,
            // Pieces that do not exist yet.
            _ => {}
        }
        Ok(())
    }

    fn arguments(
        &mut self,
        index: Option<u64>,
        json: String,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        if json.is_empty() {
            return Ok(());
        }
        // Fragments of two calls may be mixed; without an index they belong to the open one.
        let known = index.and_then(|index| self.calls.get(&index).copied());
        let call = match &mut self.open {
            Some(OpenBlock::ToolUse { call, whole })
                if known.is_none_or(|known| known == *call) =>
            {
                *whole = None;
                *call
            }
            _ => known.ok_or_else(Fault::unstarted_call)?,
        };
        out.push(stream::Delta::Arguments { index: call, json }.into());
        Ok(())
    }

    /// Ends the block that is being read.
    fn stop(&mut self, out: &mut Vec<Piece>) {
        match self.open.take() {
            None => {}
            // Plain text gets no data, not even an empty object.
            Some(OpenBlock::Text { fields }) if fields.is_empty() => {
                out.push(Piece::TextEnd(ProviderData::default()));
            }
            Some(OpenBlock::Text { fields }) => out.push(Piece::TextEnd(data(fields))),
            Some(OpenBlock::Thinking { fields }) => out.push(Piece::ReasoningEnd(data(fields))),
            Some(OpenBlock::ToolUse { whole: None, .. }) => {}
            Some(OpenBlock::ToolUse {
                call,
                whole: Some(json),
            }) => {
                out.push(stream::Delta::Arguments { index: call, json }.into());
            }
            Some(OpenBlock::Other { mut block, input }) => {
                if !input.is_empty() {
                    // Fragments that were cut off are kept as the text that they are.
                    let input = serde_json::from_str(&input).unwrap_or(Value::String(input));
                    block.insert("input".into(), input);
                }
                out.push(Part::Provider(data(block)).into());
            }
        }
    }
}

/// Adds a piece to a block of an unknown kind: text is appended, anything else is set.
fn add(block: &mut Map<String, Value>, input: &mut String, piece: Map<String, Value>) {
    for (name, value) in piece {
        match (block.get_mut(&name), value) {
            (_, Value::String(more)) if name == "partial_json" => input.push_str(&more),
            (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (_, value) => drop(block.insert(name, value)),
        }
    }
}

fn push_text(text: String, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(stream::Delta::Text(text).into());
    }
}

fn push_thinking(text: String, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(stream::Delta::Reasoning(text).into());
    }
}

/// Returns whether a part is reasoning without a signature, which is sent last.
fn is_unsigned(part: &Part) -> bool {
    let Part::Reasoning(reasoning) = part else {
        return false;
    };
    let Some(fields) = reasoning.provider.get(PROVIDER) else {
        return false;
    };
    !fields["type"].is_string() && fields["signature"].as_str().is_none_or(str::is_empty)
}

fn read<T: serde::de::DeserializeOwned>(raw: &RawValue, what: &str) -> Result<T, Fault> {
    json::read_text(raw.get(), what)
}

fn reported(data: &str) -> Fault {
    response::fault(data.as_bytes()).unwrap_or_else(|| Fault::reported(data))
}
