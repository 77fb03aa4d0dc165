//! Numbers that look random and depend on names alone.

use uuid::Uuid;

/// Returns a name for all of these, always the same one.
pub(crate) fn name(parts: &[&str]) -> Uuid {
    let mut bytes = Vec::new();
    for part in parts {
        // With its length, so that no two lists are the same bytes.
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    Uuid::new_v5(&Uuid::NAMESPACE_URL, &bytes)
}

/// Returns a number from 0 up to 1 for all of these, always the same one.
pub(crate) fn unit(parts: &[&str]) -> f64 {
    let (high, _) = name(parts).as_u64_pair();
    // Without the bits that say which version of UUIDs it is, as many as a float has.
    (high >> 16) as f64 / (1_u64 << 48) as f64
}
