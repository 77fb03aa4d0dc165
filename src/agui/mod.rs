//! AG-UI 1.0.
pub mod wire;
pub use self::wire::*;
