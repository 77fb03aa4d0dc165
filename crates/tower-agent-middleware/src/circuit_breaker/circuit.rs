use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower_agent::error::{Error, ErrorKind};
use tower_agent::gauge::{Amount, Reading};

use crate::admission::Permit;
use crate::bounds;
use crate::keyed::{Keyed, Need};
use crate::lock::lock;
use crate::rate_limit::Exhausted;

/// Decides whether an error counts as a failure of what was called.
pub(crate) type IsFailure = Arc<dyn Fn(&Error) -> bool + Send + Sync>;

/// The settings of a layer.
#[derive(Clone)]
pub(crate) struct CircuitSettings {
    pub(crate) failures: u32,
    pub(crate) pause: Duration,
    pub(crate) is_failure: IsFailure,
    /// The number of circuits that may be open at the same time.
    pub(crate) most_open: usize,
}

impl CircuitSettings {
    pub(crate) fn new(failures: u32, pause: Duration) -> Self {
        Self {
            failures,
            pause,
            is_failure: Arc::new(Error::is_retryable),
            most_open: usize::MAX,
        }
    }
}

impl fmt::Debug for CircuitSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitSettings")
            .field("failures", &self.failures)
            .field("pause", &self.pause)
            .field("most_open", &self.most_open)
            .finish_non_exhaustive()
    }
}

/// The calls that a circuit is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CircuitKey {
    /// The name of a tool or an endpoint; `None` for calls without a name, such as those of a
    /// model.
    pub(crate) name: Option<Arc<str>>,
    /// The key of the run, if each has circuits of its own.
    pub(crate) of: Option<Arc<str>>,
}

/// The circuits of a layer and its clones, by the name of what is called. A circuit without
/// failures has no entry: names may be invented by a model.
#[derive(Debug, Default)]
pub(crate) struct Circuits(Mutex<Keyed<CircuitKey, Circuit>>);

#[derive(Debug, Default)]
struct Circuit {
    /// The failures since the last success.
    failures: u32,
    /// While it is open: when the next call may test it.
    open_until: Option<Instant>,
    /// The time at which it was last closed. Calls that are older tell nothing about the present.
    closed_at: Option<Instant>,
}

impl Circuit {
    /// Returns whether a call would be refused now.
    fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    /// Returns the state of the circuit, which one that is not known has as well.
    fn reading(&self, kind: &'static str, settings: &CircuitSettings, now: Instant) -> Reading {
        let state = match self.open_until {
            None => "closed",
            Some(until) if now < until => "open",
            Some(_) => "open, and the next call tests it",
        };
        let failures = Amount::new("failures in a row", f64::from(self.failures));
        let failures = failures.limit(f64::from(settings.failures));
        let reading = Reading::new(kind, state, !self.is_open(now)).with(failures);
        match self.open_until {
            Some(until) if now < until => {
                let wait = (until - now).as_secs_f64();
                reading.with(Amount::new("next call in", wait).unit("s"))
            }
            _ => reading,
        }
    }
}

impl Circuits {
    /// Returns the states of the circuits, the open ones first; without any, that of one that has
    /// not failed.
    pub(crate) fn readings(&self, settings: &CircuitSettings, most: usize) -> Vec<Reading> {
        const KIND: &str = "circuit breaker";
        let now = Instant::now();
        let circuits = lock(&self.0);
        let highest = circuits.highest(most, |circuit| (circuit.is_open(now), circuit.failures));
        let mut readings = Vec::with_capacity(highest.len());
        for (CircuitKey { name, of }, circuit) in highest {
            let mut reading = circuit.reading(KIND, settings, now);
            reading.name.clone_from(name);
            reading.of.clone_from(of);
            readings.push(reading);
        }
        if readings.is_empty() {
            readings.push(Circuit::default().reading(KIND, settings, now));
        }
        readings
    }

    /// Returns the state of one circuit.
    #[cfg(feature = "pool")]
    pub(crate) fn reading(
        &self,
        key: &CircuitKey,
        kind: &'static str,
        settings: &CircuitSettings,
    ) -> Reading {
        let now = Instant::now();
        let circuits = lock(&self.0);
        let unknown = Circuit::default();
        let circuit = circuits.get(key).unwrap_or(&unknown);
        let mut reading = circuit.reading(kind, settings, now);
        reading.name.clone_from(&key.name);
        reading
    }

    /// Returns whether a call would be refused now.
    #[cfg(feature = "pool")]
    pub(crate) fn is_open(&self, key: &CircuitKey) -> bool {
        let circuits = lock(&self.0);
        let circuit = circuits.get(key);
        circuit.is_some_and(|circuit| circuit.is_open(Instant::now()))
    }

    /// Admits a call, or returns the reason why it is not made.
    pub(crate) fn admit(
        self: &Arc<Self>,
        key: CircuitKey,
        settings: &CircuitSettings,
    ) -> Result<CircuitPermit, Refusal> {
        let now = Instant::now();
        let mut tests_until = None;
        if let Some(circuit) = lock(&self.0).get_mut(&key)
            && let Some(until) = circuit.open_until
        {
            if now < until {
                return Err(Refusal {
                    failures: circuit.failures,
                    wait: until - now,
                });
            }
            // The next one may test it if this one has not ended by then, so a call that hangs does
            // not hold the circuit open for ever.
            tests_until = Some(now + settings.pause);
            circuit.open_until = tests_until;
        }
        Ok(CircuitPermit {
            circuits: self.clone(),
            settings: settings.clone(),
            key,
            since: now,
            tests_until,
            is_judged: false,
        })
    }
}

