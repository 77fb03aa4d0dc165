use std::future::Future;
use std::sync::Arc;

use futures_util::future::OptionFuture;

use super::consumer_wait::ConsumerWait;
use super::emitter::{EventEmitter, results};
use super::event::{EventKind, Invocation};
use super::observed::{Observed, ObservedRun};
use super::observer::Observer;
use crate::conversation::CallName;
use crate::message::Message;

/// Everybody who is told what happens in an agent: the consumer of a stream, and observers.
#[derive(Clone, Default)]
pub(crate) struct Listeners {
    pub(crate) emitter: Option<EventEmitter>,
    pub(crate) observed: Option<Observed>,
}

impl Listeners {
    /// Returns the listeners of an agent called in this one, which has these observers. `tool_call`
    /// is that of the call in the stream.
    pub(crate) fn enter(
        &self,
        observers: &[Observer],
        run: impl FnOnce() -> Arc<ObservedRun>,
        path: &Arc<str>,
        tool_call: impl FnOnce() -> Option<Arc<str>>,
        goes_on: bool,
    ) -> Self {
        if !self.is_told() && observers.is_empty() {
            return Self::default();
        }
        let tool_call = tool_call();
        let emitter = self.emitter.as_ref();
        let emitter =
            emitter.map(|emitter| emitter.enter(path.clone(), tool_call.clone(), goes_on));
        let observed = Observed::enter(
            run,
            self.observed.as_ref(),
            observers,
            emitter.as_ref().map(EventEmitter::invocation),
            path.clone(),
            tool_call,
            goes_on,
        );
        Self { emitter, observed }
    }

    #[inline]
    pub(crate) fn is_told(&self) -> bool {
        self.emitter.is_some() || self.observed.is_some()
    }

    /// Returns the observers if one of them asks what wrappers do.
    #[inline]
    pub(crate) fn asked_about_wrappers(&self) -> Option<&Observed> {
        let observed = self.observed.as_ref();
        observed.filter(|observed| observed.asks_about_wrappers())
    }

    pub(crate) fn invocation(&self) -> Option<&Arc<Invocation>> {
        let streamed = self.emitter.as_ref().map(EventEmitter::invocation);
        // Where there are both, they name the agent alike.
        streamed.or_else(|| self.observed.as_ref().map(Observed::invocation))
    }

    pub(crate) fn consumer_wait(&self) -> ConsumerWait {
        let emitter = self.emitter.as_ref();
        emitter.map_or_else(ConsumerWait::default, EventEmitter::consumer_wait)
    }

    /// Tells all of them what has happened, and then waits for the consumer.
    //
    // Not an async fn, which would store the event, and have room for the wait twice.
    pub(crate) fn tell(&self, kind: EventKind) -> OptionFuture<impl Future<Output = ()>> {
        if let Some(observed) = &self.observed {
            observed.tell(kind.clone());
        }
        let emitter = self.emitter.as_ref();
        emitter.map(|emitter| emitter.emit(kind)).into()
    }

    /// Tells all of them of the results of tool calls, and then waits for the consumer.
    pub(crate) fn tell_results(
        &self,
        results: &[(CallName, Message)],
    ) -> OptionFuture<impl Future<Output = ()>> {
        let mut wait = None;
        for (call, message) in results {
            // All are told before anybody waits, so that the last wait is for all of them.
            wait = self.tell_answers(call, std::slice::from_ref(message));
        }
        wait.into()
    }

    /// Tells all of them of the messages that a tool call has brought. They are told also if the
    /// future that this returns is dropped; it waits for the consumer, if there is one.
    pub(crate) fn tell_answers<'a>(
        &'a self,
        call: &CallName,
        messages: &[Message],
    ) -> Option<impl Future<Output = ()> + use<'a>> {
        if let Some(observed) = &self.observed {
            let results = messages.iter().flat_map(|message| results(call, message));
            results.for_each(|result| observed.tell(result));
        }
        let emitter = self.emitter.as_ref()?;
        Some(emitter.emit_results(call, messages))
    }

    /// Tells all of them without waiting.
    pub(crate) fn note(&self, kind: EventKind) {
        drop(self.tell(kind));
    }
}
