//! The one trait that every call of an agent shares.
//!
//! ```text
//! Request  ->  Result<Request::Response, Error>
//! ```

use std::fmt;

use crate::context::RunContext;

/// A call that callbacks and layers can stand around.
///
/// The crate implements it for [`AgentRequest`](crate::AgentRequest),
/// [`ModelRequest`](crate::ModelRequest) and [`ToolRequest`](crate::ToolRequest). Nothing in the
/// callback machinery knows more of a call than this trait, so a call of your own gets bands,
/// closures and wraps by implementing it:
///
/// ```
/// use tower::{ServiceExt, service_fn};
/// use tower_agent::{Action, BoxError, CallKind, Callback, Callbacks, Request, Result, RunContext};
/// use tower_layer::Layer;
///
/// #[derive(Clone, Default)]
/// struct Embed {
///     text: String,
///     context: RunContext,
/// }
///
/// impl Request for Embed {
///     type Response = Vec<f32>;
///     const CALL: CallKind = CallKind::Other("embed");
///
///     fn context(&self) -> &RunContext {
///         &self.context
///     }
/// }
///
/// struct Lowercase;
///
/// impl Callback<Embed> for Lowercase {
///     async fn before(&self, request: &mut Embed) -> Result<Action<Vec<f32>>> {
///         request.text = request.text.to_lowercase();
///         Ok(Action::Continue)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let embed = Callbacks::new().with(Lowercase).layer(service_fn(|request: Embed| async move {
///     Ok::<_, BoxError>(vec![request.text.matches('a').count() as f32])
/// }));
/// let request = Embed { text: "AGENDA".into(), ..Embed::default() };
/// assert_eq!(embed.oneshot(request).await?, [2.0]);
/// # Ok(())
/// # }
/// ```
pub trait Request: Clone + Send + Sync + 'static {
    /// What the call answers with.
    type Response: Clone + Send + Sync + 'static;

    /// Which call this is; it names the call in errors and traces.
    const CALL: CallKind;

    /// The run that this call belongs to.
    fn context(&self) -> &RunContext;

    /// Names what is called, where one call has many: a tool's name. It stands in errors.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Notes on a response where it came from. Ignored unless overridden.
    fn mark(response: &mut Self::Response, origin: Origin) {
        let _ = (response, origin);
    }
}

/// Which of an agent's calls a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallKind {
    /// The agent loop, or an agent made of agents.
    Agent,
    /// One call of a model.
    Model,
    /// One call of a tool.
    Tool,
    /// One agent event on its way to a front end.
    Translate,
    /// A call defined outside this crate, by its name.
    Other(&'static str),
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Translate => "translate",
            Self::Other(name) => name,
        })
    }
}

/// Where a response came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The service at the bottom of the stack made it.
    #[default]
    Service,
    /// A `before` answered in the service's place.
    Before,
    /// An `after` replaced what the service said.
    After,
    /// An `on_error` answered for a call that had failed.
    Fallback,
}
