//! The final answer, in the format that the caller asked for.

use std::sync::Arc;

use crate::callback::AtNoAnswer;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Metadata, NoAnswer};
use crate::model::{ResponseFormat, Settings, ToolChoice};
use crate::run::{AgentRequest, AnswerFormat, AnswerMode, EndReason, InvalidAnswer};
use crate::tool::{ToolDeclaration, ToolSet};

/// The answer format of a run.
pub(super) struct Answering {
    format: AnswerFormat,
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

    /// Returns why an answer does not match. One that was cut off may be JSON all the same: half of
    /// a number is one, and no arguments of the answer's tool are an empty object.
    pub(super) fn judge(&self, answer: &Message, why: Option<NoAnswer>) -> Option<Rejected> {
        let checked = match why {
            Some(why) => Err(InvalidAnswer::none(why, answer)),
            None => self.format.check(answer),
        };
        checked.err().map(|invalid| Rejected {
            again: self.format.ask_again(&invalid),
            error: self.format.error(invalid, &self.metadata),
            max: self.format.max_repairs,
        })
    }
}

/// A final answer that is none.
pub(super) struct Rejected {
    /// The message that asks for another.
    pub(super) again: Message,
    pub(super) error: Error,
    /// The most that a run may ask.
    pub(super) max: u32,
}

/// Returns the end of a run whose last response is no answer, or the answer as one that is
/// rejected.
pub(super) fn judge(
    context: &RunContext,
    answer: &Message,
    why: NoAnswer,
    at: AtNoAnswer,
    asked: u32,
) -> std::result::Result<EndReason, Rejected> {
    let max = match at {
        AtNoAnswer::AskAgain(max) => max,
        AtNoAnswer::Tell | AtNoAnswer::Fail => 0,
    };
    if asked >= max && at != AtNoAnswer::Fail {
        tracing::warn!(run_id = context.run_id(), agent = context.path(), %why, "the run ends without an answer");
        return Ok(EndReason::NoAnswer(why));
    }
    let message = format!("the model gave no answer: {why}");
    Err(Rejected {
        again: Message::user(format!("Your answer does not count: {why}. Answer again.")),
        error: Error::new(ErrorKind::InvalidAnswer, message)
            .with_source(InvalidAnswer::none(why, answer)),
        max,
    })
}

/// Returns the instructions of an agent with the schema of its answer.
fn with_schema(own: Option<&Arc<str>>, format: &AnswerFormat) -> Arc<str> {
    let schema = ResponseFormat::instructions(format.schema());
    match own {
        Some(own) => format!("{own}\n\n{schema}").into(),
        None => schema.into(),
    }
}
