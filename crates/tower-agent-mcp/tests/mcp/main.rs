//! MCP in both directions: against servers of rmcp in this process, over child processes and HTTP,
//! and against servers and clients that others wrote.

mod answers;
mod callers;
mod calls;
mod cancelled;
mod conformance;
mod connections;
mod everything;
mod extremes;
mod flow;
mod gone;
mod http;
mod installed;
mod library;
mod lies;
mod lists;
mod lying_clients;
mod lying_servers;
mod oauth;
mod processes;
mod questions;
mod results;
mod sampling;
mod sdks;
mod serving;
mod sessions;
mod support;
mod tasks;
mod told;
mod traces;
mod tracing_log;
