use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::lock;
use rmcp::model::{
    ClientRequest, ElicitRequestParams, ElicitResult, GetExtensions, GetMeta,
    ProgressNotificationParam, ProgressToken, RequestId,
};
use rmcp::service::InboundStreamOrigin;
use tokio::sync::{mpsc, oneshot};
use tower_agent::RunContext;

/// What the server says about a call under way.
#[derive(Debug)]
pub(super) enum CallEvent {
    Progress(ProgressNotificationParam),
    /// A question for the user, and where its answer goes.
    Question(Box<ElicitRequestParams>, oneshot::Sender<ElicitResult>),
}

/// A call under way; it travels with the request to the transport, where its id is known before
/// anything can answer.
#[derive(Clone, Debug)]
pub(super) struct UnderWay {
    pub(super) events: mpsc::Sender<CallEvent>,
    pub(super) context: RunContext,
}

/// The calls under way on one connection.
#[derive(Debug, Default)]
pub(super) struct Calls {
    by_id: Mutex<HashMap<RequestId, (Option<ProgressToken>, UnderWay)>>,
    /// Whether the server has other tools than when this was last asked for.
    tools_changed: AtomicBool,
    /// Whether a stream ended that could not be continued.
    has_lost_stream: AtomicBool,
}

impl Calls {
    /// Registers a call that is about to be sent.
    pub(super) fn sent(&self, id: &RequestId, request: &ClientRequest) {
        let ClientRequest::CallToolRequest(call) = request else {
            return;
        };
        let Some(under_way) = call.extensions().get::<UnderWay>() else {
            return;
        };
        let token = request.get_meta().get_progress_token();
        let mut by_id = self.lock();
        // It may have been dropped while it waited to be sent.
        if !under_way.events.is_closed() {
            by_id.insert(id.clone(), (token, under_way.clone()));
        }
    }

    /// Forgets a call. Its receiver of events must have been dropped before.
    pub(super) fn ended(&self, id: &RequestId) {
        self.lock().remove(id);
    }

    pub(super) fn progress(&self, progress: &ProgressNotificationParam) {
        let token = &progress.progress_token;
        let events = {
            let by_id = self.lock();
            let mut calls = by_id.values();
            let call = calls.find(|(of, _)| of.as_ref() == Some(token));
            call.map(|(_, call)| call.events.clone())
        };
        let Some(events) = events else { return };
        if events
            .try_send(CallEvent::Progress(progress.clone()))
            .is_err()
        {
            tracing::debug!("dropped progress: the call has not read the last");
        }
    }

    /// Returns the call that a request of the server belongs to, if that is known: the call on
    /// whose stream it came, or else the only one.
    pub(super) fn find(&self, origin: Option<&InboundStreamOrigin>) -> Option<UnderWay> {
        let by_id = self.lock();
        let call = match origin {
            Some(InboundStreamOrigin::OutboundRequest(id)) => by_id.get(id),
            _ if by_id.len() == 1 => by_id.values().next(),
            _ => None,
        };
        call.map(|(_, call)| call.clone())
    }

    /// Returns the run that a request of the server belongs to, if that is known: that of the call,
    /// or else the only one that calls belong to.
    pub(super) fn run(&self, origin: Option<&InboundStreamOrigin>) -> Option<RunContext> {
        if matches!(origin, Some(InboundStreamOrigin::OutboundRequest(_))) {
            return self.find(origin).map(|call| call.context);
        }
        let by_id = self.lock();
        let mut runs = by_id.values().map(|(_, call)| &call.context);
        let first = runs.next()?;
        runs.all(|other| other.run_id() == first.run_id())
            .then(|| first.clone())
    }

    pub(super) fn tools_changed(&self) {
        self.tools_changed.store(true, Ordering::SeqCst);
    }

    /// Returns whether the tools have changed since the last call of this.
    pub(super) fn take_tools_changed(&self) -> bool {
        self.tools_changed.swap(false, Ordering::SeqCst)
    }

    /// Notes that a stream is lost: what the server says on it no longer arrives.
    pub(super) fn stream_lost(&self) {
        self.has_lost_stream.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_lost_stream(&self) -> bool {
        self.has_lost_stream.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, (Option<ProgressToken>, UnderWay)>> {
        lock(&self.by_id)
    }
}

/// Removes a call when it has ended.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) calls: Arc<Calls>,
    pub(super) id: RequestId,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.calls.ended(&self.id);
    }
}
