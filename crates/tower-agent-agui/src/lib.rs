//! `RunAgentInput -> Event*`
//!
//! AG-UI 1.0, the protocol between an agent's server and a front end: the front end posts a
//! [`RunAgentInput`], the server answers with a stream of [`Event`]s.
//!
//! | | |
//! |---|---|
//! | [`Event`], [`RunAgentInput`], [`Message`] and what they hold | what travels |
//! | [`order`] | [`OrderKeeper`]: what leaves is in an order that the front end accepts |
//! | [`conversation`] | messages to and from [`tower_agent::message::Messages`]; [`Conversation`]: what the front end has |
//! | [`sse`] | events as bytes |
//! | [`translate`] | an agent's events to the front end's: the fourth call, with callbacks and layers |
//! | [`server`] | an agent behind HTTP |
//! | [`threads`] | what the server knows of its threads, and where that is kept |
//!
//! # Who may say what
//!
//! What the model said, what a tool answered and what was asked is the server's to know. It keeps
//! that itself, and believes the front end only what is the front end's to say:
//!
//! | in the input | counts |
//! |---|---|
//! | user, system and developer messages with a new id | as they are |
//! | messages that the server knows, by their ids | as the server has them, whatever the front end has made of them |
//! | results of tools that the front end declared, for calls that the server handed out | as they are |
//! | results of the server's own tools | as the server has them; refused where it has none |
//! | assistant and reasoning messages that the server does not know | refused; left out, if they are of a run of the thread that broke off |
//! | answers to questions (`resume`) | if the question is open in this very thread, once, for the call and the arguments that were asked about; else refused, where they give consent |
//! | state, context, tools, forwarded properties, names | as they are: nothing that a guard relies on belongs there |
//! | activities, messages of agents within the agent | not at all: no model reads them |
//!
//! A known message that is left out is dropped from the conversation, a new one in its place is a
//! branch, and a known one that comes back belongs to it again: the run goes on from the server's
//! own version of what is kept. A call and its answer stay or go together. While a question is
//! open, only the conversation that it was asked in can answer it. To change a user's message give
//! the new one a new id.
//!
//! Of a thread that the server does not know (it is new, was dropped, or belongs to another) the
//! input is the front end's account: words for the model to read. Tool calls and their answers in
//! it become notes in the user's name, and an answer to a question is refused.
//!
//! | with | holds |
//! |---|---|
//! | a store (the default: [`MemoryThreads`](threads::MemoryThreads), in this process) | an answer is claimed before the run begins, and a tool's answer is saved before the front end is told: of any number of requests for one thread one runs, and **an approved call is made once at most**, also where the run fails, the sender goes away or the process dies |
//! | [`stateless`](AgUiBuilder::stateless) and a key | the same as far as one process can tell: another that has the key, or this one after a restart, takes an answer again |
//! | [`principal`](AgUiBuilder::principal) | a thread is its principal's; the name of another's is as good as unknown |
//! | no principal | any sender who knows the name of a thread speaks in it and answers its questions: use names that cannot be guessed, or one user |
//! | no store and no key | cannot be built: there is no way to let a front end speak for the model |
//!
//! At least once holds nowhere: a call that had begun when its run broke off is not made again,
//! unless its [effect](tower_agent::tool::Effect) says that it may be; the model is told that what it
//! did is not known, and may ask for it anew, which is another call and another question. After a
//! run that broke off, the same `resume` is taken again: the first answer stands, and the run goes
//! on behind what was done. The calls of a run that broke off and their answers stay in the
//! conversation, also where the front end never heard of them.
//!
//! # Example
//!
//! ```
//! use tower_agent_agui::{Event, OrderKeeper, RunAgentInput, conversation, sse};
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
//!
//! # A complete program
//!
//! A server that pays refunds, and what a client can say to it; `cargo run --example trust` runs it.
//!
//! ```
#![doc = include_str!("../examples/trust.rs")]
//! ```

// Tests, examples and benches may; the library may not.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

mod client_tool;
pub mod conversation;
mod input;
mod lock;
pub mod order;
mod run;
pub mod server;
pub mod sse;
pub mod threads;
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
    InputErrorKind, Interrupt, MediaPart, Message, MessageKind, PROTOCOL_VERSION, PartSource,
    Patch, PatchOperation, ReasoningRole, ResumeEntry, ResumeStatus, RunAgentInput, RunError,
    RunFinished, RunOutcome, RunStarted, SubagentOutcome, SubagentStarted, TextPart, TextRole,
    TokenUsage, Tool, ToolCall,
};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
