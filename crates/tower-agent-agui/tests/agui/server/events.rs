//! The stream of events: its bytes, its silence, and who goes away.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::before_agent;
use tower_agent::stream::EventKind as Told;
use tower_agent::{Action, Agent};
use tower_agent_agui::server::Body;
use tower_agent_agui::{
    AgUi, Conversation, Event, EventKind, Message, RunAgentInput, TranslateResponse,
    after_translate, before_translate,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::client::{Reply, parse, post, send};
use super::{agent, app, input, rules, serve};
use crate::watched::Watched;

#[tokio::test]
async fn events_are_lines_of_data_with_line_feeds_alone_and_headers_that_keep_them_moving() {
    let text = "Zwei Zeilen:\r\nüß \u{2028} \u{1F980} \"quoted\" \\ \r end";
    let served = serve(AgUi::new(agent([Turn::from_text(text)]))).await;
    let reply = send(&served, post(input().to_string())).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    assert_eq!(reply.header("x-accel-buffering"), Some("no"));
    assert_eq!(reply.header("content-length"), None);
    let bytes = reply.bytes().await;
    assert!(!bytes.contains(&b'\r'));
    let all = String::from_utf8(bytes).unwrap();
    assert!(all.ends_with("}\n\n"));
    for record in all.split_terminator("\n\n") {
        assert!(
            record.starts_with("data: {") && !record.contains('\n'),
            "{record}"
        );
    }
    let events = parse(&all);
    rules::check("t", "r", &events).unwrap();
    let said: String = events
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(said, text);
}

/// A response without a network, so that time may stand still.
async fn respond(server: AgUi) -> http::Response<Body> {
    server.oneshot(post(input().to_string())).await.unwrap()
}

async fn frame(body: &mut Body) -> Option<String> {
    let data = body.frame().await?.unwrap().into_data().unwrap();
    Some(String::from_utf8(data.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_comment_is_sent_whenever_nothing_else_was_for_so_long() {
    let turn = Turn::from_text("late").latency(Duration::from_secs(50));
    let server = AgUi::new(agent([turn]));
    let start = tokio::time::Instant::now();
    let mut body = respond(server).await.into_body();
    let first = frame(&mut body).await.unwrap();
    assert_eq!(parse(&first)[0]["type"], "RUN_STARTED");
    for seconds in [15, 30, 45] {
        assert_eq!(frame(&mut body).await.unwrap(), ": keep-alive\n\n");
        assert_eq!(start.elapsed(), Duration::from_secs(seconds));
    }
    let rest = frame(&mut body).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(50));
    assert_eq!(parse(&rest).last().unwrap()["type"], "RUN_FINISHED");
    assert_eq!(frame(&mut body).await, None);
}

#[tokio::test(start_paused = true)]
async fn an_event_postpones_the_comment_and_the_interval_can_be_set() {
    let turns = [6, 6, 9]
        .map(|seconds| Turn::tool("echo", json!({})).latency(Duration::from_secs(seconds)));
    let model = ScriptedModel::new(turns.into_iter().chain([Turn::from_text("done")]));
    let echo = tower_agent::Tool::function("echo", "", |input: Value| input);
    let agent = Agent::builder(model).tool(echo).build().unwrap();
    let server = AgUi::builder(agent)
        .keep_alive(Duration::from_secs(8))
        .build();
    let start = tokio::time::Instant::now();
    let mut body = respond(server).await.into_body();
    let mut comments = Vec::new();
    while let Some(frame) = frame(&mut body).await {
        if frame.starts_with(':') {
            comments.push(start.elapsed().as_secs());
        }
    }
    assert_eq!(comments, [20]);
}

#[tokio::test(start_paused = true)]
async fn a_keep_alive_of_forever_sends_no_comment() {
    let turn = Turn::from_text("late").latency(Duration::from_secs(3600));
    let agent = Agent::builder(ScriptedModel::new([turn])).build().unwrap();
    let mut body = respond(AgUi::builder(agent).keep_alive(Duration::MAX).build())
        .await
        .into_body();
    let mut text = String::new();
    while let Some(frame) = frame(&mut body).await {
        text.push_str(&frame);
    }
    rules::check("t", "r", &super::client::parse(&text)).unwrap();
    assert!(!text.contains(": keep-alive"), "{text}");
}

/// Reads until the model speaks.
async fn until_it_speaks(reply: &mut Reply) {
    let mut seen = String::new();
    while !seen.contains("TEXT_MESSAGE_CONTENT") {
        seen.push_str(std::str::from_utf8(&reply.next().await.unwrap()).unwrap());
    }
}

/// Waits, without a clock, until something is so.
async fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_front_end_that_goes_away_takes_the_model_with_it() {
    let watched = Watched::default();
    let ended = before_translate(|_| {});
    let server = AgUi::builder(watched.agent().build().unwrap())
        .on_translate(ended)
        .build();
    let served = serve(server).await;
    let mut reply = send(&served, post(input().to_string())).await;
    until_it_speaks(&mut reply).await;
    assert_eq!(watched.alive(), 1);
    drop(reply);
    until(|| watched.alive() == 0).await;
    assert_eq!(watched.calls(), 1);
}

/// Between the model and a front end that does not read are the sockets' buffers, and a few
/// events: then the model stands still.
#[tokio::test]
async fn a_front_end_that_stops_reading_stops_the_model() {
    let watched = Watched::default();
    let served = serve(AgUi::new(watched.agent().build().unwrap())).await;
    let mut reply = send(&served, post(input().to_string())).await;
    until_it_speaks(&mut reply).await;
    let (mut before, mut still) = (0, 0);
    // It is at rest once it has said nothing in many turns of everything else.
    while still < 1000 {
        tokio::task::yield_now().await;
        still = if watched.deltas() == before {
            still + 1
        } else {
            0
        };
        before = watched.deltas();
        assert!(before < 1_000_000, "the model goes on and on");
    }
    assert_eq!(watched.alive(), 1);
    // It goes on when the front end does.
    let mut read = 0;
    while watched.deltas() == before {
        read += reply.next().await.unwrap().len();
        assert!(read < 100_000_000);
    }
}

/// Without sockets the bound is exact: what one frame and the queue hold.
#[tokio::test]
async fn a_body_that_is_not_read_is_bounded_by_a_frame_and_the_events_that_wait() {
    let watched = Watched::default();
    let mut body = respond(AgUi::new(watched.agent().build().unwrap()))
        .await
        .into_body();
    assert_eq!(watched.calls(), 0, "nothing runs that nobody reads");
    let first = frame(&mut body).await.unwrap();
    let events = parse(&first).len();
    assert!(
        (16 << 10..17 << 10).contains(&first.len()),
        "{}",
        first.len()
    );
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(
        watched.deltas() <= events + 16,
        "{} deltas, {events} events",
        watched.deltas()
    );
    drop(body);
    assert_eq!(watched.alive(), 0);
}

#[tokio::test]
async fn events_are_sent_as_they_come_and_not_when_the_run_is_over() {
    let (open, gate) = tokio::sync::oneshot::channel::<()>();
    let gate = std::sync::Arc::new(tokio::sync::Mutex::new(Some(gate)));
    let wait = tower_agent::Tool::function_with("wait", "", move |_: Value, _| {
        let gate = gate.clone();
        async move {
            let gate = gate.lock().await.take().unwrap();
            gate.await.map_err(|_| "closed").unwrap();
            "waited"
        }
    });
    let model = ScriptedModel::new([Turn::tool("wait", json!({})), Turn::from_text("done")]);
    let served = serve(AgUi::new(Agent::builder(model).tool(wait).build().unwrap())).await;
    let mut reply = send(&served, post(input().to_string())).await;
    let mut seen = String::new();
    while !seen.contains("TOOL_CALL_END") {
        seen.push_str(std::str::from_utf8(&reply.next().await.unwrap()).unwrap());
    }
    assert!(!seen.contains("TOOL_CALL_RESULT"));
    open.send(()).unwrap();
    seen.push_str(&String::from_utf8(reply.bytes().await).unwrap());
    rules::check("t", "r", &parse(&seen)).unwrap();
}

#[tokio::test]
async fn many_runs_at_once_on_one_server_keep_apart() {
    let model = tower::service_fn(|request: tower_agent::ModelRequest| async move {
        let said = request.messages()[0].text();
        let turn = Turn::from_text(format!("You said {said}."));
        ScriptedModel::new([turn])
            .chunk_size(2)
            .oneshot(request)
            .await
    });
    let server = AgUi::builder(Agent::builder(model).build().unwrap())
        .on_translate(after_translate(|request, response| {
            let mut response = response.clone();
            if matches!(request.event().kind, Told::RunFinished { .. }) {
                let run = request.input().run_id.clone();
                response.events_mut().insert(0, Event::custom("run", &*run));
            }
            async move {
                tokio::task::yield_now().await;
                Action::Respond(response)
            }
        }))
        .build();
    let served = serve(server).await;
    let runs = (0..50).map(|number| {
        let served = &served;
        async move {
            let run = format!("r{number}");
            let input = json!({
                "threadId": run, "runId": run,
                "messages": [{ "id": "u", "role": "user", "content": run }],
            });
            let events = send(served, post(input.to_string())).await.events().await;
            rules::check(&run, &run, &events).unwrap();
            let said: String = events
                .iter()
                .filter_map(|event| event["delta"].as_str())
                .collect();
            assert_eq!(said, format!("You said {run}."));
            let custom = events
                .iter()
                .find(|event| event["type"] == "CUSTOM")
                .unwrap();
            assert_eq!(custom["value"], run);
        }
    });
    futures::future::join_all(runs).await;
}

/// The front end keeps the conversation: the second run has what the first left with it.
#[tokio::test]
async fn two_runs_of_one_thread_go_on_with_one_conversation() {
    let model = ScriptedModel::new([
        Turn::tool("count", json!({})),
        Turn::from_text("One so far."),
        Turn::tool("count", json!({})),
        Turn::from_text("Two by now."),
    ]);
    let count = tower_agent::Tool::function_with(
        "count",
        "",
        |_: Value, call: tower_agent::ToolRequest| {
            use tower_agent::Request;
            let state = call.context().state();
            let count = state
                .get("count")
                .and_then(|value| value.as_i64())
                .unwrap_or(0)
                + 1;
            state.set("count", count);
            count
        },
    );
    let served = serve(AgUi::new(
        Agent::builder(model.clone()).tool(count).build().unwrap(),
    ))
    .await;
    let mut front_end = Conversation::default();
    let mut state = json!({});
    for (number, question) in ["Count!", "Count again!"].into_iter().enumerate() {
        let mut messages = front_end.messages().to_vec();
        messages.push(Message::user(format!("u{number}"), question));
        let mut input = RunAgentInput::new("t", format!("r{number}"), messages.clone());
        input.state = Some(state.clone());
        let body = serde_json::to_vec(&input).unwrap();
        let events = send(&served, post(body)).await.events().await;
        rules::check("t", &format!("r{number}"), &events).unwrap();
        front_end = Conversation::new(messages);
        for event in &events {
            match event["type"].as_str().unwrap() {
                "STATE_SNAPSHOT" => state = event["snapshot"].clone(),
                "STATE_DELTA" => {
                    let patch = event["delta"].as_array().unwrap();
                    assert_eq!(patch.len(), 1);
                    state["count"] = patch[0]["value"].clone();
                }
                _ => {}
            }
            front_end.apply(&serde_json::from_value(event.clone()).unwrap());
        }
    }
    assert_eq!(state, json!({ "count": 2 }));
    // The model was told in the second run what was said in the first.
    let request = &model.requests()[3];
    let told: Vec<_> = request
        .messages()
        .iter()
        .map(tower_agent::Message::text)
        .collect();
    assert_eq!(
        told,
        ["Count!", "", "", "One so far.", "Count again!", "", ""]
    );
    let answers = request
        .messages()
        .iter()
        .flat_map(tower_agent::Message::tool_results);
    assert_eq!(
        answers.map(|result| result.text()).collect::<Vec<_>>(),
        ["1", "2"]
    );
}

#[tokio::test]
async fn forwarded_properties_and_the_head_of_the_request_reach_the_callbacks() {
    let model = ScriptedModel::new([Turn::from_text("hi")]);
    let agent = Agent::builder(model)
        .on_agent(before_agent(|request| {
            use tower_agent::Request;
            let run = request.context();
            let input = run.extension::<std::sync::Arc<RunAgentInput>>().unwrap();
            let parts = run.extension::<http::request::Parts>().unwrap();
            let (values, layer) = (request.context().values(), parts.extensions.get::<u32>());
            values.set(
                "tenant",
                parts.headers["x-tenant"].to_str().unwrap().to_owned(),
            );
            values.set(
                "theme",
                input
                    .forwarded_props
                    .as_ref()
                    .unwrap()
                    .parse::<Value>()
                    .unwrap()["theme"]
                    .clone(),
            );
            values.set("layer", layer.copied());
            values.set("path", parts.uri.path().to_owned());
        }))
        .build()
        .unwrap();
    let server = AgUi::builder(agent)
        .on_translate(after_translate(|request, response| {
            use tower_agent::Request;
            if !matches!(request.event().kind, Told::TextStart { .. }) {
                return Action::Continue;
            }
            let values = request.context().values();
            let text = |key: &str| {
                values
                    .get::<String>(key)
                    .unwrap()
                    .map(|value| (*value).clone())
            };
            let told = json!({
                "tenant": text("tenant"),
                "path": text("path"),
                "theme": values.get::<Value>("theme").unwrap().map(|value| (*value).clone()),
                "layer": values.get::<Option<u32>>("layer").unwrap().map(|value| *value),
            });
            let mut events = response.events().to_vec();
            events.push(
                EventKind::Custom {
                    name: "told".into(),
                    value: told,
                }
                .into(),
            );
            Action::Respond(TranslateResponse::new(events))
        }))
        .build();
    let add = tower::util::MapRequestLayer::new(|mut request: http::Request<_>| {
        request.extensions_mut().insert(7_u32);
        request
    });
    let router = axum::Router::new()
        .route_service("/agent", server)
        .layer(add);
    let served = app(router).await;
    let mut input = input();
    input["forwardedProps"] = json!({ "theme": "dark" });
    let mut request = post(input.to_string());
    request
        .headers_mut()
        .insert("x-tenant", "acme".parse().unwrap());
    let events = send(&served, request).await.events().await;
    let told = events
        .iter()
        .find(|event| event["type"] == "CUSTOM")
        .unwrap();
    let expected = json!({ "tenant": "acme", "path": "/agent", "theme": "dark", "layer": 7 });
    assert_eq!(told["value"], expected);
}

#[tokio::test]
async fn the_response_begins_before_the_agent_does() {
    let pending = Agent::builder(ScriptedModel::new([Turn::pending()]))
        .build()
        .unwrap();
    let response = AgUi::new(pending).oneshot(post(input().to_string()));
    let response = response.now_or_never().expect("at once").unwrap();
    assert_eq!(response.status(), 200);
    let request = http::Request::post("/")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let refusal = AgUi::new(agent([]))
        .oneshot(request)
        .now_or_never()
        .expect("at once")
        .unwrap();
    assert_eq!(refusal.status(), 415);
}
