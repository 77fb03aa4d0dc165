//! A console: what agents did, and which part of their stacks did it, on a page in the
//! application's own server.
//!
//! ```text
//! Console::watch(): Bundle                    what agents have, so that their runs are kept
//! Console::into_service(..): ConsoleService   Service<http::Request<B>>, below any path
//! ```
//!
//! ```
//! use axum::Router;
//! use tower_agent::Agent;
//! use tower_agent_console::{Console, Operator};
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! /// Inserted by a layer that has verified a session.
//! #[derive(Clone)]
//! struct Staff(String);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! # let model = ScriptedModel::new([Turn::from_text("Good day.")]);
//! let console = Console::new();
//! let agent = Agent::builder(model).global_callbacks(console.watch()).build()?;
//! console.agent(&agent);
//!
//! let operators = |parts: &http::request::Parts| {
//!     let staff = parts.extensions.get::<Staff>()?;
//!     Some(Operator::new(staff.0.clone()))
//! };
//! let app: Router = Router::new().nest_service("/console", console.into_service(operators));
//! # drop(app);
//! agent.run("Hello.").await?;
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p console` shows it with a fleet of agents, without a key.
//!
//! # The page
//!
//! | view | shows |
//! |---|---|
//! | runs | agent, status, error, time, tokens, calls, who decided, user; those that run change as they go |
//! | a run | its agents, turns, model and tool calls as a tree over time; of each call what stands around it, what each callback decided, what each band and layer did to it ([changed, answered, repeated, dropped](tower_agent::stream::WrapperNote)), the attempts that reached the model or the tool, and the texts, if they are recorded, with what was changed in them marked |
//! | two runs | beside each other, aligned by step: what one of them alone has, and in which words the texts of a step differ |
//! | agents | what is around the calls of the agents that [`agent`](Console::agent) has named, also without a run, and [orders](tower_agent::agent::Explanation::warnings) in it that never do what is intended |
//! | durable runs | of [those that the program has](Console::durable_runs): status, agent, user, version, the last sign of life, and what this console has watched of each; those that are lost, to be gone on with |
//! | limits | the budgets, limits and breakers that the program [shows](Console::show), as they stand now: what is left of each, and what lets no call through |
//! | a fork | with the feature `inbox`: at each step of a run, what a run that goes on from there changes |
//! | inbox | with the feature `inbox`: the questions that wait in stored conversations and in forks, answered there, and who has answered which |
//! | audit | who has answered, forked, resumed, saved, exported or deleted what |
//!
//! It is plain HTML, CSS and modules, in this crate; it loads nothing from elsewhere. All addresses
//! are relative, so it works at `/console` and `/console/`, below any other path, and behind a
//! proxy that strips one. What is looked at stands in the address of the page.
//!
//! # From a run to the next
//!
//! [`Console::fork`] goes on from any step of a run, with other messages, instructions or settings:
//! tools that change something are answered from the record, and an operator is asked about what
//! the run has not called. [`Console::recording`], with the feature `recording`, makes a test of a
//! run. Both need [content](Console::record_content), and whole calls, of which nothing was left
//! out: in memory, or in the database, also of a process before. A database has the conversation
//! before each model call, what was called and what came of it, each message once. It has no code:
//! the tools that came with a run's request are declared in its forks and refuse, and a run that
//! came with an answer format is forked from memory alone. Calls of which a redaction hides a part
//! are not stored whole; a fork asks an operator about such a call of a tool.
//!
//! # What is kept, and who sees it
//!
//! In memory, [1,000 runs](Console::max_runs) in [64 MiB](Console::max_bytes), for [as long as
//! there is room](Console::max_age); the oldest go first. In a [database](Console::stored_in), of
//! SQLite or PostgreSQL, runs outlive the process, and processes with the same one see each
//! other's. A run that goes on is written as it begins and from time to time: to another process,
//! and after a kill, it is `unfinished`, with the time at which it was last heard of, since nobody
//! can tell whether its process is gone. A database has what the memory has, and nothing else: of
//! the rows below what is kept of runs, users in the clear and not as hashes, and who has done
//! what. It is not encrypted. The questions are not in it.
//!
//! [`delete_user`](Console::delete_user) and [`export_user`](Console::export_user) are for a
//! person's data, in memory and in the database.
//!
//! | | is kept | is seen by |
//! |---|---|---|
//! | the runs' ids, times, agents, turns, calls, tokens, attempts, names of tools, callbacks and layers, decisions and the [reasons](tower_agent::RunContext::because) given for them, which fields of a call they changed and how large these are, kinds of errors, roles that are waited for, who has answered a question about a call | always | every operator |
//! | the id of the conversation | if the run [has one](tower_agent::context::ConversationId) | every operator |
//! | the user | with [`user_id`](Console::user_id) | as a hash by every operator, the same for all runs of this console; in the clear by those who [see users](Operator::sees_users) |
//! | the ids, agents, times, versions and states of [durable runs](Console::durable_runs), their conversations, the kinds of their errors and the roles that they wait for | not here: they are read when somebody looks | every operator |
//! | the users of these | not here | as a hash by every operator, in the clear by those who [see users](Operator::sees_users) |
//! | the state and the numbers of the guards that the program [shows](Console::show), and the names of what they are around | not here: they are read when somebody looks | every operator |
//! | the keys of these, such as the user of a budget | not here | as a hash by every operator, the same as that of the user of a run; in the clear by those who [see users](Operator::sees_users) |
//! | the texts of what callbacks and layers changed, before and afterwards | as messages are, and not where a [redaction](tower_agent::call::Extensions::note_hiding) is or is around it | as messages are |
//! | messages, instructions, arguments, results, values of the application's own events and of [notes](tower_agent::RunContext::note), texts of errors | with [`record_content`](Console::record_content), up to 64 KiB a text | operators who [see content](Operator::sees_content) |
//! | the questions that wait, with what is asked about and whose conversation it is | not here | operators with the [role](Operator::answers_as) of the question |
//! | who has answered which question, or forked, resumed, saved, exported or deleted which runs, when, with which result | the last 10,000 in memory and 100,000 in the database, and each as a line of the program's log | every operator |
//! | an export: all of the above of one run, or of all of a user's | not here | operators who [manage data](Operator::manages_data), each row as far as they see it |
//! | calls as a whole, with settings, declarations of tools, metadata, media and parts that are a provider's own | with `record_content`, the parts of it that a redaction hides in memory alone | in a [recording](Console::recording) and at the step of a [fork](Fork): operators who see content, and for a fork have the [role](Fork::ROLE) |
//! | state, private state, extensions, headers, keys, sealed values | never | nobody |
//! | metadata, bytes and addresses of media, parts that are a provider's own, otherwise | never | nobody |
//!
//! Names are no content: a tool's name that a model has made up is kept, up to 128 bytes. Nor are
//! reasons, which name a rule. Content
//! is as it is outside all callbacks of the agent: register [`Redact`] for the tree as well, and it
//! hides from here what it hides from everybody. It does not cover events that tools emit.
//!
//! [`Redact`]: https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/redact
//!
//! # Who may ask
//!
//! Whoever the application's own function says to be an [`Operator`]; everybody else is refused
//! everything, the page included. Whatever the operator may do, a request that a browser sends from
//! the page of another site is refused, by its `Sec-Fetch-Site` or its `Origin`; a link from there
//! to the page works.
//!
//! [`into_local_service`](Console::into_local_service) is for a developer's machine: it asks for no
//! operator, and answers to loopback names alone.
//!
//! A request that changes something, an answer, a fork, a resumption or a deletion, is a `POST`,
//! needs a role, and is audited; so are an export and a recording that is taken.
//!
//! # Whom it costs what
//!
//! A run never waits. What it tells goes into two queues of 16,384 places, from which a thread of
//! the console's own takes it; a request takes in what is there first, so that it shows all that
//! was told before it. Texts are left out before anything else is, and what was left out is
//! counted, and shown. To be watched costs each model and tool call some 15,000 instructions, a few
//! microseconds, without content; with content, its texts are written as JSON as well,
//! and the call is kept whole, which shares its messages with the run.
//!
//! A database is written behind the runs as well, by a task of its own, from what is in memory. One
//! that hangs or fails delays nothing: the page shows what is in memory, within a second, and says
//! that the rest is missing. What could not be written is tried again while it is in memory; what
//! had to go before is counted, and shown. [`flush`](Console::flush) waits for it, at the end of a
//! program.
//!
//! Live views have no queues: a reader is told the present state of what has changed since it was
//! told last, at most ten times a second. So one that is slow, or was away, misses nothing, and one
//! that takes nothing for a minute is let go. [`close`](Console::close) ends them, for a server
//! that shuts down.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests and examples may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod address;
mod audit;
mod collect;
mod console;
mod content;
mod database;
mod durable;
mod fork;
mod forked;
mod forking;
#[cfg(feature = "inbox")]
mod forks;
mod gauges;
#[cfg(feature = "inbox")]
mod inbox;
mod kept;
mod lock;
mod not_recorded;
mod note;
mod operator;
mod past;
mod record;
#[cfg(feature = "recording")]
mod recording;
mod run;
mod saved;
mod service;
mod store;
mod stored;
mod watch;

pub use self::console::Console;
pub use self::durable::{DurableKey, DurableQuery, DurableRun, DurableRuns};
pub use self::fork::Fork;
pub use self::not_recorded::NotRecorded;
pub use self::operator::Operator;
pub use self::service::{ConsoleService, ResponseBody, ResponseFuture};
pub use self::stored::{
    RunStore, StoredAudit, StoredBounds, StoredEntry, StoredHead, StoredKey, StoredPlace,
    StoredQuery, StoredRun,
};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
