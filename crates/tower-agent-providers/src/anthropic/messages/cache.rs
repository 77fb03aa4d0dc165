use serde::Serialize;

use super::block;
use super::data::{breakpoint, invalid};
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::Part;
use tower_agent::model::{CacheRetention, ModelRequest, PromptCache};

/// The protocol's limit.
const MAX: usize = 4;

/// A breakpoint of the prompt cache.
#[derive(Serialize)]
pub(super) struct CacheControl {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    pub(super) fn of(cache: &PromptCache) -> Result<Self> {
        let ttl = match cache.retention {
            None => None,
            Some(CacheRetention::Short) => Some("5m"),
            Some(CacheRetention::Long) => Some("1h"),
            Some(_) => return Err(unsupported("cache retention")),
        };
        Ok(Self {
            r#type: "ephemeral",
            ttl,
        })
    }
}

/// Fails if there are more breakpoints than the protocol allows.
pub(super) fn check(request: &ModelRequest) -> Result<()> {
    let settings = request.settings();
    let is_automatic =
        settings.prompt_cache.is_some() || settings.extra.contains_key("cache_control");
    let tools = request
        .tools()
        .iter()
        .filter(|tool| breakpoint(tool.provider()).is_some());
    let mut count = tools.count() + usize::from(is_automatic);
    for message in request.messages() {
        let mut is_sent = false;
        for part in message.parts().iter().filter(|part| block::is_sent(part)) {
            is_sent = true;
            count += in_part(part);
        }
        // The breakpoint of a message goes to its last block, so one without blocks has none.
        count += usize::from(is_sent && breakpoint(message.provider()).is_some());
    }
    if count <= MAX {
        return Ok(());
    }
    let automatic = if is_automatic {
        ", that of `prompt_cache` included"
    } else {
        ""
    };
    let message = format!(
        "the prompt has {count} cache breakpoints{automatic}; the protocol allows {MAX}: remove \
         `cache_control` from the data of parts, messages or tools"
    );
    Err(invalid(message))
}

fn in_part(part: &Part) -> usize {
    let data = match part {
        Part::Text(text) => &text.provider,
        Part::Image(image) => &image.provider,
        Part::Document(document) => &document.provider,
        Part::ToolCall(call) => &call.provider,
        Part::Provider(data) => data,
        Part::ToolResult(result) => {
            return result
                .parts
                .iter()
                .filter(|part| block::is_sent(part))
                .map(in_part)
                .sum();
        }
        _ => return 0,
    };
    breakpoint(data).is_some().into()
}
