//! Runs the tool calls of a turn.

use std::iter;
use std::sync::Arc;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::Value;

use super::agent::boxed;
use super::loop_config::LoopConfig;
use super::tool_messages::{ShowTool, ToolAnswer};
use super::transfer;
use crate::call::{BoxCallFuture, CallKind, stays_open};
use crate::callback::{LoopRules, ToolCalls, ToolFailure, UnknownTool};
use crate::context::{RunContext, StaysOpen};
use crate::conversation::{CallName, PendingCalls, Slot, Transcript};
use crate::error::{Error, ErrorKind, Result};
use crate::maybe_future::MaybeFuture;
use crate::message::{Message, Part, ToolCall, ToolResult};
use crate::run::AgentRequest;
use crate::tool::{BoxTool, Effect, ToolDeclaration, ToolRequest, ToolResponse, ToolSet};

/// Text for the model about a call that was cut off.
const STILL_RUNNING: &str = "the tool was still running, and its outcome is unknown";

/// One call of a turn.
struct TurnCall<'a> {
    /// The place among the calls of the turn that run.
    slot: usize,
    name: CallName,
    call: &'a ToolCall,
    /// `None` for a tool that does not exist.
    declaration: Option<&'a Arc<ToolDeclaration>>,
    tool: Option<&'a BoxTool>,
    context: RunContext,
}

impl TurnCall<'_> {
    fn request(&self, tool: Option<&BoxTool>) -> ToolRequest {
        ToolRequest::in_run(&self.context, self.call, self.declaration, tool)
    }

    fn is_mutating(&self) -> bool {
        self.declaration
            .is_some_and(|tool| tool.effect() == Effect::Mutating)
    }

    /// Returns whether the call may have had an effect of which nobody knows.
    fn is_cut(&self) -> bool {
        self.context.endings().is_dropped() && self.is_mutating()
    }

    /// Says in the results who has answered the questions about the call.
    #[inline]
    fn sign(&self, results: &mut [Message]) {
        let names = self.context.answered_by();
        if names.is_empty() {
            return;
        }
        for part in results.iter_mut().flat_map(Message::parts_mut) {
            if let Part::ToolResult(result) = part {
                result.set_answered_by(names.clone());
            }
        }
    }

    /// Returns whether data about the call is kept until it has a result.
    fn has_data(&self) -> bool {
        let private = self.context.private_state();
        private.has_data_about_calls() && private.has_data_about(&self.context.call_path())
    }

    /// Removes the data about the call, which has a result.
    #[inline]
    fn forget_data(&self) {
        let private = self.context.private_state();
        // Usually there is none, and a path takes longer than the question.
        if private.has_data_about_calls() {
            private.forget_call(&self.context.call_path());
        }
    }
}

/// The tool calls of one turn of an agent's loop.
pub(super) struct ToolTurn<'a> {
    pub(super) config: &'a LoopConfig,
    pub(super) rules: &'a LoopRules,
    /// The agent's tools, and those of the run.
    pub(super) tools: &'a ToolSet,
    pub(super) transcript: &'a Transcript,
    /// The context of the turn.
    pub(super) context: &'a RunContext,
}

