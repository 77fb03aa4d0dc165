//! The run that a call belongs to.

mod collecting;
mod conversation_id;
mod effects;
mod endings;
mod entrant;
mod extensions;
mod held;
mod inherited;
mod joined;
mod latch;
mod lease;
mod names;
mod nesting;
mod node;
mod place;
mod replay;
mod run;
mod run_context;
mod scope;
mod settings;
mod tally;
mod tool_call_scope;
mod values;

pub use self::conversation_id::ConversationId;
pub use self::effects::{Amounts, EffectLog, Effects};
pub(crate) use self::endings::{Endings, limit_reached};
pub(crate) use self::entrant::Entrant;
pub use self::extensions::Extensions;
pub(crate) use self::inherited::{CallbackTypes, Inherited, OfCallbacks, RunCallbacks};
pub(crate) use self::joined::Joined;
pub use self::lease::Lease;
pub use self::names::Names;
pub(crate) use self::place::WhoseTurn;
pub use self::run_context::RunContext;
pub use self::values::{ValueTypeError, Values};
pub use crate::state::{State, StateDelta};
