//! Results that the model does not read.

use futures::StreamExt;
use serde_json::json;
use tower_agent::AgentRequest;
use tower_agent_test::{ScriptedModel, Turn};

use super::*;
use crate::guards::saved;

#[tokio::test]
async fn the_model_reads_a_name_and_passes_it_on() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "echo",
            json!({
                "whole": { "$ref": "@m1.0" },
                "part": [{ "$ref": "@m1.0#/1/body" }],
                "text": "He writes: {{@m1.0#/0/body}}, and {{@m1.0#/1/id}}.",
            }),
        ),
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        Turn::from_text("Done."),
    ]);
    let log = Log::default();
    let done = guarded(&model, &log, hiding()).run("?").await.unwrap();
    model.assert_done();

    let results = results_read(&model);
    let stub: Value = serde_json::from_str(&results[0]).unwrap();
    assert_eq!(
        stub,
        json!({
            "$ref": "@m1.0",
            "from": "read_mail",
            "is": "list of 2",
            "bytes": 143,
            "keys": ["body", "id"],
            "readable": { "/0/id": "mail-1", "/1/id": "mail-2" },
        })
    );
    // What was echoed is as untrusted as what it was given.
    let stub: Value = serde_json::from_str(&results[1]).unwrap();
    assert_eq!(stub["$ref"], "@m2.0");
    let mails = json!([
        { "id": "mail-1", "from": "bob@example.org", "body": SECRET },
        { "id": "mail-2", "from": "eve@example.org", "body": "Hello" },
    ]);
    let echoed = json!({
        "whole": mails,
        "part": ["Hello"],
        "text": format!("He writes: {SECRET}, and mail-2."),
    });
    assert_eq!(
        log.take(),
        [format!("echo {echoed}"), "pay bob 5".to_owned()]
    );
    assert!(!read(&model.requests()).contains("SECRET"));
    let transcript = serde_json::to_string(done.messages()).unwrap();
    assert!(!transcript.contains("SECRET"));
    assert!(
        transcript.contains("@m1.0#/0/body"),
        "the transcript keeps the reference"
    );
}

#[tokio::test]
async fn a_hidden_value_decides_nothing() {
    let cases = [
        (
            "pay",
            json!({ "to": reference("@m1.0#/0/body"), "amount": 5 }),
            "/to",
        ),
        (
            "pay",
            json!({ "to": "to {{@m1.0#/0/body}}", "amount": 5 }),
            "/to",
        ),
        (
            "send_mail",
            json!({ "to": [reference("@m1.0#/0/from")], "body": "x" }),
            "/to",
        ),
        (
            "send_mail",
            json!({ "to": "user", "bcc": { "a": [reference("@m1.0")] } }),
            "bcc",
        ),
    ];
    for (tool, arguments, argument) in cases {
        let model = ScriptedModel::new([
            Turn::tool("read_mail", json!({})),
            Turn::tool(tool, arguments),
            Turn::from_text("Done."),
        ]);
        let log = Log::default();
        guarded(&model, &log, hiding()).run("?").await.unwrap();
        assert_eq!(log.take(), [""; 0]);
        let refusal = &results_read(&model)[1];
        assert!(
            refusal.contains("it comes from untrusted content"),
            "{refusal}"
        );
        if argument == "bcc" {
            assert!(
                refusal.contains("an argument that the tool does not declare"),
                "{refusal}"
            );
        } else {
            assert!(
                refusal.contains(&format!("Argument `{argument}`")),
                "{refusal}"
            );
        }
        assert!(!refusal.contains("SECRET"));
    }
}

#[tokio::test]
async fn a_hidden_value_may_be_data_for_its_readers_and_a_trusted_part_may_decide() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "send_mail",
            json!({ "to": "user", "body": "Fwd: {{@m1.0#/0/body}}" }),
        ),
        Turn::tool(
            "send_mail",
            json!({ "to": "bob", "body": reference("@m1.0#/0/body") }),
        ),
        Turn::tool(
            "pay",
            json!({ "to": reference("@m1.0#/0/id"), "amount": 5 }),
        ),
        Turn::from_text("Done."),
    ]);
    let log = Log::default();
    guarded(&model, &log, hiding()).run("?").await.unwrap();
    assert_eq!(
        log.take(),
        [
            format!("send_mail {{\"body\":\"Fwd: {SECRET}\",\"to\":\"user\"}}"),
            "pay mail-1 5".to_owned(),
        ]
    );
    assert_eq!(
        results_read(&model)[2],
        "refused: `send_mail` may not be called like this. Argument `/body`: not everybody who would \
         receive it may read it."
    );
}

