//! Mappers: what callbacks make of deltas.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, oneshot};
use tower_agent::callback::{after_model, before_model, on_model_error};
use tower_agent::stream::{Delta, EventKind, Mapper, map_fn};
use tower_agent::{Action, Agent, Error, ErrorKind, ModelRequest, Recovery, Result};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};
use tower_layer::Layer;

use super::{read, words};

/// Appends a letter to every text, to tell who came when.
fn mark(letter: char) -> impl tower_agent::Callback<ModelRequest> {
    before_model(move |request| {
        request.map_deltas(move || {
            map_fn(move |delta| match delta {
                Delta::Text(text) => Some(Delta::Text(format!("{text}{letter}"))),
                other => Some(other),
            })
        });
    })
}

/// The first text that is seen of a run.
async fn first_text(agent: &Agent) -> String {
    let mut run = agent.stream("?");
    loop {
        let event = run.next().await.expect("a text");
        if let EventKind::TextDelta { text, .. } = event.kind {
            return text;
        }
    }
}

#[tokio::test]
async fn mappers_act_from_the_inside_out_and_in_a_band_in_order() {
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("_")))
        .on_model(mark('a'))
        .on_model(mark('b'))
        .model_layer(tower::util::MapRequestLayer::new(
            |request: ModelRequest| request,
        ))
        .on_model(mark('c'))
        .on_model(mark('d'))
        .build()
        .unwrap();

    assert_eq!(first_text(&agent).await, "_cdab");
}

#[tokio::test]
async fn deltas_of_one_mapper_reach_the_next_ones_in_order() {
    let letters = before_model(|request| {
        request.map_deltas(|| {
            map_fn(|delta| match delta {
                Delta::Text(text) => text
                    .chars()
                    .map(|character| Delta::Text(character.into()))
                    .collect(),
                other => vec![other],
            })
        });
    });
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("abc")]))
        .on_model(mark('1'))
        .on_model(letters)
        .on_model(mark('2'))
        .on_model(mark('3'))
        .build()
        .unwrap();

    let (events, _) = read(agent.stream("?")).await;

    let texts: Vec<_> = words(&events)
        .into_iter()
        .filter(|word| word.starts_with('+'))
        .collect();
    // At the end, what the model said replaces it.
    assert_eq!(texts, ["+a23", "+b23", "+c23", "+123", "+abc"]);
}

/// Drops what is secret, says the rest twice, and holds the last word back.
#[derive(Default)]
struct Odd {
    held: Option<Delta>,
}

impl Mapper for Odd {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        if delta != Delta::Text("secret ".into()) {
            out.extend(self.held.replace(delta));
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<Delta>) -> Result<()> {
        out.extend(self.held.take());
        out.push(Delta::Text(".".into()));
        Ok(())
    }
}

#[tokio::test]
async fn a_mapper_drops_holds_back_and_adds() {
    let model = tower::service_fn(|request: ModelRequest| async move {
        let mut attempt = request.delta_sender().unwrap().open();
        for word in ["one ", "secret ", "two"] {
            attempt.send(Delta::Text(word.into())).await?;
        }
        Ok::<_, Error>(tower_agent::ModelResponse::from(attempt.finish().await?))
    });
    let agent = Agent::builder(model)
        .on_model(before_model(|request| request.map_deltas(Odd::default)))
        .on_model(after_model(|_, response| {
            assert_eq!(
                response.message().text(),
                "one secret two",
                "the response is the model's"
            );
            Action::Respond(tower_agent::ModelResponse::from_text("one two."))
        }))
        .build()
        .unwrap();

    let (events, response) = read(agent.stream("?")).await;

    assert_eq!(response.unwrap().text(), "one two.");
    let words = words(&events);
    let text: Vec<_> = words.iter().filter(|word| word.starts_with('+')).collect();
    assert_eq!(text, ["+one ", "+two", "+."]);
    assert!(
        !words.contains(&"replaced".to_owned()),
        "what was seen is what was answered"
    );
}

