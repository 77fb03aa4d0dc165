//! Behaviour that no test showed.
