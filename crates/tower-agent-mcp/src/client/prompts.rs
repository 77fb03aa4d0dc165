use std::sync::Arc;

use rmcp::model::{ClientRequest, GetPromptRequest, GetPromptRequestParams, Role, ServerResult};
use tower_agent::{Error, ErrorKind, Message, Result};

use super::connection::Connection;
use super::content;
use super::mcp_client::McpClient;
use super::pages::Listed;
use super::request::request;
use crate::trace::Operation;

/// A prompt that a server offers, for a person to choose.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prompt {
    /// The name, by which it is [read](McpClient::prompt).
    pub name: String,
    /// The name for people.
    pub title: Option<String>,
    /// A description, in the words of the server.
    pub description: Option<String>,
    /// The arguments that it takes.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a [`Prompt`]: a text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PromptArgument {
    /// The name.
    pub name: String,
    /// The name for people.
    pub title: Option<String>,
    /// A description, in the words of the server.
    pub description: Option<String>,
    /// Set if the prompt cannot be read without it.
    pub is_required: bool,
}

impl McpClient {
    /// Returns the prompts that the server lists; none if it has no prompts.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or answers with an error.
    pub async fn prompts(&self) -> Result<Vec<Prompt>> {
        let listed: Vec<rmcp::model::Prompt> = self.list(Listed::Prompts).await?;
        let prompts = listed.into_iter().map(|prompt| Prompt {
            name: prompt.name,
            title: prompt.title,
            description: prompt.description,
            arguments: prompt
                .arguments
                .unwrap_or_default()
                .into_iter()
                .map(|argument| PromptArgument {
                    name: argument.name,
                    title: argument.title,
                    description: argument.description,
                    is_required: argument.required.unwrap_or_default(),
                })
                .collect(),
        });
        Ok(prompts.collect())
    }

    /// Reads a prompt, as the messages that a run begins with.
    ///
    /// The server has written them, also those in the name of the user: a prompt of a server that
    /// is not trusted is to be seen by the user before it is sent.
    ///
    /// ```
    /// use tower_agent::{Agent, AgentRequest, BoxError};
    /// use tower_agent_mcp::client::McpClient;
    ///
    /// # async fn review(agent: Agent, client: McpClient) -> Result<String, BoxError> {
    /// let messages = client.prompt("review", [("language", "Rust")]).await?;
    /// let response = agent.run(AgentRequest::conversation(messages)).await?;
    /// # Ok(response.text())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with [`InvalidArguments`](ErrorKind::InvalidArguments) if the server does not know the
    /// prompt or takes other arguments, and otherwise if it cannot be reached, or answers with
    /// another error.
    pub async fn prompt<N: Into<String>, V: Into<String>>(
        &self,
        name: &str,
        arguments: impl IntoIterator<Item = (N, V)> + Send,
    ) -> Result<Vec<Message>> {
        let arguments = arguments
            .into_iter()
            .map(|(name, value)| (name.into(), value.into().into()))
            .collect();
        let params = GetPromptRequestParams::new(name).with_arguments(arguments);
        let params = &params;
        let config = self.link().config();
        let get = |connection: Arc<Connection>| async move {
            let operation = Operation {
                prompt: Some(name),
                ..connection.operation("prompts/get")
            };
            let get = ClientRequest::GetPromptRequest(GetPromptRequest::new(params.clone()));
            request(&connection, config, operation, get).await
        };
        let result = match self.link().ask(get).await? {
            ServerResult::GetPromptResult(result) => result,
            _ => {
                let message = format!(
                    "MCP server `{}` answered with something else than a prompt",
                    config.server
                );
                return Err(Error::new(ErrorKind::Protocol, message));
            }
        };
        let messages = result.messages.into_iter().map(|message| {
            let role = match message.role {
                Role::Assistant => tower_agent::Role::Assistant,
                _ => tower_agent::Role::User,
            };
            Message::new(role, [content::part(message.content)])
        });
        Ok(messages.collect())
    }
}
