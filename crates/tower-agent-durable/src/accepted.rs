//! Tells who has made a request that it is accepted.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use tower_agent::AgentRequest;

use crate::lock::lock;

/// Told once when a run has got its session, or its journal has started it: from then on no other
/// request answers the same question. An extension of the request.
#[derive(Clone)]
pub(crate) struct Accepted(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl Accepted {
    #[cfg(feature = "threads")]
    pub(crate) fn new() -> (Self, oneshot::Receiver<()>) {
        let (sender, accepted) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(sender)))), accepted)
    }

    /// Tells whoever has made this request, if anybody waits for it.
    pub(crate) fn tell(request: &AgentRequest) {
        let Some(Self(sender)) = request.extensions().get::<Self>() else {
            return;
        };
        if let Some(sender) = lock(sender).take() {
            // Nobody may wait any more.
            let _ = sender.send(());
        }
    }
}
