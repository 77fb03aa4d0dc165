//! The layers around each call of a watched tree of agents.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use pin_project_lite::pin_project;
use tower_agent::call::{Attempted, Attempts, Extensions, Origin, Witness};
use tower_agent::context::ConversationId;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::ModelTarget;
use tower_agent::stream::Invocation;
use tower_agent::{
    AgentRequest, AgentResponse, Checkpoint, ModelRequest, ModelResponse, Request, RunContext,
    ToolRequest, ToolResponse, Usage,
};
use tower_layer::Layer;
use tower_service::Service;

use crate::collect::Tap;
use crate::content;
use crate::forked::Forked;
use crate::kept::{self, Kept, KeptCall, KeptRun};
use crate::note::{Call, Ended, Note, What};

/// Returns the user of a run.
pub(crate) type UserOf = dyn Fn(&RunContext) -> Option<String> + Send + Sync;

/// The state that all layers of a bundle share.
pub(crate) struct Watch {
    pub(crate) tap: Arc<Tap>,
    pub(crate) has_content: bool,
    pub(crate) user: Option<Arc<UserOf>>,
    /// The run of what is kept, which lives on in none.
    pub(crate) nowhere: RunContext,
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

/// The outermost agent of a run of which content is kept, until it has ended.
pub(crate) struct Root {
    watch: Arc<Watch>,
    agent: Arc<Invocation>,
}

impl Root {
    fn enter(request: &AgentRequest, agent: &Arc<Invocation>, watch: &Arc<Watch>) -> Self {
        watch.tap.roots.enter(agent, request);
        Self {
            watch: watch.clone(),
            agent: agent.clone(),
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let Some(request) = self.watch.tap.roots.leave(&self.agent) else {
            return;
        };
        let after = Box::new(kept::checkpoint(&request));
        let run = request.context().run_id().into();
        self.watch
            .tell(run, self.agent.id.clone(), What::Left { after });
    }
}

/// The request of a call that is kept, until it has ended.
struct Open<R> {
    path: String,
    request: R,
    before: Option<Checkpoint>,
    witness: Witness,
    is_hidden: bool,
}

impl<R: Seen> Open<R> {
    fn of(request: &mut R, watch: &Watch) -> Option<Self> {
        let path = request.context().call_path();
        let agent = Invocation::of(request.context()).cloned();
        let extensions = request.attached()?;
        let is_hidden = Witness::is_inside_redaction(extensions);
        let witness = Witness::enter(extensions);
        Some(Self {
            path,
            request: request.bare(&watch.nowhere),
            before: agent.and_then(|agent| watch.tap.roots.checkpoint(&agent)),
            witness,
            is_hidden,
        })
    }

    fn close(self, result: Option<Result<R::Response>>, attempts: &[Attempted]) -> Option<Kept> {
        let used = attempts
            .iter()
            .fold(Usage::default(), |all, attempt| all + attempt.usage);
        let told = result.iter().flatten().map(R::used);
        let told = told.fold(Usage::default(), |all, usage| all + usage);
        let call = KeptCall {
            path: self.path,
            request: self.request,
            result,
            used: used - told,
            is_hidden: self.is_hidden || self.witness.is_input_hidden_inside(),
        };
        R::kept(call, self.before)
    }
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

    /// Returns the outermost agent that is called, if it is one and its content is kept.
    fn root(&self, _: &Arc<Watch>) -> Option<Root> {
        None
    }

    /// Returns what is attached to the call, if it is one that is kept.
    fn attached(&mut self) -> Option<&mut Extensions>;

    /// Returns the request without its run, and without what is attached to it: neither is to live
    /// on for as long as the request is kept.
    fn bare(&self, nowhere: &RunContext) -> Self;

    /// Returns the tokens that the run counts with the response.
    fn used(response: &Self::Response) -> Usage;

