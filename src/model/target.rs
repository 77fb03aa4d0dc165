use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The provider, the model and the server that a call reaches, for a layer around it.
///
/// A layer inserts one into the request's [extensions](super::ModelRequest::extensions_mut) and
/// keeps a clone. A model that knows its provider sets it at each call, so that it is known even if
/// the call fails or is dropped. Of several models, the last one called counts.
///
/// ```
/// use tower::{ServiceExt, service_fn};
/// use tower_agent::model::ModelTarget;
/// use tower_agent::{BoxError, ModelRequest, ModelResponse};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let model = service_fn(async |request: ModelRequest| -> Result<ModelResponse, BoxError> {
///     if let Some(target) = request.extensions().get::<ModelTarget>() {
///         target.set("acme", Some("roadrunner-2"));
///     }
///     Ok(ModelResponse::from_text("Beep."))
/// });
///
/// let target = ModelTarget::default();
/// let mut request = ModelRequest::default();
/// request.extensions_mut().insert(target.clone());
/// model.oneshot(request).await?;
/// assert_eq!(target.provider(), Some("acme"));
/// assert_eq!(target.model().as_deref(), Some("roadrunner-2"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ModelTarget(Arc<Mutex<TargetNames>>);

#[derive(Debug, Default)]
struct TargetNames {
    provider: Option<&'static str>,
    model: Option<Arc<str>>,
    server: Option<(Arc<str>, u16)>,
}

impl ModelTarget {
    /// Sets the provider, in lower case, and the name of the model, if the call has one.
    pub fn set(&self, provider: &'static str, model: Option<&str>) {
        *lock(&self.0) = TargetNames {
            provider: Some(provider),
            model: model.map(Into::into),
            server: None,
        };
    }

    /// Sets the address and the port of the server, after the [provider](Self::set).
    pub fn set_server(&self, address: impl Into<Arc<str>>, port: u16) {
        lock(&self.0).server = Some((address.into(), port));
    }

    /// Returns the provider. `None` if no model has set it.
    #[must_use]
    pub fn provider(&self) -> Option<&'static str> {
        lock(&self.0).provider
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn model(&self) -> Option<Arc<str>> {
        lock(&self.0).model.clone()
    }

    /// Returns the address and the port of the server. `None` for a model that is called without a
    /// network, or does not tell.
    #[must_use]
    pub fn server(&self) -> Option<(Arc<str>, u16)> {
        lock(&self.0).server.clone()
    }
}
