use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use tower::BoxError;
use tower::util::BoxCloneSyncService;

/// The body of a response, of any service.
pub(super) type BoxedBody = UnsyncBoxBody<Bytes, BoxError>;

/// An HTTP service of any type.
pub(super) type HttpService =
    BoxCloneSyncService<http::Request<Bytes>, http::Response<BoxedBody>, BoxError>;
