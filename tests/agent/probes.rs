//! Probes: which wrapper, a band or a layer, has changed, answered, repeated or dropped a call.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use tower::timeout::TimeoutLayer;
use tower_agent::callback::{Bundle, before_model};
use tower_agent::stream::{self, EventKind, Observation, Observations};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{Agent, AgentBuilder};

/// Returns what has been told so far.
fn told(observations: &mut Observations) -> Vec<Observation> {
    let mut all = Vec::new();
    while let Some(Some(next)) = observations.next().now_or_never() {
        all.push(next);
    }
    all
}

/// Returns each note about a wrapper as the call, the place and what it did.
fn words(told: &[Observation]) -> Vec<String> {
    let notes = told.iter().filter_map(|told| match &told.event.kind {
        EventKind::Wrapper(note) => {
            let path = &told.event.invocation.path;
            Some(format!("{path} {} {}, {note}", note.call, note.index))
        }
        _ => None,
    });
    notes.collect()
}

/// Runs an agent, streamed or not, and returns what is told of its wrappers.
async fn seen(agent: impl Fn() -> AgentBuilder) -> Vec<String> {
    let run = async |is_streamed: bool| {
        let (observer, mut observations) = stream::observer(1024);
        let observer = Bundle::new().observer(observer.with_wrappers());
        let agent = agent().global_callbacks(observer).build().unwrap();
        if is_streamed {
            let _: Vec<_> = agent.stream("?").collect().await;
        } else {
            let _ = agent.run("?").await;
        }
        let told = told(&mut observations);
        // Each note names the wrapper that the explanation has at its place.
        let explanation = agent.explain();
        for event in told.iter().map(|told| &told.event) {
            if let EventKind::Wrapper(note) = &event.kind
                && !event.invocation.path.contains('/')
            {
                let wrapper = explanation.wrapper_of(event).map(ToString::to_string);
                assert_eq!(wrapper, Some(note.names.join(", ")), "{note:?}");
            }
        }
        words(&told)
    };
    let plain = run(false).await;
    assert_eq!(plain, run(true).await);
    plain
}

fn answers() -> AgentBuilder {
    Agent::builder(ScriptedModel::always(Turn::from_text("It rains.")))
}

#[tokio::test]
async fn a_callback_that_changes_the_request() {
    let seen = seen(|| {
        answers()
            .on_model(before_model(|_| ()).named("first"))
            .model_layer(TimeoutLayer::new(Duration::from_secs(60)))
            .on_model(
                before_model(|request| {
                    request.add_instructions("Be brief.");
                    request.settings_mut().temperature = Some(0.0);
                })
                .named("brief"),
            )
            .on_model(before_model(|_| ()).named("last"))
    })
    .await;
    let did = "brief, last: changed the request's instructions, settings.temperature";
    assert_eq!(seen, [format!("agent model 2, {did}")]);
}