#[tokio::test]
async fn a_reference_without_a_value_is_refused_in_constant_words() {
    let guesses = ["@m9.0", "@m1.0#/7", "@m1.0#/0/nothing", "@", "@other/m1.0"];
    let mut refusals = std::collections::BTreeSet::new();
    for guess in guesses {
        let model = ScriptedModel::new([
            Turn::tool("read_mail", json!({})),
            Turn::tool("echo", json!({ "it": reference(guess) })),
            Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
            Turn::from_text("Done."),
        ]);
        let log = Log::default();
        guarded(&model, &log, hiding()).run("?").await.unwrap();
        // And the refusal does not taint.
        assert_eq!(log.take(), ["pay bob 5"], "{guess}");
        refusals.insert(results_read(&model)[1].clone());
    }
    assert_eq!(refusals.len(), 1);
}

#[tokio::test]
async fn a_result_of_the_same_turn_has_no_name_yet() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})).and_tool("echo", json!({ "it": reference("@m1.0") })),
        Turn::tool("echo", json!({ "it": reference("@m1.0#/1/body") })),
        Turn::from_text("Done."),
    ]);
    let log = Log::default();
    guarded(&model, &log, hiding()).run("?").await.unwrap();
    assert_eq!(log.take(), ["echo {\"it\":\"Hello\"}"]);
}

#[tokio::test]
async fn errors_quote_no_hidden_value() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        // The schema error of serde quotes what it has found.
        Turn::tool(
            "pay",
            json!({ "to": "bob", "amount": reference("@m1.0#/0/id") }),
        )
        .and_tool("typed", json!({ "amount": reference("@m1.0#/0/body") }))
        // And the tool's own error.
        .and_tool("fail", json!({ "it": reference("@m1.0#/0/body") })),
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        Turn::from_text("Done."),
    ]);
    let log = Log::default();
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Amount {
        #[allow(dead_code)]
        amount: f64,
    }
    let agent = assistant(&model, &log)
        .tool(Tool::function("typed", "", |_: Amount| "done"))
        .global_callbacks(hiding().tool("typed", ToolFlow::trusted()))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let results = results_read(&model);
    assert!(!read(&model.requests()).contains("SECRET"));
    assert!(
        results[2].contains("`/amount` is a reference to: text"),
        "{}",
        results[2]
    );
    assert!(results[3].contains("\"failed\":true"), "{}", results[3]);
    assert_eq!(log.take(), ["fail", "pay bob 5"], "nothing of it taints");
}

#[tokio::test]
async fn a_hidden_value_is_in_no_event_and_comes_back_in_another_process() {
    let model = ScriptedModel::new([Turn::tool("read_mail", json!({})), Turn::from_text("Done.")]);
    let log = Log::default();
    let mut run = guarded(&model, &log, hiding()).stream("?");
    let mut events = String::new();
    while let Some(event) = run.next().await {
        events.push_str(&format!("{event:?}\n"));
    }
    assert!(events.contains("@m1.0") && !events.contains("SECRET"));
    let response = run.response().await.unwrap();

    let model = ScriptedModel::new([
        Turn::tool("echo", json!({ "it": reference("@m1.0#/1/body") })),
        Turn::tool(
            "pay",
            json!({ "to": reference("@m1.0#/0/body"), "amount": 5 }),
        ),
        Turn::from_text("Done."),
    ]);
    let request = AgentRequest::resume(saved(&response)).with_message("And now?");
    guarded(&model, &log, hiding()).run(request).await.unwrap();
    assert_eq!(log.take(), ["echo {\"it\":\"Hello\"}"]);
}

#[tokio::test]
async fn without_room_a_result_cannot_be_used() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("echo", json!({ "it": reference("@m1.0") })),
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        Turn::from_text("Done."),
    ]);
    let log = Log::default();
    guarded(&model, &log, hiding().max_stored(200))
        .run("?")
        .await
        .unwrap();
    assert!(results_read(&model)[0].contains("too large to be kept"));
    assert_eq!(log.take(), ["pay bob 5"]);
    assert!(!read(&model.requests()).contains("SECRET"));
}

#[tokio::test]
async fn results_are_hidden_by_tool_or_by_size() {
    let cases = [
        (flow().hide(Hide::LargerThan(1000)), false),
        (flow().hide(Hide::LargerThan(100)), true),
        (flow().tool("read_mail", ToolFlow::source().hidden()), true),
        (
            hiding().tool("read_mail", ToolFlow::source().shown()),
            false,
        ),
        (flow(), false),
    ];
    for (flow, is_hidden) in cases {
        let model =
            ScriptedModel::new([Turn::tool("read_mail", json!({})), Turn::from_text("Done.")]);
        guarded(&model, &Log::default(), flow)
            .run("?")
            .await
            .unwrap();
        assert_eq!(!read(&model.requests()).contains("SECRET"), is_hidden);
    }
}

