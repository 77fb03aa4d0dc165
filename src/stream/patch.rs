use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One step of a JSON Patch (RFC 6902), of the kinds that a change of state needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
#[non_exhaustive]
pub enum PatchOperation {
    /// A key gets its first value.
    Add {
        /// Which, as a JSON Pointer.
        path: String,
        /// The value.
        value: Value,
    },
    /// A key gets another value.
    Replace {
        /// Which, as a JSON Pointer.
        path: String,
        /// The value.
        value: Value,
    },
    /// A key is gone.
    Remove {
        /// Which, as a JSON Pointer.
        path: String,
    },
}

impl PatchOperation {
    pub(crate) fn set(key: &str, value: Value, exists: bool) -> Self {
        let path = pointer(key);
        if exists { Self::Replace { path, value } } else { Self::Add { path, value } }
    }

    pub(crate) fn removal(key: &str) -> Self {
        Self::Remove { path: pointer(key) }
    }
}

fn pointer(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}
