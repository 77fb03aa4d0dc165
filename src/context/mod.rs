//! The run that a call belongs to.

mod checkpoint;
mod collecting;
mod conversation;
mod effects;
mod endings;
mod hold;
mod inherited;
mod joined;
mod latch;
mod limit;
mod nesting;
mod record;
mod replay;
mod run;
mod run_context;
mod slot;
mod turn;
mod values;

pub use self::checkpoint::Checkpoint;
pub(crate) use self::conversation::Suspended;
pub use self::effects::{Amounts, EffectLog, Effects};
pub(crate) use self::inherited::Inherited;
pub(crate) use self::joined::Joined;
pub(crate) use self::record::{Open, Record, Transcript};
pub use self::run_context::RunContext;
pub(crate) use self::slot::Slot;
pub(crate) use self::turn::Turn;
pub use self::values::{ValueTypeError, Values};
pub use crate::state::{State, StateDelta};
