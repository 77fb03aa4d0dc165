//! Keeps what a model is sent inside its context window.
//!
//! ```text
//! ContextWindow: Callback<ModelRequest>
//! ```
//!
//! When a prompt has more tokens than [`new`](ContextWindow::new) allows, it is shortened until it
//! has at most [`cut_to`](ContextWindow::cut_to):
//!
//! 1. The results of the oldest tool calls are replaced by a note with the tool's name, all but the
//!    [latest](ContextWindow::keep_results).
//! 2. If that is not enough, the oldest messages are left out, and the model reads that they were,
//!    or a [summary](ContextWindow::summariser) of them. A tool call and its results go together.
//!    The instructions, the last message of the user and the last step of the model stay.
//! 3. If that step alone has more than there is room for, its results are shortened, the longest
//!    first: the model reads their beginnings and ends, and how much is missing between.
//!
//! Only the request is shortened: the transcript, checkpoints and sessions keep every message.
//!
//! ```
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_middleware::context_window::ContextWindow;
//! use tower_agent_test::{ScriptedModel, Turn};
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
//! # Summaries and looking back
//!
//! A model of yours summarises what is left out. It is called by an agent of its own in the run,
//! without tools: it is charged to the same budget, traced, guarded by global callbacks, kept in a
//! journal, and told in a stream as the work of another agent, named `summary_m17` by the last
//! message. Each message is read by it once; the next summary replaces the one before, and is made
//! of it. A summary is kept in the conversation's [private
//! state](tower_agent::RunContext::private_state) with the last of the messages that it stands for,
//! so a run that goes on in another process does not pay for it again, and [`flow`](crate::flow)
//! gives it their labels. If the model fails, the messages are left out without a summary, and the
//! next one makes up for it; if the run is aborted or cancelled, the call fails. Attempts at one
//! call that run side by side, as those of a [hedge](crate::hedge) around the window, share a
//! summary: the second waits until the first has made it. Put a hedge around the summariser if that
//! is slow.
//!
//! With the tool [`look_back`](ContextWindow::look_back), the model reads a message or a result
//! again that was left out. What it finds is put into the request, and is in the conversation once.
//!
//! ```
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_middleware::context_window::ContextWindow;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # fn main() -> Result<(), BoxError> {
//! # let model = ScriptedModel::new([Turn::from_text("Hello.")]);
//! # let small_model = ScriptedModel::new([]);
//! let agent = Agent::builder(model)
//!     .tool(ContextWindow::look_back())
//!     .on_model(ContextWindow::new(100_000).cut_to(60_000).summariser(small_model))
//!     .build()?;
//! # drop(agent);
//! # Ok(())
//! # }
//! ```
//!
//! # The provider's cache
//!
//! Between two cuts, each request begins with the messages of the one before, so that the
//! provider's prompt cache holds. A cut is made for many calls at once: the lower `cut_to`, the
//! rarer. Where the cuts are follows from the transcript and the summary alone, so that a run which
//! is resumed, or made again from a journal, sends the same requests.
//!
//! # If the model finds the prompt too long
//!
//! Tokens are estimated as a fourth of the bytes of text, and 1,000 for an image, a document or
//! audio. With the feature `tokenizer`, those of OpenAI's models are counted exactly
//! (`tokenizer_of`); for others, set [`count_tokens`](ContextWindow::count_tokens). If a call fails
//! with [`ContextLength`](tower_agent::ErrorKind::ContextLength) all the same, the prompt is
//! shortened to three quarters of what it was, and the call is made once more, unless a delta of
//! its answer has been read. The rest of the run keeps to the smaller limit; a run that is resumed
//! in another process finds it again.
//!
//! # Where to put it
//!
//! Inside callbacks that read the whole conversation, such as [`loop_guard`](crate::loop_guard),
//! and outside those that add to the prompt. Registered on an agent, it is for that agent; its
//! sub-agents have prompts of their own.

mod counted;
mod cut;
mod estimated;
mod look_back;
mod rendered;
mod summarise;
mod summary;
#[cfg(feature = "tokenizer")]
mod tokenizer;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::Mutex;
use tower_agent::Tool;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback, Recovery};
use tower_agent::context::RunContext;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Message, MessageId};
use tower_agent::model::{BoxModel, ModelRequest, ModelResponse, ModelService};

use self::counted::{CountTokens, CountedPrompt, PromptTokens};
use self::cut::{Bounds, Cutting, Prompt, ShortenedPrompt};
use self::estimated::estimated_tokens;
use self::summarise::{SummaryCall, is_summarising};
use self::summary::Summary;
use crate::flow::{Label, is_guarded, label_message, note_shortened, note_stands_for};

