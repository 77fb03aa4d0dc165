//! Tools: their schemas, the arguments of a call, and their failures.

mod argument_types;
mod arguments;
mod failures;
mod schemas;
