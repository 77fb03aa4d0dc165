use crate::context::RunContext;
use crate::conversation::{CallName, OrderedMessages, make_whole};
use crate::error::{Error, Interrupt};
use crate::message::{Message, Messages, NoAnswer, Role};
use crate::run::{AgentRequest, AgentResponse, EndReason};

/// Collects the messages of agents that work for another, and makes its response of them.
pub(super) struct TeamResponse {
    messages: OrderedMessages,
    new_from: usize,
    iterations: u32,
    /// The open interrupts of all members.
    interrupts: Vec<Interrupt>,
    /// The reason why one of the members has given no answer.
    no_answer: Option<NoAnswer>,
}

impl TeamResponse {
    /// Creates it from `messages`, of which those from `new_from` on were added in `iterations`
    /// model calls.
    pub(super) fn since(new_from: usize, messages: OrderedMessages, iterations: u32) -> Self {
        Self {
            messages,
            new_from,
            iterations,
            interrupts: Vec::new(),
            no_answer: None,
        }
    }

    /// Returns the conversation so far.
    pub(super) fn messages(&self) -> &OrderedMessages {
        &self.messages
    }

    /// Returns the conversation so far, for the next member.
    pub(super) fn hand_over(&mut self) -> Messages {
        self.messages.hand_over()
    }

    /// Adds a member's new messages, and counts its calls and interrupts. Its answer is that of the
    /// team.
    pub(super) fn add(&mut self, response: &AgentResponse) {
        self.no_answer = None;
        self.add_messages(response.new_messages());
        self.count(response);
    }

    pub(super) fn add_messages<'a>(&mut self, messages: impl Iterator<Item = &'a Message>) {
        // Parallel members finish in any order; the transcript does not depend on it.
        let before = self.messages.len();
        let mut no_answer = None;
        for message in messages {
            if message.role() == Role::Assistant {
                no_answer = message.no_answer();
            }
            self.messages.push(message.clone());
        }
        self.no_answer = self.no_answer.or(no_answer);
        self.messages.order_last(self.messages.len() - before);
    }

    /// Closes the open calls before the last turn, and returns the results that this adds.
    pub(super) fn close_calls(&mut self) -> Vec<(CallName, Message)> {
        let mut messages = std::mem::take(&mut self.messages).into_arrived();
        let closed = make_whole(&mut messages);
        self.messages = OrderedMessages::new(messages, self.new_from);
        closed
    }

    pub(super) fn count(&mut self, response: &AgentResponse) {
        self.iterations += response.iterations();
        self.interrupts
            .extend(response.interrupts().iter().cloned());
    }

    /// Returns whether one of the agents was interrupted.
    pub(super) fn waits(&self) -> bool {
        !self.interrupts.is_empty()
    }

    /// Returns the response of the agent that they work for: interrupted if one of them was,
    /// otherwise with `end`.
    pub(super) fn response(self, context: &RunContext, end: EndReason) -> AgentResponse {
        let end = if self.interrupts.is_empty() {
            match self.no_answer {
                Some(why) if end == EndReason::Completed => EndReason::NoAnswer(why),
                _ => end,
            }
        } else {
            // All of them at once, so that one resumed run can answer them.
            let interrupt = Error::interrupt_all(self.interrupts);
            // Latched, so that no callback of the team can undo the interrupts of its members.
            context.endings().latch::<AgentRequest>(&interrupt, false);
            EndReason::Interrupted(interrupt.interrupts().into())
        };
        AgentResponse::of_run(self.messages, self.new_from, context, self.iterations, end)
    }
}
