//! A call that may have been made is not made by another run of its conversation without an answer.

use std::collections::HashSet;
use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::callback::before_tool;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, Interrupt, Message, ModelRequest, ModelResponse,
    Resolution, Tool, ToolRequest,
};
use tower_agent_agui::AgUi;
use tower_agent_conversations::{ConversationKey, Roles, SessionLayer};
use tower_agent_durable::journal::{JournalError, RunKey, UnfinishedStep};

use tower_agent_durable::Sqlite;
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::redact::{Detector, Redact};

use crate::memory::Memory;
use crate::support::conformance::questions::{Keys, answer, asked, go_on, keys, slow, told};
use crate::support::{Count, calling, counting, durable, journal_error, request, waiting};

#[tokio::test]
async fn a_call_that_differs_from_the_question_is_not_made() {
    let (database, paid) = (Sqlite::in_memory().await.unwrap(), Keys::default());
    let agent = durable(calling(&["pay"], &Count::default()), database).tool(slow(&paid, 1));
    let agent = agent.build().unwrap();
    let paused = agent.run("Do it.").await.unwrap();
    let answer = answer(&paused, UnfinishedStep::RunAgain);
    let saved = serde_json::to_string(&paused.checkpoint()).unwrap();
    let [one, other] = [r#""request":"x""#, r#""request":"y""#];
    let quoted = |text: &str| text.replace('"', "\\\"");
    let edited = saved
        .replace(one, other)
        .replace(&quoted(one), &quoted(other));
    let request = AgentRequest::resume(serde_json::from_str(&edited).unwrap());
    let error = agent
        .run(request.with_resolutions([answer]))
        .await
        .unwrap_err();
    let error = journal_error(&error);
    assert!(
        matches!(error, JournalError::NonDeterminism { .. }),
        "{error}"
    );
    assert_eq!(keys(&paid).len(), 1);
}

/// The next attempt waits for a person before it is made, so that the journal forgets it.
#[tokio::test]
async fn the_answer_about_one_attempt_is_not_taken_for_a_later_one() {
    let database = Sqlite::in_memory().await.unwrap();
    let pay = Count::default();
    let program = |pay: Tool, waits: bool| {
        let wait = before_tool(move |request: &mut ToolRequest| {
            let question = Interrupt::new("wait", "test");
            std::future::ready(if waits {
                request.ask(question).map(drop)
            } else {
                Ok(())
            })
        });
        let agent = durable(calling(&["pay"], &Count::default()), database.clone());
        agent.tool(pay).on_tool(wait).build().unwrap()
    };
    let next = async |answer| {
        let request = database.runs().request("run 1").await.unwrap();
        request.with_resolutions(answer)
    };
    let dies = async |request: AgentRequest, waits| {
        let (tool, _, has_begun) = waiting(&pay);
        let dies = tokio::spawn(program(tool, waits).run(request));
        has_begun.await.unwrap();
        dies.abort();
        dies.await.unwrap_err();
    };
    let lives = |waits| program(counting("pay", Effect::Mutating, &pay), waits);

    dies(request(), false).await;
    let paused = lives(true).run(next([].into()).await).await.unwrap();
    let again = answer(&paused, UnfinishedStep::RunAgain);
    let paused = lives(true).run(next(vec![again]).await).await.unwrap();
    assert_eq!(paused.interrupts()[0].name, "wait");
    let go_on = Resolution::resolved(&paused.interrupts()[0].id, true);
    dies(next(vec![go_on]).await, true).await;
    assert_eq!(pay.get(), 2);

    let paused = lives(false).run(next([].into()).await).await.unwrap();
    assert_eq!(paused.interrupts()[0].reason, UnfinishedStep::REASON);
    assert_eq!(pay.get(), 2);
    let paid = answer(&paused, UnfinishedStep::Done(json!("paid")));
    let done = lives(false).run(next(vec![paid]).await).await.unwrap();
    assert_eq!((told(&done), pay.get()), ("paid".to_owned(), 2));
}

#[tokio::test]
async fn an_agent_without_the_journal_does_not_make_the_call() {
    let (database, paid) = (Sqlite::in_memory().await.unwrap(), Keys::default());
    let agent = durable(calling(&["pay"], &Count::default()), database)
        .tool(slow(&paid, 1))
        .build()
        .unwrap();
    let paused = agent.run("Do it.").await.unwrap();
    let bare = Agent::builder(calling(&["pay"], &Count::default())).name("agent");
    let bare = bare.tool(slow(&paid, 1)).build().unwrap();
    for given in [
        UnfinishedStep::RunAgain,
        UnfinishedStep::Done(json!("paid")),
    ] {
        let answer = answer(&paused, given);
        let result = bare.run(go_on(&paused, [answer])).await;
        let text = match &result {
            Ok(response) => told(response),
            Err(error) => error.to_string(),
        };
        assert!(
            text.contains("`Durable` has an open question about this call"),
            "{text}"
        );
        assert_eq!(keys(&paid).len(), 1);
    }
}

#[tokio::test]
async fn an_answer_counts_in_a_session_once() {
    let (database, paid) = (Sqlite::in_memory().await.unwrap(), Keys::default());
    let agent = durable(calling(&["pay"], &Count::default()), database.clone());
    let agent = agent.tool(slow(&paid, 1)).build().unwrap();
    let agent = SessionLayer::new(database).layer(agent);
    let key = ConversationKey::new("shop", "ada", "1");
    let send = |request: AgentRequest| agent.clone().oneshot(key.request(request));
    let paused = send("Do it.".into()).await.unwrap();
    let again = send(AgentRequest::default()).await.unwrap();
    assert_eq!((asked(&again), keys(&paid).len()), (asked(&paused), 1));
    let done = || answer(&paused, UnfinishedStep::Done(json!("paid")));
    let answered = || AgentRequest::default().with_resolutions([done()]);
    assert_eq!(told(&send(answered()).await.unwrap()), "paid");
    let error = send(answered()).await.unwrap_err();
    assert!(error.message().contains("was answered before"), "{error}");
    assert_eq!(keys(&paid).len(), 1);
}

#[tokio::test]
async fn an_answer_counts_in_a_thread_once() {
    for (given, count) in [
        (UnfinishedStep::Done(json!("paid")), 1),
        (UnfinishedStep::RunAgain, 2),
    ] {
        let (database, paid) = (Sqlite::in_memory().await.unwrap(), Keys::default());
        let agent = durable(calling(&["pay"], &Count::default()), database);
        let agent = agent
            .tool(slow(&paid, 1))
            .on_tool(Approval::of_tools(["pay"]));
        let agent = agent.build().unwrap();
        let threads = Arc::new(Memory::default());
        let server = AgUi::builder(agent.clone())
            .threads(threads.clone())
            .allow_partial_history()
            .build();
        let nobody = Roles::default();
        let operator = Roles::new([UnfinishedStep::ROLE]);
        let send = async |roles: &Roles, run: &str, input: Value| {
            let mut input = input;
            (input["threadId"], input["runId"]) = (json!("t"), json!(run));
            let input = serde_json::from_value(input).unwrap();
            let events = server
                .run_with_roles("ada", roles.clone(), input)
                .await
                .map_err(|error| error.to_string())?;
            let events: Vec<_> = events.collect().await;
            let last = serde_json::to_value(events.last().unwrap()).unwrap();
            Ok::<_, String>(last["outcome"].clone())
        };
        let resume = |asked: &Value, payload: Value| {
            let id = &asked["interrupts"][0]["id"];
            let answer = json!({ "interruptId": id, "status": "resolved", "payload": payload });
            json!({ "messages": [], "resume": [answer] })
        };
        let message = json!({ "id": "m1", "role": "user", "content": "Do it." });
        let asked = send(&nobody, "r1", json!({ "messages": [message] }))
            .await
            .unwrap();
        let asked = send(&nobody, "r2", resume(&asked, json!({ "approved": true })))
            .await
            .unwrap();
        assert!(asked["interrupts"].is_null(), "not for the user: {asked}");
        let asked = send(&operator, "r2.5", json!({ "messages": [] }))
            .await
            .unwrap();
        assert_eq!(
            asked["interrupts"][0]["reason"],
            UnfinishedStep::REASON,
            "{asked}"
        );
        let answer = resume(&asked, given.into());
        let refused = send(&nobody, "r3", answer.clone()).await.unwrap_err();
        assert!(
            refused.contains("for a role that this client does not have"),
            "{refused}"
        );
        assert_eq!(keys(&paid).len(), 1);
        let end = send(&operator, "r4", answer.clone()).await.unwrap();
        assert!(end["interrupts"].is_null(), "{end}");
        assert_eq!(keys(&paid).len(), count);
        // The same answer again.
        let _ = send(&operator, "r5", answer).await;
        assert_eq!(keys(&paid).len(), count);
    }
}

#[tokio::test]
async fn a_redacted_call_has_the_key_that_its_question_shows() {
    let (database, paid) = (Sqlite::in_memory().await.unwrap(), Keys::default());
    let agent = || {
        // It pays to the address that it has found.
        let model = tower::service_fn(|request: ModelRequest| async move {
            let mut found = request.messages().iter().flat_map(Message::tool_results);
            let call = match found.next().map(|found| found.text()) {
                None => ToolCall::new("c0", "find", json!({})),
                Some(to) => {
                    assert!(!to.contains("ann@example.com"), "{to}");
                    ToolCall::new("c1", "pay", json!({ "to": to }))
                }
            };
            Ok::<_, BoxError>(match request.messages().len() {
                1 | 3 => ModelResponse::from_tool_calls([call]),
                _ => ModelResponse::from_text("Done."),
            })
        });
        let find = Tool::function("find", "Finds.", |_: Value| "ann@example.com");
        let redact = Redact::new([Detector::email()]).unwrap().numbered();
        let agent = durable(model, database.clone()).callbacks(redact.restore_when(|_| true));
        agent.tool(find).tool(slow(&paid, 1)).build().unwrap()
    };
    let mut seen = HashSet::new();
    for user in ["ada", "bob"] {
        let key = RunKey::new("run 1").of(user);
        let paused = agent().run(key.request("Pay Ann.")).await.unwrap();
        let (_, shown) = asked(&paused);
        let again = answer(&paused, UnfinishedStep::RunAgain);
        let request = database.runs().request(&key).await.unwrap();
        agent()
            .run(request.with_resolutions([again]))
            .await
            .unwrap();
        let keys = std::mem::take(&mut *paid.lock().unwrap());
        assert_eq!(keys, [shown.as_str().unwrap(); 2], "{user}");
        assert!(seen.insert(keys[0].clone()), "two users have one key");
    }
}
