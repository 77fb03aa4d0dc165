//! The conversation: its messages and their ids, the order of calls and results, what a checkpoint
//! stores, and which agent continues with it.

mod call_ids;
mod call_order;
mod growth;
mod message_ids;
mod messages;
mod open_calls;
mod ownership;
mod stored;
mod transcripts;
mod turns;
mod written;
