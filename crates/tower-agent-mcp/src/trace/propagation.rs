//! The context of a trace in `_meta`, written and read by the propagator of the program.

use opentelemetry::Context;
use opentelemetry::global::get_text_map_propagator;
use opentelemetry::trace::TraceContextExt;
use rmcp::model::MetaObject;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

#[cfg(feature = "client")]
pub(super) fn inject(span: &Span, meta: &mut MetaObject) {
    let mut context = span.context();
    // A span that is filtered out has none; the trace goes on with what is around it.
    if !context.span().span_context().is_valid() {
        context = Context::current();
    }
    get_text_map_propagator(|propagator| {
        propagator.inject_context(&context, &mut MetaWriter(meta));
    });
}

#[cfg(feature = "server")]
pub(super) fn adopt(span: &Span, meta: &MetaObject, http: Option<&HttpContext>) {
    let sent = get_text_map_propagator(|propagator| {
        propagator.extract_with_context(&Context::new(), &MetaReader(meta))
    });
    let http = http.map(|http| &http.0);
    let parent = if sent.span().span_context().is_valid() {
        if let Some(http) = http {
            span.add_link(http.span().span_context().clone());
        }
        sent
    } else if let Some(http) = http {
        http.clone()
    } else {
        return;
    };
    // It fails only for a span that is filtered out, or that was entered before.
    if let Err(error) = span.set_parent(parent) {
        tracing::debug!(%error, "the span of a request has no parent");
    }
}

/// The span of the HTTP request that brought a message, among its extensions: its handler runs in
/// another task. As a context, since a handle of the span itself would keep that open.
#[cfg(feature = "server")]
#[derive(Clone)]
pub(crate) struct HttpContext(Context);

#[cfg(feature = "server")]
impl HttpContext {
    pub(crate) fn current() -> Option<Self> {
        let context = Span::current().context();
        let is_valid = context.span().span_context().is_valid();
        is_valid.then_some(Self(context))
    }
}

#[cfg(feature = "client")]
struct MetaWriter<'a>(&'a mut MetaObject);

#[cfg(feature = "client")]
impl opentelemetry::propagation::Injector for MetaWriter<'_> {
    fn set(&mut self, key: &str, value: String) {
        self.0.insert(key.to_owned(), value.into());
    }
}

#[cfg(feature = "server")]
struct MetaReader<'a>(&'a MetaObject);

#[cfg(feature = "server")]
impl opentelemetry::propagation::Extractor for MetaReader<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}
