use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::media::image_type;
use super::provider::{CALL_IDS, PROVIDER, data};
use super::response::{
    BlockDeltaEvent, BlockStartEvent, ContentBlock, ConverseBlockDelta, ConverseResponse,
    ConverseUsage, MessageStopEvent, MetadataEvent, ReasoningDelta, ToolUse, fields,
};
use crate::json;
use crate::protocol::{BegunCalls, Decoder, Event, Fault, Progress, ending};
use tower_agent::message::{MediaSource, Metadata, Part, ProviderData, Usage};
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::stream::{Delta, Piece, Streamed};

/// Reads a response of Bedrock's Converse.
#[derive(Debug, Default)]
pub struct ConverseDecoder {
    usage: ConverseUsage,
    stop_reason: Option<String>,
    /// Data of the message.
    details: Map<String, Value>,
    /// The block that is being read.
    open: Option<OpenConverseBlock>,
    /// The tool call that each block is.
    call_blocks: HashMap<u64, usize>,
    calls: BegunCalls,
    /// A block has come that is kept as it is.
    has_other: bool,
}

/// A block that is being read.
#[derive(Debug)]
struct OpenConverseBlock {
    index: Option<u64>,
    content: OpenContent,
}

#[derive(Debug)]
enum OpenContent {
    Text {
        citations: Vec<Value>,
    },
    Reasoning {
        signature: String,
        redacted: Vec<u8>,
    },
    /// The index of the tool call.
    ToolUse(usize),
    /// A block that is kept as it is. `input` are the fragments of its arguments.
    Other {
        block: Map<String, Value>,
        input: String,
    },
}

impl ConverseDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            calls: BegunCalls::new(request),
            ..Self::default()
        }
    }
}

impl Decoder for ConverseDecoder {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        let json = event.data.as_bytes();
        match event.name.unwrap_or_default() {
            "contentBlockStart" => {
                let received: BlockStartEvent<'_> = json::read(json, "the start of a block")?;
                self.stop(out);
                if let Some(start) = received.start {
                    self.start(received.content_block_index, start, out)?;
                }
            }
            "contentBlockDelta" => {
                let received: BlockDeltaEvent<'_> = json::read(json, "a piece of a block")?;
                if let Some(delta) = received.delta {
                    self.delta(received.content_block_index, delta, out)?;
                }
            }
            "contentBlockStop" => self.stop(out),
            "messageStop" => {
                self.stop(out);
                let end: MessageStopEvent = json::read(json, "the end of the message")?;
                self.stop_reason = end.stop_reason;
                self.note(
                    "additionalModelResponseFields",
                    end.additional_model_response_fields,
                );
            }
            "metadata" => {
                let metadata: MetadataEvent = json::read(json, "the usage of the response")?;
                self.usage = metadata.usage;
                self.note("trace", metadata.trace);
                out.push(Piece::Usage(Usage::from(&self.usage)));
                self.complete(out)?;
                return Ok(Progress::Done);
            }
            // `messageStart`, and events that do not exist yet.
            _ => {}
        }
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let answer: ConverseResponse = json::read(body, "the response")?;
        let Some(message) = answer.output.message else {
            let missing = || Fault::protocol("the response has no message");
            return Err(Fault::from_json(body).unwrap_or_else(missing));
        };
        self.stop_reason = answer.stop_reason;
        self.usage = answer.usage;
        self.note(
            "additionalModelResponseFields",
            answer.additional_model_response_fields,
        );
        self.note("trace", answer.trace);
        for raw in message.content.unwrap_or_default() {
            self.block(&raw, out)?;
        }
        self.check_reason()
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let mut response = ModelResponse::from(streamed);
        let message = response.message_mut();
        CALL_IDS.keep(message);
        if !self.details.is_empty() {
            message
                .provider_mut()
                .set(PROVIDER, Value::Object(self.details));
        }
        let usage = Usage::from(&self.usage);
        let response = match ending::reason(self.stop_reason.as_deref()) {
            Some(reason) => response.with_finish_reason(reason),
            None => response,
        };
        response.with_usage(usage)
    }

    fn describe(&self, metadata: &mut Metadata) {
        metadata.long_cache_write_tokens = self.usage.long_cache_write_tokens();
    }
}

