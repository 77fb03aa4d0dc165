//! `async fn(TranslateRequest) -> Result<TranslateResponse, Error>`
//!
//! The fourth call: one event of an agent becomes the events that a front end is sent. It takes
//! callbacks and layers as the other three do; what one hook may do here:
//!
//! | to | write |
//! |---|---|
//! | change what is translated | change [`event_mut`](TranslateRequest::event_mut) in a `before` |
//! | drop an event | `Action::Respond(TranslateResponse::none())` in a `before` |
//! | translate it otherwise | `Action::Respond(TranslateResponse::new([..]))` in a `before` |
//! | change, drop or add to what is sent | `Action::Respond(..)` in an `after` |
//! | end the run | an error: the front end is sent one `RUN_ERROR`, and the agent is cancelled |
//!
//! The service, [`Translate`], knows nothing of what came before. What callbacks make of the order
//! is put right behind them, by the [`OrderKeeper`](super::OrderKeeper), whose table says what it
//! mends and what it refuses. The end of a run is always sent, also where a callback drops it.
//!
//! ```
//! use tower_agent::stream::EventKind;
//! use tower_agent::Action;
//! use tower_agent_agui::{AgUi, Event, TranslateResponse, before_translate};
//! # use tower_agent::Agent;
//! # use tower_agent::testing::{ScriptedModel, Turn};
//!
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! # let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")])).build()?;
//! // Lets the front end see which callback ran, which it is not told unless asked for.
//! let server = AgUi::builder(agent).on_translate(before_translate(|request| {
//!     match &request.event().kind {
//!         EventKind::Callback(note) => {
//!             let told = Event::custom("callback", note.callback.as_ref());
//!             Action::Respond(TranslateResponse::new([told]))
//!         }
//!         _ => Action::Continue,
//!     }
//! })).build();
//! # drop(server);
//! # Ok(())
//! # }
//! ```
//!
//! # What becomes what
//!
//! | an agent's event | the front end's |
//! |---|---|
//! | run started, finished, failed | `RUN_STARTED`, `RUN_FINISHED` with the tokens used, `RUN_ERROR` with a code |
//! | run interrupted | `STATE_SNAPSHOT`, `MESSAGES_SNAPSHOT`, `RUN_FINISHED` with the interrupts; with the pending calls alone, if all it waits for are the front end's own tools, and without those for a front end that does not say that it speaks 1.0: it finds them itself, and refuses the list |
//! | agent entered, left | for an agent used as a tool `SUBAGENT_STARTED`, `SUBAGENT_FINISHED`, `SUBAGENT_ERROR`, and its events bear its name; none for one that goes on with a conversation |
//! | step | `STEP_STARTED`, `STEP_FINISHED`, named by the agent's path and the turn |
//! | text, reasoning, tool calls | the same, start, content and end; a call that is named as an earlier one was gets the name of its message, or of the subagent, in front |
//! | what a provider added to a tool call | `REASONING_ENCRYPTED_VALUE` |
//! | tool result | `TOOL_CALL_RESULT`; with the metadata `{"isError": true}`, which becomes that of the tool message, if the tool has failed |
//! | state | `STATE_SNAPSHOT`, `STATE_DELTA`; snapshots alone, once a key such as `__proto__` has changed: the official client drops a delta that names one |
//! | attempt discarded, response replaced | `MESSAGES_SNAPSHOT` without the message |
//! | custom | `CUSTOM` |
//! | usage, callback notes | nothing |
//!
//! # As callbacks of trpc-agent-go
//!
//! ```
//! use tower_agent_agui::{AgUi, Event, after_translate, before_translate};
//! use tower_agent::stream::EventKind;
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Action, Agent};
//! use tower_agent::compat::CallbackSemantics;
//!
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! # let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hello")])).build()?;
//! let server = AgUi::builder(agent)
//!     .semantics(CallbackSemantics::trpc(false, false))
//!     .on_translate(before_translate(|request| {
//!         if let EventKind::TextDelta { text, .. } = &mut request.event_mut().kind {
//!             *text = text.replace("hello", "good day");
//!             return Action::SkipRest;
//!         }
//!         Action::Continue
//!     }))
//!     .on_translate(after_translate(|request, response| match request.event().kind {
//!         EventKind::RunStarted { .. } => {
//!             let mut response = response.clone();
//!             response.events_mut().push(Event::custom("greeting", "polite"));
//!             Action::Respond(response)
//!         }
//!         _ => Action::Continue,
//!     }))
//!     .build();
//! # drop(server);
//! # Ok(())
//! # }
//! ```

mod names;
mod request;
mod response;
mod service;
mod state;

use std::future::Future;

pub use self::request::TranslateRequest;
pub(super) use self::request::TranslateRun;
pub use self::response::TranslateResponse;
pub use self::service::Translate;
pub(super) use self::service::{translate, translate_piece};

use tower_agent::callback::{self, After, Before, IntoHook, IntoRecoveryHook, Next, OnError, Wrap};
use tower_agent::error::{Error, Result};

/// A callback before each event is translated.
#[track_caller]
pub fn before_translate<F, O, M>(function: F) -> Before<TranslateRequest, F, O, M>
where
    F: Fn(&mut TranslateRequest) -> O + Send + Sync + 'static,
    O: IntoHook<TranslateResponse, M>,
{
    callback::before(function)
}

/// A callback after each event was translated.
#[track_caller]
pub fn after_translate<F, O, M>(function: F) -> After<TranslateRequest, F, O, M>
where
    F: Fn(&TranslateRequest, &TranslateResponse) -> O + Send + Sync + 'static,
    O: IntoHook<TranslateResponse, M>,
{
    callback::after(function)
}

/// A callback for an event whose translation has failed.
#[track_caller]
pub fn on_translate_error<F, O, M>(function: F) -> OnError<TranslateRequest, F, O, M>
where
    F: Fn(&mut TranslateRequest, &Error) -> O + Send + Sync + 'static,
    O: IntoRecoveryHook<TranslateResponse, M>,
{
    callback::on_error(function)
}

/// A function around the translation of each event.
#[track_caller]
pub fn wrap_translate<F, O>(function: F) -> Wrap<TranslateRequest>
where
    F: Fn(TranslateRequest, Next<TranslateRequest>) -> O + Send + Sync + 'static,
    O: Future<Output = Result<TranslateResponse>> + Send + 'static,
{
    callback::wrap(function)
}
