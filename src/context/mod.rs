//! The run that a call belongs to.

mod collecting;
mod conversation_id;
mod effects;
mod extensions;
mod inherited;
mod joined;
mod latch;
mod nesting;
mod replay;
mod run;
mod run_context;
mod tool_call_scope;
mod turn;
mod values;

pub use self::conversation_id::ConversationId;
pub use self::effects::{Amounts, EffectLog, Effects};
pub use self::extensions::Extensions;
pub(crate) use self::inherited::{CallbackTypes, Inherited, OfCallbacks, RunCallbacks};
pub(crate) use self::joined::Joined;
pub use self::run_context::RunContext;
pub(crate) use self::turn::WhoseTurn;
pub use self::values::{ValueTypeError, Values};
pub use crate::state::{State, StateDelta};
