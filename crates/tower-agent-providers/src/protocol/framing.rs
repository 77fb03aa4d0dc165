/// The division of the body of a streamed response into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Framing {
    /// Server-sent events: `text/event-stream`.
    ServerSentEvents,
    /// One JSON value a line: `application/x-ndjson`.
    Lines,
    /// The binary frames of AWS: `application/vnd.amazon.eventstream`. A frame becomes an
    /// [`Event`](super::Event) with its `:event-type` and its payload, the part of a response that
    /// it contains included; a frame that is an exception becomes an error.
    #[cfg(feature = "bedrock")]
    AwsEventStream,
}

impl Framing {
    /// Returns whether such a body consists of lines, which end with a line feed.
    pub(crate) fn has_lines(self) -> bool {
        match self {
            Self::ServerSentEvents | Self::Lines => true,
            #[cfg(feature = "bedrock")]
            Self::AwsEventStream => false,
        }
    }

    /// Returns the media types of such a body.
    pub(crate) fn media_types(self) -> &'static [&'static str] {
        match self {
            Self::ServerSentEvents => &["text/event-stream"],
            Self::Lines => &[
                "application/x-ndjson",
                "application/ndjson",
                "application/jsonl",
            ],
            #[cfg(feature = "bedrock")]
            Self::AwsEventStream => &["application/vnd.amazon.eventstream"],
        }
    }
}
