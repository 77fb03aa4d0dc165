use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::arc_callback::ArcCallback;
use super::callback::Callback;
use super::members::Members;
use super::named_tool::NamedTool;
use super::rules::{CallbackRules, Rules};
use crate::call::Request;

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
    // An empty list allocates nothing: most agents lack callbacks for some of their calls.
    list: Option<Arc<Members<R>>>,
    follows: Follows,
}

/// Whose rules a list follows.
#[derive(Clone, Copy)]
enum Follows {
    Default,
    Own(CallbackRules),
    /// The rules of the agent in whose run the call is made.
    Agent,
    /// The default, whatever the agent's: the list is directly around the service.
    Service,
    /// The default, whatever the agent's: the list is outside everything else.
    Edge,
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

    /// Sets the semantics, such as one of [`CallbackSemantics`](crate::compat::CallbackSemantics).
    #[must_use]
    pub fn with_semantics(mut self, semantics: impl Rules) -> Self {
        self.follows = Follows::Own(semantics.callbacks(R::CALL));
        self
    }

    /// Sets the rules, unless the list has its own.
    pub(super) fn or_rules(mut self, rules: &dyn Rules) -> Self {
        // Rules that were set stay, wherever the list ends up.
        if let Follows::Default = self.follows {
            self.follows = Follows::Own(rules.callbacks(R::CALL));
        }
        self
    }

    /// Sets the rules; without any, those of the agent in whose run each call is made.
    pub(super) fn with_rules(mut self, rules: Option<&dyn Rules>) -> Self {
        self.follows = match rules {
            Some(rules) => Follows::Own(rules.callbacks(R::CALL)),
            None => Follows::Agent,
        };
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

    /// Places the list outside everything else. A response that it replaces keeps its origin.
    pub(super) fn outermost(mut self) -> Self {
        self.follows = Follows::Edge;
        self
    }

    pub(super) fn is_outermost(&self) -> bool {
        matches!(self.follows, Follows::Edge)
    }

    /// Returns the rules that were set with [`with_semantics`](Self::with_semantics). Defaults to
    /// [`CallbackRules::default`].
    #[must_use]
    pub fn rules(&self) -> CallbackRules {
        match self.follows {
            Follows::Own(rules) => rules,
            Follows::Default | Follows::Agent | Follows::Service | Follows::Edge => {
                CallbackRules::DEFAULT
            }
        }
    }

    /// Returns whether these callbacks of a whole tree share the first band of an agent with these
    /// rules.
    pub(crate) fn shares_band_of(&self, agent: CallbackRules) -> bool {
        agent.global_joins_band && self.rules() == agent
    }

    /// Returns whether the list follows the rules of the agent in whose run the call is made.
    pub(super) fn follows_agent(&self) -> bool {
        matches!(self.follows, Follows::Agent)
    }

    /// Appends the callbacks of another list, and takes over its semantics if this list has none.
    pub(super) fn and(self, other: Self) -> Self {
        // A list without callbacks that was given rules keeps them.
        if self.is_empty() && matches!(self.follows, Follows::Default) {
            return other;
        }
        let mut all = self;
        all.append(&other);
        all
    }

    pub(super) fn into_members(self) -> Arc<Members<R>> {
        self.list.unwrap_or_default()
    }

    pub(super) fn as_slice(&self) -> &[ArcCallback<R>] {
        self.list.as_ref().map_or(&[], |list| list.all())
    }
}

impl<R: Request, C: Callback<R>> Extend<C> for Callbacks<R> {
    fn extend<I: IntoIterator<Item = C>>(&mut self, callbacks: I) {
        // Clones share the list until one of them grows.
        let list = Arc::make_mut(self.list.get_or_insert_default());
        for callback in callbacks {
            list.push(callback.erase());
        }
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
