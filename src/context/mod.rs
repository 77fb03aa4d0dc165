//! The run that a call belongs to.

mod charges;
mod checkpoint;
mod collecting;
mod conversation;
mod effects;
mod inherited;
mod joined;
mod latch;
mod nesting;
mod record;
mod run;
mod run_context;
mod slot;
mod turn;
mod values;

pub(crate) use self::charges::Charged;
pub use self::checkpoint::Checkpoint;
pub(crate) use self::conversation::Suspended;
pub(crate) use self::effects::{Charge, Collected};
pub use self::effects::{EffectLog, Effects};
pub(crate) use self::inherited::{CallbackTypes, Inherited, OfCallbacks, RunCallbacks};
pub(crate) use self::joined::Joined;
pub(crate) use self::record::{Open, Record, Transcript};
pub use self::run_context::RunContext;
pub(crate) use self::slot::Slot;
pub(crate) use self::turn::Turn;
pub use self::values::{ValueTypeError, Values};
pub use crate::state::{State, StateDelta};
