use std::sync::{Arc, Mutex};

use slab::Slab;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::controller::{AdaptiveSettings, Controller, End};
use crate::admission::Permit;
use crate::first_output::FirstOutput;
use crate::keyed::{Keyed, Need};
use crate::lock::lock;
use tower_agent::RunContext;
use tower_agent::call::{CallKind, Request};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::gauge::{Amount, Reading};

/// The limits of a layer and its clones, by their key.
#[derive(Debug, Default)]
pub(super) struct AdaptiveLimits(Mutex<Keyed<Arc<str>, Arc<AdaptiveLimit>>>);

impl AdaptiveLimits {
    pub(super) fn of(&self, key: &str, settings: &AdaptiveSettings) -> Arc<AdaptiveLimit> {
        let mut limits = lock(&self.0);
        if let Some(limit) = limits.get_mut(key) {
            return limit.clone();
        }
        let limit = Arc::new(AdaptiveLimit::new(settings));
        limits.insert(key.into(), limit.clone(), |limit| {
            if Arc::strong_count(limit) > 1 {
                Need::Calls
            } else {
                Need::Nothing
            }
        });
        limit
    }

    /// Returns the states of the limits, those with the most calls first; without any, that of one
    /// without calls.
    pub(super) fn readings(&self, settings: &AdaptiveSettings, most: usize) -> Vec<Reading> {
        let limits = lock(&self.0);
        let highest = limits.highest(most, |limit| lock(&limit.state).calls.len());
        let mut readings = Vec::with_capacity(highest.len());
        for (key, limit) in highest {
            let reading = limit.reading();
            // The empty key is everybody's.
            let is_of_key = !key.is_empty();
            readings.push(if is_of_key {
                reading.of(key.clone())
            } else {
                reading
            });
        }
        if readings.is_empty() {
            readings.push(AdaptiveLimit::new(settings).reading());
        }
        readings
    }

    /// Returns the current limit of a key, if it has calls.
    pub(super) fn current(&self, key: &str) -> Option<usize> {
        let limit = lock(&self.0).get(key).cloned()?;
        Some(lock(&limit.state).controller.limit())
    }
}

/// A limit, and the calls that run and wait.
#[derive(Debug)]
pub(super) struct AdaptiveLimit {
    /// Its queue is fair, and a call that is dropped leaves it.
    places: Arc<Semaphore>,
    state: Mutex<LimitState>,
}

#[derive(Debug)]
struct LimitState {
    controller: Controller,
    /// The places that there are, which follow the limit once calls have left them.
    places: usize,
    /// The calls that have a place.
    calls: Slab<LimitedCall>,
}

#[derive(Debug)]
struct LimitedCall {
    kind: CallKind,
    context: RunContext,
}

impl LimitedCall {
    /// Returns whether a call of this kind is made in this one.
    fn contains(&self, kind: CallKind, inner: &RunContext) -> bool {
        if self.context.run_id() != inner.run_id() {
            return false;
        }
        let inner = inner.call_path();
        let Some(rest) = inner.strip_prefix(&self.context.call_path()) else {
            return false;
        };
        // An agent's model calls have its own path. Another attempt at a call has that of the call.
        let is_of_agent = self.kind == CallKind::Agent && kind != CallKind::Agent;
        rest.starts_with('/') || rest.is_empty() && is_of_agent
    }
}

impl AdaptiveLimit {
    fn new(settings: &AdaptiveSettings) -> Self {
        let controller = Controller::new(settings);
        let places = controller.limit();
        Self {
            places: Arc::new(Semaphore::new(places)),
            state: Mutex::new(LimitState {
                controller,
                places,
                calls: Slab::new(),
            }),
        }
    }

    fn reading(&self) -> Reading {
        let state = lock(&self.state);
        let admits = self.places.available_permits() > 0;
        let running = Amount::new("calls running", state.calls.len() as f64);
        let running = running.limit(state.controller.limit() as f64);
        let word = if admits { "free" } else { "full" };
        Reading::new("adaptive concurrency", word, admits).with(running)
    }

