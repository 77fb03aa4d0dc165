//! Spans and metrics as a collector receives them.
