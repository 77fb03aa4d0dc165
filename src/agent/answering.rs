//! The final answer, in the format that the caller asked for.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Metadata};
use crate::model::{Settings, ToolChoice};
use crate::run::{AgentRequest, AnswerFormat};
use crate::tool::{ToolDeclaration, ToolSet};

/// The answer format of a run, and the number of repairs so far.
pub(super) struct Answering {
    format: AnswerFormat,
    repairs: u32,
    /// Of the last response of the model.
    metadata: Metadata,
}

impl Answering {
    pub(super) fn of(request: &AgentRequest) -> Option<Self> {
        let format = request.answer_format()?.clone();
        Some(Self {
            format,
            repairs: 0,
            metadata: Metadata::default(),
        })
    }

    /// Returns the settings for the model.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        if self.format.is_tool() {
            // A choice of the caller's stays.
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
        Ok(Arc::new(
            declarations.iter().cloned().chain([answer]).collect(),
        ))
    }

    /// Returns whether a tool gives the final answer.
    pub(super) fn is_by_tool(&self) -> bool {
        self.format.is_tool()
    }

    /// Notes what the model's provider says of its response.
    pub(super) fn note(&mut self, metadata: &Metadata) {
        self.metadata = metadata.clone();
    }

    /// Returns the message that asks for a repair and the error that it answers, if the answer does
    /// not match.
    pub(super) fn judge(&mut self, answer: &Message) -> Result<Option<(Message, Error)>> {
        let Err(invalid) = self.format.check(answer) else {
            return Ok(None);
        };
        let again = self.format.ask_again(&invalid);
        let error = self.format.error(invalid, self.metadata.described_schema());
        if self.repairs == self.format.repairs() {
            return Err(error);
        }
        self.repairs += 1;
        Ok(Some((again, error)))
    }
}
