//! Runs that wait: for a person, for the front end's own tools, for both.

use std::time::{Duration, SystemTime};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tower_agent::compat::Semantics;
use tower_agent::error::ResolutionOutcome;
use tower_agent::{Agent, Error, Interrupt, Tool, ToolRequest};
use tower_agent_agui::{
    AgUi, Conversation, Event, EventKind, Message, MessageKind, ResumeEntry, RunAgentInput,
    RunOutcome, Tool as Declared, after_translate, before_translate,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use super::{input, names, presets, run, started, wire};

fn outcome(sent: &[Event]) -> RunOutcome {
    match &sent.last().unwrap().kind {
        EventKind::RunFinished(finished) => finished.outcome.clone().unwrap(),
        other => panic!("the run ended with {other:?}"),
    }
}

fn declared(name: &str) -> Declared {
    serde_json::from_value(json!({ "name": name, "description": "Asks the user." })).unwrap()
}

/// Pays, and counts how often.
fn pay(paid: Arc<AtomicUsize>) -> Tool {
    Tool::function("pay", "Pays.", move |amount: u32| {
        paid.fetch_add(1, SeqCst);
        format!("paid {amount}")
    })
}

fn payer(model: ScriptedModel, paid: &Arc<AtomicUsize>, semantics: Semantics) -> Agent {
    Agent::builder(model)
        .tool(pay(paid.clone()))
        .on_tool(Approval::of_tools(["pay"]))
        .semantics(semantics)
        .build()
        .unwrap()
}

/// The next run of the thread, as the front end asks for it.
fn next(sent: &[Event], first: &RunAgentInput) -> RunAgentInput {
    let mut front_end = Conversation::new(first.messages.clone());
    sent.iter().for_each(|event| front_end.apply(event));
    let mut input = RunAgentInput::new("t", "r", front_end.messages().iter().cloned());
    input.tools.clone_from(&first.tools);
    input
}

#[test]
fn a_run_that_waits_for_a_person_ends_with_all_there_is_to_show_and_is_resumed() {
    for (preset, band, semantics) in presets() {
        let paid = Arc::default();
        let model = ScriptedModel::new([Turn::tool("pay", json!(100)), Turn::from_text("Done.")]);
        let server = AgUi::builder(payer(model.clone(), &paid, semantics))
            .semantics(band)
            .on_translate(before_translate(|_| {}))
            .on_translate(after_translate(|_, _| {}))
            .build();
        let first = input();
        let sent = run(&server, first.clone());
        let expected = ["STATE_SNAPSHOT", "MESSAGES_SNAPSHOT", "RUN_FINISHED"];
        assert_eq!(names(&sent)[sent.len() - 3..], expected, "{preset}");
        let RunOutcome::Interrupt { interrupts } = outcome(&sent) else {
            panic!("{preset}")
        };
        let [interrupt] = &interrupts[..] else {
            panic!("{preset}: {interrupts:?}")
        };
        assert_eq!(&*interrupt.reason, "tool_call");
        assert_eq!(interrupt.tool_call_id.as_deref(), Some("r-m1-t0"));
        let asked = json!({ "tool": "pay", "arguments": { "value": 100 } });
        assert_eq!(Value::Object(interrupt.metadata.clone().unwrap()), asked);
        // A front end can draw the question from it.
        assert!(
            interrupt.response_schema.is_some(),
            "{preset}: {interrupt:?}"
        );
        assert_eq!(paid.load(SeqCst), 0);

        let mut second = next(&sent, &first);
        let answer = json!({
            "interruptId": interrupt.id, "status": "resolved", "payload": { "approved": true },
        });
        second
            .resume
            .push(serde_json::from_value::<ResumeEntry>(answer).unwrap());
        let sent = run(&server, second);
        assert_eq!(
            names(&sent).last(),
            Some(&"RUN_FINISHED"),
            "{preset}: {sent:#?}"
        );
        assert_eq!(super::text(&sent), "Done.", "{preset}");
        assert_eq!(paid.load(SeqCst), 1, "{preset}");
        model.assert_done();
    }
}

/// The model counts its calls from one in every turn, so the front end has a `call_1` already.
#[test]
fn an_approval_of_a_call_that_is_named_as_an_earlier_one_is_asked_for_once() {
    let paid = Arc::default();
    let asks = |amount: u32| super::table::asks("pay", "c", json!(amount));
    let model = ScriptedModel::new([asks(1), asks(2), Turn::from_text("Done.")]);
    let server = AgUi::new(payer(model.clone(), &paid, Semantics::default()));
    let mut input = input();
    for (turn, call) in ["r0-m1-t0", "r1-m2-t0"].into_iter().enumerate() {
        input.run_id = format!("r{turn}").into();
        let sent: Vec<_> = started(&server, input.clone())
            .collect()
            .now_or_never()
            .unwrap();
        let RunOutcome::Interrupt { interrupts } = outcome(&sent) else {
            panic!("{sent:#?}")
        };
        let [interrupt] = &interrupts[..] else {
            panic!("{interrupts:?}")
        };
        assert_eq!(interrupt.tool_call_id.as_deref(), Some(call));
        assert_eq!(paid.load(SeqCst), turn);
        input = next(&sent, &input);
        let answer = json!({
            "interruptId": interrupt.id, "status": "resolved", "payload": { "approved": true },
        });
        input.resume.push(serde_json::from_value(answer).unwrap());
    }
    let sent = run(&server, input);
    assert_eq!(super::text(&sent), "Done.");
    assert_eq!(paid.load(SeqCst), 2, "each once");
    model.assert_done();
}

#[test]
fn the_data_of_an_interrupt_reaches_the_front_end() {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    let leap_day = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_251_199_007);
    let ask = {
        let schema = schema.clone();
        Tool::function_with("ask", "Asks.", move |_: Value, _: ToolRequest| {
            let pending = Interrupt::new("q1", "question")
                .with_message("Who are you?")
                .with_response_schema(schema.clone())
                .with_payload(json!("a word"))
                .with_expiry(leap_day, ResolutionOutcome::Cancelled);
            async move { Err::<Value, _>(Error::interrupt(pending)) }
        })
    };
    let model = ScriptedModel::new([Turn::tool("ask", json!({}))]);
    let sent = run(
        &AgUi::new(Agent::builder(model).tool(ask).build().unwrap()),
        input(),
    );
    let outcome = wire(&sent).last().unwrap()["outcome"].clone();
    let id = outcome["interrupts"][0]["id"].clone();
    // Nobody can guess it.
    assert!(!id.as_str().unwrap().contains("q1"), "{id}");
    let expected = json!({
        "type": "interrupt",
        "interrupts": [{
            "id": id, "reason": "question", "message": "Who are you?", "toolCallId": "r-m1-t0",
            "responseSchema": schema, "metadata": { "payload": "a word" },
            "expiresAt": "2024-02-29T23:59:59.007Z",
        }],
    });
    assert_eq!(outcome, expected);
}

