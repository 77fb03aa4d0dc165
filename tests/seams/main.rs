//! Parts that are right alone, together: what two callbacks, two guards, two requests of one
//! conversation, a front end and a server, or a stream and its transcript make of one another.

mod approvals;
mod argument_types;
mod call_order;
mod conversations;
mod failed_runs;
mod faults;
mod first_hour;
mod growth;
mod mutants;
mod not_lost;
mod ownership;
mod redaction;
mod schemas;
mod semantics;
