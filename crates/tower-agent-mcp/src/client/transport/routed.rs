use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use crate::client::calls::Calls;
use crate::client::config::Config;
use crate::client::handler::McpClientHandler;
use crate::client::log;

/// A transport that shows its messages to the active calls and the log, in their order.
///
/// rmcp handles each notification in a task of its own: progress could come out of order, or after
/// the result of its call.
pub(super) struct Routed<T> {
    inner: T,
    calls: Arc<Calls>,
    config: Arc<Config>,
}

impl<T> Routed<T> {
    pub(super) fn new(inner: T, handler: &McpClientHandler) -> Self {
        Self {
            inner,
            calls: handler.calls().clone(),
            config: handler.config().clone(),
        }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Routed<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        // Before sending: the server may answer, or ask, as soon as it has the request.
        if let JsonRpcMessage::Request(request) = &item {
            self.calls.register(&request.id, &request.request);
        }
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let item = self.inner.receive().await?;
        if let JsonRpcMessage::Notification(notification) = &item {
            match &notification.notification {
                ServerNotification::ProgressNotification(progress) => {
                    self.calls.report_progress(&progress.params);
                }
                ServerNotification::ToolListChangedNotification(_) => {
                    self.calls.set_tools_changed()
                }
                ServerNotification::LoggingMessageNotification(message) => {
                    let Config { server, on_log, .. } = &*self.config;
                    log::receive(server, on_log, message.params.clone());
                }
                _ => {}
            }
        }
        Some(item)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}