#[test]
fn a_call_of_the_front_ends_own_tool_ends_the_run_and_its_answer_goes_on() {
    let model = ScriptedModel::new([Turn::tool("pick", json!({})), Turn::from_text("Red it is.")]);
    let server = AgUi::new(Agent::builder(model.clone()).build().unwrap());
    let mut first = input();
    first.tools.push(declared("pick"));
    first.protocol_version = Some("1.0".into());
    let sent = run(&server, first.clone());
    let pending = RunOutcome::Success {
        pending_tool_call_ids: vec!["r-m1-t0".into()],
    };
    assert_eq!(outcome(&sent), pending);
    assert!(!names(&sent).contains(&"TOOL_CALL_RESULT"));

    let mut second = next(&sent, &first);
    second
        .messages
        .push(Message::tool("answer", "r-m1-t0", "red"));
    let sent = run(&server, second);
    assert_eq!(super::text(&sent), "Red it is.");
    let request = &model.requests()[1];
    let result = request.messages()[2].tool_results().next().unwrap();
    assert_eq!(
        (&*result.call_id, result.text().as_str()),
        ("call_1", "red")
    );
}

/// A front end of before 1.0 refuses the list, and finds the calls without it.
#[test]
fn the_calls_that_wait_are_named_to_a_front_end_that_speaks_1_0() {
    let named = |version: Option<&str>| {
        let model = ScriptedModel::new([Turn::tool("pick", json!({}))]);
        let mut input = input();
        input.tools.push(declared("pick"));
        input.protocol_version = version.map(Into::into);
        let sent = run(&AgUi::new(Agent::builder(model).build().unwrap()), input);
        match outcome(&sent) {
            RunOutcome::Success {
                pending_tool_call_ids,
            } => !pending_tool_call_ids.is_empty(),
            other => panic!("{other:?}"),
        }
    };
    for version in ["1.0", "1.2", "2.0"] {
        assert!(named(Some(version)), "{version}");
    }
    for version in [None, Some("0.0.57"), Some("0.9"), Some(""), Some("one")] {
        assert!(!named(version), "{version:?}");
    }
}