impl ToolTurn<'_> {
    /// Runs the tool calls of the model and adds the results in the model's order. Returns whether
    /// the model is next: all calls have a result. If not, the conversation says what is next.
    pub(super) async fn run(&self, pending: &PendingCalls) -> Result<bool> {
        let result = match only(pending.calls()) {
            // Not boxed, and a reference, since an argument of an `async fn` takes its room in the
            // future twice: if the future of a run does not fit into the allocator's small chunks,
            // `agent` in `benches/counts.json` has a tenth more instructions.
            Some((index, call)) => self.run_tool(&self.only_call(pending, index, call)).await,
            None => boxed(|| self.run_several(pending)).await,
        };
        if self.context.endings().has_blocked() {
            boxed(|| let_others_run(self.context)).await;
        }
        // Results are kept even if a call fails the run: the run may have been interrupted as well,
        // and resume.
        let (stopped, are_answered) = self.transcript.end_turn();
        // Without waiting for the consumer: the run may have failed.
        drop(self.context.listeners().tell_results(&stopped));
        result.map(|()| are_answered)
    }

    async fn run_several(&self, pending: &PendingCalls) -> Result<()> {
        let names = pending.calls().map(|(index, _)| pending.name(index));
        self.transcript.begin_turn(names);
        let at_once = match self.rules.tool_calls {
            ToolCalls::OneByOne => 1,
            ToolCalls::Concurrent => self.config.options.tool_concurrency,
        };
        let calls = pending.calls().enumerate();
        if at_once == 1 {
            for (slot, (index, call)) in calls {
                self.run_tool(&self.call(slot, pending, index, call))
                    .await?;
                // A later call may depend on the answer that this one waits for, and stays open.
                if self.context.endings().ending::<AgentRequest>().is_some() {
                    break;
                }
            }
            return Ok(());
        }
        let mut waiting = Vec::new();
        for (slot, (index, call)) in calls {
            waiting
                .push(async move { self.run_tool(&self.call(slot, pending, index, call)).await });
        }
        let mut waiting = waiting.into_iter();
        let mut running: FuturesUnordered<_> = waiting.by_ref().take(at_once).collect();
        while let Some(result) = running.next().await {
            let Err(error) = result else {
                // An interrupt does not stop those that wait for room.
                let ending = self.context.endings().ending::<AgentRequest>();
                if ending.is_none_or(|ending| ending.kind() == ErrorKind::Interrupted) {
                    running.extend(waiting.next());
                }
                continue;
            };
            // A failure of the run drops parallel calls. What those come to that end at this moment
            // counts as well: which call stands first in the turn must not decide how it ends.
            while !error.ends_run() && matches!(running.next().now_or_never(), Some(Some(_))) {}
            return Err(error);
        }
        Ok(())
    }

    /// Starts a turn with this call alone.
    fn only_call<'a>(
        &'a self,
        pending: &PendingCalls,
        index: usize,
        call: &'a ToolCall,
    ) -> TurnCall<'a> {
        self.transcript.begin_turn(iter::once(pending.name(index)));
        self.call(0, pending, index, call)
    }

    /// Returns the call at this place of its message, and at place `slot` among those of the turn
    /// that run.
    fn call<'a>(
        &'a self,
        slot: usize,
        pending: &PendingCalls,
        index: usize,
        call: &'a ToolCall,
    ) -> TurnCall<'a> {
        let (declaration, tool) = self.tools.find(&call.name).unzip();
        TurnCall {
            slot,
            call,
            declaration,
            tool,
            context: self.context.in_tool_call(pending.message(), index),
            name: pending.name(index),
        }
    }

    /// Makes a call, records its result, and then emits it.
    async fn run_tool(&self, made: &TurnCall<'_>) -> Result<()> {
        let slot = match self.answer_call(made).await {
            Ok(slot) => slot,
            Err(error) if stays_open(&error) => {
                self.transcript.keep(made.slot, Slot::Open);
                return Err(error);
            }
            // As if the run had been dropped in this call, so that a resumed run goes on inside it.
            Err(error) if is_cancelled(made, &error) => {
                if made.context.endings().is_unmade() {
                    self.transcript.keep(made.slot, Slot::Open);
                }
                return Err(error);
            }
            Err(error) => return Err(self.fail(made, error)),
        };
        // Recorded before it is emitted: a checkpoint has every result that a consumer has seen.
        let shown = self.record(made, slot);
        if let Some(told) = self.tell(made, shown) {
            told.await;
        }
        Ok(())
    }

    /// Tells of the result of a call. Returns a future that waits until the consumer has made room.
    //
    // Apart, so that the future of a run has no room for the state.
    fn tell<'a>(
        &'a self,
        made: &TurnCall<'_>,
        shown: Option<Slot>,
    ) -> Option<impl Future<Output = ()> + use<'a>> {
        let slot = shown?;
        let listeners = self.context.listeners();
        listeners.tell_answers(&made.name, slot.answers())
    }

    /// Records the state of a call after it was made. Returns the state if somebody is told of it.
    fn record(&self, made: &TurnCall<'_>, mut slot: Slot) -> Option<Slot> {
        made.sign(slot.answers_mut());
        // Before it is recorded, so that the transcript and the stream show the same ids.
        slot.identify(&made.name);
        let is_answered = !slot.answers().is_empty();
        let shown = (is_answered && self.context.listeners().is_told()).then(|| slot.clone());
        self.transcript.keep(made.slot, slot);
        if is_answered {
            made.forget_data();
        }
        shown
    }

    /// Records that a call has failed the run. A resumed run repeats it if that is safe; otherwise
    /// the failure is its result, or that its outcome is unknown.
    fn fail(&self, made: &TurnCall<'_>, error: Error) -> Error {
        let is_repeatable = made
            .declaration
            .is_some_and(|tool| tool.effect() != Effect::Mutating);
        if is_repeatable && error.kind() != ErrorKind::InvalidArguments {
            self.transcript.keep(made.slot, Slot::Open);
            return error;
        }
        let outcome = if error.kind() == ErrorKind::Aborted {
            // The tool may have had its effect. Of a failure alone the model would read that it had
            // none.
            "; the run ended in this call, and its outcome is unknown"
        } else {
            ""
        };
        let mut result = self.failed(made.call, &error, outcome);
        made.sign(std::slice::from_mut(&mut result));
        made.name.identify_result(&mut result);
        let results = self.transcript.fail(made.slot, result);
        made.forget_data();
        drop(self.context.listeners().tell_answers(&made.name, &results));
        error
    }

    async fn answer_call(&self, made: &TurnCall<'_>) -> Result<Slot> {
        // Another call of this turn, in this very poll.
        if self.context.endings().has_blocked() {
            boxed(|| let_others_run(self.context)).await;
        }
        // Not made, so not answered either: a resumed run makes the call.
        if made
            .context
            .endings()
            .admit_further::<ToolRequest>()
            .is_err()
        {
            return Ok(Slot::Open);
        }
        if made.declaration.is_none() {
            let error = self.tools.unknown(&made.call.name);
            // The agent that was interrupted in the call had the tool.
            if made.has_data() {
                return Err(StaysOpen::error(error));
            }
            if self.rules.unknown_tool == UnknownTool::TellModel {
                return Ok(Slot::Answered(self.failed(made.call, &error, "")));
            }
        }
        if made.is_mutating() {
            // Before the call: if the run is dropped in it, nobody knows whether it had its effect.
            let slot = Slot::Begun(made.call.clone());
            self.transcript.keep(made.slot, slot);
        }
        let result = self.make(made).await;
        self.settle(made, result).await
    }

    fn make(&self, made: &TurnCall<'_>) -> BoxCallFuture<ToolRequest> {
        match made.tool {
            // Nothing is around the tools, which would have to find this one again.
            Some(tool) if self.config.tools.is_bare(&made.context) => tool.make(made.request(None)),
            tool => self.config.tools.make(made.request(tool)),
        }
    }

    /// Returns the state of a call after it was made.
    //
    // Not an async fn, which would make room for every value here in the future of the run.
    fn settle<'a>(
        &'a self,
        made: &'a TurnCall<'a>,
        result: Result<ToolResponse>,
    ) -> MaybeFuture<'a, Result<Slot>> {
        let mut response = match result {
            Ok(response) => response,
            Err(error) => return MaybeFuture::ready(self.settle_error(made, error)),
        };
        if !response.is_of_tool() && made.is_cut() {
            // It is that of a callback or a layer which has dropped the call, and says nothing of
            // the tool.
            response.add_text(&format!("({STILL_RUNNING})"));
        }
        let default = shown_by_default(made.call, &response);
        if let Err(abort) = made.context.endings().settle_success::<ToolRequest>() {
            // It has a result, whatever else ends the run.
            self.keep_result(made, default);
            return MaybeFuture::ready(Err(abort));
        }
        // A layer may have replaced the interrupt of a call by a response.
        if made.context.endings().waits(CallKind::Tool) {
            return MaybeFuture::ready(Ok(Slot::Open));
        }
        match &self.config.options.show_tool {
            Some(show) => {
                self.keep_result(made, default.clone());
                MaybeFuture::pending(self.show(show, made, response, default))
            }
            None => MaybeFuture::ready(Ok(Slot::Answered(default))),
        }
    }

    #[cold]
    fn settle_error(&self, made: &TurnCall<'_>, error: Error) -> Result<Slot> {
        let name = Some(&*made.call.name);
        let error = made
            .context
            .endings()
            .settle_error::<ToolRequest>(name, error);
        if error.ends_run() || stays_open(&error) || is_cancelled(made, &error) {
            return Err(error);
        }
        if error.is_ending() {
            return Ok(Slot::Open);
        }
        if self.fails_run(made, &error) {
            return Err(error);
        }
        // The error is that of the layer which has dropped the call, and says nothing of the tool.
        let outcome = if made.is_cut() {
            format!("; {STILL_RUNNING}")
        } else {
            String::new()
        };
        let message = self.failed(made.call, &error, &outcome);
        Ok(Slot::Answered(message))
    }

    /// Records the result of a call whose messages are not known yet.
    fn keep_result(&self, made: &TurnCall<'_>, result: Message) {
        let mut slot = Slot::Answered(result);
        slot.identify(&made.name);
        self.transcript.keep(made.slot, slot);
    }

    fn fails_run(&self, made: &TurnCall<'_>, error: &Error) -> bool {
        let is_unknown = made.declaration.is_none();
        match error.kind() {
            // A known tool may have failed because of an unknown one.
            ErrorKind::UnknownTool if is_unknown => self.rules.unknown_tool == UnknownTool::FailRun,
            ErrorKind::InvalidArguments => self.rules.invalid_arguments == ToolFailure::FailRun,
            _ => self.rules.tool_failure == ToolFailure::FailRun,
        }
    }

    /// Returns the messages for a tool result, created once, after every callback and layer.
    async fn show(
        &self,
        show: &ShowTool,
        made: &TurnCall<'_>,
        response: ToolResponse,
        default: Message,
    ) -> Result<Slot> {
        let TurnCall {
            call,
            declaration,
            ref context,
            ..
        } = *made;
        let by_default = Slot::Answered(default.clone());
        let answer = ToolAnswer {
            call: call.clone(),
            arguments: match response.changed_arguments() {
                Some(changed) => changed.clone().into(),
                None => call.arguments.clone(),
            },
            declaration: declaration.cloned(),
            response,
            default,
        };
        let shown = show.show(answer).await;
        let shown = self.review(made, shown).await;
        match context
            .endings()
            .settle::<ToolRequest, _>(Some(&call.name), shown)
        {
            Err(end) if end.ends_run() => Err(end),
            // The run ends; the tool has run.
            Err(error) if error.is_ending() => Ok(by_default),
            Err(error) => Ok(Slot::Answered(self.failed(call, &error, ""))),
            Ok(several) => Ok(Slot::Many(several)),
        }
    }

    /// Asks the callbacks outside everything else about messages that were made outside the call.
    async fn review(
        &self,
        made: &TurnCall<'_>,
        shown: Result<Vec<Message>>,
    ) -> Result<Vec<Message>> {
        if !self.config.tools.is_reviewed(&made.context) {
            return shown;
        }
        let request = made.request(made.tool);
        let mut messages = match shown {
            Ok(messages) => messages,
            Err(ending) if ending.is_ending() => return Err(ending),
            Err(error) => {
                let response = self.config.tools.review(&request, Err(error)).await?;
                return Ok(vec![shown_by_default(made.call, &response)]);
            }
        };
        for message in &mut messages {
            let mut reviewed = Vec::with_capacity(message.parts().len());
            for part in message.parts() {
                // The parts in a result, so that it stays the result of its call.
                let shown = match part {
                    Part::ToolResult(result) => result.parts.clone(),
                    part => vec![part.clone()],
                };
                let response = ToolResponse::new(Value::Null).with_parts(shown);
                let response = self.config.tools.review(&request, Ok(response)).await?;
                match part {
                    Part::ToolResult(result) => {
                        let mut result = result.clone();
                        result.parts = response.parts();
                        result.is_error |= response.is_error();
                        reviewed.push(result.into());
                    }
                    _ => reviewed.extend(response.parts()),
                }
            }
            *message.parts_mut() = reviewed;
        }
        Ok(messages)
    }

    /// Returns the message that the model reads about a failure, with the outcome of the call after
    /// its text.
    fn failed(&self, call: &ToolCall, error: &Error, outcome: &str) -> Message {
        let error = match &self.config.options.tool_failure_message {
            Some(message) => error.clone().or_model_message(message.clone()),
            None => error.clone(),
        };
        let own = error.model_message();
        let text = match own {
            Some(message) => {
                tracing::warn!(run_id = self.context.run_id(), agent = self.context.path(), tool = %call.name.escape_debug(), error = %error.to_string().escape_debug(), "tool failed; hiding the error from the model");
                message.to_owned()
            }
            None => self.with_parameters(call, &error),
        };
        let mut result = ToolResult::new(call, [Part::from_text(text + outcome)]).failed();
        result.is_error_text = own.is_none();
        Message::tool(result)
    }

    /// Returns the text of an error, with the tool's parameters if the arguments do not match.
    fn with_parameters(&self, call: &ToolCall, error: &Error) -> String {
        let text = format!("{}: {}", error.kind(), error.message());
        let tool = self
            .tools
            .find(&call.name)
            .map(|(declaration, _)| declaration);
        // The error of a transfer names the agents that exist.
        let is_told =
            error.kind() == ErrorKind::InvalidArguments && call.name.as_ref() != transfer::NAME;
        let Some(tool) = tool.filter(|_| is_told) else {
            return text;
        };
        let schema = tool.parameters().to_string();
        if text.contains(&schema) {
            return text;
        }
        format!(
            "{text}\nThe arguments of `{}` must match this schema: {schema}",
            call.name
        )
    }
}