#[tokio::test]
async fn the_name_of_a_variable_in_a_hidden_text_is_text() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("page", json!({})),
        Turn::tool(
            "echo",
            json!({ "it": "see {{@m2.0}}", "that": reference("@m2.0") }),
        ),
        Turn::from_text("Done."),
    ]);
    let agent = assistant(&model, &log)
        .tool(Tool::function("page", "", |_: Value| "{{@m1.0}}").effect(Effect::Pure))
        .global_callbacks(hiding())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(
        log.take(),
        ["echo {\"it\":\"see {{@m1.0}}\",\"that\":\"{{@m1.0}}\"}"]
    );
}

#[tokio::test]
async fn the_schemas_that_the_model_reads_allow_references_while_results_may_be_hidden() {
    let log = Log::default();
    let hidden_by_tool = flow().tool("today", ToolFlow::source().hidden());
    for (flow, is_widened) in [(flow(), false), (hiding(), true), (hidden_by_tool, true)] {
        let model = ScriptedModel::new([
            Turn::tool("read_mail", json!({})),
            Turn::tool("today", json!({})),
            Turn::from_text("Done."),
        ]);
        let agent = assistant(&model, &log)
            .tools(flow.tools())
            .global_callbacks(flow)
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        let requests = model.requests();
        let read = |name| {
            let mut tools = requests[0].tools().iter();
            let tool = tools.find(|tool| tool.name() == name).unwrap();
            tool.parameters().clone()
        };
        let to = &read("pay")["properties"]["to"];
        let kinds = [&to["type"], &to["anyOf"][0]["type"]];
        let expected = [json!("string"), Value::Null];
        let widened = [Value::Null, json!("string")];
        let expected = if is_widened { widened } else { expected };
        assert_eq!(kinds, [&expected[0], &expected[1]], "{to}");
        assert_eq!(to["anyOf"][1]["required"] == json!(["$ref"]), is_widened);
        // The root stays an object, and the guard's own tools are as they were.
        assert_eq!(read("pay")["type"], "object");
        assert!(read("show_result")["properties"]["result"]["anyOf"].is_null());
        // The same declarations in each call: what a provider has cached stays valid.
        for request in &requests {
            let pairs = request.tools().iter().zip(requests[0].tools());
            assert!(
                pairs
                    .into_iter()
                    .all(|(one, other)| std::sync::Arc::ptr_eq(one, other))
            );
        }
    }
}

#[tokio::test]
async fn a_reference_that_is_written_with_escapes_is_a_reference() {
    // As JSON, each of these is `{"it": {"$ref": "@m1.0#/1/body"}}`, or the text with the name in
    // it.
    for arguments in [
        r#"{"it":{"$ref":"\u0040m1.0#/1/body"}}"#,
        r#"{"it":{"\u0024ref":"@m1.0#/1/body"}}"#,
        r#"{"it":"{{\u0040m1.0#/1/body}}"}"#,
        r#"{"it":"\u007b{@m1.0#\/1\/body}}"}"#,
    ] {
        let log = Log::default();
        let call = tower_agent::message::ToolCall::from_text("call", "echo", arguments);
        let pay = json!({ "to": reference("@m1.0#/1/body"), "amount": 5 });
        let pay = pay.to_string().replace('@', "\\u0040");
        let pay = tower_agent::message::ToolCall::from_text("pay", "pay", pay);
        let respond = |call| Turn::response(tower_agent::ModelResponse::from_tool_calls([call]));
        let model = ScriptedModel::new([
            Turn::tool("read_mail", json!({})),
            respond(call),
            respond(pay),
            Turn::from_text("Done."),
        ]);
        guarded(&model, &log, hiding()).run("?").await.unwrap();
        assert_eq!(log.take(), ["echo {\"it\":\"Hello\"}"], "{arguments}");
        assert!(!read(&model.requests()).contains("Hello"), "{arguments}");
    }
}

#[tokio::test]
async fn the_schema_of_a_final_answer_allows_no_reference() {
    use tower_agent::agent::{AnswerFormat, AnswerMode};

    let log = Log::default();
    let answer = json!({ "to": "bob", "amount": 5.0 });
    let model = ScriptedModel::new([Turn::tool("final_answer", answer)]);
    let format = AnswerFormat::of::<Payment>().mode(AnswerMode::Tool);
    let request = AgentRequest::new("?").with_answer_format(format);
    let agent = guarded(&model, &log, hiding());
    let answer = agent.run_typed::<Payment>(request).await.unwrap();
    assert_eq!(answer.into_value().unwrap().to, "bob");
    let requests = model.requests();
    let mut tools = requests[0].tools().iter();
    let final_answer = tools.find(|tool| tool.name() == "final_answer").unwrap();
    assert_eq!(
        final_answer.parameters()["properties"]["to"]["type"],
        "string"
    );
}
