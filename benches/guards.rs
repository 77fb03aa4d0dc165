//! The cost of middleware that has nothing to do.
//!
//! Each is measured alone around a service that responds at once, and around a scripted model whose
//! response is streamed, four characters at a time. The bare call runs beside it, and a callback
//! that sees every delta, which the limits between deltas need. Middleware for tools is measured
//! around a tool, too.
//!
//! To add a guard, add a line in `of_model` or `of_tool`.

mod support;

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tower::{ServiceExt, service_fn};
use tower_agent::callback::before_model;
use tower_agent::message::ToolCall;
use tower_agent::model::ModelService;
use tower_agent::stream::{channel, map_fn};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::tool::ToolService;
use tower_agent::{
    BoxError, Callbacks, Message, ModelRequest, ModelResponse, Result, ToolRequest, ToolResponse,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::guardrail::{Guardrail, Verdict};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_layer::Layer;

use self::support::{Measured, Race, finish};

const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let response = ModelResponse::from_text("done");
    let service = service_fn(move |_: ModelRequest| {
        let response = response.clone();
        async { Ok::<_, BoxError>(response) }
    });
    table("around a service", of_model(service, false));

    let model = ScriptedModel::always(Turn::from_text("word ".repeat(200)));
    table(
        "around a streamed answer of 250 deltas",
        of_model(model, true),
    );

    let response = ToolResponse::new("done");
    let tool = service_fn(move |_: ToolRequest| {
        let response = response.clone();
        async { Ok::<_, BoxError>(response) }
    });
    table("around a tool", of_tool(tool));
}

fn budget() -> Budget {
    Budget::new(Limits::new().model_calls(u64::MAX).tool_calls(u64::MAX))
}

fn redact() -> Redact {
    let detectors = [Detector::email(), Detector::card(), Detector::secret()];
    Redact::new(detectors).expect("they are built in")
}

async fn passes(_: ModelRequest) -> Result<Verdict> {
    Ok(Verdict::Pass)
}

/// One row for each guard of models.
fn of_model<M: ModelService>(model: M, is_streamed: bool) -> Vec<Measured> {
    let mut race = Race::default();
    enter(&mut race, "no guard", model.clone(), is_streamed);
    enter(
        &mut race,
        "`CallRetry`",
        CallRetryLayer::new().layer(model.clone()),
        is_streamed,
    );
    enter(
        &mut race,
        "`Fallback`",
        Fallback::new(model.clone()).or(model.clone()),
        is_streamed,
    );
    let whole = CallTimeoutLayer::new(MINUTE);
    enter(
        &mut race,
        "`CallTimeout`, the whole call",
        whole.layer(model.clone()),
        is_streamed,
    );
    let all = CallTimeoutLayer::new(MINUTE)
        .first_delta(MINUTE)
        .idle(MINUTE);
    enter(
        &mut race,
        "`CallTimeout`, all limits",
        all.layer(model.clone()),
        is_streamed,
    );
    let budget = Callbacks::new().with(budget());
    enter(
        &mut race,
        "`Budget`",
        budget.layer(model.clone()),
        is_streamed,
    );
    let redact = redact().around_model();
    enter(
        &mut race,
        "`Redact`",
        redact.layer(model.clone()),
        is_streamed,
    );
    let before = Guardrail::before(passes);
    enter(
        &mut race,
        "`Guardrail`, before",
        before.layer(model.clone()),
        is_streamed,
    );
    let beside = Guardrail::beside(passes);
    enter(
        &mut race,
        "`Guardrail`, beside",
        beside.layer(model.clone()),
        is_streamed,
    );
    let after = Guardrail::after(|request, _| passes(request));
    enter(
        &mut race,
        "`Guardrail`, after",
        after.layer(model.clone()),
        is_streamed,
    );
    let mapper = before_model(|request| request.map_deltas(|| map_fn(Some)));
    enter(
        &mut race,
        "a mapper that does nothing",
        mapper.layer(model),
        is_streamed,
    );
    race.run()
}

/// One row for each guard of tools.
fn of_tool<T: ToolService>(tool: T) -> Vec<Measured> {
    let mut race = Race::default();
    enter_tool(&mut race, "no guard", tool.clone());
    enter_tool(
        &mut race,
        "`CallRetry`",
        CallRetryLayer::new().layer(tool.clone()),
    );
    enter_tool(
        &mut race,
        "`CallTimeout`",
        CallTimeoutLayer::new(MINUTE).layer(tool.clone()),
    );
    enter_tool(
        &mut race,
        "`Budget`",
        Callbacks::new().with(budget()).layer(tool.clone()),
    );
    enter_tool(
        &mut race,
        "`Redact`",
        redact().around_tool().layer(tool.clone()),
    );
    let approval = Callbacks::new().with(Approval::of_tools(["pay"]));
    enter_tool(
        &mut race,
        "`Approval` of another tool",
        approval.layer(tool),
    );
    race.run()
}

fn table(title: &str, results: Vec<Measured>) {
    println!("\n{title}\n");
    println!("| guard | ns a call | ns over none | times none | allocations a call |");
    println!("|---|--:|--:|--:|--:|");
    for guarded in &results {
        println!(
            "| {} | {:.0} | {:.0} | {:.2} | {} |",
            guarded.name,
            guarded.nanoseconds(),
            guarded.over(&results[0]),
            guarded.ratio(&results[0]),
            guarded.allocations.count,
        );
    }
}

fn enter<M: ModelService>(race: &mut Race<'_>, name: &str, model: M, is_streamed: bool) {
    let request = ModelRequest::new([Message::user("hello")]);
    race.enter(name, move || {
        let (model, request) = (model.clone(), request.clone());
        if is_streamed {
            stream(model, request)
        } else {
            finish(model.oneshot(request)).is_ok()
        }
    });
}

fn enter_tool<T: ToolService>(race: &mut Race<'_>, name: &str, tool: T) {
    let request = ToolRequest::new(ToolCall::new("call", "look", json!({ "what": "there" })));
    race.enter(name, move || {
        finish(tool.clone().oneshot(request.clone())).is_ok()
    });
}

/// The call and its consumer, which reads all available events at once.
fn stream<M: ModelService>(model: M, request: ModelRequest) -> bool {
    let (sink, events) = channel(1024);
    let answer = finish(model.oneshot(request.with_delta_sender(sink)));
    answer.is_ok() && finish(events.count()) > 200
}
