//! What a guard costs a call while it has nothing to do.
//!
//! Each stands alone around a service that answers at once, and then around a scripted model whose
//! answer is streamed to a reader, four characters at a time; the bare call runs beside it, and a
//! callback that looks at every delta, which the limits between deltas need.
//!
//! A new guard is one more line in `table`.

mod support;

use std::time::Duration;

use futures::StreamExt;
use tower::{ServiceExt, service_fn};
use tower_agent::guard::fallback::Fallback;
use tower_agent::guard::retry::RetryLayer;
use tower_agent::guard::timeout::TimeoutLayer;
use tower_agent::stream::{channel, map_fn};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{BoxError, Message, ModelRequest, ModelResponse, ModelService, before_model};
use tower_layer::Layer;

use self::support::{Race, finish};

const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let response = ModelResponse::text("done");
    let service = service_fn(move |_: ModelRequest| {
        let response = response.clone();
        async { Ok::<_, BoxError>(response) }
    });
    table("around a service", service, false);

    let model = ScriptedModel::always(Turn::text("word ".repeat(200)));
    table("around a streamed answer of 250 deltas", model, true);
}

/// One row for each guard.
fn table<M: ModelService>(title: &str, model: M, is_streamed: bool) {
    let mut race = Race::default();
    enter(&mut race, "no guard", model.clone(), is_streamed);
    enter(&mut race, "`Retry`", RetryLayer::new().layer(model.clone()), is_streamed);
    enter(&mut race, "`Fallback`", Fallback::new(model.clone()).or(model.clone()), is_streamed);
    let whole = TimeoutLayer::new(MINUTE);
    enter(&mut race, "`Timeout`, the whole call", whole.layer(model.clone()), is_streamed);
    let all = TimeoutLayer::new(MINUTE).with_first_delta(MINUTE).with_idle(MINUTE);
    enter(&mut race, "`Timeout`, all limits", all.layer(model.clone()), is_streamed);
    let mapper = before_model(|request| request.map_deltas(|| map_fn(Some)));
    enter(&mut race, "a mapper that does nothing", mapper.layer(model), is_streamed);

    let results = race.run();
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
        if is_streamed { stream(model, request) } else { finish(model.oneshot(request)).is_ok() }
    });
}

/// The call and its reader, who takes what there is at once.
fn stream<M: ModelService>(model: M, request: ModelRequest) -> bool {
    let (sink, events) = channel(1024);
    let answer = finish(model.oneshot(request.with_sink(sink)));
    answer.is_ok() && finish(events.count()) > 200
}
