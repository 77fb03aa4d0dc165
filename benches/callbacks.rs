//! The cost of a callback per call.
//!
//! Bands of 0, 1, 10 and 100 callbacks around a service that only responds, and around the calls of
//! an agent. The callbacks do nothing. The first callback of a band pays for the band, so the
//! others are counted from there.

mod support;

use std::hint::black_box;

use tower::{ServiceExt, service_fn};
use tower_agent::callback::{after_model, before_model, before_model_async, before_tool};
use tower_agent::model::ModelService;
use tower_agent::{Agent, AgentRequest, BoxError, Callbacks, Message, ModelRequest, ModelResponse};
use tower_layer::Layer;

use self::support::work::{self, Hooks};
use self::support::{Measured, Race, finish};

const COUNTS: [usize; 4] = [0, 1, 10, 100];

async fn before(request: &mut ModelRequest) {
    std::future::ready(()).await;
    black_box(request);
}

type Fill = fn(&mut Callbacks<ModelRequest>);

/// How a callback is created, and its number of hooks.
const KINDS: [(&str, usize, Fill); 4] = [
    ("sync `before_model`", 1, |band| {
        band.push(before_model(|_| {}))
    }),
    ("sync `after_model`", 1, |band| {
        band.push(after_model(|_, _| {}))
    }),
    ("`before_model_async`", 1, |band| {
        band.push(before_model_async(before))
    }),
    ("`Callback` with async before and after", 2, |band| {
        band.push(Hooks)
    }),
];

fn main() {
    for (kind, hooks, fill) in KINDS {
        let bands = COUNTS.map(|count| {
            let mut band = Callbacks::new();
            (0..count).for_each(|_| fill(&mut band));
            (count, band)
        });
        a_band(kind, hooks, &bands);
    }
    agents();
}

/// A band around a static service, per call.
fn a_band(kind: &str, hooks: usize, bands: &[(usize, Callbacks<ModelRequest>)]) {
    let response = ModelResponse::from_text("done");
    let service = service_fn(move |_: ModelRequest| {
        let response = response.clone();
        async { Ok::<_, BoxError>(response) }
    });
    let request = ModelRequest::new([Message::user("hello")]);

    let mut race = Race::default();
    race.enter("no band", || call(&service, &request));
    for (count, band) in bands {
        let service = band.layer(service.clone());
        let request = &request;
        race.enter(count.to_string(), move || call(&service, request));
    }
    let results = race.run();
    let bare = &results[0];

    println!("\n{kind}, around a service\n");
    println!("| callbacks | ns a call | ns a callback | ns a hook | allocations a call |");
    println!("|--:|--:|--:|--:|--:|");
    println!(
        "| no band | {:.0} | | | {:.1} |",
        bare.nanoseconds(),
        bare.allocations.count as f64
    );
    rows(&results[1..], hooks, 1.0);
}

fn call<S: ModelService>(service: &S, request: &ModelRequest) -> ModelResponse {
    let result = finish(service.clone().oneshot(request.clone()));
    result.unwrap_or_else(|_| ModelResponse::from_text("failed"))
}

/// Bands around the 39 calls of an agent.
fn agents() {
    for (kind, hooks, with) in [
        (
            "sync `before_model` and `before_tool`",
            1,
            sync as fn(usize) -> Agent,
        ),
        ("`Callback` with async before and after", 2, asynchronous),
    ] {
        let agents = COUNTS.map(with);
        let mut race = Race::default();
        for (count, agent) in COUNTS.iter().zip(&agents) {
            race.enter(count.to_string(), move || {
                finish(agent.run(AgentRequest::new("Count to 19."))).unwrap()
            });
        }
        let results = race.run();
        println!("\n{kind}, in an agent\n");
        println!("| callbacks | ns a call | ns a callback | ns a hook | allocations a call |");
        println!("|--:|--:|--:|--:|--:|");
        rows(&results, hooks, 39.0);
    }
}

fn sync(count: usize) -> Agent {
    let builder = (0..count).fold(work::agent(19), |builder, _| {
        builder
            .on_model(before_model(|_| {}))
            .on_tool(before_tool(|_| {}))
    });
    builder.build().unwrap()
}

fn asynchronous(count: usize) -> Agent {
    let builder = (0..count).fold(work::agent(19), |builder, _| {
        builder.on_model(Hooks).on_tool(Hooks)
    });
    builder.build().unwrap()
}

/// One row for each number of callbacks.
fn rows(measured: &[Measured], hooks: usize, calls: f64) {
    for (index, (measured_here, count)) in measured.iter().zip(COUNTS).enumerate() {
        let more = match index {
            0 => String::from(" | "),
            _ => {
                let added = (count - COUNTS[index - 1]) as f64;
                let each = measured_here.over(&measured[index - 1]) / calls / added;
                format!("{each:.0} | {:.0}", each / hooks as f64)
            }
        };
        println!(
            "| {count} | {:.0} | {more} | {:.1} |",
            measured_here.nanoseconds() / calls,
            measured_here.allocations.count as f64 / calls,
        );
    }
}
