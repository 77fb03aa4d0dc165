//! Errors as data, to be stored.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::call_site::CallSite;
use super::error::Error;
use super::kind::ErrorKind;
use super::raised_by::RaisedBy;
use crate::call_kind::CallKind;
use crate::conversation::Interrupt;
use crate::metadata::Metadata;

/// The stored form of an error: its fields that are data.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredError<'e> {
    kind: ErrorKind,
    message: Cow<'e, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<Duration>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: Metadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<StoredCallSite<'e>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raised_by: Option<StoredRaisedBy<'e>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupts: Option<Arc<[Interrupt]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_message: Option<Cow<'e, str>>,
}

/// The stored form of a [`CallSite`].
#[derive(Serialize, Deserialize)]
struct StoredCallSite<'e> {
    kind: Cow<'e, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    #[serde(default)]
    agent: Arc<str>,
}

/// The stored form of a [`RaisedBy`].
#[derive(Serialize, Deserialize)]
struct StoredRaisedBy<'e> {
    callback: Cow<'e, str>,
    hook: Cow<'e, str>,
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let inner = &*self.0;
        let data = StoredError {
            kind: inner.kind,
            message: inner.message.as_ref().into(),
            retryable: inner.retryable,
            retry_after: inner.retry_after,
            metadata: inner.metadata.clone(),
            call: inner.call.as_ref().map(|call| StoredCallSite {
                kind: call.kind.to_string().into(),
                name: call.name.clone(),
                agent: call.agent.clone(),
            }),
            raised_by: inner.raised_by.as_ref().map(|raised_by| StoredRaisedBy {
                callback: raised_by.callback.as_ref().into(),
                hook: raised_by.hook.into(),
            }),
            interrupts: inner.interrupts.clone(),
            model_message: inner.model_message.as_deref().map(Cow::from),
        };
        data.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let data = StoredError::deserialize(deserializer)?;
        Ok(
            Self::new(data.kind, data.message.into_owned()).update(|error| {
                error.retryable = data.retryable;
                error.retry_after = data.retry_after;
                error.metadata = data.metadata;
                error.call = data.call.and_then(StoredCallSite::site);
                error.raised_by = data.raised_by.and_then(StoredRaisedBy::by);
                error.interrupts = data.interrupts;
                error.model_message = data.model_message.map(|text| text.into_owned().into());
            }),
        )
    }
}

impl StoredCallSite<'_> {
    fn site(self) -> Option<CallSite> {
        // The kind of a call that is defined elsewhere is a `&'static str`, which cannot be read back.
        let kinds = [CallKind::Agent, CallKind::Model, CallKind::Tool];
        let kind = kinds
            .into_iter()
            .find(|kind| kind.to_string() == self.kind)?;
        Some(CallSite {
            kind,
            name: self.name,
            agent: self.agent,
        })
    }
}

impl StoredRaisedBy<'_> {
    fn by(self) -> Option<RaisedBy> {
        // The name of a hook is a `&'static str`: only those that exist can be read back.
        let hooks = ["before", "after", "on_error", "wrap"];
        let hook = hooks.into_iter().find(|hook| *hook == self.hook)?;
        Some(RaisedBy {
            callback: self.callback.into_owned().into(),
            hook,
        })
    }
}
