//! The ways to reach a server: a child process, a stream or HTTP.

mod answers;
mod child_transport;
mod http_client;
mod http_endpoint;
mod http_fault;
mod limited;
mod readable;
mod refused;
mod routed;
mod stream_retry_policy;

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::Command;

pub(super) use self::http_endpoint::HttpEndpoint;
pub(super) use self::http_fault::HttpFault;
pub(super) use self::refused::Refused;

use self::answers::Answers;
use self::child_transport::ChildTransport;
use self::readable::ReadableLines;
use self::routed::Routed;
use super::connect_error::ConnectError;
use super::handler::{McpClientHandler, Running};
use crate::lock::lock;

/// A stream in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Duplex for S {}

pub(super) type OpenStream =
    dyn Fn() -> BoxFuture<'static, io::Result<Pin<Box<dyn Duplex>>>> + Send + Sync;

/// A server's address, in one of the ways to reach it.
#[derive(Clone)]
pub(super) enum Endpoint {
    Child(Arc<Mutex<Command>>),
    Stream(Arc<OpenStream>),
    Http(HttpEndpoint),
}

impl Endpoint {
    pub(super) fn child_process(command: Command) -> Self {
        Self::Child(Arc::new(Mutex::new(command)))
    }

    pub(super) fn stream<F, O, S>(open: F) -> Self
    where
        F: Fn() -> O + Send + Sync + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::Stream(Arc::new(move || {
            let opened = open();
            Box::pin(async move { Ok(Box::pin(opened.await?) as Pin<Box<dyn Duplex>>) })
        }))
    }

    /// Opens a new transport, and agrees with the server on a protocol version.
    pub(super) async fn connect(
        &self,
        handler: McpClientHandler,
        lifecycle: ClientLifecycleMode,
        max_message_size: usize,
    ) -> Result<Running, ConnectError> {
        match self {
            Self::Child(command) => {
                // A block, so that the lock is not held across the handshake.
                let spawned = {
                    let mut command = lock(command);
                    ChildTransport::spawn(&mut command, max_message_size)
                };
                let transport = Routed::new(spawned.map_err(ConnectError::Open)?, &handler);
                Ok(handler.serve_with_lifecycle(transport, lifecycle).await?)
            }
            Self::Stream(open) => {
                let stream = open().await.map_err(ConnectError::Open)?;
                let (read, write) = tokio::io::split(stream);
                let read = ReadableLines::new(read, max_message_size);
                let transport = AsyncRwTransport::<RoleClient, _, _>::new(read, write);
                let transport = transport.with_max_line_length(max_message_size);
                let transport = Routed::new(transport, &handler);
                Ok(handler.serve_with_lifecycle(transport, lifecycle).await?)
            }
            Self::Http(endpoint) => {
                let calls = handler.calls();
                let answers = Arc::new(Answers::default());
                let client = endpoint.client(max_message_size, calls.clone(), answers.clone());
                let config = endpoint.config(max_message_size, calls.clone());
                let transport = StreamableHttpClientTransport::with_client(client, config);
                let transport = Routed::new(transport, &handler).with_answers(answers);
                Ok(handler.serve_with_lifecycle(transport, lifecycle).await?)
            }
        }
    }
}

impl fmt::Debug for Endpoint {
    /// Arguments, headers and queries may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Child(_) => "Child(..)",
            Self::Stream(_) => "Stream(..)",
            Self::Http(_) => "Http(..)",
        })
    }
}