/// Lets go of the thread, which a tool has kept: only then can code around the run that limits its
/// time notice that it is over, before another call starts.
async fn let_others_run(context: &RunContext) {
    let endings = context.endings();
    // Another call may have begun meanwhile, and kept the thread as well.
    while endings.has_blocked() {
        let blocks = endings.blocks();
        // Without a runtime nobody's timer waits for this thread.
        if tokio::runtime::Handle::try_current().is_ok() {
            // Once until timers have seen the time, and once until those who wait for one are
            // asked: tower's `Timeout` asks its timer after the call.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
        endings.let_go(blocks);
    }
}

/// Returns whether a call has failed because the run was cancelled or has lost its lease, or the
/// agent's part of it was cancelled.
fn is_cancelled(made: &TurnCall<'_>, error: &Error) -> bool {
    let stops = match error.kind() {
        ErrorKind::Cancelled => true,
        ErrorKind::Conflict => error.ends_run(),
        _ => false,
    };
    stops && made.context.endings().is_cancelled()
}

/// Returns the call, if there is only one.
fn only<T>(mut calls: impl Iterator<Item = T>) -> Option<T> {
    calls.next().filter(|_| calls.next().is_none())
}

fn shown_by_default(call: &ToolCall, response: &ToolResponse) -> Message {
    let result = ToolResult::new(call, response.parts());
    Message::tool(if response.is_error() {
        result.failed()
    } else {
        result
    })
}
