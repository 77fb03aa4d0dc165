//! Databases that fail.
