//! Runs whose process is lost go on by one call, in their conversation and nowhere else.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::store::EndedLeases;
use tower::{Layer, ServiceExt};
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Effect, Error, ErrorKind, Request, Resolution, Tool,
    ToolRequest,
};
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_conversations::{
    ConversationKey, ConversationQuery, Inbox, Policy, Roles, Session, SessionLayer,
};
use tower_agent_durable::AgentInbox;
use tower_agent_durable::journal::{Durable, JournalError, RunInfo, RunQuery, RunStatus};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use crate::aged::Aged;
use crate::support::journal_error;

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

/// Who a tool was called for.
#[derive(Clone, Default)]
struct Users(Arc<Mutex<Vec<String>>>);

/// Pays once a call. If it `asks`, somebody approves each call.
fn agent(name: &str, model: &ScriptedModel, place: &Aged, users: &Users, asks: bool) -> Agent {
    let users = users.clone();
    let pay = Tool::function_with("pay", "Pays.", move |_: Value, request: ToolRequest| {
        let key = ConversationKey::of(request.context());
        let user = key.map_or_else(String::new, |key| key.user.to_string());
        users.0.lock().unwrap().push(user);
        std::future::ready("paid")
    });
    let mut agent = Agent::builder(model.clone())
        .name(name.to_owned())
        .tool(pay.effect(Effect::Mutating))
        .global_callbacks(Durable::new(place.database.clone()));
    if asks {
        agent = agent.on_tool(Approval::of_tools(["pay"]).by_role("support"));
    }
    agent.build().unwrap()
}

fn paying_and_hanging() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("pay", json!({})), Turn::pending()])
}

fn paying() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Paid.")])
}

fn saying(text: &str) -> ScriptedModel {
    ScriptedModel::new([Turn::from_text(text)])
}

fn texts(resumed: &[(RunInfo, Result<AgentResponse, Error>)]) -> Vec<String> {
    let text = |(_, result): &(_, Result<AgentResponse, Error>)| match result {
        Ok(response) => response.text(),
        Err(error) => error.to_string(),
    };
    resumed.iter().map(text).collect()
}

#[tokio::test]
async fn of_two_servers_that_look_for_lost_runs_one_goes_on_with_it_in_its_session() {
    let place = Aged::new("sweep").await;
    let users = Users::default();
    let sessions = || SessionLayer::new(EndedLeases(place.database.clone()));
    // A turn before: the run is not the first of its session.
    let before = agent("clerk", &saying("Hello."), &place, &users, false);
    let hello = key().request(AgentRequest::new("Hello.").with_run_id("run 0"));
    sessions().layer(before).oneshot(hello).await.unwrap();

    let model = paying_and_hanging();
    let dies = sessions().layer(agent("clerk", &model, &place, &users, false));
    let first = key().request(AgentRequest::new("Pay.").with_run_id("run 1"));
    place.killed(dies, &model, first).await;
    let lost = place.runs().get(&running(&place).await).await.unwrap();
    assert_eq!(lost.conversation, Some(key()));
    assert_eq!(lost.policy, Some(Policy::Session));
    assert!(!lost.is_alive(SystemTime::now()));

    let query = RunQuery::of_agent("clerk");
    let model = saying("It is paid.");
    let server = || sessions().layer(agent("clerk", &model, &place, &users, false));
    let runs = place.runs();
    let (one, other) = futures::join!(
        runs.resume_lost(&query, server()),
        runs.resume_lost(&query, server())
    );
    let mut resumed = one.unwrap();
    resumed.extend(other.unwrap());
    assert_eq!(texts(&resumed), ["It is paid."]);
    assert_eq!(*users.0.lock().unwrap(), ["ada"]);
    assert_eq!(place.status("run 1").await, RunStatus::Completed);
    let session = Session::load(&place.database, &key()).await.unwrap();
    let messages = session.unwrap().checkpoint.messages;
    assert_eq!(messages.len(), 6);
    assert_eq!(messages[5].text(), "It is paid.");
    assert!(
        place
            .runs()
            .resume_lost(&query, server())
            .await
            .unwrap()
            .is_empty()
    );
}

/// Returns the one that runs.
async fn running(place: &Aged) -> RunInfo {
    let query = RunQuery::new().status(RunStatus::Running);
    place.runs().list(&query).await.unwrap().remove(0)
}

