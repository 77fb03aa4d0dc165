use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::fault::{self, failure};
use super::super::media;
use super::provider::PROVIDER;
use super::response::{
    Blob, Candidate, FunctionCall, GenerateContentResponse, ReadPart, UsageMetadata,
};
use crate::json;
use crate::protocol::{BegunCalls, Decoder, Event, Fault, Progress, ending, keep};
use tower_agent::message::{MediaSource, Part, ProviderData, ToolCall, whole_characters};
use tower_agent::model::{FinishReason, ModelRequest, ModelResponse};
use tower_agent::stream::{Delta, Piece, Streamed};

/// Reads a response of `generateContent` or `streamGenerateContent`.
#[derive(Debug, Default)]
pub struct GenerateContentReader {
    id: Option<String>,
    model: Option<String>,
    usage: UsageMetadata,
    finish_reason: Option<String>,
    has_candidate: bool,
    is_prompt_blocked: bool,
    /// Facts about the response, which become the data of its message.
    about: Map<String, Value>,
    /// The part without a signature that the last delta belongs to.
    open: Option<OpenPart>,
    calls: BegunCalls,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenPart {
    Text,
    Reasoning,
}

impl OpenPart {
    /// Returns the piece that ends such a part.
    fn end(self, data: ProviderData) -> Piece {
        match self {
            Self::Text => Piece::TextEnd(data),
            Self::Reasoning => Piece::ReasoningEnd(data),
        }
    }
}

impl GenerateContentReader {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            calls: BegunCalls::new(request),
            ..Self::default()
        }
    }
}

