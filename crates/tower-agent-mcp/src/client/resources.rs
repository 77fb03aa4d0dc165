use std::sync::Arc;

use futures_util::FutureExt;
use rmcp::model::{ClientRequest, ReadResourceRequest, ReadResourceRequestParams, ServerResult};
use serde::Serialize;
use serde_json::json;
use tower::service_fn;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Effect, Error, ErrorKind, Part, Result, Tool, ToolRequest, ToolResponse};

use super::connection::Connection;
use super::mcp_client::McpClient;
use super::pages::{Listed, read_all};
use super::request::request;
use super::{content, declaration};
use crate::trace::Operation;

/// Something that a server lets its clients read, such as a file or a row of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Resource {
    /// The address, by which it is [read](McpClient::read_resource).
    pub uri: String,
    /// The name.
    pub name: String,
    /// The name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A description, in the words of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type, such as `text/plain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The size, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

/// The addresses of a family of resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ResourceTemplate {
    /// A URI template (RFC 6570), such as `file:///logs/{date}`.
    pub uri_template: String,
    /// The name.
    pub name: String,
    /// The name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A description, in the words of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The media type of all of them, such as `text/plain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
}

impl McpClient {
    /// Returns the resources that the server lists; none if it has no resources.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or answers with an error.
    pub async fn resources(&self) -> Result<Vec<Resource>> {
        let listed: Vec<rmcp::model::Resource> = self.list(Listed::Resources).await?;
        let resources = listed.into_iter().map(|resource| Resource {
            uri: resource.uri,
            name: resource.name,
            title: resource.title,
            description: resource.description,
            media_type: resource.mime_type,
            size: resource.size,
        });
        Ok(resources.collect())
    }

    /// Returns the templates of resources that the server lists; none if it has no resources.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached, or answers with an error.
    pub async fn resource_templates(&self) -> Result<Vec<ResourceTemplate>> {
        let listed: Vec<rmcp::model::ResourceTemplate> =
            self.list(Listed::ResourceTemplates).await?;
        let templates = listed.into_iter().map(|template| ResourceTemplate {
            uri_template: template.uri_template,
            name: template.name,
            title: template.title,
            description: template.description,
            media_type: template.mime_type,
        });
        Ok(templates.collect())
    }

    /// Reads a resource, as the parts of a message: text, images, audio and documents.
    ///
    /// They are content that somebody else has written, as are the results of tools. As context for
    /// a model, put them into the message of the user:
    ///
    /// ```
    /// use tower_agent::{Agent, AgentRequest, BoxError, Message, Part, Role};
    /// use tower_agent_mcp::client::McpClient;
    ///
    /// # async fn ask(agent: Agent, client: McpClient) -> Result<String, BoxError> {
    /// let mut parts = vec![Part::from_text("Which of these errors is new?")];
    /// parts.extend(client.read_resource("file:///logs/today").await?);
    /// let question = Message::new(Role::User, parts);
    /// let response = agent.run(AgentRequest::conversation([question])).await?;
    /// # Ok(response.text())
    /// # }
    /// ```
    ///
    /// [`resource_tools`](Self::resource_tools) lets the model choose what it reads.
    ///
    /// # Errors
    ///
    /// Fails with [`NotFound`](ErrorKind::NotFound) or
    /// [`InvalidArguments`](ErrorKind::InvalidArguments) if the server does not know the resource,
    /// and otherwise if it cannot be reached, or answers with another error.
    pub async fn read_resource(&self, uri: &str) -> Result<Vec<Part>> {
        let config = self.link().config();
        let read = |connection: Arc<Connection>| async move {
            let operation = Operation {
                resource: Some(uri),
                ..connection.operation("resources/read")
            };
            let read = ReadResourceRequest::new(ReadResourceRequestParams::new(uri));
            let read = ClientRequest::ReadResourceRequest(read);
            request(&connection, config, operation, read).await
        };
        match self.link().ask(read).await? {
            ServerResult::ReadResourceResult(result) => {
                Ok(result.contents.into_iter().map(content::resource).collect())
            }
            _ => {
                let message = format!(
                    "MCP server `{}` answered with something else than a resource",
                    config.server
                );
                Err(Error::new(ErrorKind::Protocol, message))
            }
        }
    }

    /// Returns two tools for the model, `list_resources` and `read_resource`, named with the
    /// [prefix](super::McpClientBuilder::prefix).
    ///
    /// Their declared effect is [`Pure`](Effect::Pure), which the function for
    /// [effects](super::McpClientBuilder::effect) accepts or not: by default they are treated as
    /// any other tool of the server.
    #[must_use]
    pub fn resource_tools(&self) -> Vec<Tool> {
        let list = ToolDeclaration::new(
            "list_resources",
            "Lists the resources that can be read, and the templates of the addresses of others.",
        );
        let read = ToolDeclaration::new("read_resource", "Reads a resource.").with_parameters(json!({
            "type": "object",
            "properties": { "uri": {
                "type": "string",
                "description": "The address of the resource, as it was listed or made of a template.",
            } },
            "required": ["uri"],
        }));
        let client = self.clone();
        let listing = service_fn(move |_: ToolRequest| {
            let client = client.clone();
            async move {
                let resources = client.resources().await?;
                let templates = client.resource_templates().await?;
                let list = json!({ "resources": resources, "templates": templates });
                Ok::<_, Error>(ToolResponse::new(list))
            }
            .boxed()
        });
        let client = self.clone();
        let reading = service_fn(move |request: ToolRequest| {
            let client = client.clone();
            async move {
                let uri = request.arguments()["uri"].as_str().unwrap_or_default();
                let parts = client.read_resource(uri).await?;
                let texts: Vec<_> = parts.iter().filter_map(Part::as_text).collect();
                let text = texts.join("\n");
                Ok::<_, Error>(ToolResponse::new(text).with_parts(parts))
            }
            .boxed()
        });
        let list = self
            .own_declaration(list)
            .map(|declaration| Tool::service(declaration, listing));
        let read = self
            .own_declaration(read)
            .map(|declaration| Tool::service(declaration, reading));
        list.into_iter().chain(read).collect()
    }

    /// Returns the declaration of a tool of this client, for the model.
    fn own_declaration(&self, declared: ToolDeclaration) -> Option<ToolDeclaration> {
        let config = self.link().config();
        let declared = declared.with_effect(Effect::Pure);
        match declaration::name(&config.prefix, declared.name()) {
            Ok(name) => {
                let declaration = ToolDeclaration::new(name, declared.description())
                    .with_parameters(declared.parameters().clone());
                Some(declaration.with_effect((config.effect)(&declared)))
            }
            Err(reason) => {
                let server = &config.server;
                tracing::warn!(%server, tool = declared.name(), reason, "tool left out");
                None
            }
        }
    }

    /// Reads a list that the server has only if it declares the capability.
    pub(super) async fn list<T: serde::de::DeserializeOwned>(
        &self,
        listed: Listed,
    ) -> Result<Vec<T>> {
        let config = self.link().config();
        let read = |connection: Arc<Connection>| async move {
            let server = connection.peer().peer_info();
            let capabilities = server.as_ref().map(|server| &server.capabilities);
            let has_list = capabilities.is_some_and(|capabilities| match listed {
                Listed::Tools => capabilities.tools.is_some(),
                Listed::Resources | Listed::ResourceTemplates => capabilities.resources.is_some(),
                Listed::Prompts => capabilities.prompts.is_some(),
            });
            if !has_list {
                return Ok(Vec::new());
            }
            let (items, _) = read_all(listed, &connection, config).await?;
            Ok(items)
        };
        self.link().ask(read).await
    }
}
