use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use rmcp::model::{
    ClientRequest, ElicitRequestParams, ElicitResult, GetExtensions, GetMeta,
    ProgressNotificationParam, ProgressToken, RequestId,
};
use rmcp::service::InboundStreamOrigin;
use tokio::sync::{mpsc, oneshot};
use tower_agent::RunContext;
use tracing::Span;

use crate::lock::lock;

/// A message of the server about an active call.
#[derive(Debug)]
pub(super) enum CallEvent {
    Progress(ProgressNotificationParam),
    /// A question for the user, and the channel for its answer.
    Question(Box<ElicitRequestParams>, oneshot::Sender<ElicitResult>),
}

/// A call that waits for its answer. It travels with the request to the transport, where its id is
/// known before anything can answer.
#[derive(Clone, Debug)]
pub(super) struct ActiveCall {
    pub(super) events: mpsc::Sender<CallEvent>,
    pub(super) context: RunContext,
    /// The span of the request, in which the transport sends it.
    pub(super) span: Span,
}

/// An active call, and the token by which the server reports its progress.
#[derive(Debug)]
struct Registered {
    token: Option<ProgressToken>,
    call: ActiveCall,
}

/// The active calls of one connection.
#[derive(Debug, Default)]
pub(super) struct Calls {
    by_id: Mutex<HashMap<RequestId, Registered>>,
    /// Set by a report of changed tools, until it is taken.
    tools_changed: AtomicBool,
    /// Set when a stream ended and could not be resumed, or the server refused the session.
    is_lost: AtomicBool,
}

impl Calls {
    /// Registers a call that is about to be sent.
    pub(super) fn register(&self, id: &RequestId, request: &ClientRequest) {
        let ClientRequest::CallToolRequest(call) = request else {
            return;
        };
        let Some(call) = call.extensions().get::<ActiveCall>() else {
            return;
        };
        let token = request.get_meta().get_progress_token();
        let mut by_id = self.lock();
        // The caller may have dropped the call while it waited to be sent: nothing would remove its
        // entry then.
        if !call.events.is_closed() {
            let call = call.clone();
            by_id.insert(id.clone(), Registered { token, call });
        }
    }

    /// Removes a call. Its receiver of events must have been dropped before.
    pub(super) fn remove(&self, id: &RequestId) {
        self.lock().remove(id);
    }

    /// Sends progress to the call with its token.
    pub(super) fn report_progress(&self, progress: &ProgressNotificationParam) {
        let token = &progress.progress_token;
        let events = self
            .lock()
            .values()
            .find(|registered| registered.token.as_ref() == Some(token))
            .map(|registered| registered.call.events.clone());
        let Some(events) = events else { return };
        // The transport must not wait for one slow reader: it carries the answers of all calls.
        if events
            .try_send(CallEvent::Progress(progress.clone()))
            .is_err()
        {
            tracing::debug!("dropped progress notification: the receiver is full");
        }
    }

    /// Returns the call that a request of the server belongs to, if that is known: the call on
    /// whose stream it came, or else the only one.
    pub(super) fn find(&self, origin: Option<&InboundStreamOrigin>) -> Option<ActiveCall> {
        let by_id = self.lock();
        let registered = match origin {
            Some(InboundStreamOrigin::OutboundRequest(id)) => by_id.get(id),
            _ if by_id.len() == 1 => by_id.values().next(),
            // A guess could show one user's question to another.
            _ => None,
        };
        registered.map(|registered| registered.call.clone())
    }

    /// Returns the run that a request of the server belongs to, if that is known: that of the call,
    /// or else the only one with active calls.
    pub(super) fn find_run(&self, origin: Option<&InboundStreamOrigin>) -> Option<RunContext> {
        if matches!(origin, Some(InboundStreamOrigin::OutboundRequest(_))) {
            return self.find(origin).map(|call| call.context);
        }
        let by_id = self.lock();
        let mut runs = by_id.values().map(|registered| &registered.call.context);
        let first = runs.next()?;
        // Several calls of one run are no ambiguity here: the run pays for the completion.
        runs.all(|other| other.run_id() == first.run_id())
            .then(|| first.clone())
    }

    /// Marks the list of tools as changed.
    pub(super) fn set_tools_changed(&self) {
        self.tools_changed.store(true, Ordering::SeqCst);
    }

    /// Returns `true` if the tools have changed since the last call of this.
    pub(super) fn take_tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::SeqCst)
    }

    /// Marks the connection as one that the next call replaces: the server does not know its
    /// session any more, or its messages no longer arrive.
    pub(super) fn set_lost(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Registered>> {
        lock(&self.by_id)
    }
}

/// Removes a call from the active ones on drop.
#[derive(Debug)]
pub(super) struct CallRegistration {
    pub(super) calls: Arc<Calls>,
    pub(super) id: RequestId,
}

impl Drop for CallRegistration {
    fn drop(&mut self) {
        self.calls.remove(&self.id);
    }
}
