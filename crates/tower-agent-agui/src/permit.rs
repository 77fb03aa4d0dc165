//! Limits the runs at once, and ends them when the server shuts down.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::lock::lock;
use crate::wire::{InputError, InputErrorKind};
use tower_agent::serve::{NoPlace, Place, Places};

/// The time after which a run is stopped again that was being polled.
const AGAIN: Duration = Duration::from_millis(10);

/// The time after which a client may try again: another process is there, or will be soon.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A run that ends without being polled.
pub(crate) trait Stop: Send + Sync {
    /// Ends the run, unless it is being polled at this moment or has ended.
    fn stop(&self);
}

/// The runs of a server. Cloning is O(1).
#[derive(Clone)]
pub(crate) struct Runs {
    places: Places,
    running: Arc<Mutex<Running>>,
    /// The permits. Closed when the server shuts down.
    permits: TaskTracker,
    /// Cancelled when the runs are stopped.
    stopped: CancellationToken,
}

#[derive(Default)]
struct Running {
    /// The runs that have started, by the number of their permit.
    started: HashMap<u64, Weak<dyn Stop>>,
    next: u64,
}

/// The permission for one run, until it is dropped.
pub(crate) struct Permit {
    running: Arc<Mutex<Running>>,
    number: u64,
    _place: Place,
    /// Dropped last: whoever waits for it finds the place free.
    _token: TaskTrackerToken,
}

impl Runs {
    pub(crate) fn new(max: usize, max_per_principal: usize) -> Self {
        Self {
            places: Places::new(max, max_per_principal),
            running: Arc::default(),
            permits: TaskTracker::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// Permits a run.
    ///
    /// # Errors
    ///
    /// Fails if there are as many as may be, or the server shuts down.
    pub(crate) fn permit(&self, principal: &Arc<str>) -> Result<Permit, InputError> {
        let mut running = lock(&self.running);
        // Under the lock, so that no permit is given once the server waits for those that there
        // are.
        if self.permits.is_closed() {
            return Err(shutting_down());
        }
        let place = self.places.take(principal).map_err(|full| {
            let kind = match full {
                NoPlace::Each { .. } => InputErrorKind::TooManyRuns,
                _ => InputErrorKind::Overloaded,
            };
            InputError::new(".", full.to_string()).of(kind)
        })?;
        let number = running.next;
        running.next += 1;
        Ok(Permit {
            running: self.running.clone(),
            number,
            _place: place,
            _token: self.permits.token(),
        })
    }

    /// Prepares a run, unless the runs are stopped meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the runs are stopped, and as the preparation does.
    pub(crate) async fn unless_stopped<T, E: From<InputError>>(
        &self,
        prepare: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let prepared = self.stopped.run_until_cancelled(prepare).await;
        prepared.unwrap_or_else(|| Err(shutting_down().into()))
    }

    /// Gives no more permits, waits until the runs have ended, and stops those that take longer.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        {
            let _running = lock(&self.running);
            self.permits.close();
        }
        if timeout(grace, self.permits.wait()).await.is_ok() {
            return;
        }
        self.stopped.cancel();
        loop {
            for run in self.started() {
                run.stop();
            }
            if timeout(AGAIN, self.permits.wait()).await.is_ok() {
                return;
            }
        }
    }

    /// Returns the runs that have started and not ended.
    fn started(&self) -> Vec<Arc<dyn Stop>> {
        let running = lock(&self.running);
        running.started.values().filter_map(Weak::upgrade).collect()
    }
}

fn shutting_down() -> InputError {
    let why = "the server is shutting down: another one, or this one when it is back, takes the \
               same request";
    InputError::new(".", why)
        .of(InputErrorKind::ShuttingDown)
        .after(Some(RETRY_AFTER))
}

impl Permit {
    /// Notes the run that it is for, so that it is stopped if the server shuts down.
    pub(crate) fn started(&self, run: Weak<dyn Stop>) {
        lock(&self.running).started.insert(self.number, run);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock(&self.running).started.remove(&self.number);
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
