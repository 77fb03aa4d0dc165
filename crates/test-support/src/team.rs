//! Agents for teams, and their results.

use std::borrow::Cow;
use std::time::Duration;

use tower_agent::callback::Outcome;
use tower_agent::{Action, Agent, AgentResponse, Callback, Message, Part, Request, Result};
use tower_agent_test::{ScriptedModel, Turn};

use super::trace::Trace;

/// An agent and nothing around it.
pub fn agent(name: &str, model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone()).name(name).build().unwrap()
}

/// Creates a turn with a delay.
pub fn slow(text: &str, seconds: u64) -> Turn {
    Turn::from_text(text).latency(Duration::from_secs(seconds))
}

/// Creates a model that sends this text once.
pub fn saying(text: &str, seconds: u64) -> ScriptedModel {
    ScriptedModel::new([slow(text, seconds)])
}

/// Returns the texts of the messages, including tool results.
pub fn texts(response: &AgentResponse) -> Vec<String> {
    response.new_messages().map(text).collect()
}

fn text(message: &Message) -> String {
    let mut text = String::new();
    for part in message.parts() {
        match part {
            Part::ToolResult(result) => text.push_str(&result.text()),
            part => text.push_str(part.as_text().unwrap_or_default()),
        }
    }
    text
}

/// Writes `name>` before, `<name` after, `name=how` at the end.
pub struct Named(String, Trace);

impl Trace {
    pub fn named(&self, name: &str) -> Named {
        Named(name.to_owned(), self.clone())
    }
}

impl<R: Request> Callback<R> for Named {
    async fn before(&self, _: &mut R) -> Result<Action<R::Response>> {
        self.1.push(format!("{}>", self.0));
        Ok(Action::Continue)
    }

    async fn after(&self, _: &R, _: &R::Response) -> Result<Action<R::Response>> {
        self.1.push(format!("<{}", self.0));
        Ok(Action::Continue)
    }

    fn on_end(&self, _: &R, outcome: Outcome<'_, R::Response>) {
        let how = match outcome {
            Outcome::Done(_) => "done".to_owned(),
            Outcome::Failed(error) => error.kind().to_string(),
            _ => "dropped".to_owned(),
        };
        self.1.push(format!("{}={how}", self.0));
    }

    fn name(&self) -> Cow<'static, str> {
        self.0.clone().into()
    }
}
