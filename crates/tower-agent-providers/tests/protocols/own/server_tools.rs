//! Tools that a provider runs itself.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::model::ServerTool;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{ErrorKind, Message, ModelRequest, Result, Settings};
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::openai::{Chat, Responses};
use tower_agent_providers::protocol::{Call, Protocol};

fn tools<P: Protocol + Default>(
    server_tools: impl IntoIterator<Item = ServerTool>,
    extra: Value,
    has_function: bool,
) -> Result<Value> {
    let mut settings = Settings::default();
    settings.server_tools = server_tools.into_iter().collect();
    settings.extra = extra.as_object().unwrap().clone();
    let mut request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    if has_function {
        let look = ToolDeclaration::new("look", "Looks.");
        request = request.with_tools(Arc::new(vec![Arc::new(look)]));
    }
    let mut body = Vec::new();
    P::default().encode(&Call::new(&request).with_model("m"), &mut body)?;
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    Ok(body["tools"].take())
}

fn all() -> [ServerTool; 3] {
    [
        ServerTool::web_search(),
        ServerTool::web_fetch(),
        ServerTool::code_execution(),
    ]
}

fn stands_beside<P: Protocol + Default>(tool: ServerTool, expected: &Value) {
    let beside = tools::<P>([tool.clone()], json!({}), true).unwrap();
    let beside = beside.as_array().unwrap();
    assert!(beside[0].to_string().contains("look"), "{beside:?}");
    assert_eq!(&beside[1..], std::slice::from_ref(expected));
    let alone = tools::<P>([tool], json!({}), false).unwrap();
    assert_eq!(alone, json!([expected]));
}

#[test]
fn a_server_tool_stands_beside_functions_and_alone() {
    for (tool, anthropic, gemini, interactions) in [
        (
            ServerTool::web_search(),
            json!({ "type": "web_search_20250305", "name": "web_search" }),
            json!({ "googleSearch": {} }),
            json!({ "type": "google_search" }),
        ),
        (
            ServerTool::web_fetch(),
            json!({ "type": "web_fetch_20250910", "name": "web_fetch" }),
            json!({ "urlContext": {} }),
            json!({ "type": "url_context" }),
        ),
        (
            ServerTool::code_execution(),
            json!({ "type": "code_execution_20250825", "name": "code_execution" }),
            json!({ "codeExecution": {} }),
            json!({ "type": "code_execution" }),
        ),
    ] {
        stands_beside::<Messages>(tool.clone(), &anthropic);
        stands_beside::<GenerateContent>(tool.clone(), &gemini);
        stands_beside::<Interactions>(tool, &interactions);
    }
    stands_beside::<Responses>(ServerTool::web_search(), &json!({ "type": "web_search" }));
    let code = json!({ "type": "code_interpreter", "container": { "type": "auto" } });
    stands_beside::<Responses>(ServerTool::code_execution(), &code);
}

#[test]
fn fields_of_a_provider_are_for_that_provider() {
    let search = ServerTool::web_search().with(
        "anthropic",
        json!({ "type": "web_search_20990101", "max_uses": 3 }),
    );
    let expected = json!({ "type": "web_search_20990101", "name": "web_search", "max_uses": 3 });
    stands_beside::<Messages>(search.clone(), &expected);
    stands_beside::<Responses>(search, &json!({ "type": "web_search" }));
}

#[test]
fn another_tool_of_a_server_is_sent_as_it_is_described() {
    let described = json!({ "type": "openrouter:datetime" });
    stands_beside::<Chat>(ServerTool::other("openai", described.clone()), &described);
}

#[test]
fn a_tool_that_a_server_does_not_have_is_an_error() {
    for tool in all() {
        let error = tools::<Chat>([tool], json!({}), true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
    let error = tools::<Responses>([ServerTool::web_fetch()], json!({}), true).unwrap_err();
    assert_eq!(
        error.message(),
        "the protocol has no such server tool as `web_fetch`"
    );
    let other = ServerTool::other("anthropic", json!({ "type": "memory" }));
    assert!(tools::<GenerateContent>([other], json!({}), true).is_err());
}

#[test]
fn tools_of_extra_fields_stand_beside_server_tools() {
    let extra = json!({ "tools": [{ "type": "mcp" }] });
    let tools = tools::<Responses>([ServerTool::web_search()], extra, true).unwrap();
    assert_eq!(tools[1], json!({ "type": "mcp" }));
    assert_eq!(tools[2], json!({ "type": "web_search" }));
}
