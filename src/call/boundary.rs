//! The boundary around user code.
//!
//! Models, tools and tower layers are user code. Each is wrapped in a [`BoxCallService`]. Only this
//! type clones a service, drives its readiness, boxes its future, catches its panics, converts its
//! errors, adds the call to them, counts usage, blocks calls of a run that has ended, and keeps an
//! ending that the code raised. Everything else in the crate uses [`Result`] and repeats none of
//! this, but for panics: those of functions that are no services, such as hooks and `stop_when`,
//! are caught where they are called.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use sync_wrapper::SyncWrapper;
use tower::Service;

use super::reached::OpenAttempt;
use super::request::Request;
use super::service::CallService;
use crate::call_kind::CallKind;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::panic::catch;

/// A type-erased service for `R` that keeps the inner service's readiness and converts its errors
/// to [`Error`].
///
/// Compared with [`BoxCloneSyncService`](tower::util::BoxCloneSyncService), cloning costs a
/// reference count, and a call costs one box, which first holds the service while it becomes ready
/// and then its future. Each call therefore uses its own clone of the service.
///
/// ```
/// use tower::{ServiceExt, service_fn};
/// use tower_agent::{BoxError, Message, ModelRequest, ModelResponse};
/// use tower_agent::model::BoxModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tower_agent::Result<()> {
/// let model = BoxModel::new(service_fn(|_: ModelRequest| async {
///     Ok::<_, BoxError>(ModelResponse::new(Message::assistant("hello")))
/// }));
/// let response = model.clone().oneshot(ModelRequest::default()).await?;
/// assert_eq!(response.message().text(), "hello");
/// # Ok(())
/// # }
/// ```
pub struct BoxCallService<R: Request> {
    service: Arc<dyn Start<R>>,
    next: Option<Pin<Box<dyn Crossing<R>>>>,
}

impl<R: Request> BoxCallService<R> {
    /// Erases the type of `service`.
    pub fn new(service: impl CallService<R>) -> Self {
        Self::user(service, CodeKind::Handle { catches: false })
    }

    /// Erases the type of `service`, and converts its panics to errors of the call.
    ///
    /// ```
    /// use tower::{ServiceExt, service_fn};
    /// use tower_agent::{ModelRequest, ModelResponse, Result};
    /// use tower_agent::model::BoxModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let model = service_fn(async |_: ModelRequest| -> Result<ModelResponse> { panic!("oh no") });
    /// let model = BoxModel::catching_panics(model);
    /// let error = model.oneshot(ModelRequest::default()).await.unwrap_err();
    /// assert_eq!(error.message(), "the model panicked: oh no");
    /// # }
    /// ```
    pub fn catching_panics(service: impl CallService<R>) -> Self {
        Self::user(service, CodeKind::Handle { catches: true })
    }

    /// Erases the type of a model or a tool that code calls within a run, as an agent calls its
    /// own: the tokens that it uses count in the run of the request, a run that has ended refuses
    /// the call, and a panic is an error of the call.
    ///
    /// ```
    /// use tower::ServiceExt;
    /// use tower_agent::model::BoxModel;
    /// use tower_agent::{ModelRequest, RunContext, Usage};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> tower_agent::Result<()> {
    /// let oslo = Turn::from_text("Oslo").usage(Usage::new(10, 7));
    /// let model = BoxModel::within_runs(ScriptedModel::always(oslo));
    ///
    /// let run = RunContext::default();
    /// model.oneshot(ModelRequest::default().with_context(run.clone())).await?;
    /// assert_eq!(run.usage().output_tokens, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn within_runs(service: impl CallService<R>) -> Self {
        Self::leaf(service, None)
    }

    pub(crate) fn leaf(service: impl CallService<R>, name: Option<Arc<str>>) -> Self {
        Self::user(service, CodeKind::Leaf(name))
    }

    pub(crate) fn layer(service: impl CallService<R>) -> Self {
        Self::user(service, CodeKind::Layer(None))
    }

    /// Creates the service of this crate's own code, which is always ready.
    pub(crate) fn internal(start: impl Fn(R) -> BoxCallFuture<R> + Send + Sync + 'static) -> Self {
        Self {
            service: Arc::new(Internal(start)),
            next: None,
        }
    }

    fn user(service: impl CallService<R>, kind: CodeKind) -> Self {
        Self {
            service: Arc::new(User { service, kind }),
            next: None,
        }
    }

    /// Makes one call, driving readiness first.
    pub(crate) fn make(&self, request: R) -> BoxCallFuture<R> {
        self.service.start(request)
    }

    /// Returns this handle with its readiness, which this one loses.
    pub(crate) fn take(&mut self) -> Self {
        Self {
            service: self.service.clone(),
            next: self.next.take(),
        }
    }
}

