use serde_json::{Value, json};

use super::fault;
use super::provider::PROVIDER;
use super::response::{OllamaMessage, OllamaResponse, OllamaToolCall};
use crate::json;
use crate::protocol::{BegunCalls, Decoder, Event, Fault, Progress, ending, keep};
use tower_agent::message::{Part, ProviderData, ToolCall, Usage};
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::stream::{Delta, Piece, Streamed};

/// Reads a response of Ollama.
#[derive(Debug, Default)]
pub struct ChatDecoder {
    model: Option<String>,
    usage: Usage,
    done_reason: Option<String>,
    /// The last piece was reasoning.
    is_thinking: bool,
    calls: BegunCalls,
}

impl ChatDecoder {
    pub(super) fn new(request: &ModelRequest) -> Self {
        Self {
            calls: BegunCalls::new(request),
            ..Self::default()
        }
    }
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        let line = json::read_text(event.data, "a line of the response")?;
        match self.read(line, out)? {
            Some(true) => {
                self.end_thinking(out);
                self.check_reason()?;
                Ok(Progress::Done)
            }
            _ => Ok(Progress::More),
        }
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let done = self.read(json::read(body, "the response")?, out)?;
        self.end_thinking(out);
        // A proxy may return the first line of a stream as if it were the whole response.
        match done {
            Some(false) => Err(Fault::protocol("the response is incomplete")),
            _ => self.check_reason(),
        }
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let response = ModelResponse::from(streamed).with_usage(self.usage);
        match ending::reason(self.done_reason.as_deref()) {
            None => response,
            Some(reason) => response.with_finish_reason(reason),
        }
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl ChatDecoder {
    fn check_reason(&self) -> Result<(), Fault> {
        ending::check(self.done_reason.as_deref(), self.calls.has_any())
    }

    /// Returns whether it is the last line, if the line says so.
    fn read(
        &mut self,
        answer: OllamaResponse<'_>,
        out: &mut Vec<Piece>,
    ) -> Result<Option<bool>, Fault> {
        if let Some(error) = answer.error {
            return Err(fault::explained(Fault::of(&error, &Value::Null)));
        }
        keep(&mut self.model, answer.model.as_deref());
        if let Some(tokens) = answer.prompt_eval_count {
            self.usage.input_tokens = tokens;
        }
        if let Some(tokens) = answer.eval_count {
            self.usage.output_tokens = tokens;
        }
        self.done_reason = answer.done_reason.or(self.done_reason.take());
        // The last line can bring words as well.
        self.message(answer.message, out)?;
        Ok(answer.done)
    }

    fn message(&mut self, message: OllamaMessage, out: &mut Vec<Piece>) -> Result<(), Fault> {
        // The model thinks before it answers, so a line with both is read in this order.
        if !message.thinking.is_empty() {
            out.push(Delta::Reasoning(message.thinking).into());
            self.is_thinking = true;
        }
        if !message.content.is_empty() {
            self.end_thinking(out);
            out.push(Delta::Text(message.content).into());
        }
        for call in message.tool_calls {
            self.end_thinking(out);
            out.push(Part::ToolCall(self.call(call)?).into());
        }
        Ok(())
    }

    /// Marks reasoning as Ollama's, so that it is sent back.
    fn end_thinking(&mut self, out: &mut Vec<Piece>) {
        if std::mem::take(&mut self.is_thinking) {
            let mut data = ProviderData::default();
            data.set(PROVIDER, json!({}));
            out.push(Piece::ReasoningEnd(data));
        }
    }

    fn call(&mut self, OllamaToolCall { id, function }: OllamaToolCall) -> Result<ToolCall, Fault> {
        if function.name.is_empty() {
            return Err(Fault::nameless_call());
        }
        let (_, id) = self.calls.begin(id);
        Ok(ToolCall::from_text(id, function.name, function.arguments))
    }
}
