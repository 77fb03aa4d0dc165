use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use tower_agent::error::{BoxError, Error, ErrorKind};

/// An error of a store.
///
/// As an [`Error`] its kind is [`Conflict`](ErrorKind::Conflict),
/// [`InvalidRequest`](ErrorKind::InvalidRequest) or [`Store`](ErrorKind::Store), and
/// [`downcast_ref`](Error::downcast_ref) finds it. It serialises with the text of its source.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreError {
    /// The stored version is not the expected one, because another writer has written. Nothing was
    /// written.
    #[error("version {expected} was expected, but it was changed or deleted; load it again")]
    Conflict {
        /// The expected version.
        expected: u64,
    },
    /// The data was written by a newer version of this crate.
    #[error("the data has format {found}, but this version reads up to {newest}; update it")]
    NewerFormat {
        /// The format of the stored data.
        found: u32,
        /// The newest format that this version reads.
        newest: u32,
    },
    /// An id cannot be part of a key: it is too long, or contains a NUL character.
    #[error("the {part} cannot be stored: it {why}; choose another one")]
    Id {
        /// The part of the key.
        part: Cow<'static, str>,
        /// The reason.
        why: String,
    },
    /// The data cannot be read or written as JSON.
    #[error("the data does not have the expected form: {0}")]
    Data(
        #[source]
        #[serde(with = "as_text")]
        Arc<dyn std::error::Error + Send + Sync>,
    ),
    /// The database failed or cannot be reached. Whether it has written may be unknown.
    #[error("the database failed: {0}")]
    Database(
        #[source]
        #[serde(with = "as_text")]
        Arc<dyn std::error::Error + Send + Sync>,
    ),
}

impl StoreError {
    /// Creates the error of a database that failed.
    pub fn database(error: impl Into<BoxError>) -> Self {
        Self::Database(error.into().into())
    }

    /// Creates the error of data that does not have the expected form.
    pub fn data(error: impl Into<BoxError>) -> Self {
        Self::Data(error.into().into())
    }

    /// Fails for an id that some database cannot have in a key, for a store of your own: one that
    /// is longer than `most` bytes, or contains a NUL character. All stores refuse it, so that a
    /// program may move from one to another. `part` names the id in the error.
    ///
    /// # Errors
    ///
    /// Fails with [`Id`](Self::Id).
    pub fn check_id(part: &'static str, id: &str, most: usize) -> Result<(), Self> {
        let why = if id.len() > most {
            format!("is {} bytes long, and may have {most}", id.len())
        } else if id.contains('\0') {
            "contains a NUL character".to_owned()
        } else {
            return Ok(());
        };
        Err(Self::Id {
            part: part.into(),
            why,
        })
    }

    /// Returns whether the stored version is not the expected one.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let kind = match error {
            StoreError::Conflict { .. } => ErrorKind::Conflict,
            StoreError::Id { .. } => ErrorKind::InvalidRequest,
            StoreError::NewerFormat { .. } | StoreError::Data(..) | StoreError::Database(..) => {
                ErrorKind::Store
            }
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

/// The source of an error as its text: its type exists only in the process that failed.
mod as_text {
    use std::error::Error;
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serializer};
    use tower_agent::error::BoxError;

    type Source = Arc<dyn Error + Send + Sync>;

    pub(super) fn serialize<S: Serializer>(
        source: &Source,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(source)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Source, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(BoxError::from(text).into())
    }
}
