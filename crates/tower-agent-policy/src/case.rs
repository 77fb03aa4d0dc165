use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tower_agent::message::Messages;
use tower_agent::{Part, Role, ToolResponse};

use crate::decide::{FlowFacts, Session};
use crate::principal::Principal;

/// A call that is described, for [`Rulebook::decide`](crate::Rulebook::decide).
///
/// ```
/// use serde_json::json;
/// use tower_agent_policy::{Case, Principal};
///
/// let ann = Principal::new("User", "ann");
/// let case = Case::new(ann, "refund", json!({ "cents": 500 })).calls(2);
/// # drop(case);
/// ```
#[derive(Clone, Debug)]
pub struct Case {
    pub(crate) principal: Principal,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    pub(crate) entities: Value,
    pub(crate) resource: Option<(String, String)>,
    pub(crate) session: Session,
    pub(crate) flow: Option<FlowFacts>,
    pub(crate) app: Option<Value>,
    pub(crate) output: Option<(String, bool, Value)>,
    place: String,
}

impl Case {
    /// Returns the calls in the messages of a conversation, each with the number of those of the
    /// tool before: those of a checkpoint, a session or a journal. Everything else is as in
    /// [`new`](Self::new); set what the rules need.
    ///
    /// The messages have the arguments that the model wrote: what a person or a callback has made
    /// of them is not known.
    #[must_use]
    pub fn of_messages(principal: &Principal, messages: &Messages) -> Vec<Self> {
        let mut before: HashMap<Arc<str>, u32> = HashMap::new();
        let mut cases = Vec::new();
        // As the paths of calls number them.
        let own = messages
            .iter()
            .filter(|message| message.role() == Role::Assistant);
        for (number, message) in own.enumerate() {
            for (index, call) in message.tool_calls().enumerate() {
                let arguments = call.arguments.value().clone();
                let count = before.entry(call.name.clone()).or_default();
                let case = Self::new(principal.clone(), &*call.name, arguments).calls(*count);
                *count += 1;
                cases.push(Self {
                    place: format!("m{}.{index}", number + 1),
                    ..case
                });
            }
        }
        cases
    }

    /// Returns the tool calls of a [recording](tower_agent_test::recording::Recording), as
    /// [`of_messages`](Self::of_messages) does with those of a conversation. The recording has to
    /// be around the tools.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn of_recording(
        principal: &Principal,
        recording: &tower_agent_test::recording::Recording,
    ) -> Vec<Self> {
        let mut before: HashMap<String, u32> = HashMap::new();
        let mut cases = Vec::new();
        for call in recording.calls() {
            let (Some(tool), true) = (&call.site.name, call.site.kind == "tool") else {
                continue;
            };
            let arguments = call.request.get("arguments").cloned();
            let arguments = arguments.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            let count = before.entry(tool.clone()).or_default();
            let case = Self::new(principal.clone(), tool, arguments).calls(*count);
            *count += 1;
            cases.push(Self {
                place: call.site.path.clone(),
                ..case
            });
        }
        cases
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the arguments.
    #[must_use]
    pub fn arguments(&self) -> &Value {
        &self.arguments
    }

    /// Returns the place of the call in the conversation or the recording that it is from; empty
    /// for a case that was made by hand.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Creates the first call of a tool in a run that begins at midnight of 1970-01-01, and is not
    /// streamed.
    #[must_use]
    pub fn new(principal: Principal, tool: impl Into<String>, arguments: impl Into<Value>) -> Self {
        Self {
            principal,
            tool: tool.into(),
            arguments: arguments.into(),
            entities: Value::Array(Vec::new()),
            resource: None,
            session: Session {
                time: UNIX_EPOCH,
                calls: 0,
                conversation_calls: 0,
                iteration: 0,
                run_id: String::new(),
                agent: "agent".to_owned(),
                is_streamed: false,
            },
            flow: None,
            app: None,
            output: None,
            place: String::new(),
        }
    }

    /// Sets the time of the call.
    #[must_use]
    pub fn at(mut self, time: SystemTime) -> Self {
        self.session.time = time;
        self
    }

    /// Sets how often the tool was called before, in the run and in the conversation.
    #[must_use]
    pub fn calls(mut self, before: u32) -> Self {
        self.session.calls = before.into();
        self.session.conversation_calls = before.into();
        self
    }

    /// Sets the path of the agent that makes the call. Defaults to `agent`.
    #[must_use]
    pub fn agent(mut self, path: impl Into<String>) -> Self {
        self.session.agent = path.into();
        self
    }

    /// Sets the entities, in Cedar's JSON, in place of those of a source.
    #[must_use]
    pub fn entities(mut self, entities: impl Into<Value>) -> Self {
        self.entities = entities.into();
        self
    }

    /// Sets the resource, by the type and the id of an entity.
    #[must_use]
    pub fn resource(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.resource = Some((kind.into(), id.into()));
        self
    }

    /// Says that the model had, or had not, read untrusted results, of these tools.
    #[must_use]
    pub fn flow(mut self, is_untrusted: bool, sources: impl IntoIterator<Item = String>) -> Self {
        self.flow = Some(FlowFacts {
            is_untrusted,
            arguments: Vec::new(),
            sources: sources.into_iter().collect(),
        });
        self
    }

    /// Sets what the application adds.
    #[must_use]
    pub fn attributes(mut self, app: impl Into<Value>) -> Self {
        self.app = Some(app.into());
        self
    }

    /// Makes it a question about the result of the call, and not about the call.
    #[must_use]
    pub fn result(mut self, response: &ToolResponse) -> Self {
        self.output = Some((
            text_of(response),
            response.is_error(),
            response.value().clone(),
        ));
        self
    }
}

/// Returns the text that a model reads of a response.
pub(crate) fn text_of(response: &ToolResponse) -> String {
    let mut text = String::new();
    for part in response.parts() {
        if let Part::Text(part) = part {
            text.push_str(&part.text);
        }
    }
    text
}
