use tower::Layer;
use tower_agent::testing::Recording;
use tower_agent_middleware::redact::Redact;

use super::service::HttpRecorded;

/// Records the calls of an HTTP client, or answers them from a recording. Clones share the
/// recording.
#[derive(Clone, Debug)]
pub struct HttpRecordingLayer {
    recording: Recording,
    redact: Option<Redact>,
}

impl HttpRecordingLayer {
    /// Creates a layer over a recording, which may contain other calls too.
    #[must_use]
    pub fn new(recording: Recording) -> Self {
        Self {
            recording,
            redact: None,
        }
    }

    /// Hides what the redaction finds, in requests and responses. A replay then answers with its
    /// placeholders. By default, only [secrets](super#secrets) are hidden.
    #[must_use]
    pub fn redact(mut self, redact: Redact) -> Self {
        self.redact = Some(redact);
        self
    }
}

impl<S> Layer<S> for HttpRecordingLayer {
    type Service = HttpRecorded<S>;

    fn layer(&self, inner: S) -> HttpRecorded<S> {
        HttpRecorded::new(inner, self.recording.clone(), self.redact.clone())
    }
}