impl Decoder for GenerateContentReader {
    /// The protocol has no last event: what counts is a finish reason.
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        match event.data {
            "[DONE]" => {
                self.end(out)?;
                return Ok(Progress::Done);
            }
            data if event.name == Some("error") => {
                return Err(fault::read(data.as_bytes()).unwrap_or_else(|| Fault::reported(data)));
            }
            data => self.read(data, "a chunk of the response", out)?,
        }
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let body = str::from_utf8(body)
            .map_err(|error| Fault::protocol(format!("cannot read the response: {error}")))?;
        self.read(body, "the response", out)?;
        // A blocked prompt has no candidates, and is an answer.
        if self.has_candidate || self.is_prompt_blocked {
            self.check_reason()
        } else {
            Err(Fault::protocol("the response has no candidates"))
        }
    }

    fn end(&mut self, _: &mut Vec<Piece>) -> Result<(), Fault> {
        if self.finish_reason.is_some() || self.is_prompt_blocked {
            self.check_reason()
        } else {
            Err(Fault::incomplete())
        }
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let mut response = ModelResponse::from(streamed).with_usage(self.usage.total());
        if !self.about.is_empty() {
            let data = Value::Object(self.about);
            response.message_mut().provider_mut().set(PROVIDER, data);
        }
        let reason = match self.finish_reason.as_deref() {
            _ if self.is_prompt_blocked => FinishReason::ContentFilter,
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

impl GenerateContentReader {
    fn check_reason(&self) -> Result<(), Fault> {
        ending::check(self.finish_reason.as_deref(), self.calls.has_any())
    }

    /// Reads a chunk. A stream without `alt=sse`, which a proxy may drop, is an array of them.
    fn read(&mut self, json: &str, what: &str, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let chunks: Vec<&RawValue> = if json.trim_ascii_start().starts_with('[') {
            // Mended first, since the chunks before a broken one cannot be taken back.
            if let Some(mended) = whole_characters(json) {
                return self.read(&mended, what, out);
            }
            serde_json::from_str(json).unwrap_or_default()
        } else {
            Vec::new()
        };
        if chunks.is_empty() {
            return self.chunk(json, what, out);
        }
        chunks
            .iter()
            .try_for_each(|chunk| self.chunk(chunk.get(), what, out))
    }

    fn chunk(&mut self, json: &str, what: &str, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let mut answer = GenerateContentResponse::default();
        json::read_text_into(json, what, &mut answer)?;
        keep(&mut self.id, answer.response_id.as_deref());
        keep(&mut self.model, answer.model_version.as_deref());
        if let Some(error) = answer.error.filter(|error| !error.is_null()) {
            let fault = fault::read(json.as_bytes());
            return Err(fault.unwrap_or_else(|| Fault::of(&error, &Value::Null)));
        }
        if let Some(usage) = answer.usage_metadata {
            self.usage.set(usage);
            out.push(Piece::Usage(self.usage.total()));
        }
        if let Some(feedback) = answer.prompt_feedback {
            self.is_prompt_blocked |= feedback
                .get("blockReason")
                .is_some_and(|reason| is_reason(reason.as_str()));
            if self.is_prompt_blocked {
                self.about.insert("promptFeedback".into(), feedback.into());
            }
        }
        let candidates = answer.candidates;
        if candidates.has_others || candidates.first.has_logprobs {
            self.beside(json);
        }
        if candidates.has_first {
            self.candidate(candidates.first, out)?;
        }
        Ok(())
    }

    /// Reads what a chunk has beside the candidate that becomes the message.
    fn beside(&mut self, json: &str) {
        let whole: Value = serde_json::from_str(json).unwrap_or_default();
        for candidate in whole["candidates"].as_array().into_iter().flatten() {
            if candidate["index"].as_u64().is_some_and(|index| index != 0) {
                json::append(&mut self.about, "candidates", candidate.clone());
            } else if let Some(lists) = candidate["logprobsResult"].as_object() {
                json::append_lists(&mut self.about, "logprobsResult", lists);
            }
        }
    }

    fn candidate(&mut self, candidate: Candidate<'_>, out: &mut Vec<Piece>) -> Result<(), Fault> {
        self.has_candidate = true;
        // Before the reason: what the model wrote up to a failure is passed on.
        // Nearly all have one part, which is read without a list.
        if let [json] = candidate.content.parts[..] {
            self.part(json, read_part(json)?, out)?;
        } else {
            let parts = candidate.content.parts.iter();
            let parts = parts.map(|json| Ok((*json, read_part(json)?)));
            // All of them first: a chunk that cannot be read may be read again.
            for (json, part) in parts.collect::<Result<Vec<_>, Fault>>()? {
                self.part(json, part, out)?;
            }
        }
        let reason = candidate.finish_reason.as_deref();
        if let Some(reason) = reason.filter(|reason| is_reason(Some(reason))) {
            self.finish_reason = Some(reason.to_owned());
        }
        if let Some(kind) = self.finish_reason.as_deref().and_then(failure) {
            let word = self.finish_reason.as_deref().unwrap_or_default();
            let message = match candidate.finish_message {
                Some(message) => format!("{word}: {message}"),
                None => format!("the model did not finish its answer: {word}"),
            };
            return Err(Fault::new(message).with_kind(kind));
        }
        for (name, value) in [
            ("finishMessage", candidate.finish_message.map(Value::from)),
            ("avgLogprobs", candidate.avg_logprobs.map(Value::from)),
            ("citationMetadata", candidate.citation_metadata),
            ("groundingMetadata", candidate.grounding_metadata),
            ("urlContextMetadata", candidate.url_context_metadata),
        ] {
            if let Some(value) = value.filter(is_set) {
                self.about.insert(name.into(), value);
            }
        }
        Ok(())
    }

    fn part(
        &mut self,
        json: &RawValue,
        part: ReadPart<'_>,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let mut data = ProviderData::default();
        if let Some(signature) = part
            .thought_signature
            .filter(|signature| !signature.is_empty())
        {
            data.set(PROVIDER, json!({ "thoughtSignature": signature }));
        }
        // A part is one thing: a call counts more than a text beside it.
        match part.text {
            _ if part.function_call.is_some() => {}
            Some(text) => {
                self.words(text.into_owned(), part.thought, data, out);
                return Ok(());
            }
            None if part.inline_data.is_none() && is_signature_alone(json) => {
                self.words(String::new(), part.thought, data, out);
                return Ok(());
            }
            None => {}
        }
        self.open = None;
        self.finish_reason = None;
        out.push(Piece::Part(match (part.function_call, part.inline_data) {
            (Some(call), _) => Part::ToolCall(self.call(*call, data)?),
            // An image from the model's reasoning is not a part of its answer.
            (None, Some(blob)) if !part.thought => media(*blob, data),
            (None, _) => {
                data.set(
                    PROVIDER,
                    serde_json::from_str(json.get()).unwrap_or_default(),
                );
                Part::Provider(data)
            }
        }));
        Ok(())
    }

    /// Adds text or reasoning. Words with a signature are a part of their own: they must go back as
    /// they came, not merged with others.
    fn words(&mut self, text: String, thought: bool, data: ProviderData, out: &mut Vec<Piece>) {
        if !text.is_empty() {
            // Beside a tool of the server, a reason may stand in the middle of a stream: it counts
            // only if nothing is said after it.
            self.finish_reason = None;
        }
        let kind = if thought {
            OpenPart::Reasoning
        } else {
            OpenPart::Text
        };
        let is_signed = !data.is_empty();
        // The words before, which have no signature, must not get this one.
        if is_signed && self.open == Some(kind) {
            out.push(kind.end(ProviderData::default()));
        }
        if !text.is_empty() {
            out.push(match kind {
                OpenPart::Text => Delta::Text(text).into(),
                OpenPart::Reasoning => Delta::Reasoning(text).into(),
            });
            self.open = Some(kind);
        }
        if is_signed {
            out.push(kind.end(data));
            self.open = None;
        }
    }

    fn call(&mut self, call: FunctionCall, data: ProviderData) -> Result<ToolCall, Fault> {
        // Fragments of arguments come only if the caller's extra fields ask for them.
        if call.name.is_empty() || call.will_continue {
            let message = "the server sent a part of a function call instead of a whole one";
            return Err(Fault::protocol(message));
        }
        let (_, id) = self.calls.begin(call.id);
        let mut call = ToolCall::from_text(id, call.name, call.args);
        call.provider = data;
        Ok(call)
    }
}

fn media(blob: Blob, provider: ProviderData) -> Part {
    let source = MediaSource::base64(blob.mime_type, blob.data);
    let media_type = source.media_type().unwrap_or_default();
    let kind = media_type.split('/').next().unwrap_or_default().to_owned();
    media::media(&kind, source, provider)
}

/// Returns whether a part has no content besides a signature: it is read like an empty text.
fn is_signature_alone(json: &RawValue) -> bool {
    let fields: Map<String, Value> = serde_json::from_str(json.get()).unwrap_or_default();
    fields.iter().all(|(name, value)| {
        value.is_null() || matches!(&**name, "thought" | "thoughtSignature" | "text")
    })
}

/// Returns whether a reason is one: some servers send the default in every chunk.
fn is_reason(word: Option<&str>) -> bool {
    word.is_some_and(|word| !word.is_empty() && !word.ends_with("_UNSPECIFIED"))
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    }
}

/// Reads a part of a response.
fn read_part(json: &RawValue) -> Result<ReadPart<'_>, Fault> {
    json::read_text(json.get(), "a part of the response")
}
