//! Resources, prompts, roots and log messages of a server.
#![allow(deprecated)]

use std::sync::{Arc, Mutex};

use rmcp::model::*;
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt};
use serde_json::json;
use tower_agent::message::MediaSource;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Agent, AgentRequest, Effect, ErrorKind, Message, Part, Role as AgentRole};
use tower_agent_mcp::client::{Lifecycle, LogLevel, LogMessage, McpClient, McpClientBuilder};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::{LIFECYCLES, Server, ask, connected, said, scripted, tool};
use crate::tracing_log::TracingLog;

/// A server with something of everything.
#[derive(Clone, Default)]
pub(crate) struct Library {
    /// The level that the client has asked for.
    level: Arc<Mutex<Option<LoggingLevel>>>,
}

impl Library {
    pub(crate) fn client(&self) -> McpClientBuilder {
        let library = self.clone();
        McpClient::stream(move || {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let library = library.clone();
            tokio::spawn(async move {
                let running = library.serve(ours).await.unwrap();
                running.waiting().await
            });
            async { Ok(theirs) }
        })
        .name("library")
    }
}

impl ServerHandler for Library {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_logging()
            .enable_prompts()
            .enable_resources()
            .enable_tools();
        ServerConfig::new(capabilities.build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = ["log", "roots"].map(tool);
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if params.name == "log" {
            let level = context.meta.log_level().or(*self.level.lock().unwrap());
            for n in 0..3 {
                let message = LoggingMessageNotificationParam::new(
                    level.unwrap_or(LoggingLevel::Info),
                    json!({ "n": n }),
                );
                let message = message.with_logger("shelf");
                context.peer.notify_logging_message(message).await.unwrap();
            }
            return Ok(said("logged"));
        }
        if context
            .protocol_version()
            .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28)
        {
            let Some(mut answers) = params.input_responses else {
                let roots = InputRequest::ListRoots(ListRootsRequest::default());
                let requests = [("roots".to_owned(), roots)].into();
                return Ok(InputRequiredResult::new(Some(requests), None).into());
            };
            return Ok(said(&answers.remove("roots").unwrap().to_string()));
        }
        let roots = context.peer.list_roots().await;
        let roots = roots.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(said(&serde_json::to_string(&roots).unwrap()))
    }

    async fn list_resources(
        &self,
        page: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let is_first = page.and_then(|page| page.cursor).is_none();
        let name = if is_first { "poem" } else { "picture" };
        let mut resource = Resource::new(format!("shelf:///{name}"), name);
        resource.size = Some(4);
        let mut page = ListResourcesResult::with_all_items(vec![resource]);
        page.next_cursor = is_first.then(|| "2".to_owned());
        Ok(page)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("shelf:///{name}", "anything");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = params.uri;
        let contents = match &*uri {
            "shelf:///poem" => ResourceContents::text("Roses are red.", &uri),
            "shelf:///picture" => ResourceContents::blob("AAAA", &uri).with_mime_type("image/png"),
            _ => return Err(ErrorData::resource_not_found("no such thing", None)),
        };
        Ok(ReadResourceResult::new(vec![contents]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let argument = PromptArgument::new("style").with_required(true);
        let prompt = Prompt::new("praise", Some("Praises."), Some(vec![argument]));
        Ok(ListPromptsResult::with_all_items(vec![prompt]))
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = params.arguments.unwrap_or_default();
        let Some(style) = arguments.get("style").and_then(|style| style.as_str()) else {
            return Err(ErrorData::invalid_params("`style` is missing", None));
        };
        Ok(GetPromptResult::new(vec![
            PromptMessage::new_text(Role::User, format!("Praise in {style}.")),
            PromptMessage::new_text(Role::Assistant, "I will."),
        ])
        .into())
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.level.lock().unwrap() = Some(params.level);
        Ok(())
    }
}

async fn connect(lifecycle: Lifecycle) -> McpClient {
    connected(Library::default().client().lifecycle(lifecycle)).await
}

#[tokio::test]
async fn resources_are_listed_in_all_pages_and_read_as_parts() {
    for lifecycle in LIFECYCLES {
        let client = connect(lifecycle).await;
        let resources = client.resources().await.unwrap();
        let uris: Vec<_> = resources.iter().map(|resource| &*resource.uri).collect();
        assert_eq!(uris, ["shelf:///poem", "shelf:///picture"]);
        assert_eq!(resources[0].size, Some(4));
        let templates = client.resource_templates().await.unwrap();
        assert_eq!(templates[0].uri_template, "shelf:///{name}");
        let poem = client.read_resource("shelf:///poem").await.unwrap();
        assert_eq!(poem, [Part::from_text("Roses are red.")]);
        let picture = client.read_resource("shelf:///picture").await.unwrap();
        assert_eq!(
            picture,
            [Part::image(MediaSource::base64("image/png", "AAAA"))]
        );
        let missing = client.read_resource("shelf:///prose").await.unwrap_err();
        // Since 2026-07-28 the protocol has no code of its own for it.
        let kind = match lifecycle {
            Lifecycle::Initialize => ErrorKind::NotFound,
            _ => ErrorKind::InvalidArguments,
        };
        assert_eq!(missing.kind(), kind);
        assert!(missing.message().contains("no such thing"));
    }
}

#[tokio::test]
async fn a_model_lists_and_reads_resources_with_two_tools() {
    for lifecycle in LIFECYCLES {
        let builder = Library::default().client().lifecycle(lifecycle);
        let client = connected(builder.prefix("shelf_")).await;
        let tools = client.resource_tools();
        let names: Vec<_> = tools.iter().map(|tool| tool.declaration().name()).collect();
        assert_eq!(names, ["shelf_list_resources", "shelf_read_resource"]);
        let model = ScriptedModel::new([
            Turn::tool("shelf_list_resources", json!({})),
            Turn::tool("shelf_read_resource", json!({ "uri": "shelf:///poem" })),
            Turn::tool("shelf_read_resource", json!({ "uri": "shelf:///prose" })),
            Turn::from_text("Done."),
        ]);
        let agent = Agent::builder(model).tools(tools).build().unwrap();
        let response = agent.run("Read the poem.").await.unwrap();
        let results = response.messages().iter().flat_map(Message::tool_results);
        let results: Vec<_> = results.map(|result| result.text()).collect();
        assert!(results[0].contains("shelf:///picture"), "{results:?}");
        assert_eq!(results[1], "Roses are red.");
        assert!(results[2].contains("no such thing"), "{results:?}");
    }
}

#[tokio::test]
async fn a_tool_that_reads_is_approved_as_any_other_unless_the_caller_trusts_the_server() {
    for (trusted, effect, questions) in [(false, Effect::Mutating, 1), (true, Effect::Pure, 0)] {
        let mut builder = Library::default().client();
        if trusted {
            builder = builder.effect(ToolDeclaration::effect);
        }
        let client = connected(builder).await;
        let tools = client.resource_tools();
        assert!(
            tools
                .iter()
                .all(|tool| tool.declaration().effect() == effect)
        );
        let model = ScriptedModel::new([
            Turn::tool("read_resource", json!({ "uri": "shelf:///poem" })),
            Turn::from_text("Done."),
        ]);
        let agent = Agent::builder(model).tools(tools);
        let agent = agent.on_tool(Approval::of_effects()).build().unwrap();
        let response = agent.run("Read.").await.unwrap();
        assert_eq!(response.interrupts().len(), questions);
    }
}

#[tokio::test]
async fn prompts_are_listed_and_begin_a_run() {
    for lifecycle in LIFECYCLES {
        let client = connect(lifecycle).await;
        let prompts = client.prompts().await.unwrap();
        assert_eq!((prompts.len(), &*prompts[0].name), (1, "praise"));
        assert_eq!(prompts[0].arguments[0].name, "style");
        assert!(prompts[0].arguments[0].is_required);
        let messages = client.prompt("praise", [("style", "verse")]).await.unwrap();
        let texts: Vec<_> = messages
            .iter()
            .map(|message| (message.role(), message.text()))
            .collect();
        assert_eq!(
            texts,
            [
                (AgentRole::User, "Praise in verse.".to_owned()),
                (AgentRole::Assistant, "I will.".to_owned())
            ]
        );
        let model = ScriptedModel::new([Turn::from_text("Roses.")]);
        let agent = Agent::builder(model.clone()).build().unwrap();
        let request = AgentRequest::conversation(messages);
        assert_eq!(agent.run(request).await.unwrap().text(), "Roses.");
        assert_eq!(model.requests()[0].messages().len(), 2);
        let none: [(&str, &str); 0] = [];
        let failed = client.prompt("praise", none).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::InvalidArguments);
        assert!(failed.message().contains("`style` is missing"));
    }
}

