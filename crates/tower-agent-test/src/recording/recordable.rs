use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tower_agent::call::Request;
use tower_agent::model::{ModelRequest, Settings};
use tower_agent::tool::ToolRequest;

/// A call that a [`Recording`](super::Recording) can keep in a file. Implement it for a call of
/// your own, beside [`Request`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be recorded",
    note = "model and tool calls can; implement `Recordable` for a call of your own"
)]
pub trait Recordable: Request<Response: Serialize + DeserializeOwned> {
    /// Returns the request as data: all that the response depends on, without what differs from run
    /// to run, such as the run's id.
    ///
    /// # Errors
    ///
    /// Fails if the request cannot be serialised.
    fn data(&self) -> serde_json::Result<Value>;
}

#[derive(Serialize)]
struct ModelData<'r> {
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'r str>,
    messages: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Value>,
    settings: &'r Settings,
}

impl Recordable for ModelRequest {
    fn data(&self) -> serde_json::Result<Value> {
        let tools = self.tools().iter().map(serde_json::to_value);
        let mut messages = Vec::with_capacity(self.messages().len());
        for message in self.messages() {
            let mut message = serde_json::to_value(message)?;
            // The model does not receive it, and another run of the same request has others.
            if let Some(message) = message.as_object_mut() {
                message.remove("id");
            }
            messages.push(message);
        }
        serde_json::to_value(ModelData {
            instructions: self.instructions(),
            messages,
            tools: tools.collect::<serde_json::Result<_>>()?,
            settings: self.settings(),
        })
    }
}

impl Recordable for ToolRequest {
    fn data(&self) -> serde_json::Result<Value> {
        Ok(json!({ "id": self.id(), "name": self.name(), "arguments": self.arguments() }))
    }
}