/// Shortens what a model is sent.
///
/// See the [module](self).
#[derive(Clone)]
#[must_use = "a callback does nothing until it is registered"]
pub struct ContextWindow {
    bounds: Bounds,
    count: Arc<CountTokens>,
    summariser: Option<BoxModel>,
}

/// The summary in a request.
struct ShownSummary(Message);

/// The request was shortened after an error, which is done once.
struct Recovered;

impl ContextWindow {
    /// Allows this many tokens in a prompt: messages, instructions and tools. Leave room for the
    /// answer.
    pub fn new(max_tokens: u64) -> Self {
        Self {
            bounds: Bounds {
                max: max_tokens,
                cut_to: max_tokens / 2,
                keep_results: 3,
                summary: 0,
            },
            count: Arc::new(estimated_tokens),
            summariser: None,
        }
    }

    /// Sets the number of tokens that a prompt has at most after a cut. Defaults to half of the
    /// maximum.
    pub fn cut_to(mut self, tokens: u64) -> Self {
        self.bounds.cut_to = tokens;
        self
    }

    /// Sets how many of the latest messages with results of tools are never replaced by a note.
    /// Defaults to 3.
    pub fn keep_results(mut self, results: usize) -> Self {
        self.bounds.keep_results = results;
        self
    }

    /// Sets the function that counts the tokens of a message. It is called for each message, for
    /// the instructions and for each tool once in a run, and must say the same of a message each
    /// time.
    pub fn count_tokens(mut self, count: impl Fn(&Message) -> u64 + Send + Sync + 'static) -> Self {
        self.count = Arc::new(count);
        self
    }

    /// Counts tokens as this model of OpenAI does, with its own tokenizer. A model whose tokenizer
    /// is not known, such as one of another provider, is counted as [before](Self::count_tokens).
    ///
    /// ```
    /// use tower_agent_middleware::context_window::ContextWindow;
    ///
    /// let window = ContextWindow::new(100_000).tokenizer_of("gpt-5-mini");
    /// # drop(window);
    /// ```
    #[cfg(feature = "tokenizer")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tokenizer")))]
    pub fn tokenizer_of(self, model: &str) -> Self {
        match tokenizer::TokenCounter::of_model(model) {
            Some(counter) => self.count_tokens(move |message| counter.count(message)),
            None => self,
        }
    }

    /// Summarises messages before they are left out, with this model, which may have layers of its
    /// own. The summary has at most a fourth of the tokens of [`cut_to`](Self::cut_to). Defaults to
    /// none: the messages are left out.
    pub fn summariser(mut self, model: impl ModelService) -> Self {
        self.summariser = Some(BoxModel::new(model));
        self
    }

    /// Returns the tool `look_back`, with which the model reads a message or a result that was
    /// cleared or left out. Add it to the agent: what is left out is then named to the model.
    pub fn look_back() -> Tool {
        look_back::tool()
    }

    /// Returns the bounds of a run, which an error may have made smaller.
    fn bounds_in(&self, context: &RunContext) -> Result<Bounds> {
        let max = context.values().get::<u64>(&key(context))?;
        let bounds = Bounds {
            summary: self
                .summariser
                .as_ref()
                .map_or(0, |_| self.bounds.cut_to / 4),
            ..self.bounds
        };
        Ok(max.map_or(bounds, |max| bounds.with_max(*max)))
    }

    fn cutting<'a>(&'a self, request: &'a ModelRequest, bounds: Bounds) -> Cutting<'a> {
        let shown = request.extensions().get::<ShownSummary>();
        Cutting {
            bounds,
            count: &*self.count,
            can_look_back: look_back::is_offered(request),
            stays: shown.map(|ShownSummary(message)| message),
        }
    }

    /// Returns the shorter prompt of a request, if it needs one.
    async fn shortened(&self, request: &ModelRequest) -> Result<Option<ShortenedPrompt>> {
        let context = request.context();
        let cutting = self.cutting(request, self.bounds_in(context)?);
        let messages = request.messages();
        let tokens = CountedPrompt::tokens(request, &self.count)?;
        let summariser = self.summariser.as_ref();
        let Some(model) = summariser.filter(|_| !is_summarising(context)) else {
            return Ok(Prompt::new(messages, &tokens, cutting, None).shortened());
        };
        let key = summary_key(context, self.bounds.max);
        // The attempts of a hedge run side by side: the second finds the summary of the first, and
        // makes one only if the first was dropped. An asynchronous mutex: nobody is blocked while a
        // summary is made.
        let name = format!("{key} turn");
        let turns = context.values();
        let turn = turns.update(&name, |turn: &mut Arc<Mutex<()>>| turn.clone())?;
        let turn = turn.lock().await;
        let earlier = Summary::find(context, &key);
        let mut prompt = Prompt::new(messages, &tokens, cutting, earlier.as_ref());
        // One of another conversation is not gone on from.
        let earlier = earlier.filter(|_| prompt.has_summary());
        let call = SummaryCall {
            model,
            request,
            cutting,
            key: &key,
        };
        self.summarise(&mut prompt, call, earlier).await?;
        drop(turn);
        Ok(prompt.shortened())
    }

