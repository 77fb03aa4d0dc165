use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::kind::EventKind;
use super::run::{RunError, RunFinished, RunStarted, SubagentStarted};
use super::skip::absent;

/// One event of a run, as sent to the client.
///
/// Its data is its [`kind`](Self::kind). In addition every event may have a timestamp, the original
/// event of another protocol, metadata, and the id of the subagent that it comes from.
///
/// ```
/// use tower_agent_agui::{Event, EventKind};
///
/// let event = Event::text_content("m1", "Hello").with_timestamp(1_700_000_000_000);
/// assert_eq!(
///     serde_json::to_string(&event)?,
///     r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hello","timestamp":1700000000000}"#,
/// );
/// if let EventKind::TextMessageContent { delta, .. } = &event.kind {
///     assert_eq!(delta, "Hello");
/// }
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The kind of event, with its data.
    pub kind: EventKind,
    subagent_run_id: Option<Arc<str>>,
    // Boxed, so that moving a piece of text does not move these, too.
    extra: Option<Box<Extra>>,
}

/// Fields that few events have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Extra {
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<i64>,
    #[serde(skip_serializing_if = "absent")]
    raw_event: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Map<String, Value>>,
}

impl Event {
    /// Returns the time, in milliseconds since 1970.
    #[must_use]
    pub fn timestamp(&self) -> Option<i64> {
        self.extra.as_ref()?.timestamp
    }

    /// Returns the original event of another protocol.
    #[must_use]
    pub fn raw_event(&self) -> Option<&Value> {
        self.extra.as_ref()?.raw_event.as_ref()
    }

    /// Returns the metadata. It is added to the metadata of the message or tool call that the event
    /// belongs to.
    #[must_use]
    pub fn metadata(&self) -> Option<&Map<String, Value>> {
        self.extra.as_ref()?.metadata.as_ref()
    }

    /// Returns the id of the subagent that the event comes from, or whose start or end it is.
    #[must_use]
    pub fn subagent_run_id(&self) -> Option<&Arc<str>> {
        self.kind.subagent().or(self.subagent_run_id.as_ref())
    }

    /// Sets the time, in milliseconds since 1970, limited to the integers that JSON represents
    /// exactly.
    #[must_use]
    pub fn with_timestamp(self, milliseconds: i64) -> Self {
        // Clients read numbers as JavaScript does, with 53 bits.
        const MAX: i64 = (1 << 53) - 1;
        self.with_extra(|extra| extra.timestamp = Some(milliseconds.clamp(-MAX, MAX)))
    }

    /// Sets the original event of another protocol.
    #[must_use]
    pub fn with_raw_event(self, event: Value) -> Self {
        self.with_extra(|extra| extra.raw_event = Some(event))
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(self, metadata: Map<String, Value>) -> Self {
        self.with_extra(|extra| extra.metadata = Some(metadata))
    }

    /// Sets the id of the subagent that the event comes from. The start and end of a subagent
    /// contain the id themselves.
    #[must_use]
    pub fn with_subagent_run_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.set_subagent_run_id(&id.into());
        self
    }

    /// Sets the id of the subagent, as [`with_subagent_run_id`](Self::with_subagent_run_id) does.
    pub(crate) fn set_subagent_run_id(&mut self, id: &Arc<str>) {
        // The conversation belongs to the run, whichever agent sends the snapshot.
        let is_whole = matches!(self.kind, EventKind::MessagesSnapshot { .. });
        if self.kind.subagent().is_none() && !is_whole {
            self.subagent_run_id = Some(id.clone());
        }
    }

    /// Creates a piece of a text of this subagent.
    #[inline]
    pub(crate) fn piece(kind: EventKind, subagent: Option<Arc<str>>) -> Self {
        Self {
            kind,
            subagent_run_id: subagent,
            extra: None,
        }
    }

    /// Returns whether the event has only its kind's own data.
    pub(crate) fn is_plain(&self) -> bool {
        self.subagent_run_id.is_none() && self.extra.is_none()
    }

    fn with_extra(mut self, change: impl FnOnce(&mut Extra)) -> Self {
        change(self.extra.get_or_insert_default());
        self
    }
}

impl From<EventKind> for Event {
    fn from(kind: EventKind) -> Self {
        Self {
            kind,
            subagent_run_id: None,
            extra: None,
        }
    }
}

impl From<RunStarted> for Event {
    fn from(started: RunStarted) -> Self {
        EventKind::RunStarted(Box::new(started)).into()
    }
}

impl From<RunFinished> for Event {
    fn from(finished: RunFinished) -> Self {
        EventKind::RunFinished(Box::new(finished)).into()
    }
}

impl From<RunError> for Event {
    fn from(error: RunError) -> Self {
        EventKind::RunError(Box::new(error)).into()
    }
}

impl From<SubagentStarted> for Event {
    fn from(started: SubagentStarted) -> Self {
        EventKind::SubagentStarted(Box::new(started)).into()
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Flat<'a> {
            #[serde(flatten)]
            kind: &'a EventKind,
            #[serde(skip_serializing_if = "Option::is_none")]
            subagent_run_id: Option<&'a Arc<str>>,
            #[serde(flatten)]
            extra: Option<&'a Extra>,
        }
        // Most events are plain, and flattening costs a buffer for every event.
        if self.is_plain() {
            return self.kind.serialize(serializer);
        }
        Flat {
            kind: &self.kind,
            // The start and end of a subagent have a field of the same name.
            subagent_run_id: match self.kind.subagent() {
                Some(_) => None,
                None => self.subagent_run_id.as_ref(),
            },
            extra: self.extra.as_deref(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Event {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Attribution {
            subagent_run_id: Option<Arc<str>>,
        }
        // The kind and the common fields stand in one object, which is therefore read three times.
        let value = Value::deserialize(deserializer)?;
        let kind = EventKind::deserialize(&value).map_err(D::Error::custom)?;
        let Attribution { subagent_run_id } =
            Attribution::deserialize(&value).map_err(D::Error::custom)?;
        let extra = Extra::deserialize(&value).map_err(D::Error::custom)?;
        Ok(Self {
            subagent_run_id: subagent_run_id.filter(|_| kind.subagent().is_none()),
            kind,
            extra: (extra != Extra::default()).then(|| Box::new(extra)),
        })
    }
}
