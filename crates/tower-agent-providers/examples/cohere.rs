//! A protocol of one's own: that of Cohere, in one file of code without I/O.
//!
//! The agent works over any HTTP service. Here it is one in this process, with the responses that
//! the provider would send.

#[path = "cohere/protocol.rs"]
mod protocol;

use std::convert::Infallible;

use futures::StreamExt;
use http_body_util::{BodyExt, Full};
use schemars::JsonSchema;
use serde::Deserialize;
use tower::service_fn;
use tower_agent::stream::EventKind;
use tower_agent::{Agent, BoxError, Effect, Tool};
use tower_agent_providers::RequestBody;

use self::protocol::Cohere;

const CALLS: &str = r#"data: {"type":"message-start","id":"r1","delta":{"message":{"role":"assistant"}}}

data: {"type":"tool-plan-delta","delta":{"message":{"tool_plan":"I will look."}}}

data: {"type":"tool-call-start","index":0,"delta":{"message":{"tool_calls":{"id":"weather_1","type":"function","function":{"name":"weather","arguments":""}}}}}

data: {"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{\"city\":"}}}}}

data: {"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"\"Oslo\"}"}}}}}

data: {"type":"tool-call-end","index":0}

data: {"type":"message-end","delta":{"finish_reason":"TOOL_CALL","usage":{"tokens":{"input_tokens":40,"output_tokens":12}}}}

"#;

const ANSWERS: &str = r#"data: {"type":"message-start","id":"r2","delta":{"message":{"role":"assistant"}}}

data: {"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}

data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"It rains "}}}}

data: {"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"in Oslo."}}}}

data: {"type":"content-end","index":0}

data: {"type":"message-end","delta":{"finish_reason":"COMPLETE","usage":{"tokens":{"input_tokens":60,"output_tokens":8}}}}

"#;

#[derive(Deserialize, JsonSchema)]
struct Place {
    city: String,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let provider = service_fn(|request: http::Request<RequestBody>| async move {
        let Ok(body) = request.into_body().collect().await;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        println!("> {body}");
        let has_result = body.contains("tool_call_id");
        let events = if has_result { ANSWERS } else { CALLS };
        let response = http::Response::builder().header("content-type", "text/event-stream");
        let response = response
            .body(Full::<bytes::Bytes>::from(events))
            .unwrap_or_default();
        Ok::<_, Infallible>(response)
    });
    let model = Cohere::builder()
        .model("command-a-03-2025")
        .api_key("..")
        .build_with(provider)?;
    let weather = Tool::function(
        "weather",
        "The weather in a city.",
        |place: Place| async move { format!("rain in {}", place.city) },
    )
    .effect(Effect::Pure);
    let agent = Agent::builder(model).tool(weather).build()?;

    let mut run = agent.stream("Do I need an umbrella in Oslo?");
    while let Some(event) = run.next().await {
        if let EventKind::TextDelta { text, .. } = event.kind {
            println!("{text}");
        }
    }
    let response = run.response().await?;
    assert_eq!(response.text(), "It rains in Oslo.");
    assert_eq!(response.usage().total(), 120);
    Ok(())
}
