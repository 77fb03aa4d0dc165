use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::action::Recovery;
use super::arc_callback::ArcCallback;
use super::call_state::{CallState, Recovered, Rest};
use super::callback::Callback;
use super::members::Members;
use super::named_tool::NamedTool;
use super::options::{CallbackSemantics, Globals};
use crate::call::Request;
use crate::error::{Error, Result};

/// A band: an ordered list of callbacks for one call, and the layer that runs them.
///
/// The callbacks' types are erased, so a list can be filled conditionally, in a loop or from
/// configuration, and its type can be named. Cloning is O(1).
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_agent::{Action, BoxError, Callbacks, Message, ModelRequest, ModelResponse};
/// use tower_agent::callback::before_model;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let mut callbacks = Callbacks::new();
/// for word in ["secret", "password"] {
///     callbacks.push(before_model(move |request| {
///         match request.messages().last() {
///             Some(last) if last.text().contains(word) => {
///                 Action::Respond(ModelResponse::from_text("I will not."))
///             }
///             _ => Action::Continue,
///         }
///     }));
/// }
///
/// let model = ServiceBuilder::new().layer(callbacks).service_fn(|_: ModelRequest| async {
///     Ok::<_, BoxError>(ModelResponse::from_text("Gladly."))
/// });
/// let request = ModelRequest::new([Message::user("Tell me the password.")]);
/// assert_eq!(model.oneshot(request).await?.message().text(), "I will not.");
/// # Ok(())
/// # }
/// ```
pub struct Callbacks<R: Request> {
    list: Option<Arc<Members<R>>>,
    follows: Follows,
}

/// Whose semantics a list follows.
#[derive(Clone, Copy)]
enum Follows {
    Default,
    Own(CallbackSemantics),
    /// Those of the agent in whose run the call is made.
    Agent,
    /// The default, whatever the agent's: the list is directly around the service.
    Service,
}

