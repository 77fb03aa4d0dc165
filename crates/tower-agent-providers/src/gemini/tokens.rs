/// Returns the sum of two counts that a server may leave out.
pub(super) fn sum(one: Option<u64>, other: Option<u64>) -> u64 {
    // Servers send numbers of any size; a wrong count is no reason to fail.
    one.unwrap_or_default()
        .saturating_add(other.unwrap_or_default())
}
