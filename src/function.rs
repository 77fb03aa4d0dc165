//! Markers for the forms of functions that the compiler cannot tell apart.

/// A function that returns its result directly.
#[derive(Debug)]
pub enum Now {}

/// A function that returns a future.
#[derive(Debug)]
pub enum Later {}

/// An argument of the methods of conversion traits. Only this crate can name it, so only this crate
/// implements those traits and calls their methods.
#[derive(Debug)]
pub struct Seal;
