use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower::Service;
use tower_agent::{Effect, Error, Result, ToolRequest, ToolResponse};

use super::link::Link;
use super::list::ListedTool;
use super::remote_call::RemoteCall;
use super::run::run;

/// The service of one tool of a server.
#[derive(Clone, Debug)]
pub(super) struct RemoteTool {
    link: Arc<Link>,
    /// The server's own name.
    name: Arc<str>,
    effect: Effect,
}

impl RemoteTool {
    pub(super) fn new(link: Arc<Link>, listed: &ListedTool) -> Self {
        Self {
            link,
            name: listed.name.clone(),
            effect: listed.declaration.effect(),
        }
    }
}

impl Service<ToolRequest> for RemoteTool {
    type Response = ToolResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<ToolResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        // The call connects if it has to, and any number of calls share the connection.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ToolRequest) -> Self::Future {
        let Self { link, name, effect } = self.clone();
        async move {
            let call = RemoteCall::new(&link, &name, &request, effect)?;
            run(call).await
        }
        .boxed()
    }
}
