use std::time::Duration;

use tokio::time::Instant;

/// The part of the limit that stays when calls are refused.
const AFTER_REFUSAL: f64 = 0.7;

/// The part of the limit that stays when calls are slow.
const AFTER_WAIT: f64 = 0.9;

/// The weight of one call in the average of waits.
const WEIGHT: f64 = 0.1;

/// The speed at which a longer wait becomes the usual one.
const DRIFT: f64 = 0.01;

/// The settings of a layer.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) initial: usize,
    pub(super) most: usize,
    pub(super) tolerance: f64,
}

impl Settings {
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
    /// When the limit fell last. Calls that are older tell about the limit before.
    fell_at: Option<Instant>,
    /// The average wait of the last calls, in seconds.
    recent: Option<f64>,
    /// The wait when there are few calls, in seconds.
    usual: f64,
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
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            limit: settings.first() as f64,
            has_fallen: false,
            fell_at: None,
            recent: None,
            usual: 0.0,
        }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Changes the limit by the end of a call that began at this time.
    pub(super) fn note(&mut self, began: Instant, end: End, settings: &Settings) {
        let is_older = self.fell_at.is_some_and(|fell| began < fell);
        match end {
            End::Refused if is_older => {}
            End::Refused => self.fall(AFTER_REFUSAL),
            End::Answered { wait, is_full } => {
                let is_slow = self.add_wait(wait) > settings.tolerance * self.usual;
                match (is_slow, is_older) {
                    (true, true) => {}
                    (true, false) => self.fall(AFTER_WAIT),
                    // Room that is not used says nothing about more of it.
                    (false, _) if is_full => self.grow(settings.most),
                    (false, _) => {}
                }
            }
        }
    }

    fn fall(&mut self, part: f64) {
        self.limit = (self.limit * part).max(1.0);
        self.has_fallen = true;
        self.fell_at = Some(Instant::now());
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
            None => {
                self.usual = wait;
                wait
            }
            Some(recent) => recent + (wait - recent) * WEIGHT,
        };
        self.recent = Some(recent);
        if recent < self.usual {
            self.usual = recent;
        } else {
            self.usual += (recent - self.usual) * DRIFT;
        }
        recent
    }
}
