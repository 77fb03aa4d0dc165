use crate::protocol::Fault;
use tower_agent::error::ErrorKind;

/// Adds what to do about a conversation that does not fit.
pub(super) fn explained(fault: Fault) -> Fault {
    if fault.kind(None) != ErrorKind::ContextLength {
        return fault;
    }
    let message = format!("{}; raise `num_ctx`", fault.message());
    Fault::new(message).with_kind(ErrorKind::ContextLength)
}
