use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The places of a server: so many runs at once, and so many of each user. Clones share them.
///
/// ```
/// use std::sync::Arc;
///
/// use tower_agent::serve::Places;
///
/// let places = Places::new(1_000, 1);
/// let ada: Arc<str> = "ada".into();
/// let place = places.take(&ada)?;
/// assert!(places.take(&ada).is_err());
///
/// drop(place);
/// assert!(places.take(&ada).is_ok());
/// # Ok::<_, tower_agent::serve::NoPlace>(())
/// ```
#[derive(Clone)]
pub struct Places {
    max: usize,
    max_each: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    each: HashMap<Arc<str>, usize>,
}

/// A place, until it is dropped.
#[must_use = "the place is free once this is dropped"]
pub struct Place {
    taken: Arc<Mutex<Taken>>,
    of: Arc<str>,
}

/// The reason why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlace {
    /// All are taken.
    #[error("the server has {max} runs at once; try again later")]
    All {
        /// The number of places.
        max: usize,
    },
    /// The user has as many as one may have.
    #[error("{max} runs of yours are under way; try again when one has ended")]
    Each {
        /// The number of places of one user.
        max: usize,
    },
}

impl Places {
    /// Creates so many places, of which one user may have `max_each`.
    #[must_use]
    pub fn new(max: usize, max_each: usize) -> Self {
        Self {
            max,
            max_each,
            taken: Arc::default(),
        }
    }

    /// Takes a place for a user. If the name is empty it is nobody's, and counts among all alone.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub fn take(&self, of: &Arc<str>) -> Result<Place, NoPlace> {
        let mut taken = lock(&self.taken);
        if taken.all >= self.max {
            return Err(NoPlace::All { max: self.max });
        }
        if !of.is_empty() {
            let own = taken.each.get(of).copied().unwrap_or(0);
            if own >= self.max_each {
                return Err(NoPlace::Each { max: self.max_each });
            }
            taken.each.insert(of.clone(), own + 1);
        }
        taken.all += 1;
        Ok(Place {
            taken: self.taken.clone(),
            of: of.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.all -= 1;
        let Some(own) = taken.each.get_mut(&self.of) else {
            return;
        };
        *own -= 1;
        // The map must not grow with every user that was ever seen.
        if *own == 0 {
            taken.each.remove(&self.of);
        }
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places")
            .field("max", &self.max)
            .field("max_each", &self.max_each)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").finish_non_exhaustive()
    }
}
