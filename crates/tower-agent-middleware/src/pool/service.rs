use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use tower::Service;
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::util::rng::{HasherRng, Rng};
use tower::util::{Oneshot, ServiceExt};

use super::endpoint::{Endpoint, Seat};
use super::load::{EndpointLoad, PendingCall};
use crate::admission::{Decided, Permit};
use crate::circuit_breaker::circuit::{CircuitKey, CircuitPermit, CircuitSettings, Circuits};
use crate::first_output::FirstOutput;
use crate::lock::lock;
use crate::no_answer;
use crate::opaque_future::opaque_future;
use tower_agent::call::{BoxCallService, CallService, Request};
use tower_agent::error::{CallSite, Error, ErrorKind, Result};
use tower_agent::gauge::{Gauge, Reading};

/// Gives each call to the less busy of two endpoints. Clones share their endpoints.
///
/// It is always ready: a call waits for the endpoint that it is given to. See the [module](super).
pub struct Pool<R: Request> {
    shared: Arc<Shared<R>>,
    settings: CircuitSettings,
}

type Balancer<R> = Balance<ServiceList<Vec<Endpoint<R>>>, ()>;

struct Shared<R: Request> {
    /// Polled and called under the lock, which no call holds while it waits.
    balancer: Mutex<Balancer<R>>,
    circuits: Arc<Circuits>,
    /// The endpoints, with the circuit of each.
    endpoints: Vec<(CircuitKey, Arc<EndpointLoad>)>,
}

impl<R: Request> Pool<R> {
    /// Creates a pool of endpoints, each with a name for logs.
    ///
    /// Give endpoints of different types as [`BoxCallService`]s. Endpoints of one name are taken
    /// out together, such as the models of one host. Without endpoints, every call fails with
    /// [`InvalidRequest`](ErrorKind::InvalidRequest).
    #[must_use]
    pub fn new<N, S>(endpoints: impl IntoIterator<Item = (N, S)>) -> Self
    where
        N: Into<Arc<str>>,
        S: CallService<R>,
    {
        Self::from_rng(endpoints, HasherRng::default())
    }

    /// Creates a pool with a source of random numbers of yours, for tests that need known values.
    #[must_use]
    pub fn from_rng<N, S>(
        endpoints: impl IntoIterator<Item = (N, S)>,
        rng: impl Rng + Send + Sync + 'static,
    ) -> Self
    where
        N: Into<Arc<str>>,
        S: CallService<R>,
    {
        let circuits = Arc::<Circuits>::default();
        let mut names = HashSet::new();
        let mut services = Vec::new();
        let mut places = Vec::new();
        for (name, service) in endpoints {
            let name = name.into();
            // A panic of one endpoint is a failure of it, and no other has to do with it.
            let service = BoxCallService::catching_panics(service);
            let endpoint = Endpoint::new(name.clone(), service, circuits.clone());
            places.push(endpoint.place());
            services.push(endpoint);
            names.insert(name);
        }
        let balancer = Balance::from_rng(ServiceList::new::<()>(services), rng);
        Self {
            settings: CircuitSettings {
                is_failure: Arc::new(|error| error.is_retryable() || error.kind().is_retryable()),
                // One at least stays, even if it fails.
                most_open: names.len().saturating_sub(1),
                ..CircuitSettings::new(3, Duration::from_secs(10))
            },
            shared: Arc::new(Shared {
                balancer: Mutex::new(balancer),
                circuits,
                endpoints: places,
            }),
        }
    }

    /// Sets the number of failures in a row after which an endpoint is taken out. Defaults to 3; at
    /// least 1.
    #[must_use]
    pub fn failures(mut self, failures: u32) -> Self {
        self.settings.failures = failures;
        self
    }