impl ConverseDecoder {
    /// Keeps what is said beside the message, if anything is.
    fn note(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            self.details.insert(name.to_owned(), value);
        }
    }

    fn complete(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        self.stop(out);
        // A stream of nothing but its usage is no empty answer.
        if self.stop_reason.is_none() {
            return Err(Fault::incomplete());
        }
        self.check_reason()
    }

    /// Fails for an answer that is none, by what its end says.
    fn check_reason(&self) -> Result<(), Fault> {
        // A block that is kept as it is may be a call that the server itself makes.
        let has_call = self.calls.has_any() || self.has_other;
        ending::check(self.stop_reason.as_deref(), has_call)
    }

    /// Reads a whole block.
    fn block(&mut self, raw: &RawValue, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let block: ContentBlock = read(raw, "a block of the response")?;
        if let Some(text) = block.text {
            push_text(text, out);
            out.push(Piece::TextEnd(ProviderData::default()));
        } else if let Some(cited) = block.citations_content {
            push_text(cited.content, out);
            let citations = cited.citations.unwrap_or_default();
            let citations = citations.as_array().cloned().unwrap_or_default();
            out.push(Piece::TextEnd(cited_data(citations)));
        } else if let Some(reasoning) = block.reasoning_content {
            let text = reasoning.reasoning_text.unwrap_or_default();
            let mut fields = Map::new();
            if let Some(signature) = text.signature {
                fields.insert("signature".into(), signature.into());
            }
            if let Some(redacted) = reasoning.redacted_content {
                fields.insert("redactedContent".into(), redacted.into());
            }
            push_reasoning(text.text, out);
            out.push(Piece::ReasoningEnd(data(fields)));
        } else if let Some(image) = block.image.filter(|image| !image.source.bytes.is_empty()) {
            let source = MediaSource::base64(image_type(&image.format), image.source.bytes);
            out.push(Part::image(source).into());
        } else if let Some(tool_use) = block.tool_use.filter(|call| call.r#type.is_none()) {
            let input = tool_use.input.as_ref().map(|input| input.get().to_owned());
            let call = self.call(tool_use, out)?;
            if let Some(json) = input.filter(|json| json != "{}" && json != "null") {
                out.push(Delta::Arguments { index: call, json }.into());
            }
        } else {
            let fields = fields(raw);
            if !fields.is_empty() {
                self.has_other = true;
                out.push(Part::Provider(data(fields)).into());
            }
        }
        Ok(())
    }

    /// Begins a tool call and returns its index.
    fn call(&mut self, tool_use: ToolUse, out: &mut Vec<Piece>) -> Result<usize, Fault> {
        if tool_use.name.is_empty() {
            return Err(Fault::nameless_call());
        }
        let (index, id) = self.calls.begin(tool_use.tool_use_id);
        let name = tool_use.name.into();
        out.push(Delta::ToolCall { index, id, name }.into());
        Ok(index)
    }

    fn start(
        &mut self,
        index: Option<u64>,
        raw: &RawValue,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let start: ContentBlock = read(raw, "the start of a block")?;
        let content = match start.tool_use {
            Some(tool_use) if tool_use.r#type.is_none() => {
                let call = self.call(tool_use, out)?;
                if let Some(index) = index {
                    self.call_blocks.insert(index, call);
                }
                OpenContent::ToolUse(call)
            }
            _ => {
                let block = fields(raw);
                // Only servers that imitate the protocol say that text begins; its pieces say it
                // again.
                let is_said_by_pieces =
                    |kind: &String| kind == "text" || kind == "reasoningContent";
                if block.keys().all(is_said_by_pieces) {
                    return Ok(());
                }
                self.has_other = true;
                OpenContent::Other {
                    block,
                    input: String::new(),
                }
            }
        };
        self.open = Some(OpenConverseBlock { index, content });
        Ok(())
    }

    fn delta(
        &mut self,
        index: Option<u64>,
        raw: &RawValue,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let is_of_open = self.open.as_ref().is_some_and(|open| open.index == index);
        // Before its kind is read: the deltas of a block that does not exist yet are added blindly.
        if is_of_open && let Some(OpenContent::Other { block, input }) = self.content() {
            add(block, input, fields(raw));
            return Ok(());
        }
        let delta: ConverseBlockDelta = read(raw, "a piece of a block")?;
        if let Some(piece) = delta.tool_use.filter(|piece| !piece.input.is_empty()) {
            return self.arguments(index, piece.input, out);
        }
        // A block of text or of reasoning has no start, and some servers send no end.
        if !is_of_open {
            self.stop(out);
        }
        if let Some(text) = delta.text {
            self.text(index, None, out);
            push_text(text, out);
        }
        if let Some(citation) = delta.citation.filter(|citation| !citation.is_null()) {
            self.text(index, Some(citation), out);
        }
        if let Some(piece) = delta.reasoning_content {
            self.reasoning(index, piece, out)?;
        }
        Ok(())
    }

    /// Passes on a fragment of arguments: of the call that its index names, or else of the open
    /// one.
    fn arguments(
        &mut self,
        index: Option<u64>,
        json: String,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let named = index.and_then(|index| self.call_blocks.get(&index).copied());
        let call = match (named, self.content()) {
            (Some(call), _) => call,
            (None, Some(OpenContent::ToolUse(call))) => *call,
            (None, _) => return Err(Fault::unstarted_call()),
        };
        out.push(Delta::Arguments { index: call, json }.into());
        Ok(())
    }

    fn content(&mut self) -> Option<&mut OpenContent> {
        self.open.as_mut().map(|open| &mut open.content)
    }

    /// Continues the open text, or begins one.
    fn text(&mut self, index: Option<u64>, citation: Option<Value>, out: &mut Vec<Piece>) {
        if !matches!(self.content(), Some(OpenContent::Text { .. })) {
            self.stop(out);
            let content = OpenContent::Text {
                citations: Vec::new(),
            };
            self.open = Some(OpenConverseBlock { index, content });
        }
        if let Some(OpenContent::Text { citations }) = self.content() {
            citations.extend(citation);
        }
    }

    /// Continues the open reasoning, or begins one.
    fn reasoning(
        &mut self,
        index: Option<u64>,
        piece: ReasoningDelta,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        if !matches!(self.content(), Some(OpenContent::Reasoning { .. })) {
            self.stop(out);
            let content = OpenContent::Reasoning {
                signature: String::new(),
                redacted: Vec::new(),
            };
            self.open = Some(OpenConverseBlock { index, content });
        }
        push_reasoning(piece.text, out);
        if let Some(OpenContent::Reasoning {
            signature,
            redacted,
        }) = self.content()
        {
            signature.push_str(&piece.signature.unwrap_or_default());
            let more = STANDARD.decode(piece.redacted_content.unwrap_or_default());
            let more = more.map_err(|error| {
                Fault::protocol(format!("hidden reasoning is not valid base64: {error}"))
            })?;
            redacted.extend(more);
        }
        Ok(())
    }

    /// Ends the block that is being read.
    fn stop(&mut self, out: &mut Vec<Piece>) {
        let Some(open) = self.open.take() else { return };
        match open.content {
            OpenContent::Text { citations } => out.push(Piece::TextEnd(cited_data(citations))),
            OpenContent::Reasoning {
                signature,
                redacted,
            } => {
                let mut fields = Map::new();
                if !signature.is_empty() {
                    fields.insert("signature".into(), signature.into());
                }
                if !redacted.is_empty() {
                    fields.insert("redactedContent".into(), STANDARD.encode(redacted).into());
                }
                out.push(Piece::ReasoningEnd(data(fields)));
            }
            OpenContent::ToolUse(_) => {}
            OpenContent::Other { block, input } => {
                let block = with_input(block, input);
                let image = block.get("image").and_then(image);
                out.push(match image {
                    Some(source) => Part::image(source).into(),
                    None => Part::Provider(data(block)).into(),
                });
            }
        }
    }
}

