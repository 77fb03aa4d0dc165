//! Messages of one conversation in another one whose run has the same id: a label belongs to the
//! message that it was given to, and not to its id.

use std::collections::BTreeSet;

use tower_agent::agent::SavedRequest;
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::{AgentRequest, Checkpoint, Message, Part, Request, Role};
use tower_agent_test::Turn;

use super::*;
use crate::guards::saved;

fn done() -> Turn {
    Turn::from_text("Done.")
}

fn pay() -> Turn {
    Turn::tool("pay", pay_mallory())
}

/// Has a conversation in which one tool is called, in a run with an id that others have as well.
async fn conversation(tool: &str) -> Checkpoint {
    let model = ScriptedModel::new([Turn::tool(tool, json!({})), done()]);
    let request = AgentRequest::new("What is new?").with_run_id("daily");
    let agent = guarded(&model, &Log::default(), flow());
    saved(&agent.run(request).await.unwrap())
}

/// Returns whether a payment is made in a run with this request.
async fn pays(request: AgentRequest) -> bool {
    let log = Log::default();
    let model = ScriptedModel::new([pay(), done()]);
    guarded(&model, &log, flow()).run(request).await.unwrap();
    model.assert_done();
    !log.take().is_empty()
}

fn goes_on(checkpoint: Checkpoint) -> AgentRequest {
    AgentRequest::resume(checkpoint).with_message("Go on.")
}

#[tokio::test]
async fn messages_under_the_head_of_another_conversation_have_no_label() {
    let trusted = conversation("today").await;
    let others = conversation("read_mail").await;
    assert!(pays(goes_on(trusted.clone())).await);
    assert!(!pays(goes_on(others.clone())).await);

    let under_its_head = Checkpoint {
        head: trusted.head.clone(),
        messages: others.messages.clone(),
    };
    assert!(!pays(goes_on(under_its_head)).await);
    let as_a_branch = trusted.clone().with_messages(others.messages.clone());
    assert!(!pays(goes_on(as_a_branch)).await);
    let added = others.messages.iter().cloned();
    let added = added.fold(AgentRequest::resume(trusted.clone()), |request, message| {
        request.with_message(message)
    });
    assert!(!pays(added.with_message("Go on.")).await);
    // One message of it in the place of another.
    for at in 1..trusted.messages.len() {
        let mut mixed = trusted.clone();
        *mixed.messages.get_mut(at).unwrap() = others.messages.get(at).unwrap().clone();
        let is_same = mixed.messages == trusted.messages;
        assert_eq!(pays(goes_on(mixed)).await, is_same, "{at}");
    }
}

#[tokio::test]
async fn what_was_mixed_once_stays_without_a_label() {
    let trusted = conversation("today").await;
    let others = conversation("read_mail").await;
    let log = Log::default();
    let model = ScriptedModel::always(done());
    let mixed = goes_on(trusted.with_messages(others.messages));
    let ended = guarded(&model, &log, flow()).run(mixed).await.unwrap();
    assert!(!pays(goes_on(saved(&ended))).await);
}

#[tokio::test]
async fn a_message_that_was_there_before_has_not_the_label_of_a_later_one() {
    // The numbers of messages that this run is going to have.
    for number in 1..8 {
        for role in [Role::Tool, Role::User] {
            let id = format!("daily-m{number}-t0-result");
            let call = ToolCall::new("0", "today", json!({}));
            let result = ToolResult::new(&call, [Part::from_text(SECRET)]);
            let result = Message::new(role, [Part::from(result)]).with_id(id);
            let model = ScriptedModel::new([
                Turn::tool("today", json!({})),
                Turn::tool("today", json!({})),
                Turn::tool("today", json!({})),
                done(),
            ]);
            let request = AgentRequest::conversation([result])
                .with_message("What day is it?")
                .with_run_id("daily");
            let agent = guarded(&model, &Log::default(), flow());
            let ended = agent.run(request).await.unwrap();
            let ids = ended.messages().iter().map(|message| message.id().unwrap());
            let ids: BTreeSet<_> = ids.map(ToString::to_string).collect();
            assert_eq!(ids.len(), ended.messages().len(), "{number} {role:?}");
            assert!(!pays(goes_on(saved(&ended))).await, "{number} {role:?}");
        }
    }
}

#[tokio::test]
async fn a_conversation_keeps_the_labels_of_its_own_messages() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("today", json!({})),
        done(),
        Turn::tool("read_mail", json!({})),
        done(),
    ]);
    let agent = guarded(&model, &log, flow());
    let first = saved(&agent.run("What day is it?").await.unwrap());
    let both = saved(&agent.run(goes_on(first.clone())).await.unwrap());
    assert!(!pays(goes_on(both.clone())).await);
    // A user who edits a message goes on from what was before it.
    let mut branch = both.messages.clone();
    branch.truncate(first.messages.len());
    assert!(pays(goes_on(both.with_messages(branch))).await);
    // A program may run the conversation with other agents, which label nothing.
    let plain = ScriptedModel::always(done());
    let plain = Agent::builder(plain).build().unwrap();
    let later = saved(&plain.run(goes_on(first.clone())).await.unwrap());
    assert!(!pays(goes_on(later)).await);
    // A store may have the request, and run it later.
    let request = serde_json::to_string(&SavedRequest::from(&goes_on(first)));
    let request: SavedRequest = serde_json::from_str(&request.unwrap()).unwrap();
    assert!(pays(request.into()).await);
}

#[tokio::test]
async fn an_agent_that_is_asked_twice_in_one_run_knows_what_it_has_answered() {
    for (tool, is_paid) in [("today", true), ("read_mail", false)] {
        let log = Log::default();
        let model = ScriptedModel::new([Turn::tool(tool, json!({})), done(), pay(), done()]);
        let agent = guarded(&model, &log, flow());
        let first = AgentRequest::new("What is new?");
        let run = first.context().clone();
        let mut second = first.clone();
        let answer = agent.run(first).await.unwrap();
        second.messages_mut().clone_from(answer.messages());
        second.messages_mut().push(Message::user("Go on."));
        assert_eq!(second.context().run_id(), run.run_id());
        agent.run(second).await.unwrap();
        model.assert_done();
        assert_eq!(!log.take().is_empty(), is_paid, "{tool}");
    }
}
