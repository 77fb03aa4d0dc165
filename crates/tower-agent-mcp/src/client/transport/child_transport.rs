use std::future::Future;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::readable::ReadableLines;

/// The time that a process has to exit after its standard input was closed.
const EXIT: Duration = Duration::from_secs(3);

/// A child process that speaks MCP on its standard input and output.
///
/// The transport of rmcp rejects messages above 16 MiB, and has no option for it.
pub(super) struct ChildTransport {
    child: Child,
    messages: AsyncRwTransport<RoleClient, ReadableLines<ChildStdout>, ChildStdin>,
}

impl ChildTransport {
    pub(super) fn spawn(command: &mut Command, max_message_size: usize) -> io::Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or_else(no_pipes)?;
        let output = child.stdout.take().ok_or_else(no_pipes)?;
        let output = ReadableLines::new(output, max_message_size);
        let messages = AsyncRwTransport::new(output, input).with_max_line_length(max_message_size);
        Ok(Self { child, messages })
    }
}

fn no_pipes() -> io::Error {
    io::Error::other("the process has no standard input and output")
}

impl Transport<RoleClient> for ChildTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        self.messages.send(item)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.messages.receive()
    }

    async fn close(&mut self) -> io::Result<()> {
        // The end of its input asks the process to exit. A wait without limit would let a process
        // that ignores it hold up `McpClient::close`.
        self.messages.close().await?;
        match timeout(EXIT, self.child.wait()).await {
            Ok(exited) => exited.map(drop),
            Err(_) => self.child.kill().await,
        }
    }
}
