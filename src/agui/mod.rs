//! `RunAgentInput -> Event*`
//!
//! AG-UI 1.0, the protocol between an agent's server and a front end: the front end posts a
//! [`RunAgentInput`], the server answers with a stream of [`Event`]s.
//!
//! | | |
//! |---|---|
//! | [`Event`], [`RunAgentInput`], [`Message`] and what they hold | what travels |
//! | [`order`] | [`OrderKeeper`]: what leaves is in an order that the front end accepts |
//! | [`conversation`] | messages to and from [`crate::Messages`]; [`Conversation`]: what the front end has |
//! | [`sse`] | events as bytes |
//! | [`translate`] | an agent's events to the front end's: the fourth call, with callbacks and layers |
//! | [`server`] | an agent behind HTTP |
//!
//! ```
//! use tower_agent::agui::{Event, OrderKeeper, RunAgentInput, conversation, sse};
//!
//! let body = br#"{
//!     "threadId": "t1",
//!     "runId": "r1",
//!     "messages": [{ "id": "m1", "role": "user", "content": "Hello" }]
//! }"#;
//! let input = RunAgentInput::from_json(body)?;
//! let history = conversation::read(&input.messages)?;
//! assert_eq!(history[0].text(), "Hello");
//!
//! let mut keeper = OrderKeeper::new(input.thread_id.clone(), input.run_id.clone());
//! let mut events = Vec::new();
//! keeper.push(Event::text_content("m2", "Hello yourself"), &mut events)?;
//! keeper.push(Event::run_finished(input.thread_id, input.run_id), &mut events)?;
//!
//! let (mut writer, mut bytes) = (sse::Writer::new(), Vec::new());
//! for event in &events {
//!     writer.write(event, &mut bytes)?;
//! }
//! assert!(bytes.starts_with(b"data: {\"type\":\"RUN_STARTED\""));
//! # Ok::<_, tower_agent::BoxError>(())
//! ```

mod client_tool;
pub mod conversation;
mod input;
pub mod order;
mod run;
pub mod server;
pub mod sse;
pub mod translate;
mod wire;

#[doc(inline)]
pub use self::conversation::Conversation;
#[doc(inline)]
pub use self::order::{OrderKeeper, Violation};
pub use self::run::AgUiRun;
#[doc(inline)]
pub use self::server::{AgUi, AgUiBuilder};
#[doc(inline)]
pub use self::translate::{
    Translate, TranslateRequest, TranslateResponse, after_translate, before_translate,
    on_translate_error, wrap_translate,
};
pub use self::wire::{
    Content, ContentPart, Context, EncryptedEntity, Event, EventKind, FunctionCall, InputError,
    Interrupt, MediaPart, Message, MessageKind, PROTOCOL_VERSION, PartSource, Patch,
    PatchOperation, ReasoningRole, ResumeEntry, ResumeStatus, RunAgentInput, RunError, RunFinished,
    RunOutcome, RunStarted, SubagentOutcome, SubagentStarted, TextPart, TextRole, TokenUsage, Tool,
    ToolCall,
};
