//! server-everything, the reference server of the protocol's authors. It speaks `initialize` alone.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::process::Process;
use tower_agent::stream::EventKind;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Agent, AgentRequest, Effect, ErrorKind, Part, Resolution};
use tower_agent_mcp::PROGRESS;
use tower_agent_mcp::client::{Lifecycle, McpClient, McpClientBuilder};
use tower_agent_providers::HttpClient;
use tower_agent_test::{ScriptedModel, Turn};

use crate::installed::{installed, node};
use crate::support::{agent_with_tools_of, ask, connected, first_result, names};

const PROGRAM: &str = "@modelcontextprotocol/server-everything/dist/index.js";

/// A client over a child process, and one over HTTP with its server.
fn clients() -> Option<[(McpClientBuilder, Option<Process>); 2]> {
    let (over_http, server) = over_http()?;
    Some([(child()?, None), (over_http, Some(server))])
}

fn child() -> Option<McpClientBuilder> {
    let mut command = tokio::process::Command::new(node());
    command
        .arg(installed(PROGRAM)?)
        .stderr(std::process::Stdio::null());
    Some(McpClient::child_process(command).name("everything"))
}

fn over_http() -> Option<(McpClientBuilder, Process)> {
    let program = installed(PROGRAM)?;
    let server = Process::start("listening on port", |port| {
        let mut command = std::process::Command::new(node());
        command
            .arg(program)
            .arg("streamableHttp")
            .env("PORT", port.to_string());
        command
    });
    let url = format!("http://{}/mcp", server.address);
    Some((
        McpClient::http(url, HttpClient::new().unwrap()).name("everything"),
        server,
    ))
}

/// An agent whose model calls one tool.
async fn agent(client: &McpClient, tool: &str, arguments: Value) -> Agent {
    let model = ScriptedModel::new([Turn::tool(tool, arguments), Turn::from_text("Done.")]);
    agent_with_tools_of(client, model).await
}

