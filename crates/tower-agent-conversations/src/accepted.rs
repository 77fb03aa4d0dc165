//! Tells who has made a request that it is accepted.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tower_agent::callback::{Bundle, before_agent};
use tower_agent::{AgentRequest, Request};

use crate::lock::lock;

/// Told once when a run has got its conversation and, if it has one, its journal has started it:
/// from then on no other request answers the same question, and this answer is kept. An
/// [extension](AgentRequest::with_extension) of the request, for an inbox of your own.
///
/// ```
/// use tower_agent::AgentRequest;
/// use tower_agent_conversations::Accepted;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (accepted, is_accepted) = Accepted::new();
/// let request = AgentRequest::new("Go on.").with_extension(accepted);
/// // A session layer or a journal does this.
/// Accepted::tell(&request);
/// assert!(is_accepted.await);
/// # }
/// ```
#[derive(Clone)]
pub struct Accepted(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl Accepted {
    /// Creates the extension, and a future that returns whether the request was accepted: not
    /// before the last clone of the extension is dropped, if it was not.
    pub fn new() -> (Self, impl Future<Output = bool> + Send + Unpin + 'static) {
        let (sender, accepted) = oneshot::channel();
        let accepted = futures_util::FutureExt::map(accepted, |told| told.is_ok());
        (Self(Arc::new(Mutex::new(Some(sender)))), accepted)
    }

    /// Tells whoever has made this request, if anybody waits for it.
    pub fn tell(request: &AgentRequest) {
        let Some(Self(sender)) = request.context().extensions().get::<Self>() else {
            return;
        };
        if let Some(sender) = lock(sender).take() {
            // Nobody may wait any more.
            let _ = sender.send(());
        }
    }
}

/// Tells whoever has made a request once the agent begins: a journal in it has started the run by
/// then, or has refused it.
pub(crate) fn tell_with_agent(request: AgentRequest) -> AgentRequest {
    if request.context().extensions().get::<Accepted>().is_none() {
        return request;
    }
    let tells = before_agent(|request: &mut AgentRequest| Accepted::tell(request));
    request.with_callbacks(Bundle::new().on_agent(tells.guard()))
}

impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").finish_non_exhaustive()
    }
}
