//! A server's requests for completions.
#![allow(deprecated)]

use std::sync::{Arc, Mutex};

use rmcp::model::*;
use serde_json::json;
use tower::Layer;
use tower_agent::callback::before_model;
use tower_agent::{Action, Callbacks, Error, ErrorKind, ModelResponse};
use tower_agent_mcp::client::Lifecycle;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::{LIFECYCLES, Server, agent_with_tools_of, ask, first_result, said};

fn wanted() -> CreateMessageRequestParams {
    CreateMessageRequestParams::new(vec![SamplingMessage::user_text("Capital of Norway?")], 100)
        .with_system_prompt("Be brief.")
        .with_temperature(0.5)
}

/// Asks a model, in the way of the lifecycle.
fn sampling() -> Server {
    Server::new(async |params, context| {
        if context.meta.protocol_version().is_some() {
            let Some(answers) = params.input_responses else {
                let request = InputRequest::CreateMessage(CreateMessageRequest::new(wanted()));
                let requests = [("m".to_owned(), request)].into();
                return Ok(InputRequiredResult::from_input_requests(requests).into());
            };
            return Ok(said(answers["m"]["content"]["text"].as_str().unwrap()));
        }
        Ok(said(&match context.peer.create_message(wanted()).await {
            Ok(result) => result.message.content.into_vec()[0]
                .as_text()
                .unwrap()
                .text
                .clone(),
            Err(error) => error.to_string(),
        }))
    })
}

#[tokio::test]
async fn the_callers_model_answers_with_its_guards_and_its_use_counts() {
    for lifecycle in LIFECYCLES {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let sees = seen.clone();
        let guard = before_model(move |request: &mut tower_agent::ModelRequest| {
            let settings = request.settings();
            sees.lock().unwrap().push(format!(
                "{:?} {} {:?} {:?}",
                request.instructions(),
                request.messages()[0].text(),
                settings.max_tokens,
                settings.temperature,
            ));
        });
        let mut usage = tower_agent::Usage::default();
        usage.output_tokens = 7;
        let oslo = ModelResponse::from_text("Oslo").with_usage(usage);
        let small = ScriptedModel::new([Turn::response(oslo)]);
        let client = sampling()
            .client()
            .lifecycle(lifecycle)
            .sampling(Callbacks::new().with(guard).layer(small))
            .connect()
            .await
            .unwrap();
        let model = ScriptedModel::new([Turn::tool("echo", json!({})), Turn::from_text("Done.")]);
        let agent = agent_with_tools_of(&client, model).await;
        let response = agent.run("Go.").await.unwrap();
        let result = first_result(&response);
        assert_eq!(result.text(), "Oslo");
        let expected = r#"Some("Be brief.") Capital of Norway? Some(100) Some(0.5)"#;
        assert_eq!(*seen.lock().unwrap(), [expected]);
        assert_eq!(response.usage().output_tokens, 7);
    }
}

#[tokio::test]
async fn without_a_model_a_server_is_refused() {
    let client = sampling().connect(Lifecycle::Discover).await;
    let error = ask(&client, "echo", json!({})).await.unwrap_err();
    assert!(
        error.message().contains("answers no sampling requests"),
        "{error}"
    );
    let client = sampling().connect(Lifecycle::Initialize).await;
    let response = ask(&client, "echo", json!({})).await.unwrap();
    assert!(
        response.value().as_str().unwrap().contains("sampling"),
        "{response:?}"
    );
}

#[tokio::test]
async fn an_abort_of_a_guard_ends_the_run_that_the_server_asked_in() {
    for lifecycle in LIFECYCLES {
        let guard = before_model(|_: &mut tower_agent::ModelRequest| {
            Err::<Action<ModelResponse>, _>(Error::abort("out of budget"))
        });
        let small = ScriptedModel::always(Turn::from_text("Oslo"));
        let builder = sampling().client().lifecycle(lifecycle);
        let client = builder
            .sampling(Callbacks::new().with(guard).layer(small))
            .connect()
            .await
            .unwrap();
        let model = ScriptedModel::new([Turn::tool("echo", json!({})), Turn::from_text("Done.")]);
        let agent = agent_with_tools_of(&client, model).await;
        let error = agent.run("Go.").await.unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Aborted, "out of budget")
        );
    }
}