#[tokio::test]
async fn a_response_that_differs_from_what_mappers_let_through_replaces_it() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("psst")]))
        .on_model(before_model(|request| {
            request.map_deltas(|| {
                map_fn(|delta| match delta {
                    Delta::Text(text) => Some(Delta::Text(text.to_uppercase())),
                    other => Some(other),
                })
            });
        }))
        .build()
        .unwrap();

    let (events, _) = read(agent.stream("?")).await;

    let seen: Vec<_> = words(&events)
        .into_iter()
        .skip_while(|word| word != "+PSST")
        .take(5)
        .collect();
    assert_eq!(seen, ["+PSST", "text over", "replaced", "text", "+psst"]);
}

#[tokio::test]
async fn each_attempt_has_mappers_of_its_own() {
    let made = Arc::new(Mutex::new(0));
    let model = ScriptedModel::new([
        Turn::from_text("a").failing_after(1, Error::new(ErrorKind::Overloaded, "busy")),
        Turn::from_text("b"),
    ]);
    let agent = Agent::builder(model)
        .on_model(before_model({
            let made = made.clone();
            move |request| {
                let made = made.clone();
                request.map_deltas(move || {
                    *made.lock().unwrap() += 1;
                    map_fn(Some)
                });
            }
        }))
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();

    agent.stream("?").response().await.unwrap();

    assert_eq!(*made.lock().unwrap(), 2);
}

/// Lets nothing through before the verdict.
struct Gate(Option<oneshot::Receiver<bool>>);

impl Mapper for Gate {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(verdict) = &mut self.0 else {
            return Poll::Ready(Ok(()));
        };
        let verdict = std::task::ready!(std::pin::Pin::new(verdict).poll(cx));
        self.0 = None;
        Poll::Ready(match verdict {
            Ok(true) => Ok(()),
            _ => Err(Error::new(ErrorKind::Callback, "not to be seen")),
        })
    }

    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        out.push(delta);
        Ok(())
    }
}

#[tokio::test]
async fn a_gate_makes_the_model_wait_for_a_verdict() {
    for good in [true, false] {
        let (tell, verdict) = oneshot::channel();
        let verdict = Arc::new(Mutex::new(Some(verdict)));
        let agent =
            Agent::builder(ScriptedModel::new([Turn::from_text("long answer")]).chunk_size(4))
                .on_model(before_model(move |request| {
                    let verdict = verdict.clone();
                    request.map_deltas(move || Gate(verdict.lock().unwrap().take()));
                }))
                .build()
                .unwrap();

        let mut run = agent.stream("?");
        let mut early = Vec::new();
        while let Some(Some(event)) = futures::FutureExt::now_or_never(run.next()) {
            early.push(event);
        }
        assert!(
            !words(&early).iter().any(|word| word.starts_with('+')),
            "{early:?}"
        );
        tell.send(good).unwrap();
        let (late, response) = read(run).await;

        let seen: String = words(&late)
            .iter()
            .filter_map(|word| word.strip_prefix('+'))
            .collect();
        assert_eq!(seen, if good { "long answer" } else { "" });
        assert_eq!(response.is_ok(), good);
    }
}

#[tokio::test]
async fn a_mapper_that_panics_or_cannot_be_made_fails_the_call_and_is_named() {
    let panics = |at_once: bool| {
        before_model(move |request| {
            request.map_deltas(move || {
                assert!(!at_once, "no mapper");
                map_fn(|_| -> Option<Delta> { panic!("no delta") })
            });
        })
    };
    for at_once in [true, false] {
        let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
            .on_model(panics(at_once))
            .build()
            .unwrap();

        let error = agent.stream("?").response().await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Callback);
        let said = if at_once { "no mapper" } else { "no delta" };
        assert!(error.message().contains(said), "{error}");
    }
}

#[tokio::test]
async fn without_a_reader_no_mapper_is_made() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .on_model(before_model(|request| {
            request.map_deltas(|| -> Odd { panic!("made for nobody") });
        }))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "hi");
}

/// Lets one delta through for every permit.
struct Turnstile(Arc<Semaphore>);

