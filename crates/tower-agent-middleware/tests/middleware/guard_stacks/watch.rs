//! A callback that counts the calls of its hooks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tower_agent::callback::Outcome;
use tower_agent::{
    Action, AgentRequest, AgentResponse, Callback, ModelRequest, ModelResponse, Result,
    ToolRequest, ToolResponse,
};

/// Counts calls that began, and checks that each ends once. Each one made has its own count.
pub(crate) struct Watch(Arc<Counts>);

#[derive(Debug, Default)]
pub(crate) struct Counts {
    begun: AtomicUsize,
    ended: Mutex<HashMap<usize, usize>>,
    /// Calls whose `after` ran, but not `before`: an earlier callback had responded.
    only_after: AtomicUsize,
    only_ended: AtomicUsize,
}

impl Watch {
    pub(crate) fn new(all: &mut Vec<Arc<Counts>>) -> Self {
        let counts = Arc::<Counts>::default();
        all.push(counts.clone());
        Self(counts)
    }
}

impl Counts {
    /// How many calls began.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    /// Each call that began has ended, and once.
    pub(crate) fn is_balanced(&self) -> bool {
        let ended = self.ended.lock().unwrap();
        ended.len() == self.begun()
            && ended.values().all(|times| *times == 1)
            && self.only_after.load(Ordering::SeqCst) == self.only_ended.load(Ordering::SeqCst)
    }

    fn begin(&self) -> usize {
        self.begun.fetch_add(1, Ordering::SeqCst)
    }

    fn end(&self, call: Option<usize>) {
        match call {
            Some(call) => *self.ended.lock().unwrap().entry(call).or_default() += 1,
            None => drop(self.only_ended.fetch_add(1, Ordering::SeqCst)),
        }
    }
}

/// The call's number at each watch.
#[derive(Clone, Default)]
struct Numbers(HashMap<usize, usize>);

macro_rules! watch {
    ($request:ty, $response:ty) => {
        impl Callback<$request> for Watch {
            async fn before(&self, request: &mut $request) -> Result<Action<$response>> {
                let mut numbers = request
                    .extensions()
                    .get::<Numbers>()
                    .cloned()
                    .unwrap_or_default();
                numbers
                    .0
                    .insert(Arc::as_ptr(&self.0) as usize, self.0.begin());
                request.extensions_mut().insert(numbers);
                Ok(Action::Continue)
            }

            async fn after(&self, request: &$request, _: &$response) -> Result<Action<$response>> {
                if self.number(request.extensions().get()).is_none() {
                    self.0.only_after.fetch_add(1, Ordering::SeqCst);
                }
                Ok(Action::Continue)
            }

            fn on_end(&self, request: &$request, _: Outcome<'_, $response>) {
                self.0.end(self.number(request.extensions().get()));
            }
        }
    };
}

impl Watch {
    fn number(&self, numbers: Option<&Numbers>) -> Option<usize> {
        numbers?.0.get(&(Arc::as_ptr(&self.0) as usize)).copied()
    }
}

watch!(AgentRequest, AgentResponse);
watch!(ModelRequest, ModelResponse);
watch!(ToolRequest, ToolResponse);
