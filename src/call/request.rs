//! The one trait that every call of an agent shares.
//!
//! ```text
//! Request  ->  Result<Request::Response, Error>
//! ```

use super::{CallKind, Origin};
use crate::context::RunContext;
use crate::error::CallSite;
use crate::message::Usage;
use crate::stream::ReaderWait;

/// A call that callbacks and layers can stand around.
///
/// The crate implements it for [`AgentRequest`](crate::AgentRequest),
/// [`ModelRequest`](crate::ModelRequest) and [`ToolRequest`](crate::ToolRequest). Nothing in the
/// callback machinery knows more of a call than this trait, so a call of your own gets bands,
/// closures and wraps by implementing it:
///
/// ```
/// use tower::{ServiceExt, service_fn};
/// use tower_agent::{Action, BoxError, Callback, Callbacks, Request, Result, RunContext};
/// use tower_agent::call::CallKind;
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

    /// Whether the call is made although the run was aborted, as one that tells a reader of the run
    /// is. An abort that the call itself raises ends it all the same. Defaults to `false`.
    const OUTLIVES_ABORT: bool = false;

    /// The run that this call belongs to.
    fn context(&self) -> &RunContext;

    /// Names what is called, where one call has many: a tool's name. It stands in errors.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Returns the tokens that a response of the service has taken, which the run counts. Defaults
    /// to none.
    fn usage(response: &Self::Response) -> Usage {
        let _ = response;
        Usage::default()
    }

    /// Whether the call does no more harm made twice than made once, for a layer that makes it
    /// again. Yes unless overridden.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// Whether it asks for something else than `earlier`, a clone from before callbacks had it:
    /// the guards of a band are asked again before a retry of a changed request. Defaults to
    /// `true`.
    fn is_changed_from(&self, earlier: &Self) -> bool {
        let _ = earlier;
        true
    }

    /// Whether something of the call has been seen already, so that making it again would have
    /// to take that back. No unless overridden.
    fn is_committed(&self) -> bool {
        false
    }

    /// Counts the time that the call waits for whoever reads it while it is answered, from here
    /// on. That of its run unless overridden.
    fn reader_wait(&self) -> ReaderWait {
        self.context().reader_wait()
    }

    /// A band of callbacks begins with this request, before its first `before`. Does nothing
    /// unless overridden.
    fn enter_band(&mut self) {}

    /// Notes on a response of this call where it came from, and carries over from the one it
    /// `replaced` what must not be lost. Does nothing unless overridden.
    ///
    /// A band calls it for every response; one of [`Origin::Service`] may have been marked by a
    /// band inside, whose mark must stay.
    fn mark(
        &self,
        response: &mut Self::Response,
        replaced: Option<&Self::Response>,
        origin: Origin,
    ) {
        let _ = (response, replaced, origin);
    }

    /// Notes on a response that a [guard](crate::Callback::is_guard) puts in the place of another
    /// that it stands as it is, before it is [marked](Self::mark): what a guard leaves out is not
    /// carried over. Does nothing unless overridden.
    fn mark_guarded(&self, response: &mut Self::Response) {
        let _ = response;
    }
}

impl CallSite {
    /// Where `request` is made. Its `Display` names the call for a log, such as
    /// ``tool call `add` of agent `sums` ``.
    #[must_use]
    pub fn of<R: Request>(request: &R) -> Self {
        request.context().site(R::CALL, request.name())
    }
}
