/// The version of the files that this crate writes and reads.
pub(super) const VERSION: u64 = 1;
