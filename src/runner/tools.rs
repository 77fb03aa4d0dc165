//! The tool calls of a turn.

use futures::{StreamExt, stream};
use tower::ServiceExt;

use super::run::{Running, refusal};
use super::semantics::{ToolCalls, ToolFailure, UnknownTool};
use crate::call::CallKind;
use crate::callback::ToolAnswer;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, ToolCall, ToolResult};
use crate::stream::EventKind;
use crate::tool::{OfRun, ToolRequest, ToolResponse};

/// What the model is told of one call; nothing if the agent waits or has ended.
#[derive(Clone, Default)]
struct Answer {
    /// Nearly always all of it, and without a list of its own.
    one: Option<Message>,
    several: Vec<Message>,
}

impl Answer {
    fn messages(self) -> impl Iterator<Item = Message> {
        self.one.into_iter().chain(self.several)
    }
}

impl From<Message> for Answer {
    fn from(message: Message) -> Self {
        Self { one: Some(message), several: Vec::new() }
    }
}

impl Running<'_> {
    /// Runs the tools that the model asked for, and tells it their answers in its order.
    pub(super) async fn run_tools(&mut self, calls: Vec<ToolCall>) -> Result<()> {
        if let [call] = &calls[..] {
            let answer = self.run_tool(call).await?;
            self.messages.extend(answer.messages());
        } else {
            let mut answers = vec![Answer::default(); calls.len()];
            let result = self.run_several(&calls, &mut answers).await;
            // Those that have answered stay answered, also where another fails the run: it may wait
            // for somebody all the same, and be resumed.
            self.messages.extend(answers.into_iter().flat_map(Answer::messages));
            result?;
        }
        Ok(())
    }

    async fn run_several(&self, calls: &[ToolCall], answers: &mut [Answer]) -> Result<()> {
        let mut running = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            running.push(async move { (index, self.run_tool(call).await) });
        }
        let at_once = match self.config.semantics.tool_calls {
            ToolCalls::Concurrent => self.config.tool_concurrency,
            ToolCalls::OneByOne => 1,
        };
        let mut running = stream::iter(running).buffer_unordered(at_once);
        while let Some((index, answer)) = running.next().await {
            // A failure of the run drops the calls beside it.
            answers[index] = answer?;
        }
        Ok(())
    }

    async fn run_tool(&self, call: &ToolCall) -> Result<Answer> {
        let answer = self.answer_call(call).await?;
        if let Some(outlet) = self.turn.outlet() {
            let results = answer.one.iter().chain(&answer.several).flat_map(Message::tool_results);
            for result in results.cloned() {
                let ToolResult { call_id: id, name, parts, is_error, .. } = result;
                outlet.tell(EventKind::ToolResult { id, name, parts, is_error }).await;
            }
        }
        Ok(answer)
    }

    async fn answer_call(&self, call: &ToolCall) -> Result<Answer> {
        let context = self.turn.in_tool_call(&call.id);
        if context.refusal(CallKind::Tool).is_some() {
            return Ok(Answer::default());
        }
        let declaration = self.tools.declaration(&call.name).cloned();
        if declaration.is_none() && self.config.semantics.unknown_tool == UnknownTool::TellModel {
            return Ok(told(call, &self.tools.unknown(&call.name)).into());
        }
        let mut request =
            ToolRequest::in_run(context.clone(), call.clone()).with_declaration(declaration);
        if let Some(tools) = self.tools_of_run() {
            request.extensions_mut().insert(OfRun(tools.clone()));
        }
        let result = self.config.tools.clone().oneshot(request).await;
        let result = result.map_err(|error| self.failed(call, error));
        self.survived()?;
        match result {
            // A layer may have made an answer of what the call waits for.
            Ok(_) if context.waits(CallKind::Tool) => Ok(Answer::default()),
            Ok(response) => self.show(call, response).await,
            Err(error) if error.is_ending() => Ok(Answer::default()),
            Err(error) if self.fails_run(call, &error) => Err(error),
            Err(error) => Ok(told(call, &error).into()),
        }
    }

    fn failed(&self, call: &ToolCall, error: Error) -> Error {
        let context = self.turn.in_tool_call(&call.id);
        let error = error.in_call(|| context.site(CallKind::Tool, Some(&call.name)));
        context.latch(CallKind::Tool, &error);
        // A layer may have made another error of what ended the run.
        context.ending(CallKind::Tool).unwrap_or(error)
    }

    fn fails_run(&self, call: &ToolCall, error: &Error) -> bool {
        let semantics = &self.config.semantics;
        let is_unknown = self.tools.declaration(&call.name).is_none();
        match error.kind() {
            // One that is known may have failed for another that is not.
            ErrorKind::UnknownTool if is_unknown => semantics.unknown_tool == UnknownTool::FailRun,
            ErrorKind::InvalidArguments => semantics.invalid_arguments == ToolFailure::FailRun,
            _ => semantics.tool_failure == ToolFailure::FailRun,
        }
    }

    /// The messages that show a tool's answer, made once, after every callback and layer.
    async fn show(&self, call: &ToolCall, response: ToolResponse) -> Result<Answer> {
        let result = ToolResult::new(call, response.parts());
        let result = if response.is_error() { result.failed() } else { result };
        let default = Message::tool(result);
        let Some(show) = &self.config.show_tool else { return Ok(default.into()) };
        let shown_by_default = default.clone().into();
        let answer = ToolAnswer {
            call: call.clone(),
            arguments: response.changed_arguments().unwrap_or(&call.arguments).clone(),
            declaration: self.tools.declaration(&call.name).cloned(),
            response,
            default,
        };
        let shown = show.show(answer).await.map_err(|error| self.failed(call, error));
        self.survived()?;
        match shown {
            // The run ends; the tool has run.
            Err(error) if error.is_ending() => Ok(shown_by_default),
            Err(error) => Ok(told(call, &error).into()),
            Ok(several) => Ok(Answer { one: None, several }),
        }
    }
}

/// What the model is told of a failure.
fn told(call: &ToolCall, error: &Error) -> Message {
    refusal(call, format!("{}: {}", error.kind(), error.message()))
}
