//! Pseudo-random names and numbers, derived from strings alone: the same on a replay.

use uuid::Uuid;

pub(crate) fn name(parts: &[&str]) -> Uuid {
    let mut bytes = Vec::new();
    for part in parts {
        // With its length, so that `["ab", "c"]` and `["a", "bc"]` differ.
        bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    Uuid::new_v5(&Uuid::NAMESPACE_URL, &bytes)
}

/// Derives a number in [0, 1) from the parts.
pub(crate) fn unit(parts: &[&str]) -> f64 {
    let (high, _) = name(parts).as_u64_pair();
    // The lowest 16 bits contain the UUID's version, which is constant; 48 bits fit into a float.
    (high >> 16) as f64 / (1_u64 << 48) as f64
}

pub(crate) fn number(parts: &[&str]) -> u32 {
    name(parts).as_fields().0
}
