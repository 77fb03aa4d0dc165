//! A model's answer, in no protocol's words.

use serde_json::Value;
use tower_agent::message::{Message, Part};

/// An answer of a model.
#[derive(Clone, Debug)]
pub struct Answer {
    pub bits: Vec<Bit>,
    pub end: End,
    /// Set if the server reports its tokens: 20 of input, of which 5 were cached, and 10 of output,
    /// of which 7 were reasoning.
    pub has_usage: bool,
}

/// A part of an answer, in the pieces in which it is streamed.
#[derive(Clone, Debug)]
pub enum Bit {
    Text(Vec<String>),
    Refusal(Vec<String>),
    /// Reasoning, and what the provider must get back with it.
    Reasoning {
        words: Vec<String>,
        data: String,
    },
    Call {
        id: String,
        name: String,
        arguments: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Stopped, or called tools.
    Natural,
    Length,
    ContentFilter,
}

impl Answer {
    pub fn new(bits: impl IntoIterator<Item = Bit>) -> Self {
        Self {
            bits: bits.into_iter().collect(),
            end: End::Natural,
            has_usage: true,
        }
    }

    pub fn has_calls(&self) -> bool {
        self.bits.iter().any(|bit| matches!(bit, Bit::Call { .. }))
    }

    /// Returns the contents that the message must have.
    pub fn said(&self) -> Vec<Said> {
        let said = self.bits.iter().map(|bit| match bit {
            Bit::Text(words) | Bit::Refusal(words) => Said::Text(words.concat()),
            Bit::Reasoning { words, .. } => Said::Reasoning(words.concat()),
            Bit::Call {
                id,
                name,
                arguments,
            } => {
                let arguments = match &*arguments.concat() {
                    "" => serde_json::json!({}),
                    text => serde_json::from_str(text).unwrap(),
                };
                Said::Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments,
                }
            }
        });
        said.collect()
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub fn text(words: &[&str]) -> Bit {
    Bit::Text(strings(words))
}

pub fn refusal(words: &[&str]) -> Bit {
    Bit::Refusal(strings(words))
}

pub fn reasoning(words: &[&str], data: &str) -> Bit {
    Bit::Reasoning {
        words: strings(words),
        data: data.into(),
    }
}

pub fn call(id: &str, name: &str, arguments: &[&str]) -> Bit {
    Bit::Call {
        id: id.into(),
        name: name.into(),
        arguments: strings(arguments),
    }
}

/// The contents of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Text(String),
    Reasoning(String),
    Call {
        id: String,
        name: String,
        arguments: Value,
    },
    Other,
}

impl Said {
    /// Without an id, for protocols that have none.
    pub fn without_id(self) -> Self {
        match self {
            Self::Call {
                name, arguments, ..
            } => Self::Call {
                id: String::new(),
                name,
                arguments,
            },
            other => other,
        }
    }
}

pub fn said(message: &Message) -> Vec<Said> {
    let parts = message.parts().iter().map(|part| match part {
        Part::Text(text) => Said::Text(text.text.clone()),
        Part::Reasoning(reasoning) => Said::Reasoning(reasoning.text.clone()),
        Part::ToolCall(call) => Said::Call {
            id: call.id.to_string(),
            name: call.name.to_string(),
            arguments: call.arguments.value().clone(),
        },
        _ => Said::Other,
    });
    parts.collect()
}
