//! What tells the shapes of a function apart where the compiler cannot.

/// A function that answers at once.
#[derive(Debug)]
pub enum Now {}

/// A function that returns a future.
#[derive(Debug)]
pub enum Later {}
