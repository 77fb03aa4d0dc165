//! Whole runs of an agent.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::model::BoxModel;
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, Tool};
use tower_agent_providers::openai::OpenAi;

use super::{events, finished, model, named};
use crate::server::{self, Reply, Server};

fn look() -> Tool {
    Tool::function("look", "Looks.", |arguments: Value| arguments.to_string())
}

fn looks(signature: &str) -> Value {
    let call = |at: u32| json!({ "functionCall": { "name": "look", "args": { "at": at } } });
    let mut first = call(1);
    first["thoughtSignature"] = signature.into();
    json!([{ "text": "Let me see.", "thoughtSignature": "text" }, first, call(2)])
}

fn replies(is_stream: bool, answers: &[Value]) -> Vec<Reply> {
    let reply = |answer: &Value| {
        if is_stream {
            events(std::slice::from_ref(answer))
        } else {
            server::json(200, answer)
        }
    };
    answers.iter().map(reply).collect()
}

async fn run(agent: &Agent, is_stream: bool) -> String {
    if is_stream {
        agent.stream("Look!").response().await.unwrap().text()
    } else {
        agent.run("Look!").await.unwrap().text()
    }
}

#[tokio::test]
async fn two_turns_of_parallel_calls() {
    for is_stream in [false, true] {
        let answers = [
            finished(looks("one"), "STOP"),
            finished(looks("two"), "STOP"),
            finished(json!([{ "text": "Seen." }]), "STOP"),
        ];
        let server = Server::start(replies(is_stream, &answers)).await;
        let agent = Agent::builder(model(&server)).tool(look()).build().unwrap();
        assert_eq!(run(&agent, is_stream).await, "Seen.");

        let seen = server.seen();
        let contents = &seen[2].body["contents"];
        let roles: Vec<_> = contents
            .as_array()
            .unwrap()
            .iter()
            .map(|message| &message["role"])
            .collect();
        assert_eq!(roles, ["user", "model", "user", "model", "user"]);
        let ids = |content: &Value, field: &str| -> Vec<Value> {
            let parts = content["parts"].as_array().unwrap().iter();
            parts
                .filter_map(|part| part[field].get("id").cloned())
                .collect()
        };
        for (turn, signature) in [(1, "one"), (3, "two")] {
            let (said, answered) = (&contents[turn], &contents[turn + 1]);
            assert_eq!(said["parts"][0]["thoughtSignature"], "text");
            assert_eq!(said["parts"][1]["thoughtSignature"], signature);
            assert_eq!(said["parts"][2].get("thoughtSignature"), None);
            let calls = ids(said, "functionCall");
            assert_eq!(calls.len(), 2);
            assert_eq!(calls, ids(answered, "functionResponse"));
            let output = &answered["parts"][1]["functionResponse"]["response"]["output"];
            assert_eq!(output, "{\"at\":2}");
        }
        assert_ne!(
            ids(&contents[1], "functionCall"),
            ids(&contents[3], "functionCall")
        );

        // Each body begins with what the previous one said.
        for pair in seen.windows(2) {
            let before = &pair[0].text[..pair[0].text.find("]}],").unwrap()];
            assert!(
                pair[1].text.starts_with(before),
                "{}\n{before}",
                pair[1].text
            );
        }
    }
}

/// A model of another protocol, which is not available any more after its first answer.
#[tokio::test]
async fn a_conversation_that_changes_the_provider_in_the_middle() {
    for (name, signature) in [
        (
            "gemini-3-pro-preview",
            json!("skip_thought_signature_validator"),
        ),
        ("gemini-2.5-pro", Value::Null),
    ] {
        let function = json!({ "name": "look", "arguments": "{\"at\": 1.0}" });
        let extra = json!({ "google": { "thought_signature": "not ours" } });
        let calls = json!([{
            "id": "call_abc", "type": "function", "function": function, "extra_content": extra,
        }]);
        let message =
            json!({ "content": null, "reasoning_content": "Secret.", "tool_calls": calls });
        let first = server::json(200, &json!({ "choices": [{ "message": message }] }));
        let chat = Server::start([first]).await;
        let answer = finished(json!([{ "text": "Seen." }]), "STOP");
        let gemini = Server::start(replies(false, &[answer])).await;

        let models = [
            BoxModel::new(chat.model()),
            BoxModel::new(named(&gemini, name)),
        ];
        let models = Arc::new(Mutex::new(models.into_iter()));
        let model = tower::service_fn(move |request: ModelRequest| {
            let next = models.lock().unwrap().next();
            async move {
                let none = || Error::new(ErrorKind::Other, "no model is left");
                test_support::call(next.ok_or_else(none)?, request).await
            }
        });
        let agent = Agent::builder(model).tool(look()).build().unwrap();
        assert_eq!(run(&agent, false).await, "Seen.");
        let seen = gemini.only();
        let mut call = json!({
            "functionCall": { "id": "call_abc", "name": "look", "args": { "at": 1.0 } },
        });
        if !signature.is_null() {
            call["thoughtSignature"] = signature;
        }
        let response = json!({ "output": "{\"at\":1.0}" });
        let response = json!({ "id": "call_abc", "name": "look", "response": response });
        let expected = json!([
            { "role": "user", "parts": [{ "text": "Look!" }] },
            { "role": "model", "parts": [call] },
            { "role": "user", "parts": [{ "functionResponse": response }] },
        ]);
        assert_eq!(seen.body["contents"], expected);
        assert!(seen.text.contains("{\"at\": 1.0}"), "the model's own text");
    }
}

/// The other way round: what Gemini signed does not go elsewhere.
#[tokio::test]
async fn signatures_are_not_sent_to_others() {
    let server = Server::start(replies(false, &[finished(looks("one"), "STOP")])).await;
    let response = test_support::call(model(&server), ModelRequest::default())
        .await
        .unwrap();
    let chat = Server::start([server::says("ok")]).await;
    let request = ModelRequest::new([response.message().clone()]);
    let other = OpenAi::builder()
        .base_url(&chat.base_url)
        .api_key("")
        .model("m")
        .build()
        .unwrap();
    test_support::call(other, request).await.unwrap();
    assert!(
        !chat.only().text.contains("ignature"),
        "{}",
        chat.only().text
    );
}
