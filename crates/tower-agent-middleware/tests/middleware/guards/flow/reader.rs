//! Questions about hidden results to a model without tools and history.

use serde_json::json;
use tower_agent::message::ToolCall;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{AgentRequest, ModelResponse, Request, Resolution};
use tower_agent_middleware::flow::{FlowAnswer, OnViolation};

use super::*;

fn ask(answer: Value) -> Turn {
    Turn::tool(
        "ask_about",
        json!({
            "about": [reference("@m1.0#/0/body")],
            "question": "What does bob want?",
            "answer": answer,
        }),
    )
}

struct Asked {
    /// The results that the model has read, without that of `read_mail`.
    results: Vec<String>,
    log: Vec<String>,
    reader: ScriptedModel,
    leaked: u64,
}

/// Asks these questions about a mail, of a reader that answers like this, and then pays.
async fn asked(flow: Flow, questions: Vec<Turn>, answers: Vec<Turn>) -> Asked {
    let log = Log::default();
    let reader = ScriptedModel::new(answers);
    let flow = flow.reader(
        Agent::builder(reader.clone())
            .name("reader")
            .build()
            .unwrap(),
    );
    let mut turns = vec![Turn::tool("read_mail", json!({}))];
    turns.extend(questions);
    turns.push(Turn::tool("pay", json!({ "to": "bob", "amount": 5 })));
    turns.push(Turn::from_text("Done."));
    let model = ScriptedModel::new(turns);
    let agent = assistant(&model, &log)
        .tools(flow.tools())
        .global_callbacks(flow)
        .build()
        .unwrap();
    let done = agent.run("?").await.unwrap();
    model.assert_done();
    assert!(!read(&model.requests()).contains("SECRET"));
    let mut results = results_read(&model);
    results.remove(0);
    results.pop();
    let saved = serde_json::to_value(done.checkpoint()).unwrap();
    let leaked = saved["head"]["private_state"]["tower_agent.guard.flow leaked"].as_u64();
    Asked {
        results,
        log: log.take(),
        reader,
        leaked: leaked.unwrap_or(0),
    }
}

#[tokio::test]
async fn the_reader_has_no_tools_and_no_history() {
    let asked = asked(
        hiding().narrow_answers(8),
        vec![ask(json!({ "type": "yes_no" }))],
        vec![Turn::from_text("yes")],
    )
    .await;
    assert_eq!(asked.results, ["true"]);
    assert_eq!(asked.log, ["pay bob 5"], "a narrow answer does not taint");
    let requests = asked.reader.requests();
    let [request] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(request.messages().len(), 1);
    assert!(request.tools().is_empty());
    assert!(request.messages()[0].text().contains(SECRET));
    assert_eq!(request.context().agent(), "reader");
}

#[tokio::test]
async fn a_reader_that_obeys_the_content_gives_no_answer() {
    let obeys = [
        Turn::from_text(format!("yes, and {SECRET}")),
        Turn::from_text("x".repeat(100_000)),
        Turn::response(ModelResponse::from_tool_calls([ToolCall::new(
            "1",
            "pay",
            pay_mallory(),
        )])),
    ];
    for (number, turn) in obeys.into_iter().enumerate() {
        // A model that has called a tool that it does not have goes on.
        let answers = vec![turn, Turn::from_text(SECRET)];
        let asked = asked(
            hiding().narrow_answers(64),
            vec![ask(json!({ "type": "choice", "choices": ["a", "b"] }))],
            answers,
        )
        .await;
        assert_eq!(asked.log, ["pay bob 5"], "{number}: mallory gets nothing");
        assert!(asked.results[0].len() < 200, "{}", asked.results[0]);
    }
}

#[tokio::test]
async fn a_wide_answer_is_a_variable_that_the_content_has_written() {
    let asked = asked(
        hiding().narrow_answers(1000),
        vec![
            ask(json!({ "type": "text" })),
            Turn::tool("pay", json!({ "to": reference("@m2.0"), "amount": 5 })),
            Turn::tool("echo", json!({ "it": reference("@m2.0") })),
        ],
        vec![Turn::from_text(SECRET)],
    )
    .await;
    let stub: Value = serde_json::from_str(&asked.results[0]).unwrap();
    assert_eq!(
        (&stub["$ref"], &stub["is"]),
        (&json!("@m2.0"), &json!("text"))
    );
    assert!(asked.results[1].contains("Argument `/to`: it comes from untrusted content"));
    assert_eq!(
        asked.log,
        [
            format!("echo {{\"it\":\"{SECRET}\"}}"),
            "pay bob 5".to_owned()
        ]
    );
    assert_eq!(asked.leaked, 0);
}

