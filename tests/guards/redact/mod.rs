//! Redaction.

mod calls;
mod detectors;
mod exactness;
mod streams;
