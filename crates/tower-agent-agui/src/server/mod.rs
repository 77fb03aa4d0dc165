//! `Service<http::Request<B>, Response = http::Response<Body>>`
//!
//! Serves an agent over HTTP: a client posts a [`RunAgentInput`](crate::RunAgentInput) as JSON and
//! receives server-sent events. With `GET` and the query `threadId=..` it receives the events that
//! show a [stored thread](crate#several-devices). [`AgUi`] is a service for any HTTP server; in
//! axum it is one line:
//!
//! ```
//! # use tower_agent::Agent;
//! # use tower_agent_agui::AgUi;
//! # fn app(agent: Agent) -> axum::Router {
//! axum::Router::new().route_service("/agent", AgUi::new(agent))
//! # }
//! ```
//!
//! Disconnecting cancels the run; slow clients apply backpressure, and one that [does not
//! read](AgUiBuilder::read_timeout) is let go. For compression, CORS,
//! authentication and tracing, use layers of tower-http around it.
//!
//! # Limits
//!
//! A layer around the server sees the response's head and not the run, which is its body: a limit
//! of concurrency there bounds no runs. So the server has limits of its own:
//!
//! | limit | default |
//! |---|---|
//! | [`max_body_size`](AgUiBuilder::max_body_size) | 4 MiB |
//! | [`max_values`](AgUiBuilder::max_values) of JSON in a body | 32,768 |
//! | [`max_nesting`](AgUiBuilder::max_nesting) | 64 levels |
//! | [`max_runs`](AgUiBuilder::max_runs) at once | 1,000 |
//! | [`max_runs_per_principal`](AgUiBuilder::max_runs_per_principal) at once | 100 |
//! | [`max_run_time`](AgUiBuilder::max_run_time) | an hour |
//! | [`read_timeout`](AgUiBuilder::read_timeout), in which a client takes nothing | a minute |
//! | [`body_timeout`](AgUiBuilder::body_timeout), in which a body arrives | 30 seconds |
//! | length of an id that the client chooses: of a thread, a run, an interrupt, and the name of a tool | 1 KiB, always |
//! | length of an id that it may have from the server: of a message, a call, a subagent | 16 KiB, always |
//!
//! A thread that is read with `GET` counts as a run until its response is sent.
//!
//! For the same reason, tower-http's `TimeoutLayer` around the server bounds no run, only the time
//! until its stream begins: `max_run_time` bounds the stream.
//!
//! With these, the input of a run takes at most 6 times `max_body_size` of memory while the run
//! lasts, and all inputs `max_runs` times that. The run itself is the agent's: a
//! `tower::limit::ConcurrencyLimitLayer` around the *agent* makes runs wait in place of refusing
//! them.
//!
//! # Shutdown
//!
//! [`AgUi::shutdown`] ends the runs in order when the process is told to stop. The guide on
//! [deployment](https://docs.rs/tower-agent-durable/latest/tower_agent_durable/guide/deployment)
//! has the rest: settings, upgrades, proxies and several processes.
//!
//! # Errors
//!
//! An invalid request is rejected before anything has run, with the JSON body
//! `{"error":{"message":"..","path":"..","code":".."}}`; `path` and the
//! [code](crate::InputErrorKind::code) are present if known.
//!
//! | status | cause |
//! |---|---|
//! | 400 | the body is not JSON, or nested too deeply; a `GET` without `threadId` |
//! | 401 | [`principal`](AgUiBuilder::principal) returned `None` |
//! | 404 | a `GET` for a thread that is not known, or that belongs to another principal |
//! | 405 | the method is neither `POST` nor `GET`, or it is `GET` and the server is [stateless](AgUiBuilder::stateless): it stores no threads |
//! | 406 | the client does not accept `text/event-stream` |
//! | 409 | another run is active in the thread, or the answered interrupt is not open or has expired |
//! | 413 | the body is too large, or has too many values |
//! | 415 | the body's media type is not `application/json` |
//! | 422 | the JSON does not follow the protocol, or contains data that [only the server may set](crate#trust) |
//! | 429 | the principal has too many runs at once |
//! | 503 | the thread store failed, there are too many runs at once, or the server [shuts down](AgUi::shutdown) |
//!
//! A run that fails later ends with `RUN_ERROR`: a [code](tower_agent::ErrorKind::code) and a
//! [message for the client](AgUiBuilder::failure_message), never the text of the error itself.

mod agui;
mod body;
mod builder;
mod inbox;
mod limits;
mod read;
mod reply;

pub use self::agui::AgUi;
pub use self::body::Body;
pub use self::builder::AgUiBuilder;