    /// Summarises what is left out of a prompt, if it has not been tried before.
    async fn summarise(
        &self,
        prompt: &mut Prompt<'_>,
        call: SummaryCall<'_>,
        earlier: Option<Summary>,
    ) -> Result<()> {
        let context = call.request.context();
        let left_out = prompt.unsummarised();
        let Some(last) = left_out.last().and_then(|message| message.id().cloned()) else {
            return Ok(());
        };
        let failed = format!("{} failed", call.key);
        let values = context.values();
        if values.get::<MessageId>(&failed)?.as_deref() == Some(&last) {
            return Ok(());
        }
        let Err(error) = call.summarise(prompt, earlier).await else {
            return Ok(());
        };
        if error.is_ending() || error.kind() == ErrorKind::Cancelled {
            return Err(error);
        }
        // A run goes on without a summary, as it would if none were wanted. The next one, which is
        // made once the prompt is too long again, is of these messages as well.
        tracing::warn!(run_id = context.run_id(), agent = context.path(), %error, "no summary: earlier messages are left out");
        values.set(failed, last);
        Ok(())
    }
}

/// Returns the error of a prompt that is too long, and of which nothing may be left out.
fn nothing_left(error: &Error, tokens: u64) -> Error {
    let message = format!(
        "{}; the window can leave nothing out of these {tokens} tokens: shorten the instructions, \
         the tools, the last message of the user or the arguments of the last step",
        error.message()
    );
    error.clone().with_message(message)
}

/// Puts what was looked for into the results of `look_back`.
fn show_what_was_looked_for(request: &mut ModelRequest) {
    if !look_back::is_offered(request) {
        return;
    }
    let all = look_back::show(request.messages_mut());
    if !is_guarded(request) {
        return;
    }
    for shown in all {
        let mut says = shown.sources;
        says.push(shown.result);
        note_stands_for(request, &shown.shown, says);
    }
}

/// Replaces the messages of a request by those of a shorter prompt.
fn replace(request: &mut ModelRequest, prompt: ShortenedPrompt) {
    let ShortenedPrompt {
        messages,
        note,
        summary,
        summarised,
    } = prompt;
    let earlier = std::mem::replace(request.messages_mut(), messages.clone());
    if let Some(summary) = &summary {
        let shown = ShownSummary(summary.message.clone());
        request.extensions_mut().insert(shown);
    }
    if !is_guarded(request) {
        return;
    }
    label_message(request, &note, Label::trusted());
    if let Some(summary) = summary {
        match summary.label {
            Some(label) => label_message(request, &summary.message, label),
            // It was made when no guard was there.
            None => note_stands_for(request, &summary.message, summarised),
        }
    }
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

/// Returns the key of the summary of an agent's conversation in the private state. It is forgotten
/// with the tool call that the agent works in. Two windows of different sizes have a summary each.
fn summary_key(context: &RunContext, max_tokens: u64) -> String {
    let agent = context.step_path();
    let name = format!("tower_agent_middleware.context_window.summary {max_tokens} {agent}");
    context.outer_call_key(&name).unwrap_or(name)
}

impl Callback<ModelRequest> for ContextWindow {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        show_what_was_looked_for(request);
        if let Some(shorter) = self.shortened(request).await? {
            replace(request, shorter);
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
        let tokens = PromptTokens::of(request, &*self.count);
        let max = tokens.total() / 4 * 3;
        let cutting = self.cutting(request, self.bounds.with_max(max));
        let messages = request.messages().clone();
        // Without another summary: the next call makes it, with the limit that is known then.
        let Some(shorter) = Prompt::new(&messages, &tokens, cutting, None).shortened() else {
            return Ok(Recovery::Fail(nothing_left(error, tokens.total())));
        };
        replace(request, shorter);
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
            .field("summariser", &self.summariser)
            .finish_non_exhaustive()
    }
}
