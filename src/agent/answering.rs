//! The final answer, in the format that the caller asked for.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Part};
use crate::model::{ModelRequest, Settings, ToolChoice};
use crate::run::{AgentRequest, AnswerFormat};
use crate::stream::{Delta, Mapper};
use crate::tool::{ToolDeclaration, ToolSet};

/// The answer format of a run, and the number of repairs so far.
pub(super) struct Answering {
    format: AnswerFormat,
    repairs: u32,
}

impl Answering {
    pub(super) fn of(request: &AgentRequest) -> Option<Self> {
        let format = request.answer_format()?.clone();
        Some(Self { format, repairs: 0 })
    }

    /// Returns the settings for the model.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        if self.format.is_tool() {
            settings.tool_choice.get_or_insert(ToolChoice::Required);
        } else {
            settings.response_format = Some(self.format.response_format());
        }
        settings
    }

    /// Returns the tools for the model.
    pub(super) fn tools(&self, tools: &ToolSet) -> Result<Arc<Vec<Arc<ToolDeclaration>>>> {
        let declarations = tools.declarations();
        if !self.format.is_tool() {
            return Ok(declarations.clone());
        }
        if tools.find(AnswerFormat::TOOL).is_some() {
            let message = format!(
                "the agent has a tool named `{}`, like the tool that gives the final answer: \
                 rename the agent's tool, or use `AnswerMode::Native`",
                AnswerFormat::TOOL
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let answer = Arc::new(self.format.declaration());
        Ok(Arc::new(declarations.iter().cloned().chain([answer]).collect()))
    }

    /// Shows the consumer a final answer as text.
    pub(super) fn map_deltas(&self, request: &mut ModelRequest) {
        if self.format.is_tool() {
            request.map_deltas(AnswerDeltas::default);
        }
    }

    /// Replaces the call that gives the final answer by its text.
    pub(super) fn take_call(&self, message: &mut Message) {
        if !self.format.is_tool() || !message.tool_calls().any(|call| is_answer(&call.name)) {
            return;
        }
        for part in message.parts_mut() {
            if let Part::ToolCall(call) = part
                && is_answer(&call.name)
            {
                *part = Part::from_text(call.arguments.as_str());
            }
        }
    }

    /// Returns the message that asks for a repair and the error that it answers, if the answer does
    /// not match.
    pub(super) fn judge(&mut self, answer: &Message) -> Result<Option<(Message, Error)>> {
        let Err(invalid) = self.format.check(answer) else { return Ok(None) };
        let again = self.format.ask_again(&invalid);
        let error = self.format.error(invalid);
        if self.repairs == self.format.repairs() {
            return Err(error);
        }
        self.repairs += 1;
        Ok(Some((again, error)))
    }
}

fn is_answer(name: &str) -> bool {
    name == AnswerFormat::TOOL
}

/// Turns the arguments of a final answer to text.
#[derive(Default)]
struct AnswerDeltas {
    /// The indices of the calls that give it.
    answers: HashSet<usize>,
}

impl Mapper for AnswerDeltas {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        match delta {
            Delta::ToolCall { index, name, .. } if is_answer(&name) => {
                self.answers.insert(index);
            }
            Delta::Arguments { index, json } if self.answers.contains(&index) => {
                out.push(Delta::Text(json));
            }
            other => out.push(other),
        }
        Ok(())
    }
}
