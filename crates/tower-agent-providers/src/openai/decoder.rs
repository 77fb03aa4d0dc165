use serde_json::{Value, json};

use super::PROVIDER;
use super::fault::Fault;
use super::head::Head;
use super::tool_calls::ToolCalls;
use super::wire::{Answer, Said};
use tower_agent::error::{Error, Result};
use tower_agent::message::{Part, Usage};
use tower_agent::model::{FinishReason, ModelResponse};
use tower_agent::stream::{Delta, Streamed};

/// Converts responses and chunks to deltas, and keeps their metadata.
#[derive(Debug)]
pub(super) struct Decoder {
    head: Head,
    calls: ToolCalls,
    usage: Usage,
    finish_reason: Option<String>,
    has_choice: bool,
    is_refusal: bool,
}

impl Decoder {
    /// Creates the decoder of a response to a conversation of `asked` messages.
    pub(super) fn new(head: Head, asked: usize) -> Self {
        Self {
            head,
            calls: ToolCalls::new(asked),
            usage: Usage::default(),
            finish_reason: None,
            has_choice: false,
            is_refusal: false,
        }
    }

    pub(super) fn head(&self) -> &Head {
        &self.head
    }

    /// Returns whether the server has sent a finish reason.
    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Reads a complete plain response.
    pub(super) fn plain(&mut self, body: &[u8]) -> Result<Vec<Delta>> {
        let mut deltas = Vec::new();
        let mut said = self.answer(body, "the response")?;
        for (at, call) in said.tool_calls.iter_mut().enumerate() {
            // Each call is complete, whatever its number.
            call.index = Some(at as u64);
        }
        self.said(said, &mut deltas);
        self.end(&mut deltas)?;
        Ok(deltas)
    }

    /// Reads one chunk of a streamed response.
    pub(super) fn chunk(&mut self, data: &str) -> Result<Vec<Delta>> {
        let mut deltas = Vec::new();
        let said = self.answer(data.as_bytes(), "a chunk of the response")?;
        self.said(said, &mut deltas);
        Ok(deltas)
    }

    /// Reads an event whose name says that it is an error.
    pub(super) fn error_event(&self, data: &str) -> Error {
        let fault = serde_json::from_str(data).ok().as_ref().and_then(Fault::read);
        self.head.fault_inside(&fault.unwrap_or_else(|| Fault::new(data.to_owned())))
    }

    /// Ends the response.
    pub(super) fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<()> {
        if !self.has_choice {
            return Err(self.head.protocol("the response has no choices"));
        }
        self.calls.end(deltas).map_err(|message| self.head.protocol(message))
    }

    /// Returns the response made of the streamed deltas.
    pub(super) fn response(self, streamed: Streamed) -> ModelResponse {
        let mut response = ModelResponse::from(streamed);
        for (id, extra) in self.calls.extra_contents() {
            for part in response.message_mut().parts_mut() {
                match part {
                    Part::ToolCall(call) if *call.id == *id => {
                        call.provider.set(PROVIDER, json!({ "extra_content": extra }));
                    }
                    _ => {}
                }
            }
        }
        // Some servers send `stop` beside tool calls; the message itself decides then.
        let reason = match self.finish_reason.as_deref() {
            None | Some("stop") if self.is_refusal => Some(FinishReason::Other("refusal".into())),
            None | Some("stop") => None,
            Some("tool_calls" | "function_call") => Some(FinishReason::ToolCalls),
            Some("length") => Some(FinishReason::Length),
            Some("content_filter") => Some(FinishReason::ContentFilter),
            Some(word) => Some(FinishReason::Other(word.to_owned().into())),
        };
        let response = match reason {
            Some(reason) => response.with_finish_reason(reason),
            None => response,
        };
        response.with_usage(self.usage).with_metadata(self.head.metadata)
    }

    fn answer(&mut self, json: &[u8], what: &str) -> Result<Said> {
        let mut answer = match serde_json::from_slice::<Answer>(json) {
            // serde would accept an array of the fields in order.
            Ok(answer) if json.trim_ascii_start().starts_with(b"{") => answer,
            Ok(_) => return Err(self.not_an_answer(what, "an array", json)),
            Err(error) => return Err(self.not_an_answer(what, &error.to_string(), json)),
        };
        self.head.learn(answer.id.as_deref(), answer.model.as_deref());
        if is_error(answer.error.as_ref()) || answer.object.as_deref() == Some("error") {
            let whole = serde_json::from_slice(json).unwrap_or(Value::Null);
            let fault = Fault::read(&whole).unwrap_or_else(|| Fault::of(&whole, &whole));
            return Err(self.head.fault_inside(&fault));
        }
        if let Some(usage) = answer.usage() {
            self.usage = usage;
        }
        let Some(choice) = answer.choice() else { return Ok(Said::default()) };
        if let Some(error) = choice.error.as_ref().filter(|error| is_error(Some(*error))) {
            return Err(self.head.fault_inside(&Fault::of(error, &Value::Null)));
        }
        self.has_choice = true;
        let reason = choice.finish_reason.take().filter(|reason| !reason.is_empty());
        self.finish_reason = reason.or(self.finish_reason.take());
        Ok(choice.delta.take().or(choice.message.take()).unwrap_or_default())
    }

    /// JSON that is not a response may be an error: some servers send it as an array.
    fn not_an_answer(&self, what: &str, found: &str, json: &[u8]) -> Error {
        let whole: Option<Value> = serde_json::from_slice(json).ok();
        match whole.as_ref().filter(|whole| whole.is_array()).and_then(Fault::read) {
            Some(fault) => self.head.fault_inside(&fault),
            None => self.head.malformed(what, found, json),
        }
    }

    fn said(&mut self, said: Said, deltas: &mut Vec<Delta>) {
        if !said.thoughts().is_empty() {
            deltas.push(Delta::Reasoning(said.thoughts().to_owned()));
        }
        self.is_refusal |= !said.refusal.is_empty();
        for text in [said.content, said.refusal] {
            if !text.is_empty() {
                deltas.push(Delta::Text(text));
            }
        }
        for piece in said.tool_calls {
            self.calls.push(piece, deltas);
        }
    }
}

fn is_error(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}
