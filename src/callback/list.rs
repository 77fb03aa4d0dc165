use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::{Callback, CallbackService, Shared};
use crate::request::Request;

/// A band: an ordered list of callbacks for one call, and the layer that runs them.
///
/// The callbacks' types are erased, so a list can be filled conditionally, in a loop, from
/// configuration, and has a type that can be named. Cloning is O(1).
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_agent::{
///     Action, BoxError, Callbacks, Message, ModelRequest, ModelResponse, before_model,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let mut callbacks = Callbacks::new();
/// for word in ["secret", "password"] {
///     callbacks.push(before_model(move |request| {
///         match request.messages().last() {
///             Some(last) if last.text().contains(word) => {
///                 Action::Respond(ModelResponse::text("I will not."))
///             }
///             _ => Action::Continue,
///         }
///     }));
/// }
///
/// let model = ServiceBuilder::new().layer(callbacks).service_fn(|_: ModelRequest| async {
///     Ok::<_, BoxError>(ModelResponse::text("Gladly."))
/// });
/// let request = ModelRequest::new([Message::user("Tell me the password.")]);
/// assert_eq!(model.oneshot(request).await?.message().text(), "I will not.");
/// # Ok(())
/// # }
/// ```
pub struct Callbacks<R: Request>(Option<Arc<Vec<Shared<R>>>>);

impl<R: Request> Callbacks<R> {
    /// No callbacks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same list with one more callback at its end.
    #[must_use]
    pub fn with(mut self, callback: impl Callback<R>) -> Self {
        self.push(callback);
        self
    }

    /// Adds a callback at the end.
    pub fn push(&mut self, callback: impl Callback<R>) {
        self.extend([callback]);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Their names, first to last.
    pub fn names(&self) -> impl Iterator<Item = Cow<'static, str>> {
        self.as_slice().iter().map(Callback::name)
    }

    pub(super) fn as_slice(&self) -> &[Shared<R>] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<S, R: Request> Layer<S> for Callbacks<R> {
    type Service = CallbackService<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        CallbackService::new(inner, self.clone())
    }
}

impl<R: Request, C: Callback<R>> Extend<C> for Callbacks<R> {
    fn extend<I: IntoIterator<Item = C>>(&mut self, callbacks: I) {
        let list = Arc::make_mut(self.0.get_or_insert_default());
        list.extend(callbacks.into_iter().map(Callback::erase));
    }
}

impl<R: Request, C: Callback<R>> FromIterator<C> for Callbacks<R> {
    fn from_iter<I: IntoIterator<Item = C>>(callbacks: I) -> Self {
        let mut list = Self::new();
        list.extend(callbacks);
        list
    }
}

impl<R: Request> Default for Callbacks<R> {
    fn default() -> Self {
        Self(None)
    }
}

impl<R: Request> Clone for Callbacks<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Request> fmt::Debug for Callbacks<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