impl<R: Request> Service<R> for BoxCallService<R> {
    type Response = R::Response;
    type Error = Error;
    type Future = BoxCallFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // Readiness belongs to one clone of the service, so the call is prepared with it.
        if self.next.is_none() {
            self.next = self.service.prepare();
        }
        self.next
            .as_mut()
            .map_or(Poll::Ready(Ok(())), |next| next.as_mut().poll_ready(cx))
    }

    fn call(&mut self, request: R) -> BoxCallFuture<R> {
        // A caller that never polled is tolerated: the call then drives readiness itself.
        let Some(mut next) = self.next.take() else {
            return self.service.start(request);
        };
        next.as_mut().give(request);
        next
    }
}

impl<R: Request> Clone for BoxCallService<R> {
    /// The clone is not ready, even if the original is.
    fn clone(&self) -> Self {
        Self {
            service: self.service.clone(),
            next: None,
        }
    }
}

impl<R: Request> fmt::Debug for BoxCallService<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxCallService")
            .field("call", &R::CALL)
            .finish_non_exhaustive()
    }
}

/// The future of a call of a type-erased service.
pub type BoxCallFuture<R> = Pin<Box<dyn Future<Output = Result<<R as Request>::Response>> + Send>>;

trait Start<R: Request>: Send + Sync {
    /// Returns a call whose service becomes ready before it has a request, if it must.
    fn prepare(&self) -> Option<Pin<Box<dyn Crossing<R>>>>;

    fn start(&self, request: R) -> BoxCallFuture<R>;
}

struct Internal<F>(F);

impl<R: Request, F> Start<R> for Internal<F>
where
    F: Fn(R) -> BoxCallFuture<R> + Send + Sync,
{
    fn prepare(&self) -> Option<Pin<Box<dyn Crossing<R>>>> {
        None
    }

    fn start(&self, request: R) -> BoxCallFuture<R> {
        (self.0)(request)
    }
}

/// A model, a tool or a tower layer.
struct User<S> {
    service: S,
    kind: CodeKind,
}

/// The kind of user code in its calls.
#[derive(Clone)]
enum CodeKind {
    /// A handle held by a caller: its errors are converted, and optionally its panics.
    Handle { catches: bool },
    /// The target of the call, with its name.
    Leaf(Option<Arc<str>>),
    /// A layer around the target, with the name of the call.
    Layer(Option<Arc<str>>),
}

impl<R: Request, S: CallService<R>> Start<R> for User<S> {
    fn prepare(&self) -> Option<Pin<Box<dyn Crossing<R>>>> {
        Some(Box::pin(UserCall::new(
            self.service.clone(),
            Side::new(self.kind.clone()),
            None,
        )))
    }

    fn start(&self, request: R) -> BoxCallFuture<R> {
        let service = self.service.clone();
        let mut side = Side::new(self.kind.clone());
        side.belong(&request);
        Box::pin(UserCall::new(service, side, Some(request)))
    }
}

/// A tool that keeps its thread for so long has blocked it: most timers are set for longer.
const BLOCKED: Duration = Duration::from_millis(50);

/// One call of user code.
trait Crossing<R: Request>: Future<Output = Result<R::Response>> + Send + Sync {
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>>;

    fn give(self: Pin<&mut Self>, request: R);
}

pin_project! {
    struct UserCall<S, F, R>
    where
        R: Request,
    {
        // Futures need not be `Sync`: none is accessed through a shared reference.
        #[pin]
        state: SyncWrapper<UserCallState<S, F, R>>,
        side: Side,
    }

    impl<S, F, R> PinnedDrop for UserCall<S, F, R>
    where
        R: Request,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            let mut state = this.state.get_pin_mut();
            if let Projected::Made { .. } = state.as_mut().project() {
                // What runs inside ends first, and has its own entries in the ledger.
                state.set(UserCallState::Over { error: None });
                this.side.drop_made::<R>();
            }
        }
    }
}

