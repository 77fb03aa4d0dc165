use std::task::{Context as TaskContext, Poll};

use opentelemetry::{Context, global};
use opentelemetry_http::HeaderInjector;
use tower::Service;
use tower_layer::Layer;

/// Sends the trace context with every HTTP request, such as the header `traceparent`.
///
/// ```text
/// PropagateContextLayer: Layer<S: Service<http::Request<B>>>
/// ```
///
/// Put it around the HTTP client of a model: the span of the model call is then the parent of what
/// a gateway or the model's server records. The headers are those of the program's
/// [propagator](opentelemetry::global::set_text_map_propagator); without one, none is sent.
///
/// ```
/// use opentelemetry_sdk::propagation::TraceContextPropagator;
/// use tower::ServiceBuilder;
/// use tower_agent_otel::PropagateContextLayer;
/// # use tower::service_fn;
/// # let client = service_fn(async |_: http::Request<String>| {
/// #     Ok::<_, std::convert::Infallible>(http::Response::new(String::new()))
/// # });
///
/// opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
/// let http = ServiceBuilder::new().layer(PropagateContextLayer::new()).service(client);
/// # drop(http);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct PropagateContextLayer(());

impl PropagateContextLayer {
    /// Creates the layer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for PropagateContextLayer {
    type Service = PropagateContext<S>;

    fn layer(&self, inner: S) -> PropagateContext<S> {
        PropagateContext { inner }
    }
}

/// The service of [`PropagateContextLayer`].
#[derive(Clone, Debug)]
pub struct PropagateContext<S> {
    inner: S,
}

impl<S, B> Service<http::Request<B>> for PropagateContext<S>
where
    S: Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<B>) -> S::Future {
        let mut headers = HeaderInjector(request.headers_mut());
        global::get_text_map_propagator(|propagator| {
            Context::map_current(|context| propagator.inject_context(context, &mut headers));
        });
        self.inner.call(request)
    }
}
