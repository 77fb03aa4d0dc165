//! Keeps what a model is sent inside its context window.
//!
//! ```text
//! ContextWindow: Callback<ModelRequest>
//! ```
//!
//! When a prompt has more tokens than [`new`](ContextWindow::new) allows, it is shortened until it has at
//! most [`cut_to`](ContextWindow::cut_to):
//!
//! 1. The results of the oldest tool calls are replaced by a note with the tool's name, all but the
//!    [latest](ContextWindow::keep_results).
//! 2. If that is not enough, the oldest messages are left out, and the model reads that they were. A tool call
//!    and its results go together. The instructions, the last message of the user and the last step of the
//!    model stay.
//!
//! Only the request is shortened: the transcript, checkpoints and sessions keep every message.
//!
//! ```
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_middleware::context_window::ContextWindow;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = ScriptedModel::new([Turn::from_text("Hello.")]);
//! // Room for the answer is left in a window of 128,000 tokens.
//! let agent = Agent::builder(model)
//!     .on_model(ContextWindow::new(100_000).cut_to(60_000))
//!     .build()?;
//! # agent.run("Hi.").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The provider's cache
//!
//! Between two cuts, each request begins with the messages of the one before, so that the provider's prompt
//! cache holds. A cut is made for many calls at once: the lower `cut_to`, the rarer. Where the cuts are follows
//! from the transcript alone, so that a run which is resumed, or made again from a journal, sends the same
//! requests.
//!
//! # If the model finds the prompt too long
//!
//! Tokens are estimated as a fourth of the bytes of text, and 1,000 for an image, a document or audio; count
//! them with the tokenizer of your model through [`count_tokens`](ContextWindow::count_tokens). If a call fails
//! with [`ContextLength`](tower_agent::ErrorKind::ContextLength) all the same, the prompt is shortened to three
//! quarters of what it was, and the call is made once more, unless a delta of its answer has been read. The
//! rest of the run keeps to the smaller limit; a run that is resumed in another process finds it again.
//!
//! # Where to put it
//!
//! Inside callbacks that read the whole conversation, such as [`loop_guard`](crate::loop_guard), and outside
//! those that add to the prompt. Registered on an agent, it is for that agent; its sub-agents have prompts of
//! their own.

mod cut;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tower_agent::Request;
use tower_agent::RunContext;
use tower_agent::callback::{Action, Callback, Recovery};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Message, Messages, Part};
use tower_agent::model::{ModelRequest, ModelResponse};

use self::cut::{Bounds, shortened};
use crate::estimate;
use crate::flow::{Label, is_guarded, label_message, note_shortened};

/// Shortens what a model is sent.
///
/// See the [module](self).
#[derive(Clone)]
#[must_use = "a callback does nothing until it is registered"]
pub struct ContextWindow {
    bounds: Bounds,
    count: Arc<CountTokens>,
}

type CountTokens = dyn Fn(&Message) -> u64 + Send + Sync;

/// The tokens of an image, a document or audio, whose size in tokens is not known.
const MEDIA_TOKENS: u64 = 1000;

/// The tokens that a message has beside its parts.
const MESSAGE_TOKENS: u64 = 4;

/// The request was shortened after an error, which is done once.
struct Recovered;

impl ContextWindow {
    /// Allows this many tokens in a prompt: messages, instructions and tools. Leave room for the answer.
    pub fn new(max_tokens: u64) -> Self {
        Self {
            bounds: Bounds {
                max: max_tokens,
                cut_to: max_tokens / 2,
                keep_results: 3,
            },
            count: Arc::new(estimated_tokens),
        }
    }

    /// Sets the number of tokens that a prompt has at most after a cut. Defaults to half of the maximum.
    pub fn cut_to(mut self, tokens: u64) -> Self {
        self.bounds.cut_to = tokens;
        self
    }

    /// Sets how many of the latest messages with results of tools are never replaced by a note. Defaults to 3.
    pub fn keep_results(mut self, results: usize) -> Self {
        self.bounds.keep_results = results;
        self
    }

