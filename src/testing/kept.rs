use std::any::Any;

use crate::call::Request;
use crate::model::ModelRequest;

/// Returns a copy of the request without its sink, which would keep the stream open.
pub(super) fn kept<R: Request>(request: &R) -> R {
    let mut kept = request.clone();
    let any: &mut dyn Any = &mut kept;
    if let Some(request) = any.downcast_mut::<ModelRequest>() {
        *request = std::mem::take(request).with_delta_sender(None);
    }
    kept
}
