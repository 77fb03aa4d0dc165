use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::controller::{AdaptiveSettings, Controller, End};
use crate::admission::Permit;
use crate::first_output::FirstOutput;
use crate::lock::lock;
use crate::sweep::Sweep;
use tower_agent::call::Request;
use tower_agent::error::{Error, ErrorKind, Result};

/// The limits of a layer and its clones, by their key.
#[derive(Debug, Default)]
pub(super) struct AdaptiveLimits(Mutex<LimitsState>);

#[derive(Debug, Default)]
struct LimitsState {
    by_key: HashMap<Arc<str>, Arc<AdaptiveLimit>>,
    sweep: Sweep,
}

impl AdaptiveLimits {
    pub(super) fn of(&self, key: &str, settings: &AdaptiveSettings) -> Arc<AdaptiveLimit> {
        let state = &mut *lock(&self.0);
        if let Some(limit) = state.by_key.get(key) {
            return limit.clone();
        }
        state
            .sweep
            .make_room(&mut state.by_key, |limit| Arc::strong_count(limit) > 1);
        let limit = Arc::new(AdaptiveLimit::new(settings));
        state.by_key.insert(key.into(), limit.clone());
        limit
    }

    /// Returns the current limit of a key, if it has calls.
    pub(super) fn current(&self, key: &str) -> Option<usize> {
        let limit = lock(&self.0).by_key.get(key).cloned()?;
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
}

impl AdaptiveLimit {
    fn new(settings: &AdaptiveSettings) -> Self {
        let controller = Controller::new(settings);
        let places = controller.limit();
        Self {
            places: Arc::new(Semaphore::new(places)),
            state: Mutex::new(LimitState { controller, places }),
        }
    }

    /// Waits for a place.
    pub(super) async fn enter<R: Request>(
        self: Arc<Self>,
        request: &R,
        settings: AdaptiveSettings,
    ) -> Result<ConcurrencyPermit<R>> {
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|_| {
            // Nothing closes it.
            Error::new(ErrorKind::Other, "the queue of the limit was closed")
        })?;
        Ok(ConcurrencyPermit {
            limit: self,
            settings,
            place: Some(place),
            began: Instant::now(),
            first_output: FirstOutput::of(request),
            wait_is_known: false,
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
    fn leave(&self, place: OwnedSemaphorePermit) {
        let state = &mut *lock(&self.state);
        if state.places > state.controller.limit() {
            state.places -= 1;
            place.forget();
        }
    }
}

/// A call that has a place, until it has ended.
#[derive(Debug)]
pub(super) struct ConcurrencyPermit<R: Request> {
    limit: Arc<AdaptiveLimit>,
    settings: AdaptiveSettings,
    place: Option<OwnedSemaphorePermit>,
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