pin_project! {
    #[project = Projected]
    enum UserCallState<S, F, R> {
        /// The service becomes ready; the call starts once it is and has its request.
        Waiting { service: S, is_ready: bool, request: Option<R> },
        Made { #[pin] future: F },
        /// The call has ended, or cannot be made.
        Over { error: Option<Error> },
    }
}

impl<R, S> UserCall<S, S::Future, R>
where
    R: Request,
    S: Service<R>,
{
    fn new(service: S, side: Side, request: Option<R>) -> Self {
        let state = UserCallState::Waiting {
            service,
            is_ready: false,
            request,
        };
        Self {
            state: SyncWrapper::new(state),
            side,
        }
    }
}

impl<R: Request, S: CallService<R>> Crossing<R> for UserCall<S, S::Future, R> {
    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.project();
        let mut state = this.state.get_pin_mut();
        let Projected::Waiting {
            service, is_ready, ..
        } = state.as_mut().project()
        else {
            return Poll::Ready(Ok(()));
        };
        let polled = this.side.watch::<R, _>(|| service.poll_ready(cx));
        let failed = match polled.map(|poll| poll.map_err(|error| Error::from(error.into()))) {
            Ok(Poll::Ready(Err(ending))) if ending.is_ending() => ending,
            Ok(poll) => {
                *is_ready = matches!(poll, Poll::Ready(Ok(())));
                return poll;
            }
            Err(panic) => panic,
        };
        // An error of the call, so that callbacks, retries and fallbacks see it, and an ending
        // reaches the run.
        state.set(UserCallState::Over {
            error: Some(failed),
        });
        Poll::Ready(Ok(()))
    }

    fn give(self: Pin<&mut Self>, given: R) {
        let this = self.project();
        this.side.belong(&given);
        if let Projected::Waiting { request, .. } = this.state.get_pin_mut().project() {
            *request = Some(given);
        }
    }
}

impl<R: Request, S: CallService<R>> Future for UserCall<S, S::Future, R> {
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut state = this.state.get_pin_mut();
        // A browser has no such clock, and no other thread's timers.
        let is_timed = cfg!(not(target_family = "wasm")) && this.side.is_tool::<R>();
        let late = is_timed.then(|| Instant::now() + BLOCKED);
        let poll = loop {
            match state.as_mut().project() {
                Projected::Waiting {
                    service,
                    is_ready,
                    request,
                } => {
                    if !*is_ready {
                        match this.side.watch::<R, _>(|| service.poll_ready(cx)) {
                            Ok(poll) => match ready!(poll) {
                                Ok(()) => {}
                                Err(error) => break Poll::Ready(Err(error.into().into())),
                            },
                            Err(panic) => break Poll::Ready(Err(panic)),
                        }
                    }
                    // Without a request it was never called.
                    let Some(request) = request else {
                        return Poll::Pending;
                    };
                    // Asked last: the run may have ended while the service became ready.
                    if let Err(refusal) = this.side.admit(request) {
                        break Poll::Ready(Err(refusal));
                    }
                    this.side.reach(request);
                    if let Err(panic) = this.side.watch::<R, _>(|| state.as_mut().call()) {
                        break Poll::Ready(Err(panic));
                    }
                }
                Projected::Made { mut future } => {
                    // The conversion of the error is foreign code as well.
                    let polled = this.side.watch::<R, _>(|| {
                        let polled = future.as_mut().poll(cx);
                        polled.map_err(|error| Error::from(error.into()))
                    });
                    break polled.unwrap_or_else(|panic| Poll::Ready(Err(panic)));
                }
                Projected::Over { error: Some(error) } => break Poll::Ready(Err(error.clone())),
                Projected::Over { error: None } => return Poll::Pending,
            }
        };
        if late.is_some_and(|late| Instant::now() >= late)
            && let Some(context) = &this.side.context
        {
            context.endings().note_blocked();
        }
        let mut result = ready!(poll);
        // The future is dropped before the result leaves, as an `async fn` would drop it.
        state.set(UserCallState::Over { error: None });
        if let Err(error) = result {
            result = Err(this.side.failure::<R>(error));
        }
        this.side.end::<R>(&mut result);
        Poll::Ready(result)
    }
}

impl<S: Service<R>, R> UserCallState<S, S::Future, R> {
    fn call(mut self: Pin<&mut Self>) {
        if let Projected::Waiting {
            service, request, ..
        } = self.as_mut().project()
            && let Some(request) = request.take()
        {
            let future = service.call(request);
            self.set(Self::Made { future });
        }
    }
}

/// The crate's data about a call.
struct Side {
    kind: CodeKind,
    /// The context of the call, once it has its request.
    context: Option<RunContext>,
    /// The attempt that the call is, from when its code was called.
    attempt: Option<OpenAttempt>,
}

impl Side {
    fn new(kind: CodeKind) -> Self {
        Self {
            kind,
            context: None,
            attempt: None,
        }
    }

