//! The trait shared by every call of an agent.
//!
//! ```text
//! Request  ->  Result<Request::Response, Error>
//! ```

use super::attempts::{Attempts, Description};
use crate::call_kind::{CallKind, Origin};
use crate::context::RunContext;
use crate::error::{CallSite, Error, ErrorKind, Result};
use crate::message::{Metadata, NoAnswer, Usage};
use crate::stream::{ConsumerWait, DeltaSender};

/// A call that callbacks and layers can wrap.
///
/// Implemented for [`AgentRequest`](crate::AgentRequest), [`ModelRequest`](crate::ModelRequest) and
/// [`ToolRequest`](crate::ToolRequest). Callbacks need nothing but this trait, so implementing it
/// for a call of your own gives it bands, closures and wraps:
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
    /// The response of the call.
    type Response: Clone + Send + Sync + 'static;

    /// Returns the kind of call, used in errors and traces.
    const CALL: CallKind;

    /// Returns whether the call is made even if the run was aborted, like a call that reports the
    /// run to a consumer. An abort raised by the call itself still ends it. Defaults to `false`.
    const OUTLIVES_ABORT: bool = false;

    /// Returns the run that this call belongs to.
    fn context(&self) -> &RunContext;

    /// Returns the name of what is called, such as a tool's name, used in errors. Defaults to none.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Returns the tokens used by a response of the service, which the run counts. Defaults to
    /// none.
    fn usage(response: &Self::Response) -> Usage {
        let _ = response;
        Usage::default()
    }

    /// Returns what the provider says of a response of the service. Defaults to none.
    fn metadata(response: &Self::Response) -> Option<&Metadata> {
        let _ = response;
        None
    }

    /// Returns why a response of the service is no answer, for a layer that may have another one
    /// instead: see [`ModelResponse::no_answer`](crate::ModelResponse::no_answer). Defaults to
    /// `None`.
    fn no_answer(response: &Self::Response) -> Option<NoAnswer> {
        let _ = response;
        None
    }

    /// Marks a response as counted, and returns whether its [usage](Self::usage) is to be counted:
    /// whether it was not marked before. Defaults to `true`, for responses without a mark, which
    /// are counted where they leave the target of the call.
    fn count(response: &mut Self::Response) -> bool {
        let _ = response;
        true
    }

    /// Returns the attempts at this call, if it knows of them. Defaults to `None`.
    fn attempts(&mut self) -> Option<&mut Attempts> {
        None
    }

    /// Returns what the price of the call may depend on, for those who follow its
    /// [attempts](Self::attempts). Defaults to nothing.
    fn describe_attempt(&self) -> Description {
        None
    }

    /// Fails if the target cannot take the request, which is asked directly before it would be
    /// called. Defaults to success.
    ///
    /// # Errors
    ///
    /// Returns why, as the error of the call.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Returns whether repeating the call does no harm, for layers that retry it. Defaults to
    /// `true`.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// Returns whether the request differs from `earlier`, a clone from before the callbacks: if
    /// so, the guards of a band run again before a retry. Defaults to `true`.
    fn is_changed_from(&self, earlier: &Self) -> bool {
        let _ = earlier;
        true
    }

    /// Returns whether output of the call was already streamed, so that a retry would have to
    /// discard it. Defaults to `false`.
    fn is_committed(&self) -> bool {
        false
    }

    /// Returns the sink that the call streams its deltas to, if it is streamed. Defaults to `None`.
    fn delta_sender(&self) -> Option<&DeltaSender> {
        None
    }

    /// Returns a counter of the time that the call waits for its consumer from now on. Defaults to
    /// that of its run.
    fn consumer_wait(&self) -> ConsumerWait {
        self.context().listeners().consumer_wait()
    }

    /// Returns the response to a call that is refused for this reason: for a callback or a layer
    /// that is generic over calls, and refuses with a value rather than with an error.
    ///
    /// The model reads the refusal of a tool call as a [failed result](crate::ToolResponse::error).
    /// A refused model call answers with the reason and calls no tools, and a refused agent answers
    /// with the reason, which the user then reads.
    ///
    /// ```
    /// use tower_agent::{Action, Callback, Request, Result};
    ///
    /// /// Makes no calls, of whatever kind.
    /// struct Closed;
    ///
    /// impl<R: Request> Callback<R> for Closed {
    ///     async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
    ///         Ok(Action::Respond(request.refusal("We open at nine.")?))
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`Denied`](ErrorKind::Denied) if no response of this call can say so, which is
    /// the default.
    fn refusal(&self, reason: impl Into<String>) -> Result<Self::Response> {
        Err(Error::new(ErrorKind::Denied, reason.into()))
    }

    /// Called when a band of callbacks starts with this request, before its first `before`. Does
    /// nothing by default.
    fn enter_band(&mut self) {}

    /// Called with whether nothing is between the callbacks at the
    /// [edges](crate::callback::Bundle::edges_of_model) of this call. Does nothing by default.
    fn set_direct(&mut self, is_direct: bool) {
        let _ = is_direct;
    }

    /// Records the origin of a response of this call, and takes over from the response that it
    /// `replaced` what must not be lost. Does nothing by default.
    ///
    /// A band calls it for every response. A response with [`Origin::Service`] may have been marked
    /// by an inner band, whose mark must be kept.
    fn mark(
        &self,
        response: &mut Self::Response,
        replaced: Option<&Self::Response>,
        origin: Origin,
    ) {
        let _ = (response, replaced, origin);
    }

    /// Marks a response that a [guard](crate::Callback::is_guard) returns as complete, before
    /// [`mark`](Self::mark): what the guard omits is not taken over. Does nothing by default.
    fn mark_guarded(&self, response: &mut Self::Response) {
        let _ = response;
    }
}

impl CallSite {
    /// Creates the call site of `request`. Its `Display` names the call for a log, such as ``tool
    /// call `add` of agent `sums` ``.
    #[must_use]
    pub fn of<R: Request>(request: &R) -> Self {
        request.context().scope().site(R::CALL, request.name())
    }
}
