use std::time::Duration;

use tokio::time::Instant;

/// The part of the limit that stays when it falls. Calls must become as fast as usual there, or the
/// usual wait would rise with the limit.
const STAYS: f64 = 0.7;

/// The weight of one call in the average of waits.
const WEIGHT: f64 = 0.1;

/// Half of the time after which a longer wait is the usual one.
const PERIOD: Duration = Duration::from_secs(30);

/// The settings of a layer.
#[derive(Clone, Debug)]
pub(super) struct AdaptiveSettings {
    pub(super) initial: usize,
    pub(super) most: usize,
    pub(super) tolerance: f64,
}

impl AdaptiveSettings {
    /// Returns the limit to start with.
    pub(super) fn first(&self) -> usize {
        self.initial.clamp(1, self.most.max(1))
    }
}

/// Decides about a limit, from the ends of calls.
#[derive(Debug)]
pub(super) struct Controller {
    limit: f64,
    has_fallen: bool,
    /// The time at which the limit fell last. Calls that are older tell about the limit before.
    fell_at: Option<Instant>,
    /// The average wait of the last calls, in seconds.
    recent: Option<f64>,
    usual: Usual,
}

/// The wait when there are few calls: the least average of this period and the one before, in
/// seconds.
#[derive(Debug)]
struct Usual {
    before: f64,
    now: f64,
    since: Instant,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// It had output after this time.
    Answered { wait: Duration, is_full: bool },
    /// The provider has too many calls.
    Refused,
}

impl Controller {
    pub(super) fn new(settings: &AdaptiveSettings) -> Self {
        Self {
            limit: settings.first() as f64,
            has_fallen: false,
            fell_at: None,
            recent: None,
            usual: Usual {
                before: f64::INFINITY,
                now: f64::INFINITY,
                since: Instant::now(),
            },
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Changes the limit by the end of a call that began at this time.
    pub(super) fn note(&mut self, began: Instant, end: End, settings: &AdaptiveSettings) {
        let is_older = self.fell_at.is_some_and(|fell| began < fell);
        if is_older {
            return;
        }
        match end {
            End::Refused => self.fall(),
            End::Answered { wait, is_full } => {
                let recent = self.add_wait(wait);
                if recent > settings.tolerance * self.usual.wait() {
                    self.fall();
                } else if is_full {
                    // Room that is not used says nothing about more of it.
                    self.grow(settings.most);
                }
            }
        }
    }

    fn fall(&mut self) {
        self.limit = (self.limit * STAYS).max(1.0);
        self.has_fallen = true;
        self.fell_at = Some(Instant::now());
        // The average is that of the limit before. From here on it has to rise again.
        let usual = self.usual.wait();
        self.recent = usual.is_finite().then_some(usual);
    }

    fn grow(&mut self, most: usize) {
        // Each call of a round adds its part; in the first rounds a whole one, to find out quickly.
        let step = if self.has_fallen {
            1.0 / self.limit
        } else {
            1.0
        };
        self.limit = (self.limit + step).min(most as f64);
    }

    /// Adds a wait, and returns the average of the last ones.
    fn add_wait(&mut self, wait: Duration) -> f64 {
        let wait = wait.as_secs_f64();
        let recent = match self.recent {
            None => wait,
            Some(recent) => recent + (wait - recent) * WEIGHT,
        };
        self.recent = Some(recent);
        self.usual.add(recent);
        recent
    }
}

impl Usual {
    fn wait(&self) -> f64 {
        self.before.min(self.now)
    }

    fn add(&mut self, recent: f64) {
        if self.since.elapsed() >= PERIOD {
            self.before = self.now;
            self.now = f64::INFINITY;
            self.since = Instant::now();
        }
        self.now = self.now.min(recent);
    }
}