#[tokio::test]
async fn a_run_of_a_session_does_not_go_on_outside_of_it() {
    let place = Aged::new("outside").await;
    let users = Users::default();
    let model = paying_and_hanging();
    let layer = SessionLayer::new(EndedLeases(place.database.clone()));
    let dies = layer.layer(agent("clerk", &model, &place, &users, false));
    let first = key().request(AgentRequest::new("Pay.").with_run_id("run 1"));
    place.killed(dies, &model, first).await;

    let bare = agent("clerk", &saying("It is paid."), &place, &users, false);
    let query = RunQuery::of_agent("clerk");
    let resumed = place.runs().resume_lost(&query, bare).await.unwrap();
    let error = resumed[0].1.as_ref().unwrap_err();
    let JournalError::OtherConversation { conversation, .. } = journal_error(error) else {
        panic!("{error}")
    };
    assert_eq!(**conversation, *"session `shop/ada/1`");
    assert_eq!(place.status("run 1").await, RunStatus::Running);

    place.a_minute_later().await;
    let whole = agent("clerk", &saying("It is paid."), &place, &users, false);
    let resumed = place.runs().resume_lost(&query, layer.layer(whole)).await;
    assert_eq!(texts(&resumed.unwrap()), ["It is paid."]);
    assert_eq!(users.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_lost_run_that_another_program_may_not_go_on_with_stays_as_it_was() {
    let place = Aged::new("lost-other").await;
    let users = Users::default();
    let model = paying_and_hanging();
    let dies = agent("clerk", &model, &place, &users, false);
    place
        .killed(dies, &model, AgentRequest::new("Pay.").with_run_id("run 1"))
        .await;

    let query = RunQuery::of_agent("clerk");
    for _ in 0..2 {
        let renamed = agent("payer", &saying("It is paid."), &place, &users, false);
        let resumed = place.runs().resume_lost(&query, renamed).await.unwrap();
        let error = resumed[0].1.as_ref().unwrap_err();
        let refusal = journal_error(error);
        assert!(
            matches!(refusal, JournalError::OtherProgram { .. }),
            "{error}"
        );
        assert_eq!(&*running(&place).await.agent, "clerk");
        let later = SystemTime::now() + Duration::from_secs(1);
        assert_eq!(place.runs().delete_ended(later).await.unwrap(), 0);
        place.a_minute_later().await;
    }

    let right = agent("clerk", &saying("It is paid."), &place, &users, false);
    let resumed = place.runs().resume_lost(&query, right).await.unwrap();
    assert_eq!(texts(&resumed), ["It is paid."]);
    assert_eq!(users.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn an_approval_in_a_session_under_another_run_id_counts_once() {
    let place = Aged::new("answered").await;
    let users = Users::default();
    let clerk = agent("clerk", &paying(), &place, &users, true);
    let chat = SessionLayer::new(place.database.clone()).layer(clerk.clone());
    let first = key().request(AgentRequest::new("Pay.").with_run_id("run 1"));
    let asked = chat.clone().oneshot(first).await.unwrap();
    let yes = || Resolution::resolved(&asked.interrupts()[0].id, Decision::Approve);

    // The question stands in one inbox, that of its session.
    let inbox = AgentInbox::runs(place.runs(), "clerk", clerk);
    let support = Roles::new(["support"]);
    let page = inbox.questions(&ConversationQuery::new(), &support).await;
    assert!(page.unwrap().questions.is_empty());
    let of_run = ConversationKey::new("clerk", "ada", "run 1");
    inbox.answer(of_run, support, yes()).await.unwrap_err();

    let run = place.runs().list(&RunQuery::new()).await.unwrap().remove(0);
    let of_journal = || async {
        let request = place.runs().request(&run).await.unwrap();
        request.with_resolutions([yes()])
    };
    let early = of_journal().await;
    let answer = key().request(AgentRequest::default().with_resolutions([yes()]));
    let done = chat.clone().oneshot(answer).await.unwrap();
    assert_eq!(done.text(), "Paid.");

    let again = chat.clone().oneshot(early).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict);
    let again = chat.oneshot(of_journal().await).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict);
    assert_eq!(*users.0.lock().unwrap(), ["ada"]);
    assert_eq!(place.status("run 1").await, RunStatus::Completed);
}

#[tokio::test]
async fn the_request_of_a_run_that_has_answered_in_its_session_has_its_answer() {
    let place = Aged::new("done").await;
    let users = Users::default();
    let model = paying();
    let clerk = agent("clerk", &model, &place, &users, false);
    let chat = SessionLayer::new(place.database.clone()).layer(clerk);
    let first = key().request(AgentRequest::new("Pay.").with_run_id("run 1"));
    chat.clone().oneshot(first).await.unwrap();

    let run = place.runs().list(&RunQuery::new()).await.unwrap().remove(0);
    let again = place.runs().request(&run).await.unwrap();
    assert_eq!(chat.oneshot(again).await.unwrap().text(), "Paid.");
    assert_eq!(
        (model.requests().len(), users.0.lock().unwrap().len()),
        (2, 1)
    );
}

#[tokio::test]
async fn a_run_of_a_thread_goes_on_in_the_thread_alone() {
    let place = Aged::new("thread").await;
    let users = Users::default();
    let clerk = agent("clerk", &paying(), &place, &users, true);
    let server = AgUi::builder(clerk.clone())
        .name("shop")
        .threads(place.database.clone())
        .build();
    let input = RunAgentInput::new("thread 1", "run 1", [Message::user("m1", "Pay.")]);
    let events: Vec<_> = server.run(input).await.unwrap().collect().await;
    assert!(!events.is_empty());

    let run = place.runs().list(&RunQuery::new()).await.unwrap().remove(0);
    let run_id = run.id.clone();
    assert_eq!(run.policy, Some(Policy::Thread));
    assert_eq!(run.status, RunStatus::Waiting);
    let refused = place.runs().request(&run).await.unwrap_err();
    let JournalError::OtherConversation { conversation, .. } = &refused else {
        panic!("{refused}")
    };
    assert_eq!(**conversation, *"thread `shop//thread 1`");
    assert!(users.0.lock().unwrap().is_empty());

    let support = Roles::new(["support"]);
    let query = ConversationQuery::new();
    let page = server.questions(&query, &support).await.unwrap();
    let question = page.questions.into_iter().next().unwrap();
    let yes = Resolution::resolved(&*question.id, Decision::Approve);
    let run = server.answer(question.key, support, yes).await.unwrap();
    run.for_each(|_| std::future::ready(())).await;
    assert_eq!(users.0.lock().unwrap().len(), 1);
    // The run with the answer has taken its place.
    assert_eq!(place.status(&run_id).await, RunStatus::Completed);
    let left = RunQuery::new().status(RunStatus::Waiting);
    assert!(place.runs().list(&left).await.unwrap().is_empty());
}
