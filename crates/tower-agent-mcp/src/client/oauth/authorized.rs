use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use tower::{BoxError, Service, ServiceExt};
use tower_agent::{Error, ErrorKind};

use super::authorizer::Authorizer;
use crate::client::http_service::{BoxedBody, HttpService};

/// The maximum number of times that one request is repeated with another token.
const REPEATS: usize = 3;

/// An HTTP service that sends a token with every request, and gets one when the server asks for it.
#[derive(Clone)]
pub(in crate::client) struct Authorized {
    pub(in crate::client) service: HttpService,
    pub(in crate::client) authorizer: Arc<Authorizer>,
}

impl Service<Request<Bytes>> for Authorized {
    type Response = Response<BoxedBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each attempt drives a service of its own to readiness.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.send(request).await })
    }
}

impl Authorized {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<BoxedBody>, BoxError> {
        let mut token = self.authorizer.token().await?;
        let mut repeats = 0;
        loop {
            let response = self.attempt(&request, token.as_deref()).await?;
            let Some(challenge) = self.authorizer.challenge(&response) else {
                return Ok(response);
            };
            // A server that is never content must not have the user log in without end.
            if repeats == REPEATS {
                return Ok(response);
            }
            repeats += 1;
            match self.authorizer.answer(challenge, token.take()).await? {
                Some(new) => token = Some(new),
                None => return Ok(response),
            }
        }
    }

    async fn attempt(
        &self,
        request: &Request<Bytes>,
        token: Option<&str>,
    ) -> Result<Response<BoxedBody>, BoxError> {
        let mut request = request.clone();
        if let Some(token) = token
            && self.authorizer.is_resource(request.uri())
        {
            let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                // Without the error, which would quote the token.
                Error::new(ErrorKind::Auth, "the token is no text of a header")
            })?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        self.service.clone().oneshot(request).await
    }
}
