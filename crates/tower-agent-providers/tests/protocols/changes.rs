//! Runs whose provider changes in the middle, and back.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::message::Messages;
use tower_agent::{Agent, Tool};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_providers::Protocol;

use crate::answer::{Answer, Bit, call, reasoning, text};
use crate::column::{Column, Sent, model, streamed};
use crate::columns::{anthropic, chat, gemini, interactions, ollama, responses};
use crate::server::{Reply, Seen, Server, json as reply};

const FIRST: &str = "thought-of-the-first";
const FIRST_DATA: &str = "data+of/the=first";
const SECOND: &str = "thought-of-the-second";
const SECOND_DATA: &str = "data+of/the=second";

/// The requests in a run of three answers: of the first provider, of the second because the first
/// had failed, and of the first again.
struct Changed {
    /// The second and the third request that the first provider received. It failed after the
    /// second.
    first: [Seen; 2],
    second: Seen,
    transcript: Messages,
}

fn answer<C: Column>(answer: &Answer, is_streamed: bool) -> Reply {
    if is_streamed {
        streamed::<C>(answer)
    } else {
        reply(200, &C::body(answer))
    }
}

async fn run<A: Column, C: Column>(said: [&Answer; 2], is_streamed: bool) -> Changed {
    let done = Answer::new([text(&["Done."])]);
    let busy = reply(503, &json!({ "error": { "message": "Busy." } }));
    let replies = [
        answer::<A>(said[0], is_streamed),
        busy,
        answer::<A>(&done, is_streamed),
    ];
    let first = Server::start(replies).await;
    let second = Server::start([answer::<C>(said[1], is_streamed)]).await;
    let models = Fallback::new(model::<A>(&first)).or(model::<C>(&second));
    let look = Tool::function("look", "Looks.", |_: Value| "a cat");
    let agent = Agent::builder(models).tool(look).build().unwrap();
    let response = if is_streamed {
        agent.stream("What do you see?").response().await
    } else {
        agent.run("What do you see?").await
    };
    let response = response.unwrap();
    assert_eq!(response.text(), "Done.");
    let [_, before, after]: [Seen; 3] = first.seen().try_into().unwrap();
    let transcript = response.messages().clone();
    Changed {
        first: [before, after],
        second: second.only(),
        transcript,
    }
}

/// The form of an answer that is sent back with its results: as its own provider's, or as
/// another's.
fn sent<C: Column>(answer: &Answer, is_own: bool, ids: &[String]) -> Vec<Sent> {
    let lacks = |scenario| C::LACKS.iter().any(|(name, _)| *name == scenario);
    let has_reasoning = is_own && !lacks("reasoning_goes_back_beside_its_call");
    let mut calls = ids.iter().cloned();
    let said = answer.bits.iter().filter_map(|bit| match bit {
        Bit::Text(words) | Bit::Refusal(words) => Some(Sent::Text(words.concat())),
        Bit::Reasoning { data, .. } => has_reasoning.then(|| Sent::Reasoning(data.clone())),
        Bit::Call { .. } => calls.next().map(Sent::Call),
    });
    let said: Vec<_> = said.collect();
    said.into_iter()
        .chain(ids.iter().cloned().map(Sent::Result))
        .collect()
}

/// The ids of the calls of each answer.
fn ids(transcript: &Messages) -> Vec<Vec<String>> {
    let ids = transcript.iter().map(|message| {
        message
            .tool_calls()
            .map(|call| call.id.to_string())
            .collect::<Vec<_>>()
    });
    ids.filter(|ids| !ids.is_empty()).collect()
}

async fn a_run_that_changes_its_provider_and_back<A: Column, C: Column>() {
    if A::Protocol::PROVIDER == C::Protocol::PROVIDER {
        return;
    }
    let said = [
        Answer::new([
            text(&["I look."]),
            reasoning(&[FIRST], FIRST_DATA),
            call("call_1", "look", &["{\"at\": ", "\"it\"}"]),
            call("call_2", "look", &["{}"]),
        ]),
        Answer::new([
            reasoning(&[SECOND], SECOND_DATA),
            call("call_3", "look", &["{\"at\":", " 1.0}"]),
        ]),
    ];
    for is_streamed in [false, true] {
        let between = format!("{} to {}", A::Protocol::PROVIDER, C::Protocol::PROVIDER);
        let changed = run::<A, C>([&said[0], &said[1]], is_streamed).await;
        let ids = ids(&changed.transcript);

        // The second is sent what the first said, but not what only the first understands.
        let second = &changed.second;
        assert!(
            !second.text.contains("of-the-first"),
            "{between}: {}",
            second.text
        );
        assert!(
            !second.text.contains(FIRST_DATA),
            "{between}: {}",
            second.text
        );
        assert_eq!(
            C::sent_back(&second.body),
            sent::<C>(&said[0], false, &ids[0]),
            "{between}"
        );

        // The first has all of its own back, and nothing of the second.
        let [before, after] = &changed.first;
        let own = sent::<A>(&said[0], true, &ids[0]);
        assert_eq!(A::sent_back(&before.body), own, "{between}");
        let others = sent::<A>(&said[1], false, &ids[1]);
        let all: Vec<_> = own.into_iter().chain(others).collect();
        assert_eq!(A::sent_back(&after.body), all, "{between}");
        assert!(
            !after.text.contains("of-the-second"),
            "{between}: {}",
            after.text
        );
        assert!(
            !after.text.contains(SECOND_DATA),
            "{between}: {}",
            after.text
        );
    }
}

