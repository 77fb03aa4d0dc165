//! Holds a model's output back from the consumer until the verdict.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::{FutureExt, Shared};
use tokio::sync::oneshot;

use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::stream::{Delta, Mapper};

/// Opens a gate; if it is dropped instead, the gate stays shut.
pub(super) struct GateKey(oneshot::Sender<()>);

impl GateKey {
    pub(super) fn open(self) {
        // An error means that nothing waits at the gate.
        let _ = self.0.send(());
    }
}

/// Holds everything back until it is opened. Clones share one gate.
#[derive(Clone)]
pub(super) enum Gate {
    // Shared, since each attempt at the call has a mapper of its own.
    Waiting(Shared<oneshot::Receiver<()>>),
    Open,
    Shut,
}

impl Gate {
    pub(super) fn new() -> (GateKey, Self) {
        let (key, opened) = oneshot::channel();
        (GateKey(key), Self::Waiting(opened.shared()))
    }
}

impl Mapper for Gate {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Self::Waiting(opened) = self {
            let opened = ready!(Pin::new(opened).poll(cx));
            *self = if opened.is_ok() {
                Self::Open
            } else {
                Self::Shut
            };
        }
        Poll::Ready(match self {
            Self::Open => Ok(()),
            Self::Waiting(_) | Self::Shut => Err(Error::new(
                ErrorKind::Cancelled,
                "a guardrail did not allow this call",
            )),
        })
    }

    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        out.push(delta);
        Ok(())
    }
}