    fn belong<R: Request>(&mut self, request: &R) {
        match &mut self.kind {
            // A handle belongs to its caller, who may use it outside any run.
            CodeKind::Handle { .. } => return,
            CodeKind::Leaf(_) => {}
            // The request moves into the layer, and an error that comes out needs the name.
            CodeKind::Layer(name) => *name = request.name().map(Into::into),
        }
        self.context = Some(request.context().clone());
    }

    /// Fails if the call is blocked, or its target cannot take the request.
    fn admit<R: Request>(&self, request: &R) -> Result<()> {
        let endings = request.context().endings();
        match self.kind {
            CodeKind::Leaf(_) => {
                endings.admit_target::<R>()?;
                request.check()
            }
            // What is behind a handle may be no agent's, and ask nobody.
            CodeKind::Handle { .. } => endings.admit_handle::<R>(),
            // Only a target is refused here: callbacks and layers run for a call that is not made,
            // and may answer it.
            CodeKind::Layer(_) => Ok(()),
        }
    }

    fn is_tool<R: Request>(&self) -> bool {
        R::CALL == CallKind::Tool && matches!(self.kind, CodeKind::Leaf(_))
    }

    /// Notes that the code is called with this request: an attempt begins.
    #[inline]
    fn reach<R: Request>(&mut self, request: &mut R) {
        let is_target = match self.kind {
            CodeKind::Leaf(_) => true,
            CodeKind::Handle { .. } => false,
            // The attempts are inside.
            CodeKind::Layer(_) => return,
        };
        self.attempt = OpenAttempt::begin(request, is_target);
        // A handle belongs to the run of a call that it is a part of, and otherwise to none.
        if self.attempt.is_some() && self.context.is_none() {
            self.context = Some(request.context().clone());
        }
    }

    #[inline]
    fn end<R: Request>(&mut self, result: &mut Result<R::Response>) {
        let (Some(attempt), Some(context)) = (self.attempt.take(), &self.context) else {
            return;
        };
        attempt.end::<R>(context, result.as_mut().map_err(|error| &*error));
        if let Err(error) = result
            && self.is_tool::<R>()
            && is_cut::<R>(error)
        {
            context.endings().note_dropped();
        }
    }

    #[cold]
    fn drop_made<R: Request>(&mut self) {
        let Some(context) = &self.context else {
            return;
        };
        if let Some(attempt) = self.attempt.take() {
            attempt.cut(context);
        }
        if self.is_tool::<R>() {
            context.endings().note_dropped();
        }
    }

    /// Runs user code; a panic becomes an error.
    fn watch<R: Request, T>(&self, code: impl FnOnce() -> T) -> Result<T> {
        match self.kind {
            // A plain handle adds nothing to a panic: it unwinds into the caller, as it would from
            // the service itself.
            CodeKind::Handle { catches: false } => Ok(code()),
            CodeKind::Handle { catches: true } | CodeKind::Leaf(_) | CodeKind::Layer(_) => {
                catch(code).map_err(|panic| self.panicked::<R>(&panic))
            }
        }
    }

    fn panicked<R: Request>(&self, panic: &str) -> Error {
        let (kind, what) = match (&self.kind, R::CALL) {
            (CodeKind::Layer(_), _) => (ErrorKind::Callback, "a layer around "),
            (_, CallKind::Tool) => (ErrorKind::Tool, ""),
            (_, CallKind::Model) => (ErrorKind::Provider, ""),
            (_, CallKind::Agent | CallKind::Other(_)) => (ErrorKind::Other, ""),
        };
        Error::new(kind, format!("{what}the {} panicked: {panic}", R::CALL))
    }

    fn failure<R: Request>(&self, error: Error) -> Error {
        let (name, error) = match &self.kind {
            CodeKind::Handle { .. } => return error,
            // Only what the tool itself returns is a tool's error: a layer around it fails for
            // reasons of its own.
            CodeKind::Leaf(name) if R::CALL == CallKind::Tool => {
                (name, error.or_kind(ErrorKind::Tool))
            }
            CodeKind::Leaf(name) | CodeKind::Layer(name) => (name, error),
        };
        match &self.context {
            Some(context) => context.endings().settle_error::<R>(name.as_deref(), error),
            None => error,
        }
    }
}

/// Returns whether a limit in the tool, such as its client's, has cut it: the effect may have been
/// had. The error of a call that the tool has made names that call.
fn is_cut<R: Request>(error: &Error) -> bool {
    let is_own = error.call().is_none_or(|call| call.kind == R::CALL);
    is_own && matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Cancelled)
}
