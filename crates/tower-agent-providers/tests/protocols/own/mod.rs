//! What only one protocol has.

mod responses;
