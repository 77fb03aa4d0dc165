//! Messages that a protocol has written are kept from step to step.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tower::service_fn;
use tower_agent::callback::before_model;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::model::ModelService;
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Request,
    Result, Tool,
};

/// The messages that a call had to write, by protocol, and its body.
#[derive(Clone, Debug, Default, PartialEq)]
struct Call {
    written: Vec<(&'static str, usize)>,
    tools: usize,
    body: String,
}

/// Writes a request in each of these protocols.
fn write(request: &ModelRequest, protocols: &[&'static str]) -> Result<Call> {
    let mut call = Call::default();
    let mut body = Vec::new();
    for protocol in protocols {
        request.write_messages(protocol, &mut body, |index, body| {
            call.written.push((protocol, index));
            let message = &request.messages()[index];
            let calls = message.tool_calls().count() + message.tool_results().count();
            body.extend_from_slice(format!("{protocol}:{}{calls};", message.text()).as_bytes());
            Ok(())
        })?;
        request.write_tools(protocol, &mut body, |body| {
            call.tools += 1;
            request
                .tools()
                .iter()
                .for_each(|tool| body.extend_from_slice(tool.name().as_bytes()));
            Ok(())
        })?;
    }
    call.body = String::from_utf8(body).unwrap();
    Ok(call)
}

type Log = Arc<Mutex<Vec<(ModelRequest, Call)>>>;

/// Calls a tool three times, and then says that it is done.
fn model(log: &Log, protocols: &'static [&'static str]) -> impl ModelService {
    let log = log.clone();
    service_fn(move |request: ModelRequest| {
        let written = write(&request, protocols);
        let turn = request.context().iteration();
        let result = written.map(|call| log.lock().unwrap().push((request, call)));
        let response = match turn {
            0..3 => ModelResponse::from_tool_calls([ToolCall::new(
                format!("call_{turn}"),
                "look",
                json!({}),
            )]),
            _ => ModelResponse::from_text("Done."),
        };
        async move { result.map(|()| response) }
    })
}

fn look() -> Tool {
    Tool::function("look", "Looks.", |_: serde_json::Value| "seen")
}

fn indices(call: &Call) -> Vec<usize> {
    call.written.iter().map(|(_, index)| *index).collect()
}

#[tokio::test]
async fn a_step_writes_what_is_new() {
    let log = Log::default();
    let agent = Agent::builder(model(&log, &["a"]))
        .tool(look())
        .build()
        .unwrap();
    agent.run("Look!").await.unwrap();

    let calls: Vec<_> = log
        .lock()
        .unwrap()
        .iter()
        .map(|(_, call)| call.clone())
        .collect();
    let new: Vec<_> = calls.iter().map(indices).collect();
    assert_eq!(new, [vec![0], vec![1, 2], vec![3, 4], vec![5, 6]]);
    assert_eq!(
        calls.iter().map(|call| call.tools).collect::<Vec<_>>(),
        [1, 0, 0, 0]
    );
    assert_eq!(calls[2].body, "a:Look!0;a:1;a:1;a:1;a:1;look");
    // Dropped with the run: messages that were kept are written again, with the same bytes.
    for (request, call) in log.lock().unwrap().iter() {
        let anew = write(request, &["a"]).unwrap();
        assert_eq!(
            (anew.written.len(), &anew.body),
            (request.messages().len(), &call.body)
        );
    }
}

#[tokio::test]
async fn no_protocol_reads_another_s_form() {
    let log = Log::default();
    let agent = Agent::builder(model(&log, &["a", "b"]))
        .tool(look())
        .build()
        .unwrap();
    agent.run("Look!").await.unwrap();
    for (request, call) in log.lock().unwrap().iter() {
        let alone = |protocol| write(request, &[protocol]).unwrap().body;
        assert_eq!(call.body, alone("a") + &alone("b"));
    }
    let second = log.lock().unwrap()[1].1.clone();
    assert_eq!(
        (second.written, second.tools),
        (vec![("a", 1), ("a", 2), ("b", 1), ("b", 2)], 0)
    );
}

#[tokio::test]
async fn a_changed_message_is_written_anew() {
    let log = Log::default();
    let edit = before_model(|request| match request.context().iteration() {
        // For this call alone.
        1 => {
            *request.messages_mut().get_mut(0).unwrap().parts_mut() =
                vec![Part::from_text("Listen!")]
        }
        2 => request.tools_mut().clear(),
        3 => request.messages_mut().truncate(2),
        _ => {}
    });
    let agent = Agent::builder(model(&log, &["a"]))
        .tool(look())
        .on_model(edit)
        .build()
        .unwrap();
    agent.run("Look!").await.unwrap();

    let log = log.lock().unwrap();
    let new: Vec<_> = log.iter().map(|(_, call)| indices(call)).collect();
    assert_eq!(new, [vec![0], vec![0, 1, 2], vec![0, 1, 2, 3, 4], vec![]]);
    assert_eq!(
        log.iter().map(|(_, call)| call.tools).collect::<Vec<_>>(),
        [1, 0, 1, 1]
    );
    for (request, call) in log.iter() {
        assert_eq!(write(request, &["a"]).unwrap().body, call.body);
    }
    assert!(log[1].1.body.starts_with("a:Listen!0;"));
    assert_eq!(log[3].1.body, "a:Look!0;a:1;look");
}

#[tokio::test]
async fn a_change_in_a_long_conversation_is_found() {
    let log = Log::default();
    let edit = before_model(|request| {
        if request.context().iteration() == 1 {
            let changed = request.messages_mut().get_mut(40).unwrap();
            *changed.parts_mut() = vec![Part::from_text("Listen!")];
        }
    });
    let agent = Agent::builder(model(&log, &["a"]))
        .tool(look())
        .on_model(edit)
        .build()
        .unwrap();
    let messages: Messages = (0..70)
        .map(|number| Message::user(number.to_string()))
        .collect();
    agent
        .run(AgentRequest::conversation(messages))
        .await
        .unwrap();

    let log = log.lock().unwrap();
    let new: Vec<Vec<usize>> = log.iter().map(|(_, call)| indices(call)).collect();
    let expected: [Vec<usize>; 4] = [
        (0..70).collect(),
        (40..72).collect(),
        (40..74).collect(),
        vec![74, 75],
    ];
    assert_eq!(new, expected);
    for (request, call) in log.iter() {
        assert_eq!(write(request, &["a"]).unwrap().body, call.body);
    }
    assert!(
        log[1].1.body.contains("a:390;a:Listen!0;a:410;"),
        "{}",
        log[1].1.body
    );
}

#[tokio::test]
async fn a_message_that_fails_to_be_written_leaves_nothing_behind() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let log = bodies.clone();
    let model = service_fn(move |request: ModelRequest| {
        let mut failed = Vec::new();
        let failure = request.write_messages("a", &mut failed, |index, body| {
            body.extend_from_slice(b"half");
            match index {
                0 => Ok(()),
                _ => Err(Error::new(ErrorKind::InvalidRequest, "no")),
            }
        });
        let is_first = request.context().iteration() == 0;
        assert_eq!(
            (failure.is_ok(), &*failed),
            if is_first {
                (true, &b"half"[..])
            } else {
                (false, &b""[..])
            }
        );
        log.lock()
            .unwrap()
            .push(write(&request, &["a"]).unwrap().body);
        let call = ToolCall::new("call", "look", json!({}));
        let response = if is_first {
            ModelResponse::from_tool_calls([call])
        } else {
            ModelResponse::from_text("Done.")
        };
        async move { Ok::<_, Error>(response) }
    });
    let agent = Agent::builder(model).tool(look()).build().unwrap();
    agent.run(Message::user("Look!").text()).await.unwrap();
    // The first was written by the other closure, which a protocol would not do.
    assert_eq!(
        *bodies.lock().unwrap(),
        ["halflook", "a:Look!0;a:1;a:1;look"]
    );
}
