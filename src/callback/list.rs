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
#[derive(Clone)]
pub struct Callbacks<R: Request> {
    // An empty list allocates nothing: most agents lack callbacks for some of their calls.
    list: Option<Arc<Members<R>>>,
    /// `None` for the default, or in the own stack of an agent for the agent's.
    pub(super) own_rules: Option<CallbackRules>,
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
            let named = |tools: Vec<Arc<str>>, as_agent| {
                tools.into_iter().map(move |tool| NamedTool {
                    by: Callback::name(callback),
                    tool,
                    as_agent,
                })
            };
            let agents = named(Callback::named_agents(callback), true);
            named(Callback::named_tools(callback), false).chain(agents)
        })
    }

    /// Sets the semantics, such as one of [`CallbackSemantics`](crate::compat::CallbackSemantics).
    #[must_use]
    pub fn with_semantics(mut self, semantics: impl Rules) -> Self {
        self.own_rules = Some(semantics.callbacks(R::CALL));
        self
    }

    /// Sets the rules, if there are some and the list has none of its own.
    pub(super) fn or_rules(mut self, rules: Option<&dyn Rules>) -> Self {
        if let Some(rules) = rules {
            self.own_rules
                .get_or_insert_with(|| rules.callbacks(R::CALL));
        }
        self
    }

    pub(super) fn set_rules(&mut self, rules: Option<&dyn Rules>) {
        self.own_rules = rules.map(|rules| rules.callbacks(R::CALL));
    }

    /// Returns the rules that were set with [`with_semantics`](Self::with_semantics). Defaults to
    /// [`CallbackRules::default`].
    #[must_use]
    pub fn rules(&self) -> CallbackRules {
        self.own_rules.unwrap_or_default()
    }

    /// Appends the callbacks of another list. Of lists that have callbacks, the first one's
    /// semantics are kept.
    pub(super) fn and(self, other: Self) -> Self {
        if self.is_empty() {
            return Self {
                own_rules: other.own_rules.or(self.own_rules),
                ..other
            };
        }
        let mut all = self;
        all.append(&other);
        all
    }

    /// Returns whether each list has one callback, and the two are a pair.
    pub(super) fn is_pair_with(&self, other: &Self) -> bool {
        match (self.as_slice(), other.as_slice()) {
            ([one], [two]) => one.is_pair_with(two),
            _ => false,
        }
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
            own_rules: None,
        }
    }
}

impl<R: Request> fmt::Debug for Callbacks<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
