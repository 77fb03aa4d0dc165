//! Ids of calls: every call of a run has one of its own.

use serde_json::json;
use tower::service_fn;
use tower_agent::message::ToolCall;
use tower_agent::{Agent, BoxError, Message, ModelRequest, ModelResponse, Part, Role, Tool};

/// A model that calls `look` with these ids, and then is done.
fn calls(ids: &'static [&'static str]) -> impl tower_agent::model::ModelService {
    service_fn(move |request: ModelRequest| async move {
        let has_called = request
            .messages()
            .last()
            .is_some_and(|message| message.role() == Role::Tool);
        let call = |(n, id): (usize, &&str)| Part::ToolCall(ToolCall::new(*id, "look", json!(n)));
        let said = if has_called {
            Message::assistant("done")
        } else {
            Message::new(Role::Assistant, ids.iter().enumerate().map(call))
        };
        Ok::<_, BoxError>(ModelResponse::new(said))
    })
}

#[tokio::test]
async fn a_call_without_an_id_gets_one_and_of_equal_ids_the_first_keeps_it() {
    for ids in [
        &[""][..],
        &["x", "x"],
        &["x", "x", "x"],
        &["", "x"],
        &["x", "", "x", ""],
    ] {
        let agent = Agent::builder(calls(ids))
            .tool(Tool::function("look", "Looks.", |n: u32| n))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        let asked: Vec<_> = response
            .new_messages()
            .flat_map(Message::tool_calls)
            .collect();
        assert_eq!(asked.len(), ids.len());
        for (index, call) in asked.iter().enumerate() {
            assert!(!call.id.is_empty(), "{ids:?}");
            assert!(
                asked[..index].iter().all(|other| other.id != call.id),
                "{ids:?}"
            );
        }
        if let Some(first) = ids.iter().position(|id| *id == "x") {
            assert_eq!(&*asked[first].id, "x", "{ids:?}");
        }
        let answered = response.new_messages().flat_map(Message::tool_results);
        let answered: Vec<_> = answered
            .map(|result| (result.call_id.clone(), result.text()))
            .collect();
        let wanted = asked
            .iter()
            .enumerate()
            .map(|(n, call)| (call.id.clone(), n.to_string()));
        assert_eq!(answered, wanted.collect::<Vec<_>>());
    }
}
