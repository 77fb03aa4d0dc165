//! The layers around each call of a watched tree of agents.

use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use pin_project_lite::pin_project;
use tower_agent::call::{Attempts, Extensions, Origin};
use tower_agent::context::ConversationId;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::ModelTarget;
use tower_agent::{
    AgentRequest, AgentResponse, ModelRequest, ModelResponse, Request, RunContext, ToolRequest,
    ToolResponse,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::collect::Tap;
use crate::content;
use crate::note::{Call, Ended, Note, What};

/// Returns the user of a run.
pub(crate) type UserOf = dyn Fn(&RunContext) -> Option<String> + Send + Sync;

/// The state that all layers of a bundle share.
pub(crate) struct Watch {
    pub(crate) tap: Arc<Tap>,
    pub(crate) has_content: bool,
    pub(crate) user: Option<Arc<UserOf>>,
}

impl Watch {
    fn tell(&self, run: Arc<str>, agent: Arc<str>, what: What) {
        self.tap.tell(Note {
            run,
            agent,
            at: SystemTime::now(),
            what,
        });
    }

    fn user(&self, context: &RunContext) -> Option<Arc<str>> {
        let user = self.user.as_ref()?;
        // Nothing that is done to watch a run may fail it.
        let user = catch_unwind(AssertUnwindSafe(|| user(context)));
        let user = user.ok().flatten().filter(|user| !user.is_empty());
        user.map(Into::into)
    }
}

/// A call that begins.
pub(crate) struct Begun {
    call: Call,
    attempts: Option<Attempts>,
    target: Option<ModelTarget>,
    input: Option<Box<str>>,
}

/// The consoles that see a call, in its request.
#[derive(Clone, Default)]
struct SeenBy(Vec<Arc<Tap>>);

/// Returns whether a call is seen by this console already. It is from now on.
fn is_seen(extensions: &mut Extensions, watch: &Watch) -> bool {
    let mut seen = extensions.get::<SeenBy>().cloned().unwrap_or_default();
    if seen.0.iter().any(|tap| Arc::ptr_eq(tap, &watch.tap)) {
        return true;
    }
    seen.0.push(watch.tap.clone());
    extensions.insert(seen);
    false
}

/// A kind of call that is watched.
pub(crate) trait Seen: Request {
    /// Returns a call that begins; `None` for one of which only the observer tells, or which this
    /// console sees already: an agent may be watched twice, as itself and inside another.
    fn begin(&mut self, watch: &Watch) -> Option<Begun>;

    /// Returns how a call has ended.
    fn end(response: &Self::Response, has_content: bool) -> Ended;
}

impl Seen for AgentRequest {
    fn begin(&mut self, watch: &Watch) -> Option<Begun> {
        let context = self.context();
        // Whose the run is, is known with its outermost agent.
        if let Some(invocation) = context.invocation()
            && invocation.caller.is_none()
        {
            let conversation = context.extensions().get::<ConversationId>();
            let what = What::About {
                user: watch.user(context),
                conversation: conversation.map(|id| id.as_str().into()),
            };
            watch.tell(context.run_id().into(), invocation.id.clone(), what);
        }
        None
    }

    fn end(_: &AgentResponse, _: bool) -> Ended {
        Ended::default()
    }
}

impl Seen for ModelRequest {
    fn begin(&mut self, watch: &Watch) -> Option<Begun> {
        if is_seen(self.extensions_mut(), watch) {
            return None;
        }
        let is_first = self.context().iteration() == 0;
        let input = watch
            .has_content
            .then(|| content::of_request(self, is_first));
        let attempts = self.attempts().map(Attempts::follow);
        let is_streamed = self.delta_sender().is_some();
        // The one of a layer outside, if there is one: the model tells one alone.
        let target = self.extensions().get::<ModelTarget>().cloned();
        let target = target.unwrap_or_else(|| {
            let target = ModelTarget::default();
            self.extensions_mut().insert(target.clone());
            target
        });
        Some(Begun {
            call: Call::Model { is_streamed },
            attempts,
            target: Some(target),
            input,
        })
    }

    fn end(response: &ModelResponse, has_content: bool) -> Ended {
        Ended {
            is_given: response.is_given() || response.origin() == Origin::Replay,
            finish: Some(response.finish_reason().to_string()),
            model: response.metadata().model.as_deref().map(Into::into),
            output: has_content.then(|| content::of_message(response.message())),
            ..Ended::default()
        }
    }
}

impl Seen for ToolRequest {
    fn begin(&mut self, watch: &Watch) -> Option<Begun> {
        if is_seen(self.extensions_mut(), watch) {
            return None;
        }
        let input = watch
            .has_content
            .then(|| content::of_value(self.arguments()));
        let attempts = self.attempts().map(Attempts::follow);
        let place = self.context().tool_call_message();
        let id = place.map(|(message, index)| message.tool_call(index));
        Some(Begun {
            call: Call::Tool {
                id,
                name: self.name().into(),
            },
            attempts,
            target: None,
            input,
        })
    }

    fn end(response: &ToolResponse, has_content: bool) -> Ended {
        Ended {
            is_given: response.origin() != Origin::Service,
            is_error: response.is_error(),
            output: has_content.then(|| content::of_value(response.value())),
            ..Ended::default()
        }
    }
}

/// Watches every call that passes.
#[derive(Clone)]
pub(crate) struct ConsoleLayer(pub(crate) Arc<Watch>);

impl<S> Layer<S> for ConsoleLayer {
    type Service = WatchCalls<S>;

    fn layer(&self, inner: S) -> WatchCalls<S> {
        WatchCalls {
            inner,
            watch: self.0.clone(),
        }
    }
}

/// The service of [`ConsoleLayer`].
#[derive(Clone)]
pub(crate) struct WatchCalls<S> {
    inner: S,
    watch: Arc<Watch>,
}

impl<S, R> Service<R> for WatchCalls<S>
where
    R: Seen,
    S: Service<R, Response = R::Response, Error = Error>,
{
    type Response = R::Response;
    type Error = Error;
    type Future = CallFuture<S::Future, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: R) -> Self::Future {
        let call = OpenCall::begin(&mut request, &self.watch);
        CallFuture {
            inner: Some(self.inner.call(request)),
            call,
        }
    }
}

