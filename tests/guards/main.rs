//! The guards.

mod guardrail;
mod redact;
