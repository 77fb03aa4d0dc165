//! Questions about hidden results to a model without tools and history.

use serde_json::json;
use tower_agent::message::{MediaSource, ToolCall};
use tower_agent::{AgentRequest, ModelResponse, Request, Resolution};
use tower_agent_middleware::flow::{FlowAnswer, OnViolation};
use tower_agent_test::{ScriptedModel, Turn};

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
            let shown = [tower_agent::Part::image(MediaSource::url(
                "https://example.org/a.png",
            ))];
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

#[tokio::test]
async fn a_question_without_alternatives_and_one_that_fails_tell_nothing() {
    let empty = json!({ "type": "choice", "choices": [] });
    let crossed = json!({ "type": "number", "min": 5, "max": 4 });
    let wide = json!({ "type": "text" });
    for (answer, bits) in [(empty, 0), (crossed, 0), (wide, 0)] {
        let told = [
            Turn::from_text("unknown"),
            Turn::from_text("no"),
            Turn::from_text(SECRET),
            Turn::error(tower_agent::Error::new(
                tower_agent::ErrorKind::Provider,
                SECRET,
            )),
        ];
        let questions = vec![ask(answer.clone()); told.len()];
        let asked = asked(hiding().narrow_answers(1000), questions, told.into()).await;
        for (number, result) in asked.results.iter().enumerate() {
            // The model reads the same, whatever the content has made of it.
            let stub: Value = serde_json::from_str(result).unwrap();
            assert_eq!(stub["$ref"], format!("@m{}.0", number + 2));
            let first: Value = serde_json::from_str(&asked.results[0]).unwrap();
            assert_eq!(stub["is"], first["is"], "{answer}");
            assert_eq!(stub.as_object().unwrap().len(), 3, "{stub}");
        }
        assert_eq!(asked.leaked, bits);
    }
    // Where an answer is read, what is none of its type is like one that is not known.
    let told = vec![
        Turn::from_text("maybe"),
        Turn::error(tower_agent::Error::new(
            tower_agent::ErrorKind::Provider,
            "down",
        )),
    ];
    let questions = vec![ask(json!({ "type": "yes_no" })); told.len()];
    let asked = asked(hiding().narrow_answers(8), questions, told).await;
    assert_eq!(asked.results, ["unknown", "unknown"]);
    assert_eq!(asked.leaked, 4);
}

#[tokio::test]
async fn a_tool_of_the_program_asks_nothing_by_its_name() {
    for name in [
        "ask_about",
        "show_result",
        "search_tools",
        "transfer_to_agent",
    ] {
        let log = Log::default();
        let obeys =
            ScriptedModel::new([Turn::tool("read_mail", json!({})), Turn::from_text(SECRET)]);
        let worker = assistant(&obeys, &log).name(name).build().unwrap();
        let fetch = Tool::function(name, "", |_: Value| SECRET).effect(Effect::Pure);
        for tool in [worker.into_tool(""), fetch] {
            let arguments = json!({ "request": "?", "answer": { "type": "yes_no" }, "about": [] });
            let model = ScriptedModel::new([
                Turn::tool(name, arguments),
                Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
                Turn::from_text("Done."),
            ]);
            let flow = hiding().narrow_answers(100);
            let flow = flow.tool("read_mail", ToolFlow::source().shown());
            let agent = assistant(&model, &log).tool(tool).global_callbacks(flow);
            agent.build().unwrap().run("?").await.unwrap();
            assert!(!read(&model.requests()).contains("SECRET"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_callback_in_place_of_the_reader_gives_no_narrow_answer() {
    let log = Log::default();
    let flow = hiding().narrow_answers(100);
    let flow = flow.reader(Agent::builder(ScriptedModel::new([])).build().unwrap());
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        ask(json!({ "type": "yes_no" })),
        Turn::from_text("Done."),
    ]);
    let answers =
        tower_agent::callback::before_tool(|request: &mut tower_agent::ToolRequest| match request
            .name()
        {
            "ask_about" => tower_agent::Action::Respond(tower_agent::ToolResponse::new(SECRET)),
            _ => tower_agent::Action::Continue,
        });
    let agent = assistant(&model, &log).tools(flow.tools()).on_tool(answers);
    let agent = agent.global_callbacks(flow).build().unwrap();
    agent.run("?").await.unwrap();
    assert!(!read(&model.requests()).contains("SECRET"));
}
