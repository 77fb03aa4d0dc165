use std::sync::Arc;

use opentelemetry::KeyValue;
use tower_agent::model::ModelTarget;

use crate::names::{self, attribute};

/// The provider, the model and the server of a model call, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) provider: Option<Arc<str>>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) server: Option<(Arc<str>, u16)>,
}

impl Target {
    /// Returns what a model has reported, with the conventions' name of the provider.
    pub(crate) fn reported(target: &ModelTarget) -> Self {
        Self {
            provider: target.provider().map(names::provider).map(Into::into),
            model: target.model(),
            server: target.server(),
        }
    }

    /// Returns this, with what is not known of it from another.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            provider: self.provider.or(other.provider),
            model: self.model.or(other.model),
            server: self.server.or(other.server),
        }
    }

    pub(crate) fn address(&self) -> Option<&str> {
        self.server.as_ref().map(|(address, _)| &**address)
    }

    pub(crate) fn port(&self) -> Option<i64> {
        self.server.as_ref().map(|(_, port)| i64::from(*port))
    }

    /// Returns the attributes in which this differs from what a span was started with.
    pub(crate) fn changed_from(&self, started: &Self) -> Vec<KeyValue> {
        let mut changed = Vec::new();
        if self.provider != started.provider {
            changed.extend(of(attribute::PROVIDER_NAME, self.provider.as_ref()));
        }
        if self.model != started.model {
            changed.extend(of(attribute::REQUEST_MODEL, self.model.as_ref()));
        }
        if self.server != started.server {
            let address = self.server.as_ref().map(|(address, _)| address);
            changed.extend(of(attribute::SERVER_ADDRESS, address));
            let port = self.port();
            changed.extend(port.map(|port| KeyValue::new(attribute::SERVER_PORT, port)));
        }
        changed
    }
}

fn of(key: &'static str, value: Option<&Arc<str>>) -> Option<KeyValue> {
    value.map(|value| KeyValue::new(key, value.clone()))
}
