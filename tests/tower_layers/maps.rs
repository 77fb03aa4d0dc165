//! Layers that change a request, an answer or an error: `map_*`, `and_then`, `then`.

use std::future::Future;

use tower::util::{
    AndThenLayer, MapErrLayer, MapFutureLayer, MapRequestLayer, MapResponseLayer, MapResultLayer,
    ThenLayer,
};
use tower_agent::{
    AgentRequest, AgentResponse, Error, ErrorKind, Message, ModelRequest, ModelResponse, Request,
    Result, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use tower_layer::Layer;

use crate::{WAYS, around_each, busy, plain, run};

/// Says something else.
trait Say {
    fn say(text: &str) -> Self;
}

impl Say for ModelResponse {
    fn say(text: &str) -> Self {
        Self::from_text(text)
    }
}

impl Say for ToolResponse {
    fn say(text: &str) -> Self {
        Self::new(text)
    }
}

impl Say for AgentResponse {
    fn say(text: &str) -> Self {
        Self::new([Message::assistant(text)])
    }
}

fn instead<T: Say>(_: T) -> T {
    T::say("instead")
}

fn fallback<T: Say>(result: Result<T>) -> Result<T> {
    Ok(result.unwrap_or_else(|_| T::say("instead")))
}

async fn checked<T: Say>(_: T) -> Result<T> {
    tokio::task::yield_now().await;
    Ok(T::say("instead"))
}

async fn refused<T: Say>(_: T) -> Result<T> {
    Err(Error::new(ErrorKind::InvalidRequest, "not that"))
}

async fn rescued<T: Say>(result: Result<T>) -> Result<T> {
    tokio::task::yield_now().await;
    fallback(result)
}

/// A future with a layer of its own.
async fn shouted<T: Say>(call: impl Future<Output = Result<T>>) -> Result<T> {
    call.await.map(instead)
}

type Answer<R> = <R as Request>::Response;

#[tokio::test]
async fn the_reader_ends_with_the_answer_that_replaced_another() {
    for streamed in WAYS {
        let turns = || [Turn::from_text("at first")];
        let each = [
            around_each!(turns(), MapResponseLayer::new(instead::<Answer<Call>>)),
            around_each!(turns(), AndThenLayer::new(checked::<Answer<Call>>)),
            around_each!(
                turns(),
                MapResultLayer::new(|result: Result<Answer<Call>>| result.map(instead))
            ),
            around_each!(
                turns(),
                ThenLayer::new(async |result: Result<Answer<Call>>| result.map(instead))
            ),
        ];
        for (place, agent) in each.into_iter().flatten() {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "instead",
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn a_fallback_takes_back_the_half_answer() {
    for streamed in WAYS {
        let turns = || [Turn::from_text("half of it").failing_after(3, busy())];
        let each = [
            around_each!(turns(), MapResultLayer::new(fallback::<Answer<Call>>)),
            around_each!(turns(), ThenLayer::new(rescued::<Answer<Call>>)),
        ];
        for (place, agent) in each.into_iter().flatten() {
            assert_eq!(
                run(&agent, streamed).await.unwrap().text(),
                "instead",
                "{place}"
            );
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_refused_fails_the_call() {
    for streamed in WAYS {
        for (place, agent) in around_each!(
            [Turn::from_text("at first")],
            AndThenLayer::new(refused::<Answer<Call>>)
        ) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{place}");
        }
    }
}

#[tokio::test]
async fn an_error_is_mapped() {
    for streamed in WAYS {
        let turns = || [Turn::from_text("half of it").failing_after(3, busy())];
        let map = |error: Error| Error::new(ErrorKind::Provider, "mapped").with_source(error);
        for (place, agent) in around_each!(turns(), MapErrLayer::new(map)) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.message()),
                (ErrorKind::Provider, "mapped"),
                "{place}"
            );
        }
        // Into any type that is an error.
        let map = |error: Error| std::io::Error::other(error);
        for (place, agent) in around_each!(turns(), MapErrLayer::new(map)) {
            let error = run(&agent, streamed).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Overloaded, "{place}");
        }
    }
}

#[tokio::test]
async fn a_request_is_mapped() {
    for streamed in WAYS {
        let repeat = || {
            ScriptedModel::always(Turn::function(|request| {
                Ok(ModelResponse::from_text(
                    request.messages().last().unwrap().text(),
                ))
            }))
        };
        let model =
            plain(repeat()).model_layer(MapRequestLayer::new(|mut request: ModelRequest| {
                request.messages_mut().push(Message::user("changed"));
                request
            }));
        let tool =
            crate::worker(repeat()).layer(MapRequestLayer::new(|mut request: ToolRequest| {
                request.arguments_mut()["request"] = "changed".into();
                request
            }));
        let agent =
            plain(repeat()).agent_layer(MapRequestLayer::new(|mut request: AgentRequest| {
                request.messages_mut().push(Message::user("changed"));
                request
            }));
        let agents = [
            tower_agent::agent::BoxAgent::new(model.build().unwrap()),
            tower_agent::agent::BoxAgent::new(crate::asking(tool).build().unwrap()),
            tower_agent::agent::BoxAgent::new(agent.build().unwrap()),
        ];
        for agent in agents {
            assert_eq!(run(&agent, streamed).await.unwrap().text(), "changed");
        }
    }
}

#[tokio::test]
async fn a_future_is_mapped() {
    for streamed in WAYS {
        let model = plain(ScriptedModel::always(Turn::from_text("at first")))
            .model_layer(MapFutureLayer::new(shouted::<ModelResponse>));
        let agent = tower_agent::agent::BoxAgent::new(model.build().unwrap());
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "instead");
    }
}

#[tokio::test]
async fn a_request_that_is_put_in_anothers_place_has_a_run_of_its_own() {
    let run_id = |request: &ModelRequest| Ok(ModelResponse::from_text(request.context().run_id()));
    for streamed in WAYS {
        let instead = MapRequestLayer::new(|_| AgentRequest::new("?").with_run_id("another"));
        let agent = plain(ScriptedModel::always(Turn::function(run_id)))
            .build()
            .unwrap();
        let agent = tower_agent::agent::BoxAgent::new(instead.layer(agent));
        assert_eq!(run(&agent, streamed).await.unwrap().text(), "another");
    }
}