/// Returns the image in a block, if it has the bytes of one.
fn image(block: &Value) -> Option<MediaSource> {
    let format = block["format"].as_str()?;
    let bytes = block["source"]["bytes"].as_str()?;
    Some(MediaSource::base64(image_type(format), bytes))
}

/// Returns a block with the arguments that came in fragments.
fn with_input(mut block: Map<String, Value>, input: String) -> Map<String, Value> {
    if input.is_empty() {
        return block;
    }
    // Fragments that were cut off are kept as the text that they are.
    let input = serde_json::from_str(&input).unwrap_or(Value::String(input));
    if let Some(Value::Object(tool_use)) = block.get_mut("toolUse") {
        tool_use.insert("input".into(), input);
    }
    block
}

/// Adds a piece to a block of the same kind: a list to its content, and text to the text.
fn add(block: &mut Map<String, Value>, input: &mut String, piece: Map<String, Value>) {
    for (kind, piece) in piece {
        let whole = block
            .entry(kind)
            .or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(whole) = whole else {
            continue;
        };
        match piece {
            // The contents of the result of a tool that the server has run.
            Value::Array(more) => {
                let content = whole
                    .entry("content")
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(content) = content {
                    content.extend(more);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    match (whole.get_mut(&name), value) {
                        (_, Value::String(more)) if name == "input" => input.push_str(&more),
                        (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
                        (_, value) => drop(whole.insert(name, value)),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Returns the data of a text with these citations. Plain text gets none, not even an empty object.
fn cited_data(citations: Vec<Value>) -> ProviderData {
    if citations.is_empty() {
        return ProviderData::default();
    }
    data(Map::from_iter([("citations".to_owned(), citations.into())]))
}

fn push_text(text: String, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(Delta::Text(text).into());
    }
}

fn push_reasoning(text: String, out: &mut Vec<Piece>) {
    if !text.is_empty() {
        out.push(Delta::Reasoning(text).into());
    }
}

fn read<T: serde::de::DeserializeOwned>(raw: &RawValue, what: &str) -> Result<T, Fault> {
    json::read_text(raw.get(), what)
}
