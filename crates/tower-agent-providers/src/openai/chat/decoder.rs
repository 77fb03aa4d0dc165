use std::borrow::Cow;

use serde_json::{Value, json};

use super::provider::{CALL_IDS, PROVIDER};
use super::response::{ChatCompletion, ChatMessage};
use super::tool_calls::ToolCalls;
use crate::json;
use crate::protocol::{Decoder, Event, Fault, Progress};
use tower_agent::message::{Part, Usage};
use tower_agent::model::{FinishReason, ModelRequest, ModelResponse};
use tower_agent::stream::{Delta, Piece, Streamed};

/// Reads a response of chat completions.
#[derive(Debug)]
pub struct ChatDecoder {
    id: Option<String>,
    model: Option<String>,
    calls: ToolCalls,
    usage: Usage,
    finish_reason: Option<FinishReason>,
    has_choice: bool,
    is_refusal: bool,
}

impl ChatDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            id: None,
            model: None,
            calls: ToolCalls::new(request.messages().len()),
            usage: Usage::default(),
            finish_reason: None,
            has_choice: false,
            is_refusal: false,
        }
    }
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        match event.data {
            // Not the finish reason: the usage comes in a chunk after it.
            "[DONE]" => {
                self.complete(out)?;
                return Ok(Progress::Done);
            }
            data if event.name == Some("error") => return Err(Fault::reported(data)),
            data => {
                let delta = self.answer(data.as_bytes(), "a chunk of the response")?;
                self.message(delta, out);
            }
        }
        Ok(Progress::More)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let mut message = self.answer(body, "the response")?;
        // Each is complete, whatever its number: two calls with the same one are not pieces of one.
        let calls = std::mem::take(&mut message.tool_calls);
        self.message(message, out);
        for call in calls {
            self.calls.push_whole(call, out);
        }
        self.complete(out)
    }

    /// Some servers send no `[DONE]`; a finish reason is enough.
    fn end(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        match self.finish_reason {
            Some(_) => self.complete(out),
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
        // Some servers send `stop` beside tool calls; the message itself decides then.
        let reason = match self.finish_reason {
            None | Some(FinishReason::Stop) if self.is_refusal => {
                Some(FinishReason::Other("refusal".into()))
            }
            None | Some(FinishReason::Stop) => None,
            reason => reason,
        };
        let response = match reason {
            Some(reason) => response.with_finish_reason(reason),
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

impl ChatDecoder {
    fn complete(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        if !self.has_choice {
            return Err(Fault::protocol("the response has no choices"));
        }
        self.calls.end(out).map_err(Fault::protocol)
    }

    fn answer<'a>(&mut self, json: &'a [u8], what: &str) -> Result<ChatMessage<'a>, Fault> {
        let mut answer: ChatCompletion<'a> = json::read(json, what)?;
        let usage = answer.usage();
        // Before the error, so that its report names the request and the model.
        keep(&mut self.id, answer.id.take());
        keep(&mut self.model, answer.model.take());
        if is_error(answer.error.as_ref()) || answer.object.as_deref() == Some("error") {
            let whole = serde_json::from_slice(json).unwrap_or(Value::Null);
            return Err(Fault::read(&whole).unwrap_or_else(|| Fault::of(&whole, &whole)));
        }
        if let Some(usage) = usage {
            self.usage = usage;
        }
        // The chunk with the usage has no choice.
        let Some(choice) = answer.choice.as_mut() else {
            return Ok(ChatMessage::default());
        };
        if let Some(error) = choice.error.as_ref().filter(|error| is_error(Some(*error))) {
            return Err(Fault::of(error, &Value::Null));
        }
        self.has_choice = true;
        let word = choice
            .finish_reason
            .as_deref()
            .filter(|word| !word.is_empty());
        self.finish_reason = word.map(finish_reason).or(self.finish_reason.take());
        // Some servers send a whole message in the chunks of a stream, others a delta in a plain
        // response.
        Ok(choice
            .delta
            .take()
            .or(choice.message.take())
            .unwrap_or_default())
    }

    fn message(&mut self, message: ChatMessage<'_>, out: &mut Vec<Piece>) {
        if !message.thoughts().is_empty() {
            out.push(Delta::Reasoning(message.thoughts().to_owned()).into());
        }
        // The model refuses in words of its own, which are its answer.
        self.is_refusal |= !message.refusal.is_empty();
        for text in [message.content, message.refusal] {
            if !text.is_empty() {
                out.push(Delta::Text(text).into());
            }
        }
        for piece in message.tool_calls {
            self.calls.push(piece, out);
        }
    }
}

/// Replaces what is known. Most chunks repeat it.
fn keep(known: &mut Option<String>, new: Option<Cow<'_, str>>) {
    if let Some(new) = new.filter(|new| known.as_deref() != Some(new)) {
        *known = Some(new.into_owned());
    }
}

fn finish_reason(word: &str) -> FinishReason {
    match word {
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        word => FinishReason::Other(word.to_owned().into()),
    }
}

fn is_error(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    }
}
