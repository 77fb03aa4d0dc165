//! Long conversations cost what is new in them.
