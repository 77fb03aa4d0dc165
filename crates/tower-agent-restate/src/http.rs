use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use restate_sdk::ingress::RequestExecutor;
use tower_agent::error::BoxError;

/// How long a connection may take to open, and may be silent before it is probed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections to a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Http(Client<HttpConnector, Full<Bytes>>);

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct HttpError(BoxError);

impl Http {
    pub(crate) fn new() -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(PATIENCE));
        tcp.set_keepalive(Some(PATIENCE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(tcp);
        Self(client)
    }
}

impl RequestExecutor for Http {
    type Error = HttpError;

    async fn execute(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, HttpError> {
        let response = self.0.request(request.map(Full::new)).await;
        let (head, body) = response
            .map_err(|error| HttpError(error.into()))?
            .into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| HttpError(error.into()))?;
        Ok(http::Response::from_parts(head, body.to_bytes()))
    }
}
