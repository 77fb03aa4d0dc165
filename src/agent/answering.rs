//! The final answer, in the format that the caller asked for.

use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Metadata};
use crate::model::{ResponseFormat, Settings, ToolChoice};
use crate::run::{AgentRequest, AnswerFormat, AnswerMode};
use crate::tool::{ToolDeclaration, ToolSet};

/// The answer format of a run, and the number of repairs so far.
pub(super) struct Answering {
    format: AnswerFormat,
    repairs: u32,
    /// The agent's own instructions and the schema, if the model reads it there.
    instructions: Option<Arc<str>>,
    /// That of the last response of the model.
    pub(super) metadata: Metadata,
}

impl Answering {
    /// `own` are the agent's instructions.
    pub(super) fn of(request: &AgentRequest, own: Option<&Arc<str>>) -> Option<Self> {
        let format = request.answer_format()?.clone();
        let instructions = match format.mode {
            AnswerMode::Text => Some(with_schema(own, &format)),
            AnswerMode::Auto | AnswerMode::Tool => None,
        };
        Some(Self {
            format,
            repairs: 0,
            instructions,
            metadata: Metadata::default(),
        })
    }

    /// Returns the settings for the model.
    pub(super) fn settings(&self, settings: &Settings) -> Settings {
        let mut settings = settings.clone();
        match self.format.mode {
            AnswerMode::Tool => {
                // A choice of the caller's stays.
                settings.tool_choice.get_or_insert(ToolChoice::Required);
            }
            AnswerMode::Auto => settings.response_format = Some(self.format.response_format()),
            AnswerMode::Text => {}
        }
        settings
    }

    /// Returns the instructions for the model, if they are others than the agent's.
    pub(super) fn instructions(&self) -> Option<&Arc<str>> {
        self.instructions.as_ref()
    }

    /// Returns the tools for the model.
    pub(super) fn tools(&self, tools: &ToolSet) -> Result<Arc<Vec<Arc<ToolDeclaration>>>> {
        let declarations = tools.declarations();
        if !self.is_by_tool() {
            return Ok(declarations.clone());
        }
        if tools.find(AnswerFormat::TOOL).is_some() {
            let message = format!(
                "the agent has a tool named `{}`, like the tool that gives the final answer: \
                 rename the agent's tool, or use `AnswerMode::Auto`",
                AnswerFormat::TOOL
            );
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let answer = Arc::new(ResponseFormat::answer_tool(self.format.schema().clone()));
        Ok(Arc::new(
            declarations.iter().cloned().chain([answer]).collect(),
        ))
    }

    /// Returns whether a tool gives the final answer.
    pub(super) fn is_by_tool(&self) -> bool {
        self.format.mode == AnswerMode::Tool
    }

    /// Returns the message that asks for a repair and the error that it answers, if the answer does
    /// not match.
    pub(super) fn judge(&mut self, answer: &Message) -> Result<Option<(Message, Error)>> {
        let Err(invalid) = self.format.check(answer) else {
            return Ok(None);
        };
        let again = self.format.ask_again(&invalid);
        let error = self.format.error(invalid, &self.metadata);
        if self.repairs == self.format.max_repairs {
            return Err(error);
        }
        self.repairs += 1;
        Ok(Some((again, error)))
    }
}

/// Returns the instructions of an agent with the schema of its answer.
fn with_schema(own: Option<&Arc<str>>, format: &AnswerFormat) -> Arc<str> {
    let schema = ResponseFormat::instructions(format.schema());
    match own {
        Some(own) => format!("{own}\n\n{schema}").into(),
        None => schema.into(),
    }
}
