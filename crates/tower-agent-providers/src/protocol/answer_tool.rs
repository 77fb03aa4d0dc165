//! Answers by a tool, where a schema is not accepted as the response format. Nobody but the
//! protocol sees the tool: its arguments are the text of the answer.

use std::sync::Arc;

use super::call::Call;
use super::decoder::{Decoder, Progress};
use super::event::Event;
use super::fault::Fault;
use tower_agent::message::{Metadata, Part, ProviderData};
use tower_agent::model::{FinishReason, ModelRequest, ModelResponse, ResponseFormat, ToolChoice};
use tower_agent::stream::{Delta, Piece, Streamed};

/// The fields of a caller that choose among tools, in any protocol.
const CHOICES: [&str; 3] = ["tool_choice", "toolConfig", "tool_config"];

/// Returns whether the answer of a call can be given by a tool that must be called: unless the
/// caller has chosen otherwise, or has a tool of this name.
pub(crate) fn takes_answer_tool(call: &Call<'_>) -> bool {
    let request = call.request();
    let settings = request.settings();
    let is_forced = matches!(settings.tool_choice, None | Some(ToolChoice::Required));
    let mut names = request.tools().iter().map(|tool| tool.name());
    is_forced
        && !CHOICES
            .iter()
            .any(|name| settings.extra.contains_key(*name))
        && names.all(|name| name != ResponseFormat::ANSWER_TOOL)
}

/// Returns a request with the tool in the place of the response format.
pub(crate) fn with_answer_tool(request: &ModelRequest) -> ModelRequest {
    let mut request = request.clone();
    let settings = request.settings_mut();
    settings.tool_choice = Some(ToolChoice::Required);
    if let Some(ResponseFormat::JsonSchema { schema, .. }) = settings.response_format.take() {
        let tool = ResponseFormat::answer_tool(schema);
        request.tools_mut().push(Arc::new(tool));
    }
    request
}

/// Reads a response whose answer may be given by a tool.
#[derive(Debug)]
pub struct AnswerDecoder<D> {
    decoder: D,
    /// The reason why the tool gives the answer, if it does.
    reason: Option<&'static str>,
    /// The indices of the calls that give it, of which the first counts; `None` for one that came
    /// as a whole.
    answers: Vec<Option<usize>>,
}

impl<D> AnswerDecoder<D> {
    /// Creates a decoder around one. `reason` is why a tool gives the answer, if it does.
    pub(crate) fn new(decoder: D, reason: Option<&'static str>) -> Self {
        Self {
            decoder,
            reason,
            answers: Vec::new(),
        }
    }

    /// Turns the calls that give the answer to text, among the pieces from a position on.
    fn take_answers(&mut self, from: usize, out: &mut Vec<Piece>) {
        if self.reason.is_none() {
            return;
        }
        let pieces = out.split_off(from);
        for piece in pieces {
            self.take_answer(piece, out);
        }
    }

    fn take_answer(&mut self, piece: Piece, out: &mut Vec<Piece>) {
        match piece {
            Piece::Delta(Delta::ToolCall { index, name, .. })
                if *name == *ResponseFormat::ANSWER_TOOL =>
            {
                self.begin_answer(Some(index), out);
            }
            Piece::Delta(Delta::Arguments { index, json })
                if self.answers.contains(&Some(index)) =>
            {
                if self.answers.first() == Some(&Some(index)) {
                    out.push(Delta::Text(json).into());
                }
            }
            Piece::Part(Part::ToolCall(call)) if *call.name == *ResponseFormat::ANSWER_TOOL => {
                if self.begin_answer(None, out) {
                    out.push(Delta::Text(call.arguments.as_str().to_owned()).into());
                }
            }
            piece => out.push(piece),
        }
    }

    /// Ends a text before the answer, which is a part of its own. Returns whether the answer
    /// counts: it is the first of the response.
    fn begin_answer(&mut self, index: Option<usize>, out: &mut Vec<Piece>) -> bool {
        self.answers.push(index);
        let is_first = self.answers.len() == 1;
        if is_first {
            out.push(Piece::TextEnd(ProviderData::default()));
        }
        is_first
    }
}

impl<D: Decoder> Decoder for AnswerDecoder<D> {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        let from = out.len();
        let progress = self.decoder.event(event, out)?;
        self.take_answers(from, out);
        Ok(progress)
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let from = out.len();
        self.decoder.response(body, out)?;
        self.take_answers(from, out);
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let from = out.len();
        self.decoder.end(out)?;
        self.take_answers(from, out);
        Ok(())
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let response = self.decoder.finish(streamed);
        let has_answer = !self.answers.is_empty();
        let is_over = has_answer && response.message().tool_calls().next().is_none();
        if is_over && *response.finish_reason() == FinishReason::ToolCalls {
            return response.with_finish_reason(FinishReason::Stop);
        }
        response
    }

    fn id(&self) -> Option<&str> {
        self.decoder.id()
    }

    fn model(&self) -> Option<&str> {
        self.decoder.model()
    }

    fn describe(&self, metadata: &mut Metadata) {
        self.decoder.describe(metadata);
        metadata.answer_tool = self.reason.map(Into::into);
    }
}
