//! `async fn(TranslateRequest) -> Result<TranslateResponse, Error>`
//!
//! The translate call: converts one event of an agent to events for the client. It supports
//! callbacks and layers as the other three calls do. What a hook can do here:
//!
//! | to | use |
//! |---|---|
//! | change the agent's event | change [`event_mut`](TranslateRequest::event_mut) in a `before` |
//! | drop an event | `Action::Respond(TranslateResponse::none())` in a `before` |
//! | translate it differently | `Action::Respond(TranslateResponse::new([..]))` in a `before` |
//! | change, drop or add events | `Action::Respond(..)` in an `after` |
//! | end the run | an error: the client receives one `RUN_ERROR`, and the agent is cancelled |
//!
//! The service, [`Translate`], is stateless. If callbacks change the order of events, the
//! [`OrderKeeper`](super::OrderKeeper) repairs it afterwards; its table says what it repairs and
//! what it rejects. The end of a run is always sent, even if a callback drops it.
//!
//! ```
//! use tower_agent::stream::EventKind;
//! use tower_agent::Action;
//! use tower_agent_agui::{AgUi, Event, TranslateResponse, before_translate};
//! # use tower_agent::Agent;
//! # use tower_agent_test::{ScriptedModel, Turn};
//!
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! # let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")])).build()?;
//! // Shows the client which callbacks ran; by default it receives no such events, and nothing of
//! // what guards have decided.
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
//! # Mapping
//!
//! | agent event | client events |
//! |---|---|
//! | run started, finished, failed | `RUN_STARTED`, `RUN_FINISHED` with the token usage, and where the run has no whole answer with the result `{"endReason", "message"}`, whose `endReason` is `cut_off`, `filtered`, `refused` or `empty`, `iteration_limit`, `stop_condition` or `ended_by_callback`; `RUN_ERROR` with a code and a [message for the client](crate::AgUiBuilder::failure_message) |
//! | run interrupted | `STATE_SNAPSHOT`, `MESSAGES_SNAPSHOT`, `RUN_FINISHED` with the interrupts. If it waits only for tools of the client, with the pending calls instead; a client that does not declare version 1.0 receives no such list, because it would reject it and finds the calls itself. Interrupts [for a role](tower_agent::Interrupt::for_role) that the client does not have are left out: it receives an `ACTIVITY_SNAPSHOT` of type `WAITING` instead, with the content `{"for": [{"role", "toolCallId"}]}`, and can go on |
//! | run started, after somebody else has [answered](crate::AgUi::answer) or [another device](crate#several-devices) has gone on | a `MESSAGES_SNAPSHOT` with what the client has missed, and the activity `WAITING` without anybody to wait for |
//! | agent entered, left | for an agent used as a tool `SUBAGENT_STARTED`, `SUBAGENT_FINISHED`, `SUBAGENT_ERROR`, and its events carry its id; nothing for an agent that continues a conversation |
//! | step | `STEP_STARTED`, `STEP_FINISHED`, named by the agent's path and the turn |
//! | text, reasoning, tool calls | the corresponding start, content and end events; a call whose id was used before is prefixed with the id of its message or subagent |
//! | provider data of a tool call | `REASONING_ENCRYPTED_VALUE` |
//! | tool result | `TOOL_CALL_RESULT`; if the tool failed, with the metadata `{"isError": true}`, which the tool message takes over, and not with the text of an error |
//! | state | `STATE_SNAPSHOT`, `STATE_DELTA`; only snapshots once a key such as `__proto__` has changed, since the official client drops a delta with such a key |
//! | attempt discarded, response replaced | `MESSAGES_SNAPSHOT` without the message |
//! | custom | `CUSTOM` |
//! | usage, notes of callbacks and guards | nothing |
//!
//! # As callbacks of trpc-agent-go
//!
//! ```
//! use tower_agent_agui::{AgUi, Event, after_translate, before_translate};
//! use tower_agent::stream::EventKind;
//! use tower_agent::{Action, Agent};
//! use tower_agent::compat::CallbackSemantics;
//! use tower_agent_test::{ScriptedModel, Turn};
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

mod iso_8601;
mod request;
mod response;
mod service;
mod state;

use std::future::Future;

pub use self::request::TranslateRequest;
pub(super) use self::request::TranslateRun;
pub use self::response::TranslateResponse;
pub use self::service::Translate;
pub(super) use self::service::{failed, subagent, translate, translate_piece, translate_through};

use tower_agent::callback::{self, After, Before, IntoHook, IntoRecoveryHook, Next, OnError, Wrap};
use tower_agent::error::{Error, Result};

/// Creates a callback that runs before each event is translated.
#[track_caller]
pub fn before_translate<F, O, M>(function: F) -> Before<TranslateRequest, F, O, M>
where
    F: Fn(&mut TranslateRequest) -> O + Send + Sync + 'static,
    O: IntoHook<TranslateResponse, M>,
{
    callback::before(function)
}

/// Creates a callback that runs after each event was translated.
#[track_caller]
pub fn after_translate<F, O, M>(function: F) -> After<TranslateRequest, F, O, M>
where
    F: Fn(&TranslateRequest, &TranslateResponse) -> O + Send + Sync + 'static,
    O: IntoHook<TranslateResponse, M>,
{
    callback::after(function)
}

/// Creates a callback that runs when the translation of an event has failed.
#[track_caller]
pub fn on_translate_error<F, O, M>(function: F) -> OnError<TranslateRequest, F, O, M>
where
    F: Fn(&mut TranslateRequest, &Error) -> O + Send + Sync + 'static,
    O: IntoRecoveryHook<TranslateResponse, M>,
{
    callback::on_error(function)
}

/// Creates a callback around the translation of each event.
#[track_caller]
pub fn wrap_translate<F, O>(function: F) -> Wrap<TranslateRequest>
where
    F: Fn(TranslateRequest, Next<TranslateRequest>) -> O + Send + Sync + 'static,
    O: Future<Output = Result<TranslateResponse>> + Send + 'static,
{
    callback::wrap(function)
}