/// Waits until a tool is there: the server adds some after it has read what the client can do, and
/// reports the change.
async fn wait_for(client: &McpClient, tool: &str) {
    while !names(client).await.iter().any(|name| name == tool) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn its_tools_are_listed_and_called_whether_or_not_the_lifecycle_is_known() {
    for lifecycle in [Lifecycle::Auto, Lifecycle::Initialize] {
        let Some(clients) = clients() else { return };
        for (builder, _server) in clients {
            let builder = builder.effect(ToolDeclaration::effect);
            let client = connected(builder.lifecycle(lifecycle)).await;
            let tools = client.tools().await;
            let effect = |name: &str| {
                let declarations = tools.iter().map(|tool| tool.declaration());
                declarations
                    .into_iter()
                    .find(|declaration| declaration.name() == name)
                    .map(|declaration| declaration.effect())
            };
            assert_eq!(effect("get-sum"), Some(Effect::Pure));
            assert_eq!(effect("toggle-simulated-logging"), Some(Effect::Mutating));

            let echo = ask(&client, "echo", json!({ "message": "hello" }))
                .await
                .unwrap();
            assert_eq!(echo.value(), "Echo: hello");
            let sum = ask(&client, "get-sum", json!({ "a": 2, "b": 3 }))
                .await
                .unwrap();
            assert_eq!(sum.value(), "The sum of 2 and 3 is 5.");
            let place = json!({ "location": "New York" });
            let weather = ask(&client, "get-structured-content", place).await.unwrap();
            assert_eq!(weather.value()["humidity"], 82);
            assert_eq!(weather.parts().len(), 1);
            let image = ask(&client, "get-tiny-image", json!({})).await.unwrap();
            assert!(
                image
                    .parts()
                    .iter()
                    .any(|part| matches!(part, Part::Image(_)))
            );
            let links = ask(&client, "get-resource-links", json!({ "count": 2 }))
                .await
                .unwrap();
            assert_eq!(links.parts().len(), 3);
            let invalid = ask(&client, "get-sum", json!({ "a": "two" }))
                .await
                .unwrap();
            assert!(invalid.is_error(), "{invalid:?}");
            client.close().await;
        }
    }
}

#[tokio::test]
async fn it_does_not_speak_the_newer_lifecycle_and_the_error_says_so() {
    let Some(clients) = clients() else { return };
    for (builder, _server) in clients {
        let error = builder
            .lifecycle(Lifecycle::Discover)
            .connect()
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn its_progress_is_emitted_on_the_run() {
    let Some(clients) = clients() else { return };
    for (builder, _server) in clients {
        let client = builder.connect().await.unwrap();
        let arguments = json!({ "duration": 0.1, "steps": 4 });
        let agent = agent(&client, "trigger-long-running-operation", arguments).await;
        let mut steps = Vec::new();
        let mut run = agent.stream("Go.");
        while let Some(event) = run.next().await {
            if let EventKind::Custom { name, value } = event.kind {
                assert_eq!(&*name, PROGRESS);
                steps.push((value["progress"].as_f64(), value["total"].as_f64()));
            }
        }
        let expected = [1.0, 2.0, 3.0, 4.0].map(|step| (Some(step), Some(4.0)));
        assert_eq!(steps, expected);
    }
}

#[tokio::test]
async fn its_question_interrupts_the_run_and_is_answered() {
    let Some(clients) = clients() else { return };
    for (builder, _server) in clients {
        let client = builder.connect().await.unwrap();
        wait_for(&client, "trigger-elicitation-request").await;
        let agent = agent(&client, "trigger-elicitation-request", json!({})).await;
        let paused = agent.run("Go.").await.unwrap();
        let [question] = paused.interrupts() else {
            panic!("{:?}", paused.messages())
        };
        assert_eq!(
            question.response_schema["properties"]["integer"]["maximum"],
            100
        );
        let answer = json!({ "name": "Ada", "integer": 7, "titledMultipleSelectEnum": ["fish-2"] });
        let answer = Resolution::resolved(&question.id, answer);
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
        let done = agent.run(request).await.unwrap();
        let text = first_result(&done).text();
        assert!(
            text.contains("- Name: Ada\n- Favorite Integer: 7"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn its_sampling_is_answered_by_the_callers_model() {
    let Some(clients) = clients() else { return };
    for (builder, _server) in clients {
        let sampled = ScriptedModel::new([Turn::from_text("Forty-two.")]);
        let client = builder.sampling(sampled.clone()).connect().await.unwrap();
        wait_for(&client, "trigger-sampling-request").await;
        let prompt = json!({ "prompt": "What is it?", "maxTokens": 9 });
        let answer = ask(&client, "trigger-sampling-request", prompt)
            .await
            .unwrap();
        assert!(
            answer.value().as_str().unwrap().contains("Forty-two."),
            "{answer:?}"
        );
        let [request] = &sampled.requests()[..] else {
            panic!()
        };
        assert_eq!(request.settings().max_tokens, Some(9));
        sampled.assert_done();
    }
}

#[tokio::test]
async fn it_answers_fifty_calls_at_once_each_with_its_own_answer() {
    let Some(clients) = clients() else { return };
    for (builder, _server) in clients {
        let client = builder.connect().await.unwrap();
        let calls = (0..50).map(|n| {
            let client = client.clone();
            async move {
                (
                    n,
                    ask(&client, "echo", json!({ "message": n.to_string() })).await,
                )
            }
        });
        for (n, answer) in futures::future::join_all(calls).await {
            assert_eq!(answer.unwrap().value(), &json!(format!("Echo: {n}")));
        }
    }
}

#[tokio::test]
async fn a_call_that_it_does_not_answer_in_time_fails_and_the_next_is_answered() {
    let Some(clients) = clients() else { return };
    for (builder, _server) in clients {
        let builder = builder.effect(ToolDeclaration::effect);
        let client = builder
            .call_timeout(Duration::from_millis(500))
            .connect()
            .await
            .unwrap();
        let arguments = json!({ "duration": 3600, "steps": 1 });
        let error = ask(&client, "trigger-long-running-operation", arguments)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        // It only reads, as it says.
        assert!(error.is_retryable());
        let echo = loop {
            match ask(&client, "echo", json!({ "message": "still here" })).await {
                Ok(echo) => break echo,
                // On a busy machine it may take longer as well.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout),
            }
        };
        assert_eq!(echo.value(), "Echo: still here");
    }
}

#[tokio::test]
async fn killed_in_the_middle_it_fails_its_calls_and_nothing_else() {
    let Some((mortal, server)) = over_http() else {
        return;
    };
    let Some(other) = child() else { return };
    let mortal = mortal.connect().await.unwrap();
    let other = other.connect().await.unwrap();
    let calls = (0..10).map(|_| {
        let arguments = json!({ "duration": 3600, "steps": 36000 });
        ask(&mortal, "trigger-long-running-operation", arguments)
    });
    let kill = async {
        // It has answered everything before.
        ask(&mortal, "echo", json!({ "message": "alive" }))
            .await
            .unwrap();
        drop(server);
    };
    let (errors, ()) = futures::join!(futures::future::join_all(calls), kill);
    for error in errors {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
        assert!(error.message().contains("`everything`"), "{error}");
    }
    let echo = ask(&other, "echo", json!({ "message": "not me" }))
        .await
        .unwrap();
    assert_eq!(echo.value(), "Echo: not me");
}

#[tokio::test]
async fn its_largest_answer_comes_through_a_pipe() {
    let Some(builder) = child() else { return };
    let client = builder.connect().await.unwrap();
    // It reads no more than 10 MiB at once.
    let large = json!({ "message": "x".repeat(9 << 20) });
    let answer = ask(&client, "echo", large).await.unwrap();
    assert_eq!(
        answer.value().as_str().unwrap().len(),
        (9 << 20) + "Echo: ".len()
    );
}
