//! Keys of data that the protocol has no field for.

/// The key under which an `encryptedValue` from another source is stored.
pub(super) const FOREIGN: &str = "agui";

/// The key in a document's metadata for its name.
pub(super) const FILE_NAME: &str = "filename";

/// The key in a tool message's metadata that marks a failure.
pub(super) const IS_ERROR: &str = "isError";
