//! The tokens of a prompt, each part of which is counted once in a run.

use std::sync::{Arc, Mutex};

use tower_agent::call::Request;
use tower_agent::context::RunContext;
use tower_agent::error::Result;
use tower_agent::message::Message;
use tower_agent::model::ModelRequest;
use tower_agent::tool::ToolDeclaration;

use crate::lock::lock;

/// Counts the tokens of a message.
pub(super) type CountTokens = dyn Fn(&Message) -> u64 + Send + Sync;

/// The tokens of a prompt.
#[derive(Clone, Default)]
pub(super) struct PromptTokens {
    /// The tokens of what is never left out: instructions and tools.
    pub(super) fixed: u64,
    /// The tokens of each message.
    pub(super) messages: Vec<u64>,
}

impl PromptTokens {
    /// Counts the tokens of a prompt.
    pub(super) fn of(request: &ModelRequest, count: &CountTokens) -> Self {
        Self {
            fixed: fixed_tokens(request, count),
            messages: request.messages().iter().map(count).collect(),
        }
    }

    /// Returns the tokens of the whole prompt.
    pub(super) fn total(&self) -> u64 {
        self.fixed + self.messages.iter().sum::<u64>()
    }
}

/// The parts of the last prompt of an agent in this run, and their tokens. The next prompt usually
/// has the same and a few messages more, and a tokenizer takes long for a whole conversation.
#[derive(Default)]
pub(super) struct CountedPrompt {
    /// The function that has counted: another window counts otherwise.
    count: Option<Arc<CountTokens>>,
    messages: Vec<Message>,
    instructions: Option<String>,
    tools: Vec<Arc<ToolDeclaration>>,
    tokens: PromptTokens,
}

impl CountedPrompt {
    /// Returns the tokens of a prompt, of which this run may have counted a part.
    pub(super) fn tokens(request: &ModelRequest, count: &Arc<CountTokens>) -> Result<PromptTokens> {
        let counted = Self::in_run(request.context())?;
        // Taken out while the function counts: it is not ours, and may take its time. A call beside
        // this one counts everything.
        let mut prompt = std::mem::take(&mut *lock(&counted));
        prompt.read(request, count);
        let tokens = prompt.tokens.clone();
        *lock(&counted) = prompt;
        Ok(tokens)
    }

    fn in_run(context: &RunContext) -> Result<Arc<Mutex<Self>>> {
        let key = format!(
            "tower_agent_middleware.context_window.counted {}",
            context.path()
        );
        let values = context.values();
        if let Some(counted) = values.get::<Arc<Mutex<Self>>>(&key)? {
            return Ok(Arc::clone(&counted));
        }
        Ok(values.update(&key, |new: &mut Arc<Mutex<Self>>| new.clone())?)
    }

    /// Counts the parts of a prompt that are not among those of the last one.
    fn read(&mut self, request: &ModelRequest, count: &Arc<CountTokens>) {
        let messages = request.messages();
        let has_same_count = self
            .count
            .as_ref()
            .is_some_and(|own| Arc::ptr_eq(own, count));
        if !has_same_count {
            self.messages.clear();
        }
        self.messages.truncate(messages.len());
        self.tokens.messages.resize(messages.len(), 0);
        for (at, message) in messages.iter().enumerate() {
            match self.messages.get_mut(at) {
                Some(known) if known.is_clone_of(message) => continue,
                // Another callback has changed it, or it was taken back.
                Some(known) => *known = message.clone(),
                None => self.messages.push(message.clone()),
            }
            self.tokens.messages[at] = count(message);
        }
        let instructions = request.instructions();
        let tools = request.tools();
        let has_same_tools = self.tools.len() == tools.len()
            && self
                .tools
                .iter()
                .zip(tools)
                .all(|(one, other)| Arc::ptr_eq(one, other));
        if has_same_count && has_same_tools && self.instructions.as_deref() == instructions {
            return;
        }
        self.tokens.fixed = fixed_tokens(request, &**count);
        self.instructions = instructions.map(str::to_owned);
        self.tools = tools.to_vec();
        self.count = Some(count.clone());
    }
}

/// Counts the tokens of instructions and tools.
fn fixed_tokens(request: &ModelRequest, count: &CountTokens) -> u64 {
    let instructions = request.instructions();
    let instructions = instructions.map_or(0, |text| count(&Message::system(text)));
    let tools = request.tools().iter().map(|tool| {
        let parameters = tool.parameters();
        let text = format!("{}{}{parameters}", tool.name(), tool.description());
        count(&Message::system(text))
    });
    instructions + tools.sum::<u64>()
}
