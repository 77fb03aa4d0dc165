use std::fmt::Write;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::StoreError;

/// The hashes of the parts of a request, by which a request that differs is known, and where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint(Vec<(String, String)>);

impl Fingerprint {
    /// Adds a part.
    pub(super) fn add(
        &mut self,
        name: impl Into<String>,
        part: &impl Serialize,
    ) -> Result<(), StoreError> {
        let json = serde_json::to_vec(part).map_err(StoreError::data)?;
        let mut hash = String::new();
        for byte in &Sha256::digest(json)[..12] {
            // Writing to a string does not fail.
            let _ = write!(hash, "{byte:02x}");
        }
        self.0.push((name.into(), hash));
        Ok(())
    }

    /// Returns the first part in which these differ.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let name = |at: usize| self.0.get(at).or(other.0.get(at)).map(|(name, _)| name.clone());
        let most = self.0.len().max(other.0.len());
        (0..most).find(|&at| self.0.get(at) != other.0.get(at)).and_then(name)
    }
}
