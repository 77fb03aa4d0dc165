//! Guards are asked always, and an answer lets one call through once.

mod answers;
mod asked;
mod named;
