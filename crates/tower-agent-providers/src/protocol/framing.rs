/// How the body of a streamed response is divided into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Framing {
    /// Server-sent events: `text/event-stream`.
    ServerSentEvents,
    /// One JSON value a line: `application/x-ndjson`.
    Lines,
}

impl Framing {
    /// Returns the media types of such a body.
    pub(crate) fn media_types(self) -> &'static [&'static str] {
        match self {
            Self::ServerSentEvents => &["text/event-stream"],
            Self::Lines => &[
                "application/x-ndjson",
                "application/ndjson",
                "application/jsonl",
            ],
        }
    }
}
