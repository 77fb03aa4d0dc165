//! Labels: who could have written something, and who may read it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The trust in data, by who could have written it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Integrity {
    /// The application, or the user whose run it is.
    #[default]
    Trusted,
    /// Anybody.
    Untrusted,
}

/// The readers that data may have: everybody, or those with one of these names. An empty set is
/// nobody.
///
/// The names are the application's own: addresses, channels, groups. [`Readers::USER`] is the user
/// whose run it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readers {
    /// Everybody.
    #[default]
    Anyone,
    /// Readers with one of these names.
    Only(BTreeSet<Arc<str>>),
}

impl Readers {
    /// The name of the user whose run it is.
    pub const USER: &str = "user";

    /// Allows the user of the run alone.
    #[must_use]
    pub fn user() -> Self {
        Self::only([Self::USER])
    }

    /// Allows readers with these names.
    #[must_use]
    pub fn only(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        Self::Only(names.into_iter().map(Into::into).collect())
    }

    /// Returns whether a reader with this name is allowed.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::Anyone => true,
            Self::Only(names) => names.contains(name),
        }
    }

    /// Returns the readers that both allow.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Anyone, others) | (others, Self::Anyone) => others.clone(),
            (Self::Only(one), Self::Only(two)) => {
                Self::Only(one.intersection(two).cloned().collect())
            }
        }
    }
}

/// The label of data: who could have written it, and who may read it.
///
/// Labels are joined where data is put together: the worse integrity, and the readers that both
/// allow.
///
/// ```
/// use tower_agent_middleware::flow::{Label, Readers};
///
/// let page = Label::untrusted();
/// let mail = Label::trusted().with_readers(Readers::only(["alice", "bob"]));
/// let answer = page.join(&mail);
/// assert!(!answer.is_trusted());
/// assert!(answer.readers().contains("bob") && !answer.readers().contains("carol"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Label {
    integrity: Integrity,
    #[serde(default, skip_serializing_if = "is_anyone")]
    readers: Readers,
}

fn is_anyone(readers: &Readers) -> bool {
    *readers == Readers::Anyone
}

impl Label {
    /// The label of what the application or the user has written and everybody may read.
    #[must_use]
    pub fn trusted() -> Self {
        Self::default()
    }

    /// The label of what anybody could have written and everybody may read, such as a web page.
    #[must_use]
    pub fn untrusted() -> Self {
        Self {
            integrity: Integrity::Untrusted,
            readers: Readers::Anyone,
        }
    }

    /// The label of what is not known: anybody could have written it, and the user alone may read
    /// it.
    #[must_use]
    pub fn unknown() -> Self {
        // The worst of both: it may be an attacker's words, or the secret of somebody else.
        Self::untrusted().with_readers(Readers::user())
    }

    /// Sets the readers.
    #[must_use]
    pub fn with_readers(mut self, readers: Readers) -> Self {
        self.readers = readers;
        self
    }

    /// Sets the integrity.
    #[must_use]
    pub fn with_integrity(mut self, integrity: Integrity) -> Self {
        self.integrity = integrity;
        self
    }

    /// Returns who could have written it.
    #[must_use]
    pub fn integrity(&self) -> Integrity {
        self.integrity
    }

    /// Returns who may read it.
    #[must_use]
    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Returns whether the application or the user has written it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.integrity == Integrity::Trusted
    }

    /// Returns the label of data that was made of data with these labels.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        Self {
            integrity: self.integrity.max(other.integrity),
            readers: self.readers.intersection(&other.readers),
        }
    }

    /// Returns whether somebody who has read data with the `other` label learns nothing worse from
    /// data with this one: whether joining it changes nothing.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        // A comparison of its own could disagree with `join` in a case that only one of them has.
        self.join(other) == *other
    }
}