/// The reason why a call is not made.
#[derive(Debug)]
pub(crate) struct Refusal {
    failures: u32,
    wait: Duration,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let Refusal { failures, wait } = refusal;
        let message = format!(
            "not called: the last {failures} calls failed; the next one may be made in {wait:?}"
        );
        // Not retryable: a retry outside would wait for the pause, and a fallback need not.
        Self::new(ErrorKind::Overloaded, message)
            .with_retryable(false)
            .with_retry_after(wait)
    }
}

/// A call that is made, and will be judged.
#[derive(Debug)]
pub(crate) struct CircuitPermit {
    circuits: Arc<Circuits>,
    settings: CircuitSettings,
    key: CircuitKey,
    since: Instant,
    /// For a call that tests an open circuit: the time until which no other does.
    tests_until: Option<Instant>,
    is_judged: bool,
}

impl<T> Permit<T> for CircuitPermit {
    fn end(self, result: Result<&T, &Error>) {
        self.judge(result.err());
    }
}

impl CircuitPermit {
    /// Ends the call, and returns whether that was a failure of the service.
    pub(crate) fn judge(mut self, error: Option<&Error>) -> bool {
        if error.is_some_and(says_nothing) {
            // Dropped without a verdict.
            return false;
        }
        let failure = error.filter(|error| {
            // A model can invent as many names as it likes, and none of them is a tool that fails.
            error.kind() != ErrorKind::UnknownTool && (self.settings.is_failure)(error)
        });
        self.is_judged = true;
        let circuits = &mut *lock(&self.circuits.0);
        match failure {
            Some(error) => self.count_failure(circuits, error.retry_after()),
            None => self.count_success(circuits),
        }
        failure.is_some()
    }

    fn count_success(&self, circuits: &mut Keyed<CircuitKey, Circuit>) {
        let Some(circuit) = circuits.get_mut(&self.key) else {
            return;
        };
        match circuit.open_until {
            Some(_) if self.tests_until.is_none() => {
                // It was made before the circuit opened.
            }
            Some(_) => {
                tracing::info!(
                    name = self.key.name.as_deref(),
                    of = self.key.of.as_deref(),
                    "circuit closed"
                );
                *circuit = Circuit {
                    closed_at: Some(Instant::now()),
                    ..Circuit::default()
                };
            }
            None if circuit.closed_at.is_none() => {
                circuits.remove(&self.key);
            }
            None => circuit.failures = 0,
        }
    }

    fn may_open(&self, circuits: &Keyed<CircuitKey, Circuit>) -> bool {
        // Not counted where any number may open: there may be one for each user.
        if self.settings.most_open == usize::MAX {
            return true;
        }
        let others = circuits.iter().filter(|(key, _)| **key != self.key);
        let open = others.filter(|(_, circuit)| circuit.open_until.is_some());
        open.count() < self.settings.most_open
    }

    fn count_failure(
        &self,
        circuits: &mut Keyed<CircuitKey, Circuit>,
        retry_after: Option<Duration>,
    ) {
        let may_open = self.may_open(circuits);
        if circuits.get(&self.key).is_none() {
            // Each one has failed: none is like a new one.
            let circuit = Circuit::default();
            circuits.insert(self.key.clone(), circuit, |_| Need::Memory);
        }
        let Some(circuit) = circuits.get_mut(&self.key) else {
            return;
        };
        let is_test = self.tests_until.is_some();
        let is_old = circuit.closed_at.is_some_and(|closed| self.since < closed);
        if is_old || (circuit.open_until.is_some() && !is_test) {
            return;
        }
        circuit.failures = circuit.failures.saturating_add(1);
        if is_test || (may_open && circuit.failures >= self.settings.failures) {
            let asked = retry_after.map(bounds::wait).unwrap_or_default();
            let pause = self.settings.pause.max(asked);
            let failures = circuit.failures;
            tracing::warn!(
                name = self.key.name.as_deref(),
                of = self.key.of.as_deref(),
                failures,
                ?pause,
                "circuit opened"
            );
            circuit.open_until = Instant::now().checked_add(pause).or(circuit.open_until);
        }
    }
}

/// Returns whether the service has not said anything: the run ended, or the call was kept away
/// inside by a limit that is not everybody's.
fn says_nothing(error: &Error) -> bool {
    let exhausted = error.downcast_ref::<Exhausted>();
    error.is_ending()
        || error.kind() == ErrorKind::Cancelled
        || exhausted.is_some_and(|exhausted| exhausted.is_of_key)
}

impl Drop for CircuitPermit {
    fn drop(&mut self) {
        let is_test = self.tests_until.is_some();
        if self.is_judged || !is_test {
            return;
        }
        let mut circuits = lock(&self.circuits.0);
        if let Some(circuit) = circuits.get_mut(&self.key)
            && circuit.open_until == self.tests_until
        {
            // The test brought no verdict, so the next call is the test.
            circuit.open_until = Some(Instant::now());
        }
    }
}
