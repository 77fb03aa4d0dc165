//! Turns the tool call that gives a final answer to text, before anything around the model sees it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tower::Service;

use crate::call::Request;
use crate::error::Result;
use crate::message::{Message, Part};
use crate::model::{ModelRequest, ModelResponse};
use crate::run::AnswerFormat;
use crate::stream::{Delta, Mapper};

/// Replaces the call that gives a final answer by its text. The first one counts, which a stream
/// has shown by the time that another comes.
pub(super) fn take_calls(message: &mut Message) {
    if !message.tool_calls().any(|call| is_answer(&call.name)) {
        return;
    }
    let mut has_answer = false;
    message.parts_mut().retain_mut(|part| match part {
        Part::ToolCall(call) if is_answer(&call.name) => {
            let is_first = !std::mem::replace(&mut has_answer, true);
            *part = Part::from_text(call.arguments.as_str());
            is_first
        }
        _ => true,
    });
}

fn is_answer(name: &str) -> bool {
    name == AnswerFormat::TOOL
}

/// The service directly around the model.
#[derive(Clone)]
pub(super) struct AnswerCalls<S>(pub(super) S);

impl<S, E> Service<ModelRequest> for AnswerCalls<S>
where
    S: Service<ModelRequest, Response = ModelResponse, Error = E>,
{
    type Response = ModelResponse;
    type Error = E;
    type Future = AnswerFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: ModelRequest) -> Self::Future {
        let by_tool = request.is_answered_by_tool;
        if by_tool {
            // In a band of its own, so that it acts before all other mappers.
            request.enter_band();
            request.map_deltas(AnswerDeltas::default);
        }
        AnswerFuture {
            future: self.0.call(request),
            by_tool,
        }
    }
}

pin_project! {
    pub(super) struct AnswerFuture<F> {
        #[pin]
        future: F,
        by_tool: bool,
    }
}

impl<F, E> Future for AnswerFuture<F>
where
    F: Future<Output = Result<ModelResponse, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut poll = this.future.poll(cx);
        if *this.by_tool
            && let Poll::Ready(Ok(response)) = &mut poll
        {
            take_calls(response.message_mut());
        }
        poll
    }
}

/// Turns the arguments of a final answer to text.
#[derive(Default)]
struct AnswerDeltas {
    /// The indices of the calls that give one, of which the first counts.
    answers: Vec<usize>,
}

impl Mapper for AnswerDeltas {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        match delta {
            Delta::ToolCall { index, name, .. } if is_answer(&name) => {
                self.answers.push(index);
            }
            Delta::Arguments { index, json } if self.answers.contains(&index) => {
                if self.answers.first() == Some(&index) {
                    out.push(Delta::Text(json));
                }
            }
            other => out.push(other),
        }
        Ok(())
    }
}
