use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use tower_agent_conversations::StoreError;

/// The length of a hash, in bytes.
pub(super) const LENGTH: usize = 12;

pub(super) type Hash = [u8; LENGTH];

/// Returns the hash of a part together with the hash before it, as in a chain.
pub(super) fn hash(part: &impl Serialize, before: &[u8]) -> Result<Hash, StoreError> {
    let json = serde_json::to_vec(part).map_err(StoreError::data)?;
    Ok(hash_of(&json, before))
}

/// Returns the hash of bytes together with the hash before them.
pub(super) fn hash_of(bytes: &[u8], before: &[u8]) -> Hash {
    let digest = Sha256::new()
        .chain_update(before)
        .chain_update(bytes)
        .finalize();
    let mut hash = [0; LENGTH];
    hash.copy_from_slice(&digest[..LENGTH]);
    hash
}

/// Returns a hash as text.
pub(super) fn digits(hash: &[u8]) -> String {
    // By a table: each step writes several, and `format!` takes twenty times as long.
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let mut digits = String::with_capacity(2 * hash.len());
    for byte in hash {
        digits.push(DIGITS[usize::from(byte >> 4)]);
        digits.push(DIGITS[usize::from(byte & 0xf)]);
    }
    digits
}

/// The hashes of the parts of a request, and short names as they are, to compare it with another
/// one part by part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint(Vec<(Cow<'static, str>, String)>);

impl Fingerprint {
    /// Adds a part of a request.
    ///
    /// # Errors
    ///
    /// Fails if the part cannot be written as JSON.
    pub fn add(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        part: &impl Serialize,
    ) -> Result<(), StoreError> {
        self.push(name, &hash(part, &[])?);
        Ok(())
    }

    /// Adds a name. A short one stands for itself, in quotes, which no hash has: to hash it would
    /// take longer.
    pub(super) fn add_name(&mut self, part: &'static str, name: &str) -> Result<(), StoreError> {
        if name.len() > 2 * LENGTH {
            return self.add(part, &name);
        }
        self.0.push((part.into(), ["\"", name, "\""].concat()));
        Ok(())
    }

    /// Adds a part that was hashed before.
    pub(super) fn push(&mut self, name: impl Into<Cow<'static, str>>, hash: &[u8]) {
        self.0.push((name.into(), digits(hash)));
    }

    /// Returns the first part in which these differ.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        let most = self.0.len().max(other.0.len());
        let at = (0..most).find(|&at| self.0.get(at) != other.0.get(at))?;
        let here = self.0.get(at);
        let there = other.0.get(at);
        // An added part moves all that follow: the part that it pushed away may be the same in
        // both, and its name would send the reader to the wrong place.
        if let Some((name, _)) = there
            && self.0.iter().all(|(own, _)| own != name)
        {
            return Some(name.to_string());
        }
        here.or(there).map(|(name, _)| name.to_string())
    }
}
