//! Panics, secrets in errors, and depth.