    /// Sets the function that counts the tokens of a message. It is called for each message of each request, so
    /// it should be fast; it must say the same of a message each time.
    pub fn count_tokens(mut self, count: impl Fn(&Message) -> u64 + Send + Sync + 'static) -> Self {
        self.count = Arc::new(count);
        self
    }

    /// Returns the bounds of a run, which an error may have made smaller.
    fn bounds_in(&self, context: &RunContext) -> Result<Bounds> {
        let max = context.values().get::<u64>(&key(context))?;
        Ok(max.map_or(self.bounds, |max| self.bounds.with_max(*max)))
    }

    fn total(&self, request: &ModelRequest) -> u64 {
        let messages = request.messages().iter();
        fixed_tokens(request) + messages.map(|message| (self.count)(message)).sum::<u64>()
    }

    fn shortened(&self, request: &ModelRequest, bounds: Bounds) -> Option<Messages> {
        shortened(
            request.messages(),
            fixed_tokens(request),
            bounds,
            &*self.count,
        )
    }
}

/// Replaces the messages of a request by fewer or shorter ones.
fn replace(request: &mut ModelRequest, messages: Messages) {
    let earlier = std::mem::replace(request.messages_mut(), messages.clone());
    if !is_guarded(request) {
        return;
    }
    label_message(request, &cut::note(), Label::trusted());
    let by_id: HashMap<_, _> = earlier
        .iter()
        .filter_map(|message| Some((message.id()?, message)))
        .collect();
    let changed = messages.iter().filter_map(|message| {
        let earlier = by_id.get(message.id()?)?;
        (*earlier != message).then_some((*earlier, message))
    });
    note_shortened(request, changed);
}

/// Returns the key of the limit that an agent's model was found to have.
fn key(context: &RunContext) -> String {
    format!("tower_agent_middleware.context_window.{}", context.path())
}

/// Returns the tokens of what is never left out: instructions and tools.
fn fixed_tokens(request: &ModelRequest) -> u64 {
    let instructions = request.instructions().map_or(0, str::len);
    let tools = request.tools().iter();
    let tools = tools.map(|tool| {
        tool.name().len() + tool.description().len() + tool.parameters().to_string().len()
    });
    estimate::tokens(instructions + tools.sum::<usize>())
}

fn estimated_tokens(message: &Message) -> u64 {
    let parts = message.parts();
    let text = parts.iter().map(Part::text_len).sum();
    MESSAGE_TOKENS + estimate::tokens(text) + MEDIA_TOKENS * media(parts)
}

/// Returns the number of images, documents and pieces of audio, also in results of tools.
fn media(parts: &[Part]) -> u64 {
    let of_part = |part: &Part| match part {
        Part::Image(_) | Part::Audio(_) | Part::Document(_) => 1,
        Part::ToolResult(result) => media(&result.parts),
        _ => 0,
    };
    parts.iter().map(of_part).sum()
}

impl Callback<ModelRequest> for ContextWindow {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let bounds = self.bounds_in(request.context())?;
        if let Some(messages) = self.shortened(request, bounds) {
            replace(request, messages);
        }
        Ok(Action::Continue)
    }

    async fn on_error(
        &self,
        request: &mut ModelRequest,
        error: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        let is_too_long = error.kind() == ErrorKind::ContextLength;
        let is_first = request.extensions().get::<Recovered>().is_none();
        // The consumer of a stream must not read the start of two answers.
        if !is_too_long || !is_first || request.is_committed() {
            return Ok(Recovery::Propagate);
        }
        let max = self.total(request) / 4 * 3;
        let Some(messages) = self.shortened(request, self.bounds.with_max(max)) else {
            return Ok(Recovery::Propagate);
        };
        replace(request, messages);
        request.extensions_mut().insert(Recovered);
        let context = request.context();
        context.values().set(key(context), max);
        Ok(Recovery::Retry)
    }
}

impl fmt::Debug for ContextWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextWindow")
            .field("bounds", &self.bounds)
            .finish_non_exhaustive()
    }
}
