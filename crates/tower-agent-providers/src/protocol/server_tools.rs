use std::borrow::Cow;

use serde_json::{Map, Value};

use super::unsupported::unsupported;
use tower_agent::error::Result;
use tower_agent::model::{ServerToolKind, Settings};

/// Returns the extra fields of a request with its server tools among their `tools`, which are
/// merged with the agent's. `plain` returns a tool of a kind as the protocol has it, if it does.
pub(crate) fn with_server_tools<'a>(
    settings: &'a Settings,
    provider: &str,
    plain: impl Fn(ServerToolKind) -> Option<Value>,
) -> Result<Cow<'a, Map<String, Value>>> {
    let mut extra = Cow::Borrowed(&settings.extra);
    for tool in &settings.server_tools {
        let Some(value) = tool.for_provider(provider, plain(tool.kind)) else {
            let name = tool.kind.name();
            return Err(unsupported(&format!("server tool as `{name}`")));
        };
        let tools = extra.to_mut().entry("tools");
        match tools.or_insert_with(|| Value::Array(Vec::new())) {
            Value::Array(tools) => tools.push(value),
            _ => return Err(unsupported("extra field as `tools`: send a list")),
        }
    }
    Ok(extra)
}
