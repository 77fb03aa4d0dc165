use std::fmt;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use tower::Service;
use tower::load::Load;

use super::load::{EndpointCost, EndpointLoad};
use crate::circuit_breaker::circuit::{CircuitKey, Circuits};
use tower_agent::call::{BoxCallService, Request};
use tower_agent::error::Error;

/// One of the services of a pool, as tower's balancer sees it. A call takes it, and makes no call
/// of the service yet.
pub(super) struct Endpoint<R: Request> {
    seat: Seat<R>,
    circuits: Arc<Circuits>,
}

/// The endpoint that a call goes to.
pub(super) struct Seat<R: Request> {
    /// The circuit of the endpoint, with its name.
    pub(super) key: CircuitKey,
    pub(super) service: BoxCallService<R>,
    pub(super) load: Arc<EndpointLoad>,
}

impl<R: Request> Endpoint<R> {
    pub(super) fn new(name: Arc<str>, service: BoxCallService<R>, circuits: Arc<Circuits>) -> Self {
        let seat = Seat {
            key: CircuitKey {
                name: Some(name),
                of: None,
            },
            service,
            load: Arc::new(EndpointLoad::new()),
        };
        Self { seat, circuits }
    }

    /// Returns its circuit, and its load.
    pub(super) fn place(&self) -> (CircuitKey, Arc<EndpointLoad>) {
        (self.seat.key.clone(), self.seat.load.clone())
    }
}

impl<R: Request> Service<()> for Endpoint<R> {
    type Response = Seat<R>;
    type Error = Error;
    type Future = Ready<Result<Seat<R>, Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.circuits.is_open(&self.seat.key) {
            // The balancer asks again at the next call, without a timer: nobody waits for this.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Ok(self.seat.clone()))
    }
}

impl<R: Request> Load for Endpoint<R> {
    type Metric = EndpointCost;

    fn load(&self) -> EndpointCost {
        self.seat.load.cost()
    }
}

impl<R: Request> Clone for Seat<R> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            service: self.service.clone(),
            load: self.load.clone(),
        }
    }
}

impl<R: Request> fmt::Debug for Endpoint<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("name", &self.seat.key.name)
            .field("load", &self.seat.load)
            .finish_non_exhaustive()
    }
}
