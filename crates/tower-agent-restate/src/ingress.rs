use std::time::Duration;

use bytes::Bytes;
use http::uri::Scheme;
use http::{HeaderValue, StatusCode, Uri};
use restate_sdk::context::RequestTarget;
use restate_sdk::ingress::{Client, ClientError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::error::RestateError;
use crate::http::Http;
use crate::wire::{Answer, JOURNAL, Seen, USER};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::RunKey;

/// The time that a call may take with its retries, by default.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The time that one try may take: a second one attaches to what the first has begun.
const TRY: Duration = Duration::from_secs(10);
/// Between tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Calls the objects through the server's ingress.
#[derive(Clone)]
pub(crate) struct Ingress {
    client: Client<Http>,
    address: Uri,
    /// Root certificates beside those of browsers, as PEM.
    roots: Vec<Vec<u8>>,
    token: Option<String>,
    pub(crate) timeout: Duration,
}

impl Ingress {
    pub(crate) fn new(ingress: &str) -> Result<Self, RestateError> {
        let unusable = |why: String| RestateError::Ingress { why: why.into() };
        let address = ingress
            .parse::<Uri>()
            .map_err(|error| unusable(format!("`{ingress}` is no address: {error}")))?;
        if !is_encrypted(&address) && address.scheme() != Some(&Scheme::HTTP) {
            let why = format!("`{ingress}` starts with neither `https://` nor `http://`");
            return Err(unusable(why));
        }
        Ok(Self {
            client: client(&address, &[], None)?,
            address,
            roots: Vec::new(),
            token: None,
            timeout: TIMEOUT,
        })
    }

    /// Sends a token with each call.
    pub(crate) fn with_token(mut self, token: &str) -> Result<Self, RestateError> {
        if !is_encrypted(&self.address) {
            let why = "a token would be sent in clear: use an address that starts with `https://`";
            return Err(RestateError::Ingress { why: why.into() });
        }
        self.token = Some(token.to_owned());
        self.client = client(&self.address, &self.roots, self.token.as_deref())?;
        Ok(self)
    }

    /// Trusts more root certificates.
    pub(crate) fn with_roots(mut self, pem: &[u8]) -> Result<Self, RestateError> {
        self.roots.push(pem.to_vec());
        self.client = client(&self.address, &self.roots, self.token.as_deref())?;
        Ok(self)
    }

    /// Calls a handler of the object that keeps a run. It is done once, however often it is tried.
    pub(crate) async fn write<O: DeserializeOwned>(
        &self,
        run: &RunKey,
        handler: &str,
        input: &impl Serialize,
    ) -> Result<O, RestateError> {
        let body = serde_json::to_vec(input).map_err(StoreError::data)?;
        // One key for all tries of this call, by which the server makes it once.
        let key = Some(Uuid::new_v4().to_string());
        let target = RequestTarget::object(JOURNAL, run.to_text(), handler);
        self.call(target, body.into(), key).await
    }

    /// Asks the object that keeps a run something, which changes nothing.
    pub(crate) async fn ask<O: DeserializeOwned>(
        &self,
        run: &RunKey,
        handler: &str,
        input: &impl Serialize,
    ) -> Result<O, RestateError> {
        let body = serde_json::to_vec(input).map_err(StoreError::data)?;
        let target = RequestTarget::object(JOURNAL, run.to_text(), handler);
        self.call(target, body.into(), None).await
    }

    /// Asks the object that keeps a run for what an operator sees.
    pub(crate) async fn see(&self, run: &RunKey) -> Result<Seen, RestateError> {
        self.ask(run, "see", &()).await
    }

    /// Asks the object that knows the runs of a user for them.
    pub(crate) async fn runs_of(&self, user: &str) -> Result<Vec<RunKey>, RestateError> {
        let target = RequestTarget::object(USER, user, "runs");
        self.call(target, Bytes::from_static(b"null"), None).await
    }

    async fn call<O: DeserializeOwned>(
        &self,
        target: RequestTarget,
        body: Bytes,
        key: Option<String>,
    ) -> Result<O, RestateError> {
        let response = self.retrying(|| {
            let request = self
                .client
                .request::<Bytes, Bytes>(target.clone(), body.clone());
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

fn is_encrypted(address: &Uri) -> bool {
    address.scheme() == Some(&Scheme::HTTPS)
}

fn client(
    address: &Uri,
    roots: &[Vec<u8>],
    token: Option<&str>,
) -> Result<Client<Http>, RestateError> {
    let unusable = |why: String| RestateError::Ingress { why: why.into() };
    let http = Http::new(roots).map_err(|error| unusable(error.to_string()))?;
    let client = Client::new(address.clone(), http).map_err(|error| unusable(error.to_string()))?;
    let Some(token) = token else {
        return Ok(client);
    };
    client
        .with_restate_auth_token(token)
        .map_err(|error| unusable(error.to_string()))
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

/// The reason why a call was given up.
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
