//! Serves an agent over HTTP to clients that speak AG-UI 1.0.
//!
//! ```text
//! RunAgentInput  ->  Event*
//! ```
//!
//! The client posts a [`RunAgentInput`], and the server responds with a stream of [`Event`]s.
//!
//! | | |
//! |---|---|
//! | [`Event`], [`RunAgentInput`], [`Message`] and their parts | the protocol's types |
//! | [`order`] | [`OrderKeeper`]: keeps events in an order that the client accepts |
//! | [`conversation`] | converts messages to and from [`tower_agent::message::Messages`]; [`Conversation`]: the messages that the client has |
//! | [`sse`] | events as bytes |
//! | [`translate`] | converts an agent's events to the client's: the fourth call, with callbacks and layers |
//! | [`server`] | serves an agent over HTTP |
//! | [`conversations`] | the server's data about its threads, and the stores for it: the crate [`tower_agent_conversations`] |
//!
//! # Trust
//!
//! The server itself keeps what the model said, what tools returned and which interrupts are open.
//! From the client it accepts only the client's own data:
//!
//! | in the input | effect |
//! |---|---|
//! | user messages with a new id | accepted |
//! | system and developer messages with a new id | rejected unless the server [allows them](AgUiBuilder::allow_system_messages) |
//! | user, system and developer messages whose ids the server knows | rejected if their content is another one |
//! | messages of the agent whose ids the server knows | the server's version is used, whatever the client changed |
//! | results of the client's tools, for calls that the server sent | accepted; rejected while somebody else is to say whether the call may be made |
//! | results of the server's own tools | the server's version is used; rejected if there is none, unless the client has sent another one for the call since, or a user message |
//! | tool messages that repeat the answer to an interrupt of their call, as CopilotKit sends them beside `resume` | ignored, also later; rejected if they say something else |
//! | assistant and reasoning messages that the server does not know | rejected; dropped if they come from a run of the thread that broke off |
//! | answers to interrupts (`resume`) | accepted once, if the interrupt is open in this thread, for the call and the arguments in question; otherwise rejected if they would allow a call |
//! | answers to interrupts [for a role](tower_agent::Interrupt::for_role) | rejected, also if they cancel, unless the sender [has the role](AgUiBuilder::roles) |
//! | messages, while somebody else than the client is to answer, or a question is open that the client has not received | kept: they follow the answer, and the question stays open |
//! | known messages that the client omits | dropped if the client has received them; otherwise kept, and sent to it first |
//! | tools with the name of one of the agent's own | rejected |
//! | state, context, other tools, forwarded properties, names | accepted: do not let a guard rely on them |
//! | URLs of images, audio and documents | accepted if they are public, or [your function](AgUiBuilder::allow_urls) accepts them |
//! | files of a provider | rejected |
//! | activities, messages of subagents | ignored: no model reads them |
//!
//! If the client omits a known message, it is dropped from the conversation, unless it omits all
//! and the server [allows that](AgUiBuilder::allow_partial_history), or it has [not
//! received](#several-devices) the message. A new message in its place starts a branch, and a known
//! message that reappears belongs to the conversation again. The run continues from the server's
//! version of the kept messages. A call and its result are kept or dropped together. An open
//! interrupt can be answered only in the conversation that raised it. To change a user message,
//! send the new one with a new id.
//!
//! If the server does not know the thread (it is new, was evicted, or belongs to another
//! principal), the input is only text for the model to read: tool calls and results in it become
//! notes in the user's name, and answers to interrupts are rejected.
//!
//! | with | guarantee |
//! |---|---|
//! | a store (default: [`MemoryConversations`](conversations::MemoryConversations), in this process) | an answer is claimed before the run starts, and a tool result is saved before the client receives it. Of concurrent requests for one thread only one runs, and **an approved call runs at most once**, even if the run fails, the client disconnects or the process dies |
//! | [`stateless`](AgUiBuilder::stateless) and a key | the same within one process: another process with the key, or this one after a restart, accepts an answer again |
//! | [`principal`](AgUiBuilder::principal) | a thread belongs to its principal; to others it is unknown |
//! | no principal | any client that knows the id of a thread can continue it and answer its interrupts: use ids that cannot be guessed, or serve one user |
//! | no store and no key | not possible: no configuration lets a client speak for the model |
//!
//! There is no at-least-once guarantee. If a run breaks off during a call, the call is not repeated
//! unless its [effect](tower_agent::tool::Effect) allows it. The model reads that the outcome is
//! unknown and may call again, which is a new call and a new approval. After a run that broke off,
//! the same `resume` is accepted again: the first answer counts, and the run continues after the
//! work already done. Calls and results of a run that broke off stay in the conversation, even if
//! the client never received them.
//!
//! # Who else answers
//!
//! A question [for a role](tower_agent::Interrupt::for_role), such as that of an
//! [approval](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/approval/struct.Approval.html#method.by_role)
//! by support, is not the client's. The client is told with an activity that somebody is waited
//! for, and its run ends as one that has succeeded. [`AgUi::questions`] lists the open questions of
//! all threads for those who have a role, and [`AgUi::answer`] goes on in the server, without the
//! client. With its next run the client receives what it has missed: the tool's result and what the
//! agent has said. [`InboxService`](conversations::InboxService) is both over HTTP. The guide
//! [staff approves](guide::staff_approves) has the whole.
//!
//! # Several devices
//!
//! A `GET` request with the id of the thread, `/agent?threadId=..`, reads a thread on another
//! device or after a reload. Its response is a stream of events, as that of a run: `RUN_STARTED`,
//! `STATE_SNAPSHOT`, `MESSAGES_SNAPSHOT`, and `RUN_FINISHED` with the open interrupts.
//! [`AgUi::show`] returns the same events. The device then goes on as if it had been the only one.
//! With the official client:
//!
//! ```js
//! class Device extends HttpAgent {
//!   connect({ threadId }) {
//!     const url = `${this.url}?${new URLSearchParams({ threadId })}`;
//!     return transformHttpEventStream(runHttpRequest(() => fetch(url, { headers: this.headers })));
//!   }
//! }
//! const device = new Device({ url: "/agent", threadId });
//! await device.connectAgent();
//! ```
//!
//! The messages are those that a client of the thread has received or sent, with the same ids and
//! in the same form: what callbacks around the translation have changed or dropped, the reasoning
//! that was not streamed, and the texts of errors are as hidden as they were. The state and the
//! interrupts pass through these callbacks as at the end of a run that is interrupted. To a
//! principal that does not own the thread, the response is that for a thread that does not exist.
//!
//! The first message has a mark in its metadata, `reader`, which the client sends back. By it the
//! server tells the devices apart. If one device has gone on with the thread, the next run of
//! another one starts with a `MESSAGES_SNAPSHOT` that adds what this device has missed, and the
//! model reads it in its place. A device that omits messages that it *has* received drops them, as
//! an edit does. Devices that have not read the thread from the server have no mark and count as
//! one. The state is that of the device that starts a run.
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
//! A server that pays refunds, and what a client can say to it; `cargo run --example trust` runs
//! it.
//!
//! ```
#![doc = include_str!("../examples/trust.rs")]
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests, examples and benches may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod bounds;
mod client_tool;
pub mod conversation;
mod failure;
mod flow;
pub mod guide;
mod input;
mod lock;
pub mod order;
mod permit;
mod run;
pub mod server;
mod show;
mod shown;
pub mod sse;
mod thread_input;
pub mod translate;
mod wire;

#[doc(no_inline)]
pub use tower_agent_conversations as conversations;

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
    Content, ContentPart, Context, EncryptedEntity, Event, EventKind, ForwardedProps, FunctionCall,
    InputError, InputErrorKind, Interrupt, MediaPart, Message, MessageKind, PROTOCOL_VERSION,
    PartSource, Patch, PatchOperation, ReasoningRole, ResumeEntry, ResumeStatus, RunAgentInput,
    RunError, RunFinished, RunOutcome, RunStarted, SubagentOutcome, SubagentStarted, TextPart,
    TextRole, TokenUsage, Tool, ToolCall,
};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
