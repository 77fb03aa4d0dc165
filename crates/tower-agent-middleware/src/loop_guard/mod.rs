//! Stops a model that makes the same tool call again and again.
//!
//! ```text
//! LoopGuard: Callback<ModelRequest>
//! ```
//!
//! It counts the tool calls since the last message of the user that have the same name, the same
//! arguments and the same result as one of the last turn. Arguments are compared by value: their
//! spacing and the order of their keys do not matter.
//!
//! | repetitions | effect |
//! |---|---|
//! | [3](LoopGuard::nudge_after) | the model reads that it repeats itself, in a message that is not kept |
//! | [5](LoopGuard::forbid_tools_after) | it is also told to answer without tools, and may call none |
//! | [8](LoopGuard::end_after) | the model call fails with the kind [`Denied`](tower_agent::ErrorKind::Denied) |
//!
//! Calls of tools that do not exist count as well, and so do calls whose arguments are invalid. A
//! call that is repeated to poll something is no loop as long as its result changes; name tools
//! that poll without a change in [`except`](LoopGuard::except).
//!
//! ```
//! use serde_json::json;
//! use tower_agent::{Agent, BoxError, Tool};
//! use tower_agent_middleware::loop_guard::LoopGuard;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = ScriptedModel::always(Turn::tool("find", json!("42")));
//! let agent = Agent::builder(model)
//!     .tool(Tool::function("find", "Finds an order.", |_: String| "no such order"))
//!     .max_iterations(100)
//!     .on_model(LoopGuard::new())
//!     .build()?;
//!
//! let error = agent.run("Where is my order?").await.unwrap_err();
//! assert_eq!(
//!     error.message(),
//!     "the model called `find` 8 times with the same arguments and got the same result"
//! );
//! # Ok(())
//! # }
//! ```
//!
//! # What it sees
//!
//! It keeps no state and reads the transcript: a run that is resumed goes on counting, and
//! concurrent runs do not mix. Messages that another callback has removed are not counted, so
//! register it outside of one that shortens the conversation. Registered on an agent, it guards
//! that agent; to guard its sub-agents and the agents used as tools as well, use
//! [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) with a
//! [`Bundle`](tower_agent::callback::Bundle).

mod repetition;

use std::collections::BTreeSet;
use std::sync::Arc;

use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::Message;
use tower_agent::model::{ModelRequest, ModelResponse, ToolChoice};

use self::repetition::Repetition;
use crate::flow::{Label, label_message};

/// Stops a model that makes the same tool call again and again.
///
/// See the [module](self).
#[derive(Clone, Debug)]
#[must_use = "a callback does nothing until it is registered"]
pub struct LoopGuard {
    nudge_after: usize,
    forbid_tools_after: usize,
    end_after: usize,
    except: BTreeSet<Arc<str>>,
}

impl LoopGuard {
    /// Creates a guard with the thresholds of the [module](self).
    pub fn new() -> Self {
        Self {
            nudge_after: 3,
            forbid_tools_after: 5,
            end_after: 8,
            except: BTreeSet::new(),
        }
    }

    /// Sets how often a call is made before the model is told that it repeats itself. Defaults
    /// to 3.
    pub fn nudge_after(mut self, calls: usize) -> Self {
        self.nudge_after = calls;
        self
    }

    /// Sets how often a call is made before the model may call no tools. Defaults to 5. They are
    /// allowed again after the next message of the user.
    pub fn forbid_tools_after(mut self, calls: usize) -> Self {
        self.forbid_tools_after = calls;
        self
    }

    /// Sets how often a call is made before the model call fails. Defaults to 8. A model that keeps
    /// to [`ToolChoice::None`] does not come so far; not every provider makes it.
    pub fn end_after(mut self, calls: usize) -> Self {
        self.end_after = calls;
        self
    }

    /// Excepts these tools, which may be called with the same arguments and the same result as
    /// often as the model likes, such as one that polls. Adds to earlier ones.
    pub fn except(mut self, tools: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.except.extend(tools.into_iter().map(Into::into));
        self
    }
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Callback<ModelRequest> for LoopGuard {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let Some(Repetition { tool, calls }) = repetition::find(request.messages(), &self.except)
        else {
            return Ok(Action::Continue);
        };
        if calls >= self.end_after {
            let message = format!(
                "the model called `{tool}` {calls} times with the same arguments and got the same \
                 result"
            );
            return Err(Error::new(ErrorKind::Denied, message));
        }
        let forbids_tools = calls >= self.forbid_tools_after;
        if forbids_tools || calls >= self.nudge_after {
            let advice = if forbids_tools {
                "Answer now, without tools, and say what you could not find out or do."
            } else {
                "Do something else, or answer with what you know."
            };
            // At the end, so that the start of the prompt stays in the provider's cache.
            let nudge = Message::user(format!(
                "You have called `{tool}` {calls} times with the same arguments and got the same \
                 result. {advice}"
            ));
            request
                .context()
                .because("the same call has had the same result again");
            label_message(request, &nudge, Label::trusted());
            request.messages_mut().push(nudge);
        }
        if forbids_tools {
            request.settings_mut().tool_choice = Some(ToolChoice::None);
        }
        Ok(Action::Continue)
    }

    fn is_guard(&self) -> bool {
        true
    }
}
