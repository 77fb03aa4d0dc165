//! The events that show a stored thread.

use std::sync::Arc;

use crate::failure::FailureMessage;
use crate::order::OrderKeeper;
use crate::translate::{TranslateRequest, TranslateRun, failed, translate, translate_through};
use crate::wire::{Event, RunAgentInput, RunError};
use tower_agent::Request;
use tower_agent::agent::AgentRequest;
use tower_agent::callback::LayerInner;
use tower_agent::error::{Interrupt, Result};
use tower_agent::stream::{self, EventKind, Invocation};
use tower_agent_conversations::{InterruptIds, Roles};

/// A stored thread that is to be shown.
pub(super) struct Show {
    /// The messages as the input of a client that has them.
    pub(super) input: RunAgentInput,
    /// The request of a run with the thread's state and the application's data.
    pub(super) request: AgentRequest,
    pub(super) interrupts: Arc<[Interrupt]>,
    pub(super) interrupt_ids: InterruptIds,
    pub(super) roles: Roles,
    pub(super) stack: Option<LayerInner<TranslateRequest>>,
    pub(super) failure_message: FailureMessage,
}

impl Show {
    /// Returns the events of a run that pauses at once with what is open in the thread: the
    /// callbacks around the translation decide about them as about those of any run.
    pub(super) async fn events(self) -> Vec<Event> {
        let mut order = OrderKeeper::new(self.input.thread_id.clone(), self.input.run_id.clone());
        let context = self.request.context().clone();
        let run_id = context.run_id().into();
        let run = TranslateRun::new(
            Arc::new(self.input),
            context,
            self.interrupt_ids,
            self.roles,
            self.failure_message,
        );
        let run = Arc::new(run);
        let interrupts = self.interrupts;
        let kinds = [
            EventKind::RunStarted { run: run_id },
            EventKind::RunInterrupted { interrupts },
        ];
        let mut shown = Vec::new();
        for kind in kinds {
            let event = stream::Event::new(Arc::new(Invocation::default()), kind);
            let translated = translated(event, &run, self.stack.as_ref()).await;
            let events = translated.unwrap_or_else(|error| vec![failed(&error, &run).into()]);
            for event in events {
                if let Err(violation) = order.push(event, &mut shown) {
                    let mut failed = RunError::from(violation.clone());
                    failed.message = run.message_of(&violation.into());
                    order.fail(failed, &mut shown);
                }
            }
        }
        order.finish(&mut shown);
        shown
    }
}

async fn translated(
    event: stream::Event,
    run: &Arc<TranslateRun>,
    stack: Option<&LayerInner<TranslateRequest>>,
) -> Result<Vec<Event>> {
    let Some(stack) = stack else {
        let mut events = Vec::new();
        translate(event, run, &mut events);
        return Ok(events);
    };
    let request = TranslateRequest::new(event, run.clone());
    let response = translate_through(stack.clone(), request).await?;
    Ok(response.into_events())
}
