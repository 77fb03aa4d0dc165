//! Stored conversations: a session, whose caller is your program, and a thread, whose caller is a
//! client.
//!
//! ```text
//! SessionLayer:   AgentRequest, ConversationKey  ->  AgentResponse
//! Threads:        ThreadRequest                  ->  ThreadRun, a stream of events
//! Threads::show:  ConversationKey                ->  ShownThread
//! ```
//!
//! Both are policies over one store. A conversation has a [key](ConversationKey), of application,
//! user and id; a small head and entries that are only added; and one run at a time, which has it
//! by a lease and stops when that is lost.
//!
//! | | |
//! |---|---|
//! | [`ConversationKey`], [`ConversationQuery`], [`ConversationInfo`] | a conversation, and lists of them |
//! | [`ConversationStore`], [`MemoryConversations`] | where they are stored: in memory, in databases with `tower-agent-durable`, or in a store of your own |
//! | [`SessionLayer`], [`Session`] | conversations of a caller that is trusted |
//! | [`Threads`], [`ThreadRequest`], [`ThreadRun`] | conversations of a client, as a layer around an agent |
//! | [`ClientInput`], [`ClientMessage`], [`ClientView`] | the side of the client: its input, and the messages that it has |
//! | [`Refusal`] | the reason not to accept an input |
//! | [`Threads::begin`], [`Keeper`] | the same by hand, for a run of another kind than an agent's |
//! | [`Thread`], [`ShownThread`] | a thread, to be read, and as its client has it, for another device of its user |
//! | [`SealKeys`] | threads that are stored with the client, which can neither read nor change them |
//! | [`Question`], [`Roles`] | the questions for others than the client, and who may answer them |
//! | [`Inbox`], [`Inboxes`] | these questions of any conversations, also over HTTP, with `InboxService` |
//!
//! # Threads
//!
//! A client sends a conversation, or the new part of one. The server cannot believe it: a client
//! could claim that the model has called a tool, or that a person has approved the call. So the
//! server keeps the thread, and accepts from a client only the client's own data. This crate has
//! these rules, for any protocol: [`ClientMessage`] reads a message of it.
//!
//! # Rules
//!
//! | in the input | effect |
//! |---|---|
//! | messages of the user with a new id | accepted |
//! | messages of the application with a new id | refused unless the server [allows them](Threads::allow_system_messages) |
//! | messages of the user and the application whose ids the server knows | refused if their content is another one |
//! | messages of the agent whose ids the server knows | the server's version is used, whatever the client changed |
//! | results of the client's tools, for calls that the server sent | accepted; rejected while somebody else is to say whether the call may be made |
//! | results of the server's own tools | the server's version is used; refused if there is none, unless the client has sent another one for the call since, or words of the user |
//! | messages that look like the result of a call, and repeat the answer to its question, of the same input or an earlier one | ignored, as some front ends send both; refused if they say something else |
//! | messages of the agent that the server does not know | refused; dropped if they come from a run of the thread that broke off |
//! | answers to interrupts | accepted once, if the interrupt is open in this thread; otherwise refused if they would allow a call |
//! | answers to interrupts [for a role](tower_agent::Interrupt::for_role) | refused, also if they cancel, unless the sender [has the role](Roles) |
//! | answers to interrupts that have [expired](tower_agent::Interrupt::with_expiry) | refused, unless they cancel: the next run that continues the conversation is given the outcome that the interrupt names |
//! | parts other than text, images, audio and documents | refused |
//! | files of a provider | refused |
//! | URLs of images, audio and documents | accepted if they are public: `https`, and a host that is neither an address, nor a local name, nor one at which a provider keeps files. A [function](Threads::allow_urls) can choose others |
//! | messages [outside](ClientRole::Outside) the conversation | ignored |
//! | known messages that the client omits | dropped, unless it omits all and the server [allows that](Threads::allow_partial_history); new messages in their place start a branch |
//! | known messages that the client omits and has not received | kept, and [sent to it](Begun::missed) before anything else, if it has what precedes them |
//! | new messages of a client that has missed something, while a question is open | kept: they follow the answer, and the question stays open |
//!
//! A call and its result stay or are dropped together.
//!
//! # Several devices
//!
//! A user may go on with a thread on another device, and then on the first one. [`Threads::show`]
//! gives a device the thread: the messages in the form in which the client has them, and no others.
//! With it, the device receives a mark, and sends it back with each [input](ClientInput::reader).
//! By the marks the devices are told apart, and a message that a device omits is either one that it
//! has received, which it drops, or one that it has missed. Devices without a mark count as one. So
//! a thread that is opened in any other way than this, for example from a copy of the messages, is
//! one whose messages the device has received.
//!
//! What a device has missed counts as received when the run that begins with it has ended. A client
//! that sends only what is new receives the whole thread then, as the server does not know what it
//! has. The state of a run is that of the device that starts it, which may be older than the
//! thread's.
//!
//! If the server does not know the thread, the input is only text for the model to read: tool calls
//! and results in it become notes in the user's name, and answers to interrupts are refused.
//!
//! With a store, an answer is claimed before the run starts, and of concurrent requests for one
//! thread only one runs. If results are [saved before they are sent](Keeper::must_save_before), an
//! approved call runs at most once, even if the run fails, the client disconnects or the process
//! dies.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod accepted;
mod bounds;
mod busy;
mod cache;
mod entry;
mod error;
mod head;
mod inbox;
mod json;
mod key;
mod lease;
mod lock;
mod memory;
mod names;
mod policy;
mod query;
mod question;
mod refusal;
mod roles;
mod sessions;
mod store;
mod threads;
mod time;

pub use self::accepted::Accepted;
pub use self::entry::message_of_entry;
pub use self::error::StoreError;
pub use self::inbox::{Continuation, Inbox, Inboxes};
#[cfg(feature = "http")]
#[cfg_attr(docsrs, doc(cfg(feature = "http")))]
pub use self::inbox::{InboxService, ResponseFuture as InboxFuture};
pub use self::json::to_json;
pub use self::key::ConversationKey;
pub use self::memory::MemoryConversations;
pub use self::policy::Policy;
pub use self::query::{ConversationInfo, ConversationQuery};
pub use self::question::{Question, QuestionPage};
pub use self::refusal::{InputPart, Refusal, RefusalKind};
pub use self::roles::Roles;
pub use self::sessions::{
    NotStored, OpenCalls, ResponseFuture, Session, SessionLayer, SessionService,
};
pub use self::store::{Append, ConversationStore, StoredConversation};
pub use self::threads::{
    Begun, ClientCall, ClientInput, ClientMessage, ClientRole, ClientView, InterruptIds, Keeper,
    MissedMessage, RunProgress, Save, Saving, SealKey, SealKeys, ShownForm, ShownMessage,
    ShownThread, Thread, ThreadRequest, ThreadRun, ThreadService, Threads,
};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
