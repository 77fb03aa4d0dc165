use super::request::ModelRequest;
use crate::call::{BoxCallService, CallService};

/// A model: any `tower::Service<ModelRequest>` with a [`ModelResponse`](super::ModelResponse) and
/// an error that converts into a [`BoxError`](crate::BoxError), which is `Clone`, `Send` and
/// `Sync`.
///
/// Implemented for every such service; do not implement it by hand. A model can be wrapped in any
/// of tower's layers, `Buffer` included.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a model service",
    label = "not a `Service<ModelRequest, Response = ModelResponse>` that is `Clone + Send + Sync + 'static`",
    note = "a model is `Service<ModelRequest, Response = ModelResponse, Error: Into<BoxError> + Send + Sync>` with a `Send + 'static` future, and `Clone + Send + Sync + 'static` itself",
    note = "a service that lacks `Clone`: derive it, or put the service under `tower::buffer::Buffer`; a layer and its `BufferLayer` must be in one `tower::ServiceBuilder`",
    note = "a future or a service that is not `Send`: share state through `Arc` and a `Mutex` instead of `Rc` and `RefCell`"
)]
pub trait ModelService: CallService<ModelRequest> {}

#[diagnostic::do_not_recommend]
impl<S: CallService<ModelRequest>> ModelService for S {}

/// A type-erased model.
pub type BoxModel = BoxCallService<ModelRequest>;