    /// Waits for a place. A call in another that has one waits for none, which that one would give
    /// up only after it.
    pub(super) async fn enter<R: Request>(
        self: Arc<Self>,
        request: &R,
        settings: AdaptiveSettings,
    ) -> Result<ConcurrencyPermit<R>> {
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => Some(place),
            Err(_) if self.has_call_around(request) => None,
            Err(_) => {
                let place = self.places.clone().acquire_owned().await;
                Some(place.map_err(|_| {
                    // Nothing closes it.
                    Error::new(ErrorKind::Other, "the queue of the limit was closed")
                })?)
            }
        };
        let place = place.map(|place| TakenPlace {
            number: self.keep(request),
            permit: place,
        });
        Ok(ConcurrencyPermit {
            limit: self,
            settings,
            place,
            began: Instant::now(),
            first_output: FirstOutput::of(request),
            wait_is_known: false,
        })
    }

    fn has_call_around<R: Request>(&self, request: &R) -> bool {
        let calls = &lock(&self.state).calls;
        let mut calls = calls.iter().map(|(_, call)| call);
        calls.any(|call| call.contains(R::CALL, request.context()))
    }

    /// Records a call that has a place, and returns its number.
    fn keep<R: Request>(&self, request: &R) -> usize {
        lock(&self.state).calls.insert(LimitedCall {
            kind: R::CALL,
            context: request.context().clone(),
        })
    }

    fn note(&self, began: Instant, end: End, settings: &AdaptiveSettings) {
        let state = &mut *lock(&self.state);
        state.controller.note(began, end, settings);
        let limit = state.controller.limit();
        if limit > state.places {
            self.places.add_permits(limit - state.places);
            state.places = limit;
        } else {
            // The places of calls that run are taken away when these leave.
            state.places -= self.places.forget_permits(state.places - limit);
        }
    }

    /// Gives a place back, or takes it away if there are more than the limit.
    fn leave(&self, TakenPlace { number, permit }: TakenPlace) {
        let state = &mut *lock(&self.state);
        state.calls.remove(number);
        if state.places > state.controller.limit() {
            state.places -= 1;
            permit.forget();
        }
    }
}

/// A place, and the number of the call that has it.
#[derive(Debug)]
struct TakenPlace {
    number: usize,
    permit: OwnedSemaphorePermit,
}

/// A call that was let through, until it has ended.
#[derive(Debug)]
pub(super) struct ConcurrencyPermit<R: Request> {
    limit: Arc<AdaptiveLimit>,
    settings: AdaptiveSettings,
    /// `None` for a call in another that has one.
    place: Option<TakenPlace>,
    began: Instant,
    first_output: FirstOutput<R>,
    wait_is_known: bool,
}

impl<R: Request> Permit<R::Response> for ConcurrencyPermit<R> {
    fn look(&mut self) {
        if self.first_output.is_seen() {
            self.answered();
        }
    }

    fn end(mut self, result: Result<&R::Response, &Error>) {
        match result.map_err(Error::kind) {
            Ok(_) => self.answered(),
            Err(ErrorKind::RateLimited | ErrorKind::Overloaded) => {
                self.limit.note(self.began, End::Refused, &self.settings);
            }
            Err(_) => {}
        }
    }
}

impl<R: Request> ConcurrencyPermit<R> {
    fn answered(&mut self) {
        if !std::mem::replace(&mut self.wait_is_known, true) {
            let end = End::Answered {
                wait: self.began.elapsed(),
                is_full: self.limit.places.available_permits() == 0,
            };
            self.limit.note(self.began, end, &self.settings);
        }
    }
}

impl<R: Request> Drop for ConcurrencyPermit<R> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.limit.leave(place);
        }
    }
}