    /// Sets the time after which one call tests an endpoint that was taken out. Defaults to 10 s.
    /// If its last error has a longer [`retry_after`](Error::retry_after), that is used, up to an
    /// hour.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.settings.pause = pause;
        self
    }

    /// Sets which errors are failures of an endpoint. Defaults to those that are
    /// [retryable](Error::is_retryable) by themselves or by their kind, such as those of a provider
    /// that refuses calls, or of a [circuit breaker](crate::circuit_breaker) around it. Never
    /// called for the end of a run, a cancelled call or a [limit by
    /// key](crate::rate_limit::RateLimitLayer::by) that is used up.
    #[must_use]
    pub fn failure_if(
        mut self,
        predicate: impl Fn(&Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.settings.is_failure = Arc::new(predicate);
        self
    }

    /// Returns the endpoint for the next call.
    fn choose(&self) -> Option<(Seat<R>, CircuitPermit)> {
        // Nothing here waits: an endpoint is ready unless it was taken out.
        let mut cx = Context::from_waker(Waker::noop());
        let mut balancer = lock(&self.shared.balancer);
        // A poll looks again at two of the endpoints that were taken out. One may fail just when it
        // was chosen; as many tries as endpoints find the one that stays.
        for _ in 0..=self.shared.endpoints.len() {
            if balancer.poll_ready(&mut cx).is_pending() {
                continue;
            }
            let Some(Ok(seat)) = balancer.call(()).now_or_never() else {
                continue;
            };
            let admitted = self.shared.circuits.admit(seat.key.clone(), &self.settings);
            if let Ok(permit) = admitted {
                return Some((seat, permit));
            }
        }
        None
    }
}

impl<R: Request> Service<R> for Pool<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = ResponseFuture<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let site = CallSite::of(&request);
        let call = match self.choose() {
            Some((seat, circuit)) => {
                let run_id = request.context().run_id();
                tracing::debug!(run_id, call = %site, endpoint = seat.key.name.as_deref(), "endpoint chosen");
                let permit = EndpointPermit {
                    first_output: FirstOutput::of(&request),
                    call: seat.load.begin(),
                    circuit,
                    rejects_no_answer: no_answer::is_rejected(&request),
                };
                Ok((seat.service.oneshot(request), permit))
            }
            None => {
                let message = "not called: the pool has no endpoint";
                let error = Error::new(ErrorKind::InvalidRequest, message);
                Err(error.with_call(site))
            }
        };
        ResponseFuture {
            inner: Decided::new(call),
        }
    }
}

/// The right to call the endpoint that was chosen.
struct EndpointPermit<R> {
    first_output: FirstOutput<R>,
    call: PendingCall,
    circuit: CircuitPermit,
    /// The agent of the call does not accept a response that is no answer.
    rejects_no_answer: bool,
}

impl<R: Request> Permit<R::Response> for EndpointPermit<R> {
    fn look(&mut self) {
        if self.first_output.is_seen() {
            self.call.answered();
        }
    }

    fn end(mut self, result: Result<&R::Response, &Error>) {
        let is_no_answer = result.is_ok_and(|response| R::no_answer(response).is_some());
        if self.circuit.judge(result.err()) || (is_no_answer && self.rejects_no_answer) {
            self.call.failed();
        } else if result.is_ok() {
            self.call.answered();
        }
    }
}

/// Each endpoint has a reading, in their order.
impl<R: Request> Gauge for Pool<R> {
    async fn read(&self, most: usize) -> Result<Vec<Reading>> {
        let Shared {
            circuits,
            endpoints,
            ..
        } = &*self.shared;
        let readings = endpoints.iter().take(most).map(|(key, load)| {
            let reading = circuits.reading(key, "pool", &self.settings);
            load.amounts().into_iter().fold(reading, Reading::with)
        });
        Ok(readings.collect())
    }
}

impl<R: Request> Clone for Pool<R> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<R: Request> fmt::Debug for Pool<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("endpoints", &self.shared.endpoints.len())
            .field("settings", &self.settings)
            .finish()
    }
}

opaque_future! {
    /// The future of a [`Pool`].
    pub struct ResponseFuture<R>(Decided<EndpointCall<R>, EndpointPermit<R>>) -> Result<R::Response>
    where {
        R: Request,
    } and {}
}

type EndpointCall<R> = Oneshot<BoxCallService<R>, R>;
