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

    /// Returns the attributes of spans and of metrics.
    pub(crate) fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = Vec::new();
        if let Some(provider) = &self.provider {
            attributes.push(KeyValue::new(attribute::PROVIDER_NAME, provider.clone()));
        }
        if let Some(model) = &self.model {
            attributes.push(KeyValue::new(attribute::REQUEST_MODEL, model.clone()));
        }
        if let Some((address, port)) = &self.server {
            attributes.push(KeyValue::new(attribute::SERVER_ADDRESS, address.clone()));
            attributes.push(KeyValue::new(attribute::SERVER_PORT, i64::from(*port)));
        }
        attributes
    }
}