/// Beside one that waits for a person: the person is asked for, and the front end's call stays
/// open in the messages.
#[test]
fn calls_that_wait_for_the_front_end_and_for_a_person_at_once() {
    let paid = Arc::default();
    let turn = Turn::tool("pick", json!({}))
        .and_tool("pay", json!(7))
        .and_tool("pay", json!(8));
    let model = ScriptedModel::new([turn, Turn::from_text("All done.")]);
    let server = AgUi::new(payer(model.clone(), &paid, Semantics::default()));
    let mut first = input();
    first.tools.push(declared("pick"));
    let sent = run(&server, first.clone());
    let RunOutcome::Interrupt { interrupts } = outcome(&sent) else {
        panic!("{sent:#?}")
    };
    let calls: Vec<_> = interrupts
        .iter()
        .map(|interrupt| interrupt.tool_call_id.as_deref().unwrap())
        .collect();
    assert_eq!(calls, ["r-m1-t1", "r-m1-t2"]);

    let mut second = next(&sent, &first);
    let asked = second.messages.last().unwrap();
    let MessageKind::Assistant { tool_calls, .. } = &asked.kind else {
        panic!("{asked:?}")
    };
    assert_eq!(tool_calls.len(), 3);
    second
        .messages
        .push(Message::tool("answer", "r-m1-t0", "red"));
    for (interrupt, approved) in interrupts.iter().zip([true, false]) {
        let answer = json!({
            "interruptId": interrupt.id, "status": "resolved", "payload": { "approved": approved },
        });
        second.resume.push(serde_json::from_value(answer).unwrap());
    }
    let sent = run(&server, second);
    assert_eq!(super::text(&sent), "All done.", "{:#?}", outcome(&sent));
    assert_eq!(paid.load(SeqCst), 1);
    let told: Vec<_> = model.requests()[1]
        .messages()
        .iter()
        .flat_map(|message| {
            message
                .tool_results()
                .map(|result| result.text())
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.contains(&"red".to_owned()) && told.contains(&"paid 7".to_owned()));
}

/// Two models name their calls alike: on the wire each call has a name of its own.
#[test]
fn an_agent_used_as_a_tool_that_waits_is_suspended_and_names_its_own_call() {
    let helper = Agent::builder(ScriptedModel::new([Turn::tool("pay", json!(5))]))
        .name("helper")
        .tool(pay(Arc::default()))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let model = ScriptedModel::new([Turn::tool("helper", json!({ "request": "Pay!" }))]);
    let lead = Agent::builder(model)
        .tool(helper.into_tool("Helps."))
        .build()
        .unwrap();
    let sent = run(&AgUi::new(lead), input());
    let calls = wire(&sent)
        .into_iter()
        .filter(|event| event["type"] == "TOOL_CALL_START");
    let calls: Vec<_> = calls.map(|event| event["toolCallId"].clone()).collect();
    assert_eq!(calls, ["r-m1-t0", "r/agent/m1.0/helper-m1-t0"]);
    let RunOutcome::Interrupt { interrupts } = outcome(&sent) else {
        panic!("{sent:#?}")
    };
    assert_eq!(
        interrupts[0].tool_call_id.as_deref(),
        Some("r/agent/m1.0/helper-m1-t0")
    );
    let finished = wire(&sent)
        .into_iter()
        .find(|event| event["type"] == "SUBAGENT_FINISHED")
        .unwrap();
    let expected = json!({ "type": "suspended", "interruptIds": [interrupts[0].id] });
    assert_eq!(finished["outcome"], expected);
}
