use std::collections::BTreeMap;
use std::sync::Arc;

/// What a provider said of its answer, beside the answer. Cloning is O(1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata(Option<Arc<Fields>>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields {
    status: Option<u16>,
    request_id: Option<String>,
    model: Option<String>,
    rate_limits: BTreeMap<String, String>,
}

impl Metadata {
    /// The HTTP status.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.as_ref()?.status
    }

    /// The provider's name for the request; quote it to their support.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.0.as_ref()?.request_id.as_deref()
    }

    /// The model that served the call, which may be a dated form of the one asked for.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.0.as_ref()?.model.as_deref()
    }

    /// The rate-limit headers, by name in lower case, as sent.
    pub fn rate_limits(&self) -> impl Iterator<Item = (&str, &str)> {
        let limits = self.0.iter().flat_map(|fields| &fields.rate_limits);
        limits.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same with an HTTP status.
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        self.update(|fields| fields.status = Some(status))
    }

    /// The same with the provider's name for the request.
    #[must_use]
    pub fn with_request_id(self, id: impl Into<String>) -> Self {
        self.update(|fields| fields.request_id = Some(id.into()))
    }

    /// The same with the model that served the call.
    #[must_use]
    pub fn with_model(self, model: impl Into<String>) -> Self {
        self.update(|fields| fields.model = Some(model.into()))
    }

    /// The same with one more rate-limit header.
    #[must_use]
    pub fn with_rate_limit(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.update(|fields| {
            fields.rate_limits.insert(name.into(), value.into());
        })
    }

    fn update(mut self, change: impl FnOnce(&mut Fields)) -> Self {
        change(Arc::make_mut(self.0.get_or_insert_default()));
        self
    }
}
