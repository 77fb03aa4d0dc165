// Sampling and roots are deprecated; servers still ask for them.
#![allow(deprecated)]

use std::sync::Arc;

use rmcp::ClientHandler;
use rmcp::RoleClient;
use rmcp::model::{
    ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ErrorData, ListRootsResult,
};
use rmcp::service::{InboundStreamOrigin, RequestContext, RunningService};
use tokio::sync::oneshot;

use super::calls::{CallEvent, Calls};
use super::config::Config;
use super::sampling;

/// A connection of rmcp.
pub(super) type Running = RunningService<RoleClient, McpClientHandler>;

/// Answers the server's own requests.
#[derive(Clone, Debug)]
pub(super) struct McpClientHandler {
    config: Arc<Config>,
    calls: Arc<Calls>,
}

impl McpClientHandler {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            calls: Arc::default(),
        }
    }

    pub(super) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    pub(super) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }
}

impl ClientHandler for McpClientHandler {
    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let Some(run) = self
            .calls
            .find_run(context.extensions.get::<InboundStreamOrigin>())
        else {
            let server = &self.config.server;
            tracing::warn!(%server, "refused a sampling request: several runs, or none, may have raised it");
            let message = "cannot tell which run this request belongs to";
            return Err(ErrorData::invalid_request(message, None));
        };
        let answer = sampling::answer(&self.config, params, run);
        // rmcp does not drop this future when the server cancels, and a completion costs money.
        tokio::select! {
            answer = answer => answer,
            () = context.ct.cancelled() => Err(ErrorData::internal_error("cancelled", None)),
        }
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let call = self
            .calls
            .find(context.extensions.get::<InboundStreamOrigin>());
        let Some(call) = call else {
            let server = &self.config.server;
            tracing::warn!(%server, "refused a question: several calls, or none, may have raised it");
            let message = "cannot tell which call this question belongs to; \
                           call the tool again while no other call is running";
            return Err(ErrorData::invalid_request(message, None));
        };
        let (answer, answered) = oneshot::channel();
        let question = CallEvent::Question(Box::new(question), answer);
        // The call answers, and not this task: only the call can interrupt its run.
        call.events
            .send(question)
            .await
            .map_err(|_| call_has_ended())?;
        answered.await.map_err(|_| call_has_ended())
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        // They were checked when the client connected.
        self.config
            .list_roots()
            .map_err(|error| ErrorData::internal_error(error.message().to_owned(), None))
    }

    fn get_info(&self) -> ClientConfig {
        self.config.info()
    }
}

fn call_has_ended() -> ErrorData {
    ErrorData::invalid_request("the call has ended", None)
}
