//! The messages that the model receives for a tool result.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::function::{Later, Now, Seal};
use crate::maybe_future::MaybeFuture;
use crate::message::{Arguments, Message, Part, ToolCall, ToolResult};
use crate::panic::{CatchPanic, catch};
use crate::tool::{ToolDeclaration, ToolResponse};

/// A tool result before it is sent to the model, after every callback and layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolAnswer {
    /// The model's call.
    pub call: ToolCall,
    /// The arguments that the tool received, after `before_tool`.
    pub arguments: Arguments,
    /// The response, after `after_tool`.
    pub response: ToolResponse,
    /// The tool's declaration, or `None` if the tool does not exist.
    pub declaration: Option<Arc<ToolDeclaration>>,
    /// The message that the model receives by default.
    pub default: Message,
}

/// Return types of a function of a [`ToolAnswer`]: the messages, an `Option` of them where `None`
/// keeps the default, a `Result` of either, or a future of one of these that owns what it uses. `M`
/// distinguishes futures.
#[diagnostic::on_unimplemented(
    message = "a function for tool result messages cannot return `{Self}`",
    label = "neither messages nor a `Send + 'static` future of them",
    note = "return a `Vec<Message>`, an `Option` of one, or a `Result` of either"
)]
pub trait IntoToolMessages<M> {
    /// Converts the returned value to a future.
    fn into_tool_messages(self, _: Seal) -> MaybeFuture<'static, Result<Option<Vec<Message>>>>;
}

/// Return types of such a function, without a future.
pub trait ToolMessages {
    /// Returns the messages; `None` keeps the default.
    ///
    /// # Errors
    ///
    /// Returns the callback's error.
    fn messages(self, _: Seal) -> Result<Option<Vec<Message>>>;
}

impl ToolMessages for Vec<Message> {
    fn messages(self, _: Seal) -> Result<Option<Vec<Message>>> {
        Ok(Some(self))
    }
}

impl ToolMessages for Option<Vec<Message>> {
    fn messages(self, _: Seal) -> Result<Option<Vec<Message>>> {
        Ok(self)
    }
}

impl<T: ToolMessages> ToolMessages for Result<T> {
    fn messages(self, _: Seal) -> Result<Option<Vec<Message>>> {
        self?.messages(Seal)
    }
}

#[diagnostic::do_not_recommend]
impl<T: ToolMessages> IntoToolMessages<Now> for T {
    fn into_tool_messages(self, _: Seal) -> MaybeFuture<'static, Result<Option<Vec<Message>>>> {
        MaybeFuture::ready(self.messages(Seal))
    }
}

#[diagnostic::do_not_recommend]
impl<F: Future<Output: ToolMessages> + Send + 'static> IntoToolMessages<Later> for F {
    fn into_tool_messages(self, _: Seal) -> MaybeFuture<'static, Result<Option<Vec<Message>>>> {
        MaybeFuture::pending(async move { self.await.messages(Seal) })
    }
}

/// A function that decides which messages the model receives for a tool result.
#[derive(Clone)]
pub(crate) struct ShowTool(Arc<Show>);

type Show = dyn Fn(ToolAnswer) -> MaybeFuture<'static, Result<Option<Vec<Message>>>> + Send + Sync;

impl ShowTool {
    pub(crate) fn new<F, O, M>(function: F) -> Self
    where
        F: Fn(ToolAnswer) -> O + Send + Sync + 'static,
        O: IntoToolMessages<M>,
    {
        Self(Arc::new(move |answer| {
            function(answer).into_tool_messages(Seal)
        }))
    }

    /// Returns the messages for a result. One of them is the call's result, by default the default
    /// message.
    pub(crate) async fn show(&self, answer: ToolAnswer) -> Result<Vec<Message>> {
        // The function takes the answer, and may return nothing.
        let default = answer.default.clone();
        let id = answer.call.id.clone();
        // It may panic before its future exists, and while that runs.
        let shown = match catch(|| (self.0)(answer)) {
            Ok(future) => CatchPanic::new(future).await,
            Err(panic) => Err(panic),
        };
        let failed = |panic| {
            let message = format!("`tool_result_messages` panicked: {panic}");
            Error::new(ErrorKind::Callback, message)
        };
        let shown = shown.unwrap_or_else(|panic| Err(failed(panic)));
        let shown = shown.map_err(|error| error.by(|| "tool_result_messages".into(), "after"))?;
        let Some(mut shown) = shown else {
            return Ok(vec![default]);
        };
        for message in &mut shown {
            // Their ids say which call has brought them: with one of its own, a text of a tool
            // could pass for a message of the user.
            if message.id().is_some() {
                message.clear_id();
            }
        }
        let results: Vec<_> = shown.iter().flat_map(Message::tool_results).collect();
        match results[..] {
            [one] if one.call_id == id => Ok(shown),
            _ => Ok(with_one_answer(&id, &shown, default)),
        }
    }
}

/// Merges the results of the call into one, since providers accept only one; results of other calls
/// are shown beside it.
fn with_one_answer(id: &str, shown: &[Message], default: Message) -> Vec<Message> {
    let mut answer: Option<ToolResult> = None;
    let mut others = Vec::new();
    for message in shown {
        if message.tool_results().next().is_none() {
            others.push(message.clone());
            continue;
        }
        let mut remaining = Vec::new();
        for part in message.parts() {
            match (part, &mut answer) {
                (Part::ToolResult(result), None) if *result.call_id == *id => {
                    answer = Some(result.clone());
                }
                (Part::ToolResult(result), Some(answer)) if *result.call_id == *id => {
                    answer.parts.extend(result.parts.iter().cloned());
                    answer.is_error |= result.is_error;
                    answer.is_error_text |= result.is_error_text;
                }
                (Part::ToolResult(result), _) => remaining.extend(result.parts.iter().cloned()),
                (part, _) => remaining.push(part.clone()),
            }
        }
        if !remaining.is_empty() {
            others.push(Message::new(message.role(), remaining));
        }
    }
    std::iter::once(answer.map_or(default, Message::tool))
        .chain(others)
        .collect()
}

impl fmt::Debug for ShowTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShowTool").finish_non_exhaustive()
    }
}
