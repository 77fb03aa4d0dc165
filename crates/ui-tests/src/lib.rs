//! Empty: `tests/` holds the messages.
