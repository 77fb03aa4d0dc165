//! AG-UI 1.0.
pub mod order;
pub mod wire;
pub use self::order::*;
pub use self::wire::*;
