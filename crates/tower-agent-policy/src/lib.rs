//! Rules of a business as data, decided at each tool call.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests and examples may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod arguments;
mod call_state;
mod case;
mod counts;
mod decide;
mod entities;
mod error;
mod guard;
mod principal;
mod rulebook;
mod rules;
mod ruling;
mod schema;

pub use self::case::Case;
pub use self::entities::{EntitySource, Loaded};
pub use self::error::{PolicyError, Problem};
pub use self::principal::Principal;
pub use self::rulebook::{Rulebook, RulebookBuilder};
pub use self::ruling::{RefusalReason, Ruling, RulingVerdict};