#[tokio::test]
async fn a_server_without_resources_and_prompts_has_none() {
    for lifecycle in LIFECYCLES {
        let client = Server::echo().connect(lifecycle).await;
        assert_eq!(client.resources().await.unwrap(), []);
        assert_eq!(client.resource_templates().await.unwrap(), []);
        assert_eq!(client.prompts().await.unwrap(), []);
    }
}

#[tokio::test]
async fn roots_are_told_as_uris_and_a_client_without_has_none() {
    for lifecycle in LIFECYCLES {
        let builder = Library::default().client().lifecycle(lifecycle);
        let client = connected(builder.root("/tmp/a b/ü").root("/srv")).await;
        let answer = ask(&client, "roots", json!({})).await.unwrap();
        let answer: serde_json::Value =
            serde_json::from_str(answer.value().as_str().unwrap()).unwrap();
        let roots = json!([
            { "uri": "file:///tmp/a%20b/%C3%BC", "name": "ü" },
            { "uri": "file:///srv", "name": "srv" },
        ]);
        assert_eq!(answer["roots"], roots);

        let client = connect(lifecycle).await;
        let answer = ask(&client, "roots", json!({})).await.unwrap();
        assert_eq!(answer.value(), r#"{"roots":[]}"#);
    }
    let failed = Library::default().client().root("").connect().await;
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn log_messages_come_in_order_at_the_level_that_was_asked_for() {
    for lifecycle in LIFECYCLES {
        let messages: Arc<Mutex<Vec<LogMessage>>> = Arc::default();
        let log = messages.clone();
        let builder = Library::default()
            .client()
            .lifecycle(lifecycle)
            .log_level(LogLevel::Notice)
            .on_log(move |message| log.lock().unwrap().push(message));
        let client = connected(builder).await;
        ask(&client, "log", json!({})).await.unwrap();
        let messages = messages.lock().unwrap();
        let told: Vec<_> = messages.iter().map(|message| &message.data["n"]).collect();
        assert_eq!(told, [0, 1, 2]);
        let first = &messages[0];
        assert_eq!(first.level, LogLevel::Notice);
        assert_eq!(first.logger.as_deref(), Some("shelf"));
        assert_eq!(&*first.server, "library");
    }
}

#[tokio::test]
async fn a_function_for_log_messages_that_panics_costs_no_call() {
    let builder = Library::default().client();
    let client = connected(builder.on_log(|_| panic!("no paper"))).await;
    for _ in 0..2 {
        let answer = ask(&client, "log", json!({})).await.unwrap();
        assert_eq!(answer.value(), "logged");
    }
}

#[tokio::test]
async fn log_messages_go_to_tracing_by_default_and_cannot_forge_a_line() {
    let (log, _guard) = TracingLog::begin();
    let builder = scripted(|message| match message["method"].as_str() {
        Some("tools/call") => vec![
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {
                "level": "warning", "logger": "a\nb", "data": "line\nERROR forged",
            } }),
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {
                "level": "info", "data": "x".repeat(100_000),
            } }),
            json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "content": [] } }),
        ],
        _ => Vec::new(),
    });
    let client = connected(builder).await;
    ask(&client, "echo", json!({})).await.unwrap();
    let lines = log.lines().into_iter();
    let lines: Vec<_> = lines
        .filter(|line| line.target == "tower_agent_mcp::server_log")
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].level, tracing::Level::WARN);
    assert_eq!(lines[1].level, tracing::Level::INFO);
    assert!(lines[0].text.contains("forged"));
    assert!(lines.iter().all(|line| !line.text.contains('\n')));
    assert!(lines.iter().all(|line| line.text.len() < 5_000));
}
