use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;

/// What a step is about to do. It has hashes of the request and not the request, which may contain
/// secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intent {
    /// The request.
    pub fingerprint: Fingerprint,
    /// Whether the step may be repeated if it did not finish.
    pub is_repeatable: bool,
}
