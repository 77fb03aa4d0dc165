//! Empty: `tests/` holds the tests.