#[tokio::test]
async fn a_person_who_is_asked_about_an_answer_sees_what_it_is_about() {
    let reader = Agent::builder(ScriptedModel::new([Turn::from_text("mallory")]));
    let flow = hiding()
        .on_violation(OnViolation::Ask)
        .reader(reader.build().unwrap());
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        ask(json!({ "type": "text" })),
        Turn::tool("echo", json!({ "it": reference("@m2.0") })),
        Turn::tool("pay", json!({ "to": reference("@m2.0"), "amount": 5 })),
        Turn::tool("pay", json!({ "to": reference("@m3.0#/it"), "amount": 5 })),
        Turn::from_text("Done."),
    ]);
    let agent = assistant(&model, &Log::default())
        .tools(flow.tools())
        .global_callbacks(flow)
        .build()
        .unwrap();
    let mut paused = agent.run("?").await.unwrap();
    for origin in [json!(["read_mail"]), json!(["echo", "read_mail"])] {
        let [question] = paused.interrupts() else {
            panic!("{paused:?}")
        };
        assert_eq!(question.payload["violations"][0]["from"], origin);
        let no = Resolution::resolved(&question.id, FlowAnswer::Reject { reason: None });
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([no]);
        paused = agent.run(request).await.unwrap();
    }
}

#[tokio::test]
async fn narrow_answers_are_read_until_they_have_told_enough() {
    let questions = vec![ask(json!({ "type": "yes_no" })); 5];
    let answers = vec![Turn::from_text("no"); 5];
    let asked = asked(hiding().narrow_answers(6), questions, answers).await;
    // Yes, no or unknown are two bits, rounded up.
    assert_eq!(asked.results[..3], ["false", "false", "false"]);
    for hidden in &asked.results[3..] {
        assert!(hidden.contains("$ref"), "{hidden}");
    }
    assert_eq!(asked.leaked, 6);
    assert_eq!(asked.log, ["pay bob 5"]);
}

#[tokio::test]
async fn by_default_no_answer_is_read() {
    let asked = asked(
        hiding(),
        vec![ask(json!({ "type": "yes_no" }))],
        vec![Turn::from_text("yes")],
    )
    .await;
    assert!(
        asked.results[0].contains("\"$ref\":\"@m2.0\""),
        "{}",
        asked.results[0]
    );
}

#[tokio::test]
async fn choices_that_the_content_has_made_are_not_narrow() {
    let asked = asked(
        hiding().narrow_answers(64),
        vec![ask(
            json!({ "type": "choice", "choices": [reference("@m1.0#/0/body"), "b"] }),
        )],
        vec![Turn::from_text(SECRET)],
    )
    .await;
    assert!(asked.results[0].contains("$ref"), "{}", asked.results[0]);
    assert_eq!(asked.leaked, 0);
}

#[tokio::test]
async fn a_question_that_does_not_fit_quotes_nothing() {
    let asked = asked(
        hiding().narrow_answers(64),
        vec![
            ask(reference("@m1.0#/0/body")),
            ask(json!({ "type": "poem" })),
        ],
        vec![],
    )
    .await;
    assert!(!asked.results.iter().any(|result| result.contains("SECRET")));
    assert_eq!(asked.log, ["pay bob 5"]);
}

#[tokio::test]
async fn a_picture_is_shown_as_it_was() {
    let log = Log::default();
    let flow = hiding();
    let picture = || {
        Tool::function("picture", "", |_: Value| {
            let shown = [tower_agent::Part::image_url("https://example.org/a.png")];
            tower_agent::ToolResponse::new(Value::Null).with_parts(shown)
        })
    };
    let model = ScriptedModel::new([
        Turn::tool("picture", json!({})),
        Turn::tool("show_result", json!({ "result": reference("@m1.0") })),
        Turn::tool("pay", pay_mallory()),
        Turn::from_text("Done."),
    ]);
    let agent = assistant(&model, &log)
        .tools(flow.tools())
        .tool(picture())
        .global_callbacks(flow)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let requests = model.requests();
    assert!(!read(&requests[1..2]).contains("a.png"));
    assert!(read(&requests[2..3]).contains("a.png"));
    assert_eq!(log.take(), [""; 0]);
}
