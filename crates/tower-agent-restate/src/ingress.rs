use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use restate_sdk::context::RequestTarget;
use restate_sdk::ingress::{Client, ClientError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::error::RestateError;
use crate::http::Http;
use crate::wire::{Answer, JOURNAL, Seen};
use tower_agent_durable::StoreError;

/// How long a call may take with its retries, by default.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long one try may take: a second one attaches to what the first has begun.
const TRY: Duration = Duration::from_secs(10);
/// Between tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Calls the objects through the server's ingress.
#[derive(Clone)]
pub(crate) struct Ingress {
    client: Client<Http>,
    pub(crate) timeout: Duration,
}

impl Ingress {
    pub(crate) fn new(ingress: &str) -> Result<Self, StoreError> {
        let address = ingress.parse::<http::Uri>().map_err(StoreError::database)?;
        if address.scheme() != Some(&http::uri::Scheme::HTTP) {
            let why = format!("`{ingress}` does not start with `http://`");
            return Err(StoreError::database(why));
        }
        let client = Client::new(address, Http::new()).map_err(StoreError::database)?;
        Ok(Self {
            client,
            timeout: TIMEOUT,
        })
    }

    /// Calls a handler of the object that keeps a run. It is done once, however often it is tried.
    pub(crate) async fn write<O: DeserializeOwned>(
        &self,
        run: &str,
        handler: &str,
        input: &impl Serialize,
    ) -> Result<O, RestateError> {
        let body = serde_json::to_vec(input).map_err(StoreError::data)?;
        // One key for all tries of this call, by which the server makes it once.
        self.call(run, handler, body.into(), Some(Uuid::new_v4().to_string()))
            .await
    }

    /// Asks the object that keeps a run something, which changes nothing.
    pub(crate) async fn ask<O: DeserializeOwned>(
        &self,
        run: &str,
        handler: &str,
        input: &impl Serialize,
    ) -> Result<O, RestateError> {
        let body = serde_json::to_vec(input).map_err(StoreError::data)?;
        self.call(run, handler, body.into(), None).await
    }

    /// Asks the object that keeps a run for what an operator sees.
    pub(crate) async fn see(&self, run: &str) -> Result<Seen, RestateError> {
        self.call(run, "see", Bytes::from_static(b"null"), None)
            .await
    }

    async fn call<O: DeserializeOwned>(
        &self,
        run: &str,
        handler: &str,
        body: Bytes,
        key: Option<String>,
    ) -> Result<O, RestateError> {
        let response = self.retrying(|| {
            let target = RequestTarget::object(JOURNAL, run, handler);
            let request = self.client.request::<Bytes, Bytes>(target, body.clone());
            let request = request.content_type(HeaderValue::from_static("application/json"));
            let request = match &key {
                Some(key) => request.idempotency_key(key),
                None => request,
            };
            async {
                request
                    .call()
                    .await
                    .map(|response| response.into_raw_http_response())
            }
        });
        let response = response
            .await
            .map_err(|failed| failed.into_error(self.timeout))?;
        if response.status() != StatusCode::OK {
            return Err(refusal(&response).into());
        }
        let answer: Answer<O> =
            serde_json::from_slice(response.body()).map_err(StoreError::data)?;
        answer
    }

    /// Waits until an invocation has ended, in whichever way.
    pub(crate) async fn attach(&self, invocation: &str) -> Result<(), RestateError> {
        loop {
            let handle = self.client.invocation_handle::<Bytes>(invocation);
            let attached = self.retrying(|| {
                let handle = handle.clone();
                async move { handle.attach().await }
            });
            match attached.await {
                Ok(_) => return Ok(()),
                // A run may take days: waiting for its end has no timeout.
                Err(Failed::Silent) => {}
                Err(failed) => return Err(failed.into_error(self.timeout).into()),
            }
        }
    }

    /// Tries until the server answers something that another try would not change.
    async fn retrying<F>(&self, make: impl Fn() -> F) -> Result<http::Response<Bytes>, Failed>
    where
        F: Future<Output = Result<http::Response<Bytes>, ClientError>>,
    {
        let began = Instant::now();
        let (mut pause, most) = PAUSES;
        loop {
            let failed = match timeout(TRY.min(self.timeout), make()).await {
                Ok(Ok(response)) => {
                    if is_passing(response.status()) {
                        Failed::With(refusal(&response))
                    } else {
                        return Ok(response);
                    }
                }
                Ok(Err(error)) => match error.response() {
                    Some(response) if !is_passing(response.status()) => {
                        return Ok(response.clone());
                    }
                    _ => Failed::With(StoreError::database(error)),
                },
                Err(_) => Failed::Silent,
            };
            // Given up before the pause and not after it, which would only delay the error.
            if began.elapsed() + pause >= self.timeout {
                return Err(failed);
            }
            sleep(pause).await;
            pause = most.min(pause * 2);
        }
    }
}

/// Returns whether a later request may get another status. That of a failed invocation is final.
fn is_passing(status: StatusCode) -> bool {
    let passing = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    passing.contains(&status)
}

fn refusal(response: &http::Response<Bytes>) -> StoreError {
    let status = response.status();
    let body = String::from_utf8_lossy(response.body());
    StoreError::database(format!("Restate answered {status}: {body}"))
}

/// Why a call was given up.
enum Failed {
    /// The server has the call, and has not answered.
    Silent,
    With(StoreError),
}

impl Failed {
    fn into_error(self, timeout: Duration) -> StoreError {
        match self {
            Self::Silent => {
                let why = "is a worker registered and running?";
                StoreError::database(format!("Restate did not answer for {timeout:?}: {why}"))
            }
            Self::With(error) => error,
        }
    }
}
