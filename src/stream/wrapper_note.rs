//! Notes of probes about a band or a layer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::call_kind::CallKind;
use crate::error::ErrorKind;

/// The deeds of one wrapper, a band of callbacks or a layer, with one call, in
/// [`EventKind::Wrapper`](super::EventKind::Wrapper).
///
/// A layer is opaque, but its two sides are not: this compares what entered the wrapper with what
/// it passed on, and what came back to it with what left it. It names fields and says how large
/// they are, and contains nothing of what is in them. Its `Display` says what the wrapper did in
/// words.
///
/// A field that was replaced by an equal value is not changed.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct WrapperNote {
    /// Its place in the stack around the call, from the outside in, from 0: with the agent's path
    /// and the kind of call it is the same in each run of the agent, and
    /// [`Explanation::wrapper_of`](crate::agent::Explanation::wrapper_of) finds it.
    pub index: u32,
    /// The names of the band's callbacks in order, or the layer's in brackets.
    pub names: Vec<String>,
    /// The kind of call.
    pub call: CallKind,
    /// The tool's name, for a tool call.
    pub name: Option<Arc<str>>,
    /// The id in the stream of the tool call, or of the tool call that this call is made in.
    pub tool_call: Option<Arc<str>>,
    /// The number of the turn in its agent, from 0.
    pub iteration: u32,
    /// The attempts at the call that had [failed](super::EventKind::AttemptFailed) when this one
    /// entered the wrapper.
    pub attempt: u32,
    /// The fields of the request that it changed, in any of the calls inside.
    pub request: Vec<FieldChange>,
    /// The number of calls that it made of what is inside it. A layer inside that failed to become
    /// ready was not called.
    pub calls: u32,
    /// The number of those that it dropped, or let go on without it.
    pub dropped: u32,
    /// The end of the last of them that had one. `None` if it made none, or dropped all.
    pub inside: Option<CallEnd>,
    /// The fields of the response that it changed. Empty unless a call inside and the whole call
    /// have a response.
    pub response: Vec<FieldChange>,
    /// The end of the call outside.
    pub outside: CallEnd,
    /// The reasons that it has [given](crate::RunContext::because): a layer, or the callbacks of a
    /// band.
    pub reasons: Vec<Arc<str>>,
    /// The time during which no call inside it was running, and the time that it took to become
    /// ready. It serialises as microseconds.
    #[serde(serialize_with = "microseconds")]
    pub own_time: Duration,
}

/// The maximum length of a text of a field, in bytes.
const TEXT: usize = 64 << 10;

/// A field that a wrapper changed, in a [`WrapperNote`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FieldChange {
    /// The name of the field, such as `messages` or `settings.temperature`.
    pub field: Cow<'static, str>,
    /// Its size before: the number of messages or tools, the bytes of a text or of JSON. `None` if
    /// it was not set, or is of a kind without a size.
    pub before: Option<usize>,
    /// Its size afterwards.
    pub after: Option<usize>,
    /// Its text before and afterwards, up to 64 KiB each, if an observer [asks for
    /// texts](super::Observer::with_texts), and nothing that is hidden from what is outside can be
    /// in them. It does not serialise.
    #[serde(skip)]
    pub texts: Option<[Arc<str>; 2]>,
}

/// The end of a call, in a [`WrapperNote`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CallEnd {
    /// With a response.
    Response,
    /// With an error of this kind.
    Failed(ErrorKind),
    /// It was dropped.
    Dropped,
}

fn microseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

impl FieldChange {
    pub(crate) fn new(
        field: impl Into<Cow<'static, str>>,
        before: Option<usize>,
        after: Option<usize>,
    ) -> Self {
        Self {
            field: field.into(),
            before,
            after,
            texts: None,
        }
    }

    pub(crate) fn with_texts(&mut self, texts: Option<[String; 2]>) {
        self.texts = texts.map(|texts| texts.map(|text| beginning(&text).into()));
    }
}

fn beginning(text: &str) -> &str {
    let mut ends = (0..=TEXT.min(text.len())).rev();
    let end = ends.find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Returns whether both are clones of one value, or both are none.
pub(crate) fn is_same<T: ?Sized>(one: &Option<Arc<T>>, other: &Option<Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

impl WrapperNote {
    /// Returns whether the wrapper passed the call on once, as it was, returned what came back, and
    /// said nothing.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let ended = self.calls - self.dropped;
        is_passed_on(self.calls, ended, self.inside, self.outside)
            && self.request.is_empty()
            && self.response.is_empty()
            && self.reasons.is_empty()
    }

    /// Returns the deeds of the wrapper in words, as its `Display` has them between the names and
    /// the reasons.
    #[must_use]
    pub fn deeds(&self) -> String {
        let mut did = Vec::new();
        if !self.request.is_empty() {
            did.push(format!("changed the request's {}", fields(&self.request)));
        }
        if self.calls > 1 {
            did.push(format!("made {} calls", self.calls));
        }
        if self.dropped > 0 && self.outside != CallEnd::Dropped {
            did.push(match self.calls {
                1 => "dropped the call inside".to_owned(),
                _ => format!("dropped {}", self.dropped),
            });
        }
        match (self.inside, self.outside) {
            (None, CallEnd::Response) => did.push("answered without the call".to_owned()),
            (None, CallEnd::Failed(kind)) => did.push(format!("failed: {kind}")),
            (_, CallEnd::Dropped) => did.push("was dropped".to_owned()),
            (Some(CallEnd::Failed(kind)), CallEnd::Response) => {
                did.push(format!("turned an error into a response: {kind}"));
            }
            (Some(CallEnd::Response), CallEnd::Failed(kind)) => {
                did.push(format!("turned a response into an error: {kind}"));
            }
            (Some(CallEnd::Failed(from)), CallEnd::Failed(to)) if from != to => {
                did.push(format!("turned an error into another: {from} into {to}"));
            }
            _ if !self.response.is_empty() => {
                did.push(format!("changed the response's {}", fields(&self.response)));
            }
            _ => {}
        }
        if did.is_empty() || self.is_idle() {
            return "passed the call on".to_owned();
        }
        did.join(", ")
    }
}

/// Returns whether a call was passed on once, and ended as the call inside did.
pub(crate) fn is_passed_on(
    calls: u32,
    ended: u32,
    inside: Option<CallEnd>,
    outside: CallEnd,
) -> bool {
    calls == 1
        && match inside {
            // Something outside dropped the call, and what was inside with it.
            None => outside == CallEnd::Dropped,
            Some(inside) => inside == outside && ended == 1,
        }
}

impl fmt::Display for WrapperNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.names.join(", "), self.deeds())?;
        if !self.reasons.is_empty() {
            write!(f, " ({})", self.reasons.join("; "))?;
        }
        Ok(())
    }
}

fn fields(changes: &[FieldChange]) -> String {
    let fields: Vec<_> = changes.iter().map(|change| &*change.field).collect();
    fields.join(", ")
}