impl Mapper for Turnstile {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.0.try_acquire() {
            Ok(permit) => {
                permit.forget();
                Poll::Ready(Ok(()))
            }
            Err(_) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        out.push(delta);
        Ok(())
    }
}

#[tokio::test]
async fn a_send_that_is_dropped_while_a_mapper_waits_neither_loses_nor_reorders_anything() {
    let permits = Arc::new(Semaphore::new(0));
    let model = tower::service_fn({
        let permits = permits.clone();
        move |request: ModelRequest| {
            let permits = permits.clone();
            async move {
                let mut attempt = request.delta_sender().unwrap().open();
                for word in ["a", "b", "c", "d"] {
                    let sent = attempt.send(Delta::Text(word.into())).now_or_never();
                    assert!(sent.is_none(), "the mapper lets nothing through");
                }
                permits.add_permits(100);
                attempt.send(Delta::Text("e".into())).await?;
                Ok::<_, Error>(tower_agent::ModelResponse::from(attempt.finish().await?))
            }
        }
    });
    for first in [true, false] {
        let turnstile = || {
            let permits = permits.clone();
            before_model(move |request| {
                let permits = permits.clone();
                request.map_deltas(move || Turnstile(permits.clone()));
            })
        };
        let builder = Agent::builder(model.clone());
        let agent = if first {
            builder.on_model(turnstile()).on_model(mark('!'))
        } else {
            builder.on_model(mark('!')).on_model(turnstile())
        };

        permits.forget_permits(usize::MAX);
        let (events, _) = read(agent.build().unwrap().stream("?")).await;

        let seen: Vec<_> = words(&events)
            .into_iter()
            .skip_while(|word| word != "text")
            .skip(1)
            .take(5)
            .collect();
        assert_eq!(seen, ["+a!", "+b!", "+c!", "+d!", "+e!"]);
    }
}

#[tokio::test]
async fn an_attempt_stays_failed_once_a_mapper_has_failed() {
    let fails = before_model(|request| {
        request.map_deltas(|| {
            map_fn(|delta| match delta {
                Delta::Text(text) if text == "secret" => panic!("not to be seen"),
                other => Some(other),
            })
        });
    });
    // A provider that goes on after what it cannot send.
    let model = tower::service_fn(|request: ModelRequest| async move {
        let mut attempt = request.delta_sender().unwrap().open();
        for word in ["a", "secret", "b"] {
            let _ = attempt.send(Delta::Text(word.into())).await;
        }
        Ok::<_, Error>(tower_agent::ModelResponse::from(attempt.finish().await?))
    });
    let agent = Agent::builder(model).on_model(fails).build().unwrap();

    let (events, response) = read(agent.stream("?")).await;

    let texts: Vec<_> = words(&events)
        .into_iter()
        .filter(|word| word.starts_with('+'))
        .collect();
    assert_eq!(texts, ["+a"]);
    assert!(response.unwrap_err().message().contains("not to be seen"));
}

/// Fails at a delta that has these words.
struct Stops {
    at: &'static str,
    with: Error,
}

impl Mapper for Stops {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        match &delta {
            Delta::Text(text) if text.contains(self.at) => Err(self.with.clone()),
            _ => {
                out.push(delta);
                Ok(())
            }
        }
    }
}

#[tokio::test]
async fn an_abort_in_the_middle_of_a_stream_ends_it_and_says_so() {
    let probe = ProbeLayer::new();
    let agent = Agent::builder(probe.layer(ScriptedModel::new([Turn::from_text("one two three")])))
        .on_model(before_model(|request| {
            request.map_deltas(|| Stops {
                at: "tw",
                with: Error::abort("enough"),
            });
        }))
        .build()
        .unwrap();

    let (events, response) = read(agent.stream("?")).await;

    assert_eq!(response.unwrap_err().kind(), ErrorKind::Aborted);
    let EventKind::RunFailed { error } = &events.last().unwrap().kind else {
        panic!("it failed")
    };
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "enough")
    );
    let shown: String = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TextDelta { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert!(!shown.contains("three"));
    assert_eq!(probe.in_flight(), 0);
}