/// Ids that some provider makes and another one refuses.
fn odd_ids() -> Vec<String> {
    vec![
        "functions.look:0".into(),
        "functions_look:0".into(),
        "c".repeat(41),
        "c".repeat(65),
        // A signature, as some gateways hide it in ids.
        format!("call_1__thought__{}", "Aa9+/=|".repeat(64)),
        format!("call_1__thought__{}", "Aa9+/=_".repeat(64)),
        "çall 🦀".into(),
    ]
}

async fn ids_that_another_provider_refuses<A: Column, C: Column>() {
    if A::Protocol::PROVIDER == C::Protocol::PROVIDER {
        return;
    }
    let between = format!("{} to {}", A::Protocol::PROVIDER, C::Protocol::PROVIDER);
    let calls = odd_ids().into_iter().map(|id| call(&id, "look", &["{}"]));
    let said = Answer::new(calls);
    let other = Answer::new([call("call_8", "look", &["{}"])]);
    let mut bodies = Vec::new();
    for is_streamed in [false, true] {
        let changed = run::<A, C>([&said, &other], is_streamed).await;
        let ids = ids(&changed.transcript);
        let own = sent::<A>(&said, true, &ids[0]);
        for seen in &changed.first {
            assert_eq!(A::sent_back(&seen.body)[..own.len()], own, "{between}");
        }
        let sent = C::sent_back(&changed.second.body);
        let calls = sent.iter().filter_map(|sent| match sent {
            Sent::Call(id) => Some(id),
            _ => None,
        });
        let results = sent.iter().filter_map(|sent| match sent {
            Sent::Result(id) => Some(id),
            _ => None,
        });
        let calls: Vec<_> = calls.collect();
        assert_eq!(calls, results.collect::<Vec<_>>(), "{between}");
        let different: std::collections::BTreeSet<_> = calls.iter().collect();
        assert_eq!(different.len(), odd_ids().len(), "{between}: {calls:?}");
        for id in calls {
            let is_accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
            let is_accepted = id.len() <= C::CALL_ID_LENGTH && id.bytes().all(is_accepted);
            assert!(
                is_accepted || C::CALL_ID_LENGTH == usize::MAX,
                "{between}: {id}"
            );
        }
        bodies.push(C::sent_back(&changed.second.body));
    }
    assert_eq!(bodies[0], bodies[1], "{between}: the same each time");
}

#[derive(Debug, Deserialize, JsonSchema, PartialEq)]
struct Weather {
    city: String,
    celsius: f64,
}

async fn a_typed_answer_that_another_provider_repairs<A: Column, C: Column>() {
    let wrong = Answer::new([text(&["{\"city\":", "\"Oslo\"}"])]);
    let right = Answer::new([text(&["{\"city\":\"Oslo\",", "\"celsius\":21.5}"])]);
    for is_streamed in [false, true] {
        let between = format!("{} to {}", A::Protocol::PROVIDER, C::Protocol::PROVIDER);
        let busy = reply(503, &json!({ "error": { "message": "Busy." } }));
        let first = Server::start([answer::<A>(&wrong, is_streamed), busy]).await;
        let second = Server::start([answer::<C>(&right, is_streamed)]).await;
        let models = Fallback::new(model::<A>(&first)).or(model::<C>(&second));
        let agent = Agent::builder(models).build().unwrap();
        let asked = "How warm is it in Oslo?";
        let response = if is_streamed {
            agent.stream_typed::<Weather>(asked).response().await
        } else {
            agent.run_typed::<Weather>(asked).await
        };
        let weather = response.unwrap().into_value().unwrap();
        assert_eq!(
            weather,
            Weather {
                city: "Oslo".into(),
                celsius: 21.5
            },
            "{between}"
        );

        // Each is asked for the type, and the second is told what the first made of it.
        for seen in first.seen().iter().chain(&second.seen()) {
            let mut body = seen.body.clone();
            body.as_object_mut().unwrap().remove(A::MESSAGES);
            body.as_object_mut().unwrap().remove(C::MESSAGES);
            assert!(body.to_string().contains("celsius"), "{between}: {body}");
        }
        let told = second.only();
        assert_eq!(
            C::sent_back(&told.body),
            [Sent::Text("{\"city\":\"Oslo\"}".into())]
        );
        assert!(
            told.text.contains("The answer is not valid"),
            "{between}: {}",
            told.text
        );
    }
}

/// Runs each check with every protocol as the second.
macro_rules! first {
    ($name:ident, $column:ty) => {
        mod $name {
            use super::*;

            #[tokio::test]
            async fn a_run_that_changes_its_provider_and_back() {
                first!(super::a_run_that_changes_its_provider_and_back, $column);
            }

            #[tokio::test]
            async fn ids_that_another_provider_refuses() {
                first!(super::ids_that_another_provider_refuses, $column);
            }

            #[tokio::test]
            async fn a_typed_answer_that_another_provider_repairs() {
                first!(super::a_typed_answer_that_another_provider_repairs, $column);
            }
        }
    };
    ($check:path, $column:ty) => {
        use $check as check;
        check::<$column, anthropic::AnthropicColumn>().await;
        check::<$column, chat::ChatColumn>().await;
        check::<$column, gemini::GeminiColumn>().await;
        check::<$column, interactions::InteractionsColumn>().await;
        check::<$column, ollama::OllamaColumn>().await;
        check::<$column, responses::ResponsesColumn>().await;
    };
}

first!(anthropic_first, anthropic::AnthropicColumn);
first!(chat_first, chat::ChatColumn);
first!(gemini_first, gemini::GeminiColumn);
first!(interactions_first, interactions::InteractionsColumn);
first!(ollama_first, ollama::OllamaColumn);
first!(responses_first, responses::ResponsesColumn);
