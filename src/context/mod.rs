//! The run that a call belongs to.

mod charges;
mod collecting;
mod effects;
mod inherited;
mod joined;
mod latch;
mod nesting;
mod run;
mod run_context;
mod turn;
mod values;

pub(crate) use self::charges::Charged;
pub(crate) use self::effects::{Charge, Collected};
pub use self::effects::{EffectLog, Effects};
pub(crate) use self::inherited::{CallbackTypes, Inherited, OfCallbacks, RunCallbacks};
pub(crate) use self::joined::Joined;
pub use self::run_context::RunContext;
pub(crate) use self::turn::Turn;
pub use self::values::{ValueTypeError, Values};
pub use crate::state::{State, StateDelta};
