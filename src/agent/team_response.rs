use crate::context::RunContext;
use crate::error::{Error, Interrupt};
use crate::message::{Iter, Messages};
use crate::run::{AgentRequest, AgentResponse, EndReason};

/// What agents have said that work for another: its own response in the making.
pub(super) struct TeamResponse {
    messages: Messages,
    new_from: usize,
    iterations: u32,
    interrupts: Vec<Interrupt>,
}

impl TeamResponse {
    /// `messages`, with those from `new_from` on said in `iterations` model calls.
    pub(super) fn since(new_from: usize, messages: Messages, iterations: u32) -> Self {
        Self { messages, new_from, iterations, interrupts: Vec::new() }
    }

    /// The conversation so far.
    pub(super) fn messages(&self) -> &Messages {
        &self.messages
    }

    pub(super) fn add(&mut self, response: &AgentResponse) {
        self.tell(response.new_messages());
        self.count(response);
    }

    pub(super) fn tell(&mut self, messages: Iter<'_>) {
        self.messages.extend(messages.cloned());
    }

    pub(super) fn count(&mut self, response: &AgentResponse) {
        self.iterations += response.iterations();
        self.interrupts.extend(response.interrupts().iter().cloned());
    }

    /// Whether one of them was interrupted.
    pub(super) fn waits(&self) -> bool {
        !self.interrupts.is_empty()
    }

    /// The response of the agent they work for: interrupted if one of them was, else `end`.
    pub(super) fn response(self, context: &RunContext, end: EndReason) -> AgentResponse {
        let end = match self.interrupts {
            interrupts if interrupts.is_empty() => end,
            interrupts => {
                let interrupt = Error::interrupt_all(interrupts);
                context.latch::<AgentRequest>(&interrupt);
                EndReason::Interrupted(interrupt.interrupts().into())
            }
        };
        AgentResponse::new(self.messages)
            .since(self.new_from)
            .with_iterations(self.iterations)
            .in_run(context)
            .with_end_reason(end)
    }
}
