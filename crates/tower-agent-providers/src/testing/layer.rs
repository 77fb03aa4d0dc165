use serde_json::Value;
use tower::Layer;
use tower_agent_test::Recording;

use super::scrub::Scrub;
use super::service::HttpRecorded;

/// Records the calls of an HTTP client, or answers them from a recording. Clones share the
/// recording.
#[derive(Clone, Debug)]
pub struct HttpRecordingLayer {
    recording: Recording,
    scrub: Option<Scrub>,
}

impl HttpRecordingLayer {
    /// Creates a layer over a recording, which may contain other calls too.
    #[must_use]
    pub fn new(recording: Recording) -> Self {
        Self {
            recording,
            scrub: None,
        }
    }

    /// Redacts requests and responses with a function, such as that of a `Redact` of
    /// `tower-agent-middleware`: `.redact(move |json| redact.json(json).into_owned())`. It is
    /// called with documents and with single strings. A replay then answers with its placeholders.
    /// By default, only [secrets](super#secrets) are hidden.
    #[must_use]
    pub fn redact(mut self, redact: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        self.scrub = Some(Scrub::new(redact));
        self
    }
}

impl<S> Layer<S> for HttpRecordingLayer {
    type Service = HttpRecorded<S>;

    fn layer(&self, inner: S) -> HttpRecorded<S> {
        HttpRecorded::new(inner, self.recording.clone(), self.scrub.clone())
    }
}
