//! Guards that are shown as they stand.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, join_all};
use serde::Serialize;
use tokio::time::timeout;
use tower_agent::error::Result;
use tower_agent::gauge::{Gauge, Reading};

use crate::database::LOOK;
use crate::lock::lock;

/// The number of readings of one gauge that are shown.
const READINGS: usize = 50;

/// A gauge of whatever type.
type ReadGauge = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<Vec<Reading>>> + Send + Sync>;

/// The gauges, in the order in which they were given.
#[derive(Default)]
pub(crate) struct Gauges(Mutex<Vec<(Arc<str>, ReadGauge)>>);

/// A gauge as it stands.
#[derive(Serialize)]
pub(crate) struct ShownGauge {
    name: Arc<str>,
    pub(crate) readings: Vec<Reading>,
    /// There are more, that matter less.
    has_more: bool,
    /// It could not be read.
    is_away: bool,
}

impl Gauges {
    /// Adds a gauge, in the place of one with the same name.
    pub(crate) fn set(&self, name: Arc<str>, gauge: impl Gauge) {
        let gauge = Arc::new(gauge);
        let read: ReadGauge = Arc::new(move |most| {
            let gauge = gauge.clone();
            Box::pin(async move { gauge.read(most).await })
        });
        let mut gauges = lock(&self.0);
        match gauges.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = read,
            None => gauges.push((name, read)),
        }
    }

    /// Reads all of them, at the same time.
    pub(crate) async fn read(&self) -> Vec<ShownGauge> {
        let gauges = lock(&self.0).clone();
        let shown = gauges.into_iter().map(|(name, read)| show(name, read));
        join_all(shown).await
    }
}

async fn show(name: Arc<str>, read: ReadGauge) -> ShownGauge {
    // One more than is shown, to know whether there are more. A closure of the program that panics
    // is not to hide the others.
    let read = AssertUnwindSafe(async move { read(READINGS + 1).await }).catch_unwind();
    let readings = match timeout(LOOK, read).await {
        Ok(Ok(Ok(readings))) => Some(readings),
        Ok(Ok(Err(error))) => {
            // Not for everybody who looks: it may name whose limit it is.
            tracing::warn!(gauge = &*name, %error, "a gauge of the console cannot be read");
            None
        }
        Ok(Err(_)) => {
            tracing::warn!(gauge = &*name, "a gauge of the console panicked");
            None
        }
        Err(_) => {
            tracing::warn!(gauge = &*name, "a gauge of the console does not answer");
            None
        }
    };
    let is_away = readings.is_none();
    let mut readings = readings.unwrap_or_default();
    let has_more = readings.len() > READINGS;
    readings.truncate(READINGS);
    ShownGauge {
        name,
        readings,
        has_more,
        is_away,
    }
}
