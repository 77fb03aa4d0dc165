//! The spans, attributes and metrics of each kind of call.

mod agent;
mod caller;
mod model;
mod tool;

pub(crate) use self::model::Innermost;