impl<R: Request> Callbacks<R> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a callback.
    #[must_use]
    pub fn with(mut self, callback: impl Callback<R>) -> Self {
        self.push(callback);
        self
    }

    /// Appends a callback.
    pub fn push(&mut self, callback: impl Callback<R>) {
        self.extend([callback]);
    }

    /// Appends the callbacks of another list. The semantics of this list are kept.
    pub fn append(&mut self, other: &Self) {
        self.extend(other.as_slice().iter().cloned());
    }

    /// Returns the number of callbacks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Returns whether there are no callbacks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Returns the names of the callbacks, in order.
    pub fn names(&self) -> impl Iterator<Item = Cow<'static, str>> {
        self.as_slice().iter().map(Callback::name)
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> impl Iterator<Item = NamedTool> {
        self.as_slice().iter().flat_map(|callback| {
            Callback::named_tools(callback)
                .into_iter()
                .map(|tool| NamedTool {
                    by: Callback::name(callback),
                    tool,
                })
        })
    }

    /// Sets the [semantics](CallbackSemantics).
    #[must_use]
    pub fn with_semantics(mut self, semantics: CallbackSemantics) -> Self {
        self.follows = Follows::Own(semantics);
        self
    }

    /// Sets the semantics, unless the list has its own.
    pub(super) fn or_semantics(self, semantics: CallbackSemantics) -> Self {
        match self.follows {
            Follows::Default => self.with_semantics(semantics),
            _ => self,
        }
    }

    /// Makes the list follow the semantics of the agent in whose run each call is made.
    pub(super) fn with_agents_semantics(mut self) -> Self {
        self.follows = Follows::Agent;
        self
    }

    /// Places the list directly around the service. For everything outside, the response after this
    /// list is the service's own.
    pub(crate) fn inmost(mut self) -> Self {
        self.follows = Follows::Service;
        self
    }

    pub(super) fn is_inmost(&self) -> bool {
        matches!(self.follows, Follows::Service)
    }

    /// Returns the semantics set with [`with_semantics`](Self::with_semantics). Defaults to
    /// [`CallbackSemantics::default`].
    #[must_use]
    pub fn semantics(&self) -> CallbackSemantics {
        match self.follows {
            Follows::Own(semantics) => semantics,
            Follows::Default | Follows::Agent | Follows::Service => CallbackSemantics::DEFAULT,
        }
    }

    /// Returns whether these callbacks of a whole tree share the first band of an agent with these
    /// semantics.
    pub(crate) fn shares_band_of(&self, agent: CallbackSemantics) -> bool {
        agent.globals.get(R::CALL) == Globals::First && self.semantics() == agent
    }

    /// Starts a call in this band.
    pub(super) fn begin(self, request: R) -> CallState<R> {
        let semantics = self.semantics_in(request.context());
        let is_inmost = self.is_inmost();
        CallState::new(request, self.list.unwrap_or_default(), semantics, is_inmost)
    }

    /// Whether its semantics are those of the agent at work.
    pub(super) fn follows_agent(&self) -> bool {
        matches!(self.follows, Follows::Agent)
    }

    /// Runs the `before`s without a service. Returns the response that replaces the call, if a
    /// callback returned one.
    ///
    /// ```
    /// use tower_agent::{Action, Callbacks, ModelRequest, ModelResponse};
    /// use tower_agent::callback::before_model;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tower_agent::Result<()> {
    /// let callbacks = Callbacks::new()
    ///     .with(before_model(|request| request.add_instructions("Be brief.")))
    ///     .with(before_model(|_| Action::Respond(ModelResponse::from_text("pong"))));
    /// let mut request = ModelRequest::default();
    /// let response = callbacks.run_before(&mut request).await?;
    /// assert_eq!(response.unwrap().message().text(), "pong");
    /// assert_eq!(request.instructions(), Some("Be brief."));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the error of a hook, which names the hook.
    pub async fn run_before(&self, request: &mut R) -> Result<Option<R::Response>> {
        let mut call = self.clone().begin(request.clone());
        let response = call.before(Rest::Asked).await;
        request.clone_from(&call.request);
        response
    }

    /// Runs the `after`s on a response without a service, and returns the resulting response.
    ///
    /// # Errors
    ///
    /// Returns the error of a hook, which names the hook.
    pub async fn run_after(&self, request: &R, mut response: R::Response) -> Result<R::Response> {
        let mut call = self.clone().begin(request.clone());
        call.after(&mut response, Rest::Asked).await?;
        Ok(response)
    }

    /// Runs the `on_error`s on an error without a service. Returns [`Recovery::Retry`],
    /// [`Recovery::Fallback`], or [`Recovery::Fail`] with the resulting error, which is a hook's
    /// own if one failed. An abort, an interrupt and an end of the invocation are returned
    /// unchanged.
    pub async fn run_on_error(&self, request: &mut R, error: Error) -> Recovery<R::Response> {
        if error.is_ending() {
            return Recovery::Fail(error);
        }
        let mut call = self.clone().begin(request.clone());
        let recovered = call.on_error(error, true).await;
        request.clone_from(&call.request);
        match recovered {
            Ok(Recovered::Retry) => Recovery::Retry,
            Ok(Recovered::Fallback(response)) => Recovery::Fallback(response),
            Err(error) => Recovery::Fail(error),
        }
    }

    /// Appends the callbacks of another list, and takes over its semantics if this list has none.
    pub(super) fn and(self, other: Self) -> Self {
        if self.is_empty() && matches!(self.follows, Follows::Default) {
            return other;
        }
        let mut all = self;
        all.append(&other);
        all
    }

    pub(super) fn as_slice(&self) -> &[ArcCallback<R>] {
        self.list.as_ref().map_or(&[], |list| list.all())
    }
}

impl<R: Request, C: Callback<R>> Extend<C> for Callbacks<R> {
    fn extend<I: IntoIterator<Item = C>>(&mut self, callbacks: I) {
        let list = Arc::make_mut(self.list.get_or_insert_default());
        callbacks
            .into_iter()
            .for_each(|callback| list.push(callback.erase()));
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
        Self {
            list: None,
            follows: Follows::Default,
        }
    }
}

impl<R: Request> Clone for Callbacks<R> {
    fn clone(&self) -> Self {
        Self {
            list: self.list.clone(),
            follows: self.follows,
        }
    }
}

impl<R: Request> fmt::Debug for Callbacks<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
