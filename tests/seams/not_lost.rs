//! A run that fails keeps what it did.