    /// Returns what is kept of a call.
    fn kept(call: KeptCall<Self>, before: Option<Checkpoint>) -> Option<Kept>;
}

impl Seen for AgentRequest {
    fn begin(&mut self, watch: &Watch) -> Option<Begun> {
        let context = self.context();
        // Whose the run is, is known with its outermost agent.
        if let Some(invocation) = Invocation::of(context)
            && invocation.caller.is_none()
        {
            let conversation = context.extensions().get::<ConversationId>();
            let forked = context.extensions().get::<Forked>();
            let kept = watch.has_content.then(|| Kept::Run(KeptRun::of(self)));
            let what = What::About {
                user: watch.user(context).or_else(|| forked?.user.clone()),
                conversation: conversation.map(|id| id.as_str().into()),
                fork_of: forked.map(|forked| forked.origin.clone()),
                kept: kept.map(Arc::new),
            };
            watch.tell(context.run_id().into(), invocation.id.clone(), what);
        }
        None
    }

    fn end(_: &AgentResponse, _: bool) -> Ended {
        Ended::default()
    }

    fn root(&self, watch: &Arc<Watch>) -> Option<Root> {
        let agent = Invocation::of(self.context())?;
        let is_kept = agent.caller.is_none() && watch.has_content && !watch.tap.is_closed();
        is_kept.then(|| Root::enter(self, agent, watch))
    }

    fn attached(&mut self) -> Option<&mut Extensions> {
        None
    }

    fn bare(&self, _: &RunContext) -> Self {
        Self::default()
    }

    fn used(_: &AgentResponse) -> Usage {
        Usage::default()
    }

    fn kept(_: KeptCall<Self>, _: Option<Checkpoint>) -> Option<Kept> {
        None
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

    fn attached(&mut self) -> Option<&mut Extensions> {
        Some(self.extensions_mut())
    }

    fn bare(&self, nowhere: &RunContext) -> Self {
        let bare = self.clone().with_context(nowhere.clone());
        let mut bare = bare.with_delta_sender(None);
        *bare.extensions_mut() = Extensions::new();
        bare
    }

    fn used(response: &ModelResponse) -> Usage {
        response.usage()
    }

    fn kept(call: KeptCall<Self>, before: Option<Checkpoint>) -> Option<Kept> {
        Some(Kept::Model { call, before })
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

    fn attached(&mut self) -> Option<&mut Extensions> {
        Some(self.extensions_mut())
    }

    fn bare(&self, nowhere: &RunContext) -> Self {
        let mut bare = self.clone().with_context(nowhere.clone());
        *bare.extensions_mut() = Extensions::new();
        bare
    }

    /// The tokens of an agent that is the tool are counted by its own calls.
    fn used(_: &ToolResponse) -> Usage {
        Usage::default()
    }

    fn kept(call: KeptCall<Self>, _: Option<Checkpoint>) -> Option<Kept> {
        let arguments = kept::digest_of(&call.request, call.result.as_ref());
        Some(Kept::Tool { call, arguments })
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
        let root = request.root(&self.watch);
        CallFuture {
            inner: Some(self.inner.call(request)),
            call,
            root,
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
        root: Option<Root>,
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
        drop(this.root.take());
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
    kept: Option<Open<R>>,
}

impl<R: Seen> OpenCall<R> {
    fn begin(request: &mut R, watch: &Arc<Watch>) -> Option<Box<Self>> {
        if watch.tap.is_closed() {
            return None;
        }
        let agent = Invocation::of(request.context())?.id.clone();
        let Begun {
            call,
            attempts,
            target,
            input,
        } = request.begin(watch)?;
        let kept = watch.has_content.then(|| Open::of(request, watch));
        let kept = kept.flatten();
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
            kept,
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
        let result = self.kept.is_some().then(|| result.clone());
        self.close(end, result);
    }

    fn close(&mut self, mut end: Ended, result: Option<Result<R::Response>>) {
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
        if let Some(kept) = self.kept.take() {
            end.kept = kept.close(result, &end.attempts).map(Arc::new);
        }
        let number = self.number;
        let what = What::Ended { number, end };
        self.watch
            .tell(self.context.run_id().into(), self.agent.clone(), what);
    }
}

impl<R: Seen> Drop for OpenCall<R> {
    fn drop(&mut self) {
        let end = Ended {
            error: Some(ErrorKind::Cancelled.code()),
            ..Ended::default()
        };
        self.close(end, None);
    }
}
