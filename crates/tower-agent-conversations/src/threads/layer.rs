use std::fmt;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::Service;
use tower_agent::agent::AgentService;
use tower_layer::Layer;

use super::Threads;
use super::client::{ClientInput, ClientMessage};
use super::run::ThreadRun;
use crate::key::ConversationKey;

/// The input of a client for one run of a thread, and the key of the thread.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ThreadRequest<M: Clone + 'static> {
    /// The thread. The user is who the server knows that the client is.
    pub key: ConversationKey,
    /// The input.
    pub input: ClientInput<'static, M>,
}

impl<M: ClientMessage> ThreadRequest<M> {
    /// Creates a request.
    #[must_use]
    pub fn new(key: ConversationKey, input: ClientInput<'static, M>) -> Self {
        Self { key, input }
    }
}

impl<A> Layer<A> for Threads {
    type Service = ThreadService<A>;

    fn layer(&self, agent: A) -> Self::Service {
        ThreadService {
            agent,
            threads: self.clone(),
        }
    }
}

/// An agent whose threads are kept; created by the layer [`Threads`].
///
/// A call takes what the [rules](crate#rules) accept of a client's input, claims the thread, and
/// returns the run as a [stream](ThreadRun).
#[derive(Clone)]
pub struct ThreadService<A> {
    agent: A,
    threads: Threads,
}

impl<A, M> Service<ThreadRequest<M>> for ThreadService<A>
where
    A: AgentService,
    M: ClientMessage + Send + Sync + 'static,
    M::Error: Send,
{
    type Response = ThreadRun;
    type Error = M::Error;
    type Future = BoxFuture<'static, Result<ThreadRun, M::Error>>;

    /// Always ready: the run waits for its agent inside.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), M::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ThreadRequest<M>) -> Self::Future {
        let Self { agent, threads } = self.clone();
        let ThreadRequest { key, input } = request;
        Box::pin(async move {
            let begun = threads.begin(key, input).await?;
            Ok(ThreadRun::new(agent, begun))
        })
    }
}

impl<A> fmt::Debug for ThreadService<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadService").finish_non_exhaustive()
    }
}
