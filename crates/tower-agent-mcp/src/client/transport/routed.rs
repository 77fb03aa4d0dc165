use std::borrow::Cow;
use std::future::Future;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, JsonRpcError, JsonRpcMessage, JsonRpcNotification, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::answers::Answers;
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
    /// Over HTTP, where an answer has a place of its own beside its id.
    answers: Option<Arc<Answers>>,
}

impl<T> Routed<T> {
    pub(super) fn new(inner: T, handler: &McpClientHandler) -> Self {
        Self {
            inner,
            calls: handler.calls().clone(),
            config: handler.config().clone(),
            answers: None,
        }
    }

    pub(super) fn with_answers(mut self, answers: Arc<Answers>) -> Self {
        self.answers = Some(answers);
        self
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
        let mut waits = None;
        match &item {
            JsonRpcMessage::Request(request) => {
                self.calls.register(&request.id, &request.request);
                if let Some(answers) = &self.answers {
                    answers.begin(&request.id);
                    waits = Some((answers.clone(), request.id.clone()));
                }
            }
            JsonRpcMessage::Notification(JsonRpcNotification {
                notification: ClientNotification::CancelledNotification(cancelled),
                ..
            }) => {
                if let (Some(answers), Some(id)) = (&self.answers, &cancelled.params.request_id) {
                    answers.end(id);
                }
            }
            _ => {}
        }
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            if let (Err(_), Some((answers, id))) = (&sent, &waits) {
                answers.end(id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let item = match &self.answers {
            None => self.inner.receive().await?,
            Some(answers) => {
                let item = tokio::select! {
                    // First: they came before the answer that they came with.
                    biased;
                    other = answers.next_other() => other,
                    item = self.inner.receive() => item?,
                };
                match &item {
                    JsonRpcMessage::Response(answer) => answers.end(&answer.id),
                    JsonRpcMessage::Error(JsonRpcError { id: Some(id), .. }) => answers.end(id),
                    _ => {}
                }
                item
            }
        };
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
