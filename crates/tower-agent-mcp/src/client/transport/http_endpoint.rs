use std::fmt;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceBuilder};
use tower_agent::BoxError;
#[cfg(feature = "oauth")]
use tower_agent::Result;

use super::answers::Answers;
use super::http_client::HttpClient;
use super::stream_retry_policy::StreamRetryPolicy;
use crate::client::calls::Calls;
use crate::client::http_service::{BoxedBody, HttpService};
#[cfg(feature = "oauth")]
use crate::client::{
    logins::Logins,
    oauth::{Authorized, Authorizer, OAuth},
};

/// The maximum number of requests that wait for an answer that is not a stream. rmcp allows 16 by
/// default, and an agent may call more tools at once.
const AT_ONCE: usize = 256;

/// A server at a URL.
#[derive(Clone)]
pub(in crate::client) struct HttpEndpoint {
    url: Arc<str>,
    service: HttpService,
}

impl HttpEndpoint {
    pub(in crate::client) fn new<S, Q, B>(url: Arc<str>, service: S) -> Self
    where
        S: Service<http::Request<Q>, Response = http::Response<B>> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        Q: From<Bytes> + Send + 'static,
        B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
    {
        let service = ServiceBuilder::new()
            .map_request(|request: http::Request<Bytes>| request.map(Q::from))
            .map_response(|response: http::Response<B>| response.map(boxed))
            .map_err(Into::into)
            .service(service);
        Self {
            url,
            service: BoxCloneSyncService::new(service),
        }
    }

    /// Authorizes every request. Fails if the URL is none.
    #[cfg(feature = "oauth")]
    pub(in crate::client) fn authorize(
        &mut self,
        oauth: OAuth,
        server: Arc<str>,
        logins: Logins,
    ) -> Result<()> {
        let service = self.service.clone();
        let authorizer = Authorizer::new(server, self.url.clone(), service.clone(), oauth, logins)?;
        self.service = BoxCloneSyncService::new(Authorized {
            service,
            authorizer: Arc::new(authorizer),
        });
        Ok(())
    }

    pub(super) fn client(
        &self,
        max_message_size: usize,
        calls: Arc<Calls>,
        answers: Arc<Answers>,
    ) -> HttpClient {
        HttpClient::new(self.service.clone(), max_message_size, calls, answers)
    }

    pub(super) fn config(
        &self,
        max_message_size: usize,
        calls: Arc<Calls>,
    ) -> StreamableHttpClientTransportConfig {
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.clone());
        let mut config = config.max_concurrent_requests(AT_ONCE);
        config.max_sse_event_size = max_message_size;
        config.retry_config = Arc::new(StreamRetryPolicy { calls });
        config
    }
}

fn boxed<B>(body: B) -> BoxedBody
where
    B: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    body.map_err(Into::into)
        // Without a copy if the data is `Bytes` already, as in most HTTP clients.
        .map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
        .boxed_unsync()
}

impl fmt::Debug for HttpEndpoint {
    /// The URL's query may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpEndpoint").finish_non_exhaustive()
    }
}
