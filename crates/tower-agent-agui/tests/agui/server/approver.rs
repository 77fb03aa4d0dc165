//! Questions for somebody else than the client: found in one list, answered without the client, and
//! told to it afterwards.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::{Agent, Resolution, Role, Tool};
use tower_agent_agui::conversations::{
    ConversationKey, ConversationQuery, Question, Roles, SealKey,
};
use tower_agent_agui::{
    AgUi, Conversation, Event, InputError, InputErrorKind, Message, MessageKind, RunAgentInput,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Refund {
    cents: u32,
}

/// The refunds that were made.
pub(crate) type Refunds = Arc<Mutex<Vec<u32>>>;

pub(crate) fn agent(model: &ScriptedModel, refunds: &Refunds) -> Agent {
    approved_by(approval(), model, refunds)
}

fn approval() -> Approval {
    Approval::of_tools(["refund"])
        .by_role("support")
        .allow_edits()
}

fn approved_by(approval: Approval, model: &ScriptedModel, refunds: &Refunds) -> Agent {
    let refunds = refunds.clone();
    let refund = Tool::function("refund", "Refunds.", move |Refund { cents }| {
        refunds.lock().unwrap().push(cents);
        format!("refunded {cents}")
    });
    Agent::builder(model.clone())
        .tool(refund)
        .on_tool(approval)
        .build()
        .unwrap()
}

pub(crate) fn wants(cents: u32) -> Turn {
    Turn::tool("refund", json!({ "cents": cents }))
}

/// The page of one customer.
pub(crate) struct Page {
    user: &'static str,
    shown: Conversation,
    runs: usize,
}

impl Page {
    pub(crate) fn new(user: &'static str) -> Self {
        Self {
            user,
            shown: Conversation::new([]),
            runs: 0,
        }
    }

    /// Says something, if it is not empty, and returns the events of the run.
    pub(crate) fn says(&mut self, server: &AgUi, text: &str) -> Vec<Value> {
        self.runs += 1;
        let run = format!("{}-{}", self.user, self.runs);
        let mut messages = self.shown.messages().to_vec();
        // As the official client does.
        messages.retain(|message| !matches!(message.kind, MessageKind::Activity { .. }));
        if !text.is_empty() {
            messages.push(Message::user(format!("u{}", self.runs), text));
        }
        let input = RunAgentInput::new("thread", run, messages.clone());
        self.shown = Conversation::new(messages);
        let run = now(server.run_for(self.user, input)).unwrap();
        let events: Vec<Event> = now(run.collect());
        events.iter().for_each(|event| self.shown.apply(event));
        events
            .iter()
            .map(|event| serde_json::to_value(event).unwrap())
            .collect()
    }

    /// Returns the conversation in short.
    pub(crate) fn reads(&self) -> Vec<String> {
        let messages = self.shown.messages().iter();
        messages
            .filter(|message| !matches!(message.kind, MessageKind::Activity { .. }))
            .map(|message| {
                let message = serde_json::to_value(message).unwrap();
                let words = message["content"].as_str().unwrap_or("(calls)");
                format!("{}: {words}", message["role"].as_str().unwrap())
            })
            .collect()
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing waits")
}

pub(crate) fn support() -> Roles {
    Roles::new(["support"])
}

pub(crate) fn questions(server: &AgUi, roles: &Roles) -> Vec<Question> {
    let query = ConversationQuery::new();
    now(server.questions(&query, roles)).unwrap().questions
}

/// Answers a question, and reads the run to its end.
pub(crate) fn answer(
    server: &AgUi,
    question: &Question,
    roles: Roles,
    decision: Decision,
) -> Result<(), InputError> {
    let answer = Resolution::resolved(&*question.id, decision);
    let run = now(server.answer(question.key.clone(), roles, answer))?;
    drop(now(run.collect::<Vec<_>>()));
    Ok(())
}

#[test]
fn an_approver_answers_without_the_customer_who_is_told_with_the_next_run() {
    let model = ScriptedModel::new([
        wants(5000),
        wants(70),
        Turn::from_text("You have 12.34 back."),
        Turn::from_text("With pleasure."),
    ]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    let (mut ada, mut bob) = (Page::new("ada"), Page::new("bob"));
    let events = ada.says(&server, "I want my money back.");
    assert_eq!(
        events.last().unwrap()["outcome"],
        json!({ "type": "success" })
    );
    bob.says(&server, "Me too.");

    assert!(questions(&server, &Roles::new(["audit"])).is_empty());
    let open = questions(&server, &support());
    let mut of: Vec<_> = open.iter().map(|question| &*question.key.user).collect();
    of.sort_unstable();
    assert_eq!(of, ["ada", "bob"]);
    let is_of_ada = |question: &&Question| *question.key.user == *"ada";
    let question = open.iter().find(is_of_ada).unwrap();
    let shown = json!({ "tool": "refund", "arguments": { "cents": 5000 } });
    assert_eq!(question.interrupt.payload, shown);

    let wrong_role = answer(&server, question, Roles::new(["audit"]), Decision::Approve);
    assert_eq!(wrong_role.unwrap_err().kind(), InputErrorKind::Forbidden);
    let mut elsewhere = question.clone();
    elsewhere.key = ConversationKey::new("", "bob", "thread");
    let elsewhere = answer(&server, &elsewhere, support(), Decision::Approve);
    assert_eq!(elsewhere.unwrap_err().kind(), InputErrorKind::NotOpen);
    assert!(refunds.lock().unwrap().is_empty());

    let edit = Decision::Edit(json!({ "cents": 1234 }));
    answer(&server, question, support(), edit).unwrap();
    assert_eq!(*refunds.lock().unwrap(), [1234]);
    let twice = answer(&server, question, support(), Decision::Approve);
    assert_eq!(twice.unwrap_err().kind(), InputErrorKind::NotOpen);
    let open = questions(&server, &support());
    assert_eq!(open.len(), 1, "that of bob stays open");

    let events = ada.says(&server, "Thank you.");
    let kinds: Vec<_> = events.iter().map(|event| &event["type"]).collect();
    let snapshot = "MESSAGES_SNAPSHOT";
    let first = ["RUN_STARTED", snapshot, snapshot, "ACTIVITY_SNAPSHOT"];
    assert_eq!(kinds[..4], first);
    assert_eq!(
        events[3]["content"],
        json!({ "for": [] }),
        "nobody is waited for any more"
    );
    let refunded = "tool: refunded 1234\n(The approver changed the arguments to {\"cents\":1234}.)";
    assert_eq!(
        ada.reads(),
        [
            "user: I want my money back.",
            "assistant: (calls)",
            refunded,
            "assistant: You have 12.34 back.",
            "user: Thank you.",
            "assistant: With pleasure.",
        ]
    );
    // The model has read the same.
    let seen = model.requests().last().unwrap().messages().clone();
    let roles: Vec<_> = seen.iter().map(|message| message.role()).collect();
    let (user, assistant) = (Role::User, Role::Assistant);
    assert_eq!(roles, [user, assistant, Role::Tool, assistant, user]);
    assert_eq!(refunds.lock().unwrap().len(), 1);
}

#[test]
fn what_a_customer_says_meanwhile_closes_no_question_and_follows_the_answer() {
    let model = ScriptedModel::new([
        wants(5000),
        Turn::from_text("You have it back."),
        Turn::from_text("Soon."),
    ]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    let mut ada = Page::new("ada");
    ada.says(&server, "I want my money back.");
    for text in ["Hello?", "When?", ""] {
        let events = ada.says(&server, text);
        assert_eq!(
            events.last().unwrap()["outcome"],
            json!({ "type": "success" }),
            "{text}"
        );
        let is_waiting = |event: &&Value| event["type"] == "ACTIVITY_SNAPSHOT";
        assert!(events.iter().any(|event| is_waiting(&event)), "{text}");
    }
    let open = questions(&server, &support());
    let [question] = &open[..] else {
        panic!("one question, still open: {open:?}");
    };
    answer(&server, question, support(), Decision::Approve).unwrap();
    assert_eq!(*refunds.lock().unwrap(), [5000]);
    ada.says(&server, "");
    assert_eq!(ada.reads().last().unwrap(), "assistant: Soon.");
    let seen = model.requests().last().unwrap().messages().clone();
    let texts: Vec<_> = seen.iter().map(|message| message.text()).collect();
    assert_eq!(texts[3..], ["You have it back.", "Hello?", "When?"]);
    model.assert_done();
}

#[test]
fn an_edit_that_does_not_fit_the_tool_is_refused_at_once_and_the_question_stays() {
    let model = ScriptedModel::new([wants(5000), Turn::from_text("Done.")]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    let mut ada = Page::new("ada");
    ada.says(&server, "I want my money back.");
    let question = questions(&server, &support()).remove(0);
    for edit in [json!({ "cents": -1 }), json!({ "euros": 5 }), json!("all")] {
        let refused = answer(&server, &question, support(), Decision::Edit(edit)).unwrap_err();
        assert_eq!(refused.kind(), InputErrorKind::Invalid, "{refused}");
        let waiting = questions(&server, &support());
        assert_eq!(waiting, std::slice::from_ref(&question));
    }
    assert!(refunds.lock().unwrap().is_empty());
    answer(&server, &question, support(), Decision::Approve).unwrap();
    assert_eq!(*refunds.lock().unwrap(), [5000]);
}

#[test]
fn of_two_approvers_who_answer_at_once_one_counts() {
    let model = ScriptedModel::new([wants(5000), Turn::from_text("Done.")]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    Page::new("ada").says(&server, "I want my money back.");
    let question = questions(&server, &support()).remove(0);
    let answer = |decision: Decision| {
        let answer = Resolution::resolved(&*question.id, decision);
        now(server.answer(question.key.clone(), support(), answer))
    };
    let first = answer(Decision::Approve).unwrap();
    let second = answer(Decision::reject("no")).unwrap_err();
    assert_eq!(second.kind(), InputErrorKind::Busy);
    drop(now(first.collect::<Vec<_>>()));
    let third = answer(Decision::reject("no")).unwrap_err();
    assert_eq!(third.kind(), InputErrorKind::NotOpen);
    assert_eq!(*refunds.lock().unwrap(), [5000]);
}

#[test]
fn a_run_of_an_approver_that_is_dropped_is_answered_again_and_pays_once() {
    let model = ScriptedModel::new([wants(5000), Turn::from_text("Done.")]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    let mut ada = Page::new("ada");
    ada.says(&server, "I want my money back.");
    let question = questions(&server, &support()).remove(0);
    let yes = Resolution::resolved(&*question.id, Decision::Approve);
    drop(now(server.answer(question.key.clone(), support(), yes)).unwrap());
    assert!(refunds.lock().unwrap().is_empty());
    answer(&server, &question, support(), Decision::Approve).unwrap();
    assert_eq!(*refunds.lock().unwrap(), [5000]);
}

#[test]
fn nobody_answers_a_users_own_question_in_place_of_the_user() {
    let model = ScriptedModel::new([wants(5000)]);
    let refund = Tool::function("refund", "Refunds.", |_: Refund| "refunded");
    let agent = Agent::builder(model)
        .tool(refund)
        .on_tool(Approval::of_tools(["refund"]))
        .build()
        .unwrap();
    let server = AgUi::new(agent);
    let mut ada = Page::new("ada");
    let events = ada.says(&server, "I want my money back.");
    let id = &events.last().unwrap()["outcome"]["interrupts"][0]["id"];
    assert!(questions(&server, &support()).is_empty());
    let key = ConversationKey::new("", "ada", "thread");
    let id = id.as_str().unwrap();
    for answer in [
        Resolution::resolved(id, Decision::Approve),
        Resolution::cancelled(id),
    ] {
        let refused = now(server.answer(key.clone(), support(), answer));
        assert_eq!(refused.unwrap_err().kind(), InputErrorKind::Forbidden);
    }
    let unknown = ConversationKey::new("", "eve", "thread");
    let refused = now(server.answer(unknown, support(), Resolution::cancelled(id)));
    assert_eq!(refused.unwrap_err().kind(), InputErrorKind::NotOpen);
    let other = ConversationKey::new("other", "ada", "thread");
    let refused = now(server.answer(other, support(), Resolution::cancelled(id)));
    assert_eq!(refused.unwrap_err().kind(), InputErrorKind::NotOpen);
}

#[test]
fn a_server_whose_clients_keep_the_threads_has_no_list_of_questions() {
    let server = AgUi::builder(agent(&ScriptedModel::new([]), &Refunds::default()))
        .stateless(SealKey::new([7; 32]))
        .build();
    let error = now(server.questions(&ConversationQuery::new(), &support())).unwrap_err();
    assert_eq!(error.kind(), InputErrorKind::Store);
}

#[test]
fn a_question_stays_in_the_inbox_while_a_run_with_the_answer_to_another_one_broke_off() {
    let both = wants(5000).and_tool("refund", json!({ "cents": 70 }));
    let model = ScriptedModel::new([both, Turn::from_text("One of them.")]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    Page::new("ada").says(&server, "I want my money back, twice.");
    let open = questions(&server, &support());
    assert_eq!(open.len(), 2);
    let yes = Resolution::resolved(&*open[0].id, Decision::Approve);
    drop(now(server.answer(open[0].key.clone(), support(), yes)).unwrap());
    let left = questions(&server, &support());
    assert_eq!(left.len(), 1);
    assert_eq!(
        (&left[0].id, &left[0].interrupt),
        (&open[1].id, &open[1].interrupt)
    );
    answer(&server, &open[1], support(), Decision::reject("no")).unwrap();
    answer(
        &server,
        &questions(&server, &support())[0],
        support(),
        Decision::Approve,
    )
    .unwrap();
    assert_eq!(*refunds.lock().unwrap(), [5000]);
}

/// A server whose questions have expired as soon as they are asked.
pub(crate) fn without_time(model: &ScriptedModel, refunds: &Refunds) -> AgUi {
    let approval = approval().deny_after(Duration::ZERO);
    AgUi::new(approved_by(approval, model, refunds))
}

const NOBODY: &str = "tool: the approver rejected this call: nobody answered in time";

#[test]
fn a_question_that_nobody_has_answered_in_time_is_denied_when_the_server_asks_for_it() {
    let model = ScriptedModel::new([
        wants(5000),
        wants(70),
        Turn::from_text("Not today."),
        Turn::from_text("Not today."),
        Turn::from_text("Bye."),
    ]);
    let refunds = Refunds::default();
    let server = without_time(&model, &refunds);
    let mut ada = Page::new("ada");
    ada.says(&server, "I want my money back.");
    Page::new("bob").says(&server, "Me too.");
    assert_eq!(questions(&server, &support()).len(), 2);
    assert_eq!(now(server.answer_expired()).unwrap(), 2);
    assert_eq!(now(server.answer_expired()).unwrap(), 0);
    assert!(questions(&server, &support()).is_empty());
    ada.says(&server, "Good bye.");
    assert_eq!(
        ada.reads()[2..],
        [
            NOBODY,
            "assistant: Not today.",
            "user: Good bye.",
            "assistant: Bye."
        ]
    );
    assert!(refunds.lock().unwrap().is_empty());
}

#[test]
fn a_late_answer_is_refused_by_its_kind_and_changes_nothing() {
    let model = ScriptedModel::new([wants(5000), Turn::from_text("Not today.")]);
    let refunds = Refunds::default();
    let server = without_time(&model, &refunds);
    let mut ada = Page::new("ada");
    ada.says(&server, "I want my money back.");
    let question = questions(&server, &support()).remove(0);
    for decision in [Decision::Approve, Decision::reject("no")] {
        let late = answer(&server, &question, support(), decision).unwrap_err();
        assert_eq!(late.kind(), InputErrorKind::Expired);
    }
    let wrong_role = answer(&server, &question, Roles::default(), Decision::Approve);
    assert_eq!(wrong_role.unwrap_err().kind(), InputErrorKind::Forbidden);
    assert_eq!(questions(&server, &support()), [question]);
    // The customer looks again, which is the next chance.
    ada.says(&server, "");
    assert_eq!(ada.reads()[2..], [NOBODY, "assistant: Not today."]);
    assert!(refunds.lock().unwrap().is_empty());
}

#[test]
fn what_a_customer_says_to_an_expired_question_follows_the_denial() {
    let model = ScriptedModel::new([wants(5000), Turn::from_text("Not today.")]);
    let refunds = Refunds::default();
    let server = without_time(&model, &refunds);
    let mut ada = Page::new("ada");
    ada.says(&server, "I want my money back.");
    ada.says(&server, "Hello?");
    let seen = model.requests().last().unwrap().messages().clone();
    assert_eq!(seen.last().unwrap().role(), Role::Tool);
    assert_eq!(ada.reads().last().unwrap(), "assistant: Not today.");
    model.assert_done();
}

#[test]
fn a_user_reads_until_when_a_question_can_be_answered_and_cancels_it_after_that() {
    let refunds = Refunds::default();
    let model = ScriptedModel::new([wants(5000), Turn::from_text("Not today.")]);
    let refund = Approval::of_tools(["refund"]).deny_after(Duration::ZERO);
    let server = AgUi::new(approved_by(refund, &model, &refunds));
    let mut ada = Page::new("ada");
    let events = ada.says(&server, "I want my money back.");
    let asked = &events.last().unwrap()["outcome"]["interrupts"][0];
    let expires_at = asked["expiresAt"].as_str().unwrap();
    assert!(
        expires_at.starts_with("20") && expires_at.ends_with('Z'),
        "{expires_at}"
    );
    let id = &asked["id"];
    let answer = |mut answer: Value| {
        answer["interruptId"] = id.clone();
        let mut input = RunAgentInput::new("thread", "again", ada.shown.messages().to_vec());
        input.resume = vec![serde_json::from_value(answer).unwrap()];
        now(server.run_for("ada", input))
    };
    let yes = json!({ "status": "resolved", "payload": { "approved": true } });
    let late = answer(yes).unwrap_err();
    assert_eq!(
        (late.kind(), late.path()),
        (InputErrorKind::Expired, "resume[0].interruptId")
    );
    let run = answer(json!({ "status": "cancelled" })).unwrap();
    let events: Vec<Event> = now(run.collect());
    events.iter().for_each(|event| ada.shown.apply(event));
    assert_eq!(ada.reads()[2..], [NOBODY, "assistant: Not today."]);
}
