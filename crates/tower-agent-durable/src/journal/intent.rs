use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;

/// The fingerprint of a step, stored before it runs. It has hashes of the request and not the
/// request, which may contain secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Intent {
    /// The request.
    pub fingerprint: Fingerprint,
    /// The step may be repeated if it did not finish.
    pub is_repeatable: bool,
}
