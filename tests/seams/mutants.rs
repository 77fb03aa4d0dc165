//! Behaviour that no test showed.

mod bands;
mod budgets;
mod latches;
mod loops;
