use std::any::Any;

use tower_agent::call::Request;
use tower_agent::model::ModelRequest;

/// Returns a copy of the request without its sink, which would keep the stream open.
pub(super) fn without_sink<R: Request>(request: &R) -> R {
    let mut copy = request.clone();
    // `R` is any request, and only a model's has a sink.
    let any: &mut dyn Any = &mut copy;
    if let Some(request) = any.downcast_mut::<ModelRequest>() {
        *request = std::mem::take(request).with_delta_sender(None);
    }
    copy
}
