//! The chat protocol of Cohere, plain and streamed, with tools.

use std::borrow::Cow;
use std::slice;

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::stream::{Delta, Piece, Streamed};
use tower_agent::{Message, ModelResponse, Part, Result, Role, Usage};
use tower_agent_providers::json::{self, Items, Object};
use tower_agent_providers::protocol::{
    Call, Decoder, Event, Fault, Progress, tool_name, unsupported,
};
use tower_agent_providers::{HttpModel, Protocol};

pub(crate) type Cohere<S> = HttpModel<Chat, S>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Chat;

impl Protocol for Chat {
    type Decoder = ChatDecoder;

    const PROVIDER: &'static str = "cohere";
    const BASE_URL: &'static str = "https://api.cohere.com/v2";
    const BASE_URL_VARIABLE: &'static str = "COHERE_BASE_URL";
    const USAGE: &'static [&'static str] = &["/usage", "/delta/usage"];
    const KEY_VARIABLE: &'static str = "COHERE_API_KEY";

    fn path<'a>(&self, _: &Call<'a>) -> Result<Cow<'a, str>> {
        Ok("/chat".into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        let request = call.request();
        let settings = request.settings();
        let mut object = Object::body(body, &settings.extra, &["messages", "tools"]);
        object.array("messages", |items| {
            if let Some(instructions) = request.instructions() {
                message(&Message::system(instructions), items)?;
            }
            // Writes each message once in a run.
            items.messages(request, "my_crate.cohere", |index, items| {
                message(&request.messages()[index], items)
            })
        })?;
        object.field("model", call.require_model()?)?;
        object.field("stream", call.is_streamed())?;
        object.optional("temperature", settings.temperature)?;
        object.optional("max_tokens", settings.max_tokens)?;
        object.optional("p", settings.top_p)?;
        object.optional("seed", settings.seed)?;
        object.field("stop_sequences", &settings.stop)?;
        let tools = request.tools().iter().map(|tool| {
            json!({ "type": "function", "function": { "name": tool.name(),
                "description": tool.description(), "parameters": tool.parameters() } })
        });
        object.optional(
            "tools",
            Some(Vec::from_iter(tools)).filter(|tools| !tools.is_empty()),
        )?;
        let refused = [
            (settings.tool_choice.is_some(), "tool choice"),
            (
                settings.parallel_tool_calls == Some(false),
                "setting as `parallel_tool_calls`",
            ),
            (!settings.server_tools.is_empty(), "server tool"),
            (settings.reasoning_effort.is_some(), "reasoning effort"),
            (settings.response_format.is_some(), "response format"),
        ];
        if let Some((_, setting)) = refused.into_iter().find(|(is_set, _)| *is_set) {
            return Err(unsupported(setting));
        }
        object.end()
    }

    fn decoder(&self, _: &Call<'_>) -> ChatDecoder {
        ChatDecoder::default()
    }
}

fn message(message: &Message, items: &mut Items<'_>) -> Result<()> {
    for result in message.tool_results() {
        items.item(json!({
            "role": "tool",
            "tool_call_id": result.call_id,
            "content": text(&result.parts)?,
        }))?;
    }
    let calls = message.tool_calls().map(|call| {
        json!({ "id": call.id, "type": "function", "function": {
            "name": tool_name(&call.name), "arguments": call.arguments.as_str() } })
    });
    let calls = Vec::from_iter(calls);
    let role = message.role();
    let text = text(message.parts())?;
    match role {
        Role::Tool => Ok(()),
        _ if calls.is_empty() => items.item(json!({ "role": role, "content": text })),
        _ => items.item(json!({ "role": role, "tool_plan": text, "tool_calls": calls })),
    }
}

/// Leaves out reasoning and the data of other providers.
fn text(parts: &[Part]) -> Result<String> {
    parts
        .iter()
        .try_fold(String::new(), |text, part| match part {
            Part::Text(more) => Ok(text + &more.text),
            Part::Image(_) | Part::Audio(_) | Part::Document(_) => Err(unsupported("part")),
            _ => Ok(text),
        })
}

#[derive(Default)]
pub(crate) struct ChatDecoder {
    usage: Usage,
    finish_reason: String,
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: Event<'_>, out: &mut Vec<Piece>) -> Result<Progress, Fault> {
        let event: Value = json::read(event.data.as_bytes(), "an event")?;
        if let Some(error) = event["delta"]["error"].as_str() {
            return Err(Fault::new(error.to_owned()));
        }
        self.read(
            event["index"].as_u64().unwrap_or_default() as usize,
            &event["delta"],
            out,
        )?;
        let is_last = event["type"] == "message-end";
        Ok(if is_last {
            Progress::Done
        } else {
            Progress::More
        })
    }

    fn response(&mut self, body: &[u8], out: &mut Vec<Piece>) -> Result<(), Fault> {
        let response: Value = json::read(body, "the response")?;
        if !response["message"].is_object() {
            return Err(Fault::read(&response).unwrap_or_else(Fault::incomplete));
        }
        self.read(0, &response, out)
    }

    fn finish(self, streamed: Streamed) -> ModelResponse {
        let response = ModelResponse::from(streamed).with_usage(self.usage);
        match &*self.finish_reason {
            "" | "COMPLETE" | "STOP_SEQUENCE" | "TOOL_CALL" => response,
            "MAX_TOKENS" => response.with_finish_reason(FinishReason::Length),
            _ => response.with_finish_reason(FinishReason::Other(self.finish_reason.into())),
        }
    }
}

impl ChatDecoder {
    /// Reads a response, or what an event adds to it: both have the same fields.
    fn read(&mut self, first: usize, said: &Value, out: &mut Vec<Piece>) -> Result<(), Fault> {
        let message = &said["message"];
        let content = several(&message["content"])
            .iter()
            .map(|content| &content["text"]);
        for text in content
            .chain([&message["tool_plan"]])
            .filter_map(Value::as_str)
        {
            out.push(Delta::Text(text.to_owned()).into());
        }
        for (index, call) in (first..).zip(several(&message["tool_calls"])) {
            if let Some(name) = call["function"]["name"].as_str() {
                let id = call["id"].as_str().unwrap_or_default().into();
                out.push(
                    Delta::ToolCall {
                        index,
                        id,
                        name: name.into(),
                    }
                    .into(),
                );
            }
            if let Some(json) = call["function"]["arguments"].as_str() {
                out.push(
                    Delta::Arguments {
                        index,
                        json: json.to_owned(),
                    }
                    .into(),
                );
            }
        }
        if let Some(reason) = said["finish_reason"].as_str() {
            let tokens = &said["usage"]["tokens"];
            // What is no count is not known: the answer beside it has been paid for.
            let count = |value: &Value| value.as_u64().unwrap_or_default();
            let input = count(&tokens["input_tokens"]);
            self.usage = Usage::new(input, count(&tokens["output_tokens"]));
            self.finish_reason = reason.to_owned();
        }
        Ok(())
    }
}

/// Returns the items of a list, as responses have it, or the only item, as events have it.
fn several(value: &Value) -> &[Value] {
    value
        .as_array()
        .map_or(slice::from_ref(value), Vec::as_slice)
}
