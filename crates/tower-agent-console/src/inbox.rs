use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use tower_agent::BoxError;
use tower_agent_conversations::{Inbox, InboxService, Roles};
use tower_service::Service;

type InboxBody = UnsyncBoxBody<Bytes, BoxError>;

/// An inbox over HTTP, of whatever type.
pub(crate) type InboxOf =
    Arc<dyn Fn(Request<InboxBody>) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync>;

/// Returns an inbox over HTTP. It takes the roles of a request from its extensions, where the
/// console puts them.
pub(crate) fn inbox_of(inbox: impl Inbox) -> InboxOf {
    let service = InboxService::new(inbox, |parts: &Parts| {
        parts.extensions.get::<Roles>().cloned().unwrap_or_default()
    });
    Arc::new(move |request| {
        // It is always ready.
        let response = service.clone().call(request);
        Box::pin(async move {
            match response.await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        })
    })
}