pin_project! {
    /// The future of a watched call. It tells the end with the result, or as cancelled on drop.
    pub(crate) struct CallFuture<F, R: Seen> {
        // `None` once it has ended.
        #[pin]
        inner: Option<F>,
        // `None` for a call of which nothing is told. Boxed, so that it has no room there.
        call: Option<Box<OpenCall<R>>>,
    }

    impl<F, R: Seen> PinnedDrop for CallFuture<F, R> {
        fn drop(this: Pin<&mut Self>) {
            // What is inside goes first: the attempts that are cut by this belong to the call.
            this.project().inner.set(None);
        }
    }
}

impl<F, R> Future for CallFuture<F, R>
where
    R: Seen,
    F: Future<Output = Result<R::Response>>,
{
    type Output = Result<R::Response>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(inner) = this.inner.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let result = ready!(inner.poll(cx));
        this.inner.set(None);
        if let Some(call) = this.call.take() {
            call.end(&result);
        }
        Poll::Ready(result)
    }
}

/// A call that has begun. It ends once, on drop as cancelled.
struct OpenCall<R: Seen> {
    watch: Arc<Watch>,
    context: RunContext,
    agent: Arc<str>,
    number: u64,
    attempts: Option<Attempts>,
    target: Option<ModelTarget>,
    has_ended: bool,
    kind: PhantomData<fn(R)>,
}

impl<R: Seen> OpenCall<R> {
    fn begin(request: &mut R, watch: &Arc<Watch>) -> Option<Box<Self>> {
        if watch.tap.is_closed() {
            return None;
        }
        let agent = request.context().invocation()?.id.clone();
        let Begun {
            call,
            attempts,
            target,
            input,
        } = request.begin(watch)?;
        let context = request.context().clone();
        let number = watch.tap.call();
        let what = What::Begun {
            number,
            turn: context.iteration(),
            call,
            input,
        };
        watch.tell(context.run_id().into(), agent.clone(), what);
        Some(Box::new(Self {
            watch: watch.clone(),
            context,
            agent,
            number,
            attempts,
            target,
            has_ended: false,
            kind: PhantomData,
        }))
    }

    fn end(mut self, result: &Result<R::Response>) {
        let has_content = self.watch.has_content;
        let end = match result {
            Ok(response) => R::end(response, has_content),
            Err(error) => Ended {
                error: Some(error.kind().code()),
                output: has_content.then(|| content::of_text(error.message())),
                ..Ended::default()
            },
        };
        self.close(end);
    }

    fn close(&mut self, mut end: Ended) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        if let Some(attempts) = &self.attempts {
            end.attempts = attempts.list();
            // A cache, or a layer of the program's own, has answered.
            end.is_given |= end.error.is_none() && end.attempts.is_empty();
        }
        if let Some(target) = &self.target {
            end.provider = target.provider();
            end.model = target.model().or(end.model);
        } else {
            end.answered_by = self.context.answered_by();
        }
        let number = self.number;
        let what = What::Ended { number, end };
        self.watch
            .tell(self.context.run_id().into(), self.agent.clone(), what);
    }
}

impl<R: Seen> Drop for OpenCall<R> {
    fn drop(&mut self) {
        self.close(Ended {
            error: Some(ErrorKind::Cancelled.code()),
            ..Ended::default()
        });
    }
}
