//! The questions of servers over HTTP: who sees them, who answers, and what is refused.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::before_tool;
use tower_agent::{Agent, Resolution, Tool};
use tower_agent_agui::conversations::{
    Append, ConversationInfo, ConversationKey, ConversationQuery, ConversationStore, Inbox,
    InboxService, Inboxes, MemoryConversations, Roles, StoreError, StoredConversation,
};
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use super::approver::{Page, Refunds, agent, answer, questions, support, wants, without_time};
use super::extremes::values;

/// Roles come from a header here, which a program of your own must not do.
fn service<I: Inbox>(inbox: I) -> InboxService<I> {
    InboxService::new(inbox, |parts| {
        let roles = parts
            .headers
            .get("x-role")
            .and_then(|role| role.to_str().ok());
        Roles::new(
            roles
                .map(|roles| roles.split(' ').map(str::to_owned))
                .into_iter()
                .flatten(),
        )
    })
}

struct Reply {
    status: StatusCode,
    retry_after: Option<String>,
    body: Value,
}

async fn send<I: Inbox>(service: &InboxService<I>, request: Request<Full<Bytes>>) -> Reply {
    let response = service.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let retry_after = response.headers().get("retry-after");
    let retry_after = retry_after.map(|seconds| seconds.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&body).unwrap()
    };
    Reply {
        status,
        retry_after,
        body,
    }
}

async fn list<I: Inbox>(service: &InboxService<I>, role: &str, query: &str) -> Reply {
    let request = Request::get(format!("/inbox?{query}")).header("x-role", role);
    send(service, request.body(Full::default()).unwrap()).await
}

async fn post<I: Inbox>(service: &InboxService<I>, role: &str, body: String) -> Reply {
    let request = Request::post("/inbox")
        .header("x-role", role)
        .header("content-type", "application/json; charset=utf-8");
    send(service, request.body(body.into()).unwrap()).await
}

/// Returns the body that answers a listed question.
fn answering(question: &Value, answer: Value) -> String {
    json!({ "key": question["key"], "id": question["id"], "answer": answer }).to_string()
}

fn code(reply: &Reply) -> (u16, &str) {
    (
        reply.status.as_u16(),
        reply.body["error"]["code"].as_str().unwrap_or_default(),
    )
}

#[tokio::test]
async fn staff_see_the_exact_values_and_answer_with_others_while_the_agent_goes_on() {
    let model = ScriptedModel::new([wants(5000), Turn::from_text("You have it back.")]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    let mut ada = Page::new("ada");
    ada.says(&server, "I want my money back.");
    let service = service(server.clone());
    assert_eq!(
        list(&service, "audit", "").await.body["questions"],
        json!([])
    );
    let mut listed = list(&service, "audit support", "role=support").await.body;
    let question = listed["questions"][0].take();
    assert_eq!(
        question["key"],
        json!({ "app": "", "user": "ada", "id": "thread" })
    );
    assert_eq!(
        question["payload"],
        json!({ "tool": "refund", "arguments": { "cents": 5000 } })
    );
    assert_eq!(
        (&question["role"], &question["reason"]),
        (&json!("support"), &json!("tool_call"))
    );
    assert!(
        question["askedAt"]
            .as_u64()
            .is_some_and(|at| at > 1_700_000_000_000)
    );
    assert!(question["responseSchema"]["properties"]["editedArgs"].is_object());
    assert!(question.get("expiresAt").is_none());

    let edit = json!({ "approved": true, "editedArgs": { "cents": 12 } });
    let reply = post(&service, "support", answering(&question, edit)).await;
    assert_eq!(
        (reply.status, reply.body),
        (StatusCode::ACCEPTED, Value::Null)
    );
    let mut yields = 0;
    while refunds.lock().unwrap().is_empty() {
        yields += 1;
        assert!(yields < 1000, "the agent does not go on");
        tokio::task::yield_now().await;
    }
    assert_eq!(*refunds.lock().unwrap(), [12]);
    let again = post(
        &service,
        "support",
        answering(&question, json!({ "approved": true })),
    )
    .await;
    assert_eq!(code(&again), (404, "not_open"));
    assert_eq!(
        list(&service, "support", "").await.body["questions"],
        json!([])
    );
    ada.says(&server, "");
    assert_eq!(ada.reads().last().unwrap(), "assistant: You have it back.");
}

#[tokio::test]
async fn what_is_not_an_answer_of_somebody_with_the_role_is_refused() {
    let model = ScriptedModel::new([wants(5000)]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    Page::new("ada").says(&server, "I want my money back.");
    let service = service(server.clone());
    let question = list(&service, "support", "").await.body["questions"][0].take();
    let yes = answering(&question, json!({ "approved": true }));

    // Without a role, and with another one.
    let nobody = Request::get("/inbox").body(Full::default()).unwrap();
    assert_eq!(code(&send(&service, nobody).await), (403, "forbidden"));
    assert_eq!(
        code(&post(&service, "audit", yes.clone()).await),
        (403, "forbidden")
    );
    // A client that guesses.
    let mut elsewhere = question.clone();
    for (part, other) in [
        ("user", json!("bob")),
        ("user", json!("")),
        ("app", json!("x")),
    ] {
        elsewhere["key"] = question["key"].clone();
        elsewhere["key"][part] = other;
        let guess = answering(&elsewhere, json!({ "approved": true }));
        assert_eq!(
            code(&post(&service, "support", guess).await),
            (404, "not_open")
        );
    }
    // What is no answer.
    let twice = yes.replace(r#""approved":true"#, r#""approved":true,"approved":false"#);
    let more = yes.replacen('{', r#"{"role":"support","#, 1);
    let no_owner = r#"{"key":{"app":"","id":"thread"},"id":"1","answer":1}"#;
    let no_answer = r#"{"key":{"app":"","user":"","id":"thread"},"id":"1"}"#;
    for body in ["", "[]", "{", &twice, &more, no_owner, no_answer] {
        let reply = post(&service, "support", body.to_owned()).await;
        assert_eq!(code(&reply), (400, "invalid"), "{body}");
    }
    let large = format!("{}{}", " ".repeat(1 << 20), yes);
    assert_eq!(
        code(&post(&service, "support", large).await),
        (413, "invalid")
    );
    // As a form of another site posts it.
    let form = Request::post("/inbox")
        .header("x-role", "support")
        .header("content-type", "text/plain");
    let form = form.body(Full::from(yes.clone())).unwrap();
    assert_eq!(code(&send(&service, form).await), (415, "invalid"));
    let put = Request::builder()
        .method(Method::PUT)
        .header("x-role", "support");
    let put = put.body(Full::default()).unwrap();
    assert_eq!(code(&send(&service, put).await), (405, "invalid"));
    for query in ["limit=x", "after=x", "after=W10"] {
        assert_eq!(
            code(&list(&service, "support", query).await),
            (400, "invalid"),
            "{query}"
        );
    }
    assert!(refunds.lock().unwrap().is_empty());

    // While another approver's run has the thread.
    let first = &questions(&server, &support())[0];
    let decision = tower_agent::Resolution::resolved(&*first.id, Decision::reject("no"));
    let run = server
        .answer(first.key.clone(), support(), decision)
        .await
        .unwrap();
    let busy = post(&service, "support", yes).await;
    assert_eq!(code(&busy), (409, "busy"));
    assert!(busy.retry_after.unwrap().parse::<u64>().unwrap() > 0);
    drop(run);
}

#[tokio::test]
async fn a_question_says_until_when_and_is_refused_after_that() {
    let model = ScriptedModel::new([wants(5000), Turn::from_text("Not today.")]);
    let refunds = Refunds::default();
    let server = without_time(&model, &refunds);
    Page::new("ada").says(&server, "I want my money back.");
    let service = service(server.clone());
    let question = list(&service, "support", "").await.body["questions"][0].take();
    assert!(question["expiresAt"].as_u64() <= question["askedAt"].as_u64());
    let late = post(
        &service,
        "support",
        answering(&question, json!({ "approved": true })),
    )
    .await;
    assert_eq!(code(&late), (409, "expired"));
    assert_eq!(Inbox::answer_expired(&server).await.unwrap(), 1);
    assert_eq!(
        list(&service, "support", "").await.body["questions"],
        json!([])
    );
    assert!(refunds.lock().unwrap().is_empty());
}

/// Returns the users who are asked about.
fn users(list: &Value) -> Vec<String> {
    let questions = list["questions"].as_array().unwrap().iter();
    questions
        .map(|question| question["key"]["user"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the users of all pages.
async fn in_pages<I: Inbox>(inbox: &InboxService<I>, limit: u32) -> Vec<String> {
    let mut paged = Vec::new();
    let mut page = list(inbox, "support", &format!("limit={limit}")).await.body;
    loop {
        paged.extend(users(&page));
        let Some(next) = page["next"].as_str() else {
            return paged;
        };
        let query = format!("limit={limit}&after={next}");
        page = list(inbox, "support", &query).await.body;
    }
}

/// Lists each conversation as one of another part of one millisecond.
#[derive(Default)]
struct OneMoment(MemoryConversations);

impl ConversationStore for OneMoment {
    async fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> Result<Option<StoredConversation>, StoreError> {
        self.0.load(key, from).await
    }

    async fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        self.0.append(key, expected, append).await
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, StoreError> {
        let mut all = query.clone();
        all.after = None;
        let mut page = self.0.list(&all.limit(u32::MAX)).await?;
        page.sort_by(|one, other| one.key.cmp(&other.key));
        let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let timed = page.iter().enumerate().map(|(number, found)| {
            let at = moment + Duration::from_micros(number as u64);
            let timed = ConversationInfo::new(found.key.clone(), found.version, at);
            timed.kind(found.kind.clone()).waiting(found.is_waiting)
        });
        let mut timed: Vec<_> = timed.filter(|found| query.selects(found)).collect();
        timed.sort_by(|a, b| (b.updated_at, &b.key).cmp(&(a.updated_at, &a.key)));
        timed.truncate(query.limit as usize);
        Ok(timed)
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.0.delete(key).await
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        self.0.delete_expired().await
    }
}

#[tokio::test]
async fn questions_of_one_moment_are_all_in_the_pages() {
    let refunds = Refunds::default();
    let server = |name: &str| {
        let model = ScriptedModel::always(wants(1));
        let agent = agent(&model, &refunds);
        AgUi::builder(agent)
            .name(name)
            .threads(OneMoment::default())
            .build()
    };
    let shop = server("shop");
    let bank = server("bank");
    for (user, server) in [
        ("ada", &shop),
        ("bob", &bank),
        ("cid", &shop),
        ("dan", &bank),
        ("eve", &shop),
    ] {
        Page::new(user).says(server, "I want my money back.");
    }
    let inbox = service(Inboxes::default().with(shop).with(bank));
    for limit in 1..=3 {
        let all = in_pages(&inbox, limit).await;
        assert_eq!(all, ["eve", "cid", "ada", "dan", "bob"], "{limit}");
    }
}

#[tokio::test]
async fn the_questions_of_several_servers_are_one_list_in_pages_and_each_goes_on_in_its_own() {
    let refunds = Refunds::default();
    let server = |name: &str| {
        let model = ScriptedModel::always(wants(1));
        AgUi::builder(agent(&model, &refunds)).name(name).build()
    };
    let shop = server("shop");
    let bank = server("bank");
    for (user, server) in [
        ("ada", &shop),
        ("bob", &bank),
        ("cid", &bank),
        ("dan", &shop),
        ("eve", &bank),
    ] {
        Page::new(user).says(server, "I want my money back.");
    }
    let inbox = Inboxes::default().with(shop.clone()).with(bank.clone());
    let inbox = service(inbox);
    let whole = list(&inbox, "support", "").await.body;
    let mut all = users(&whole);
    let asked: Vec<_> = whole["questions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|question| question["askedAt"].as_u64())
        .collect();
    assert!(
        asked.is_sorted_by(|later, earlier| later >= earlier),
        "{asked:?}"
    );
    for limit in 1..=3 {
        assert_eq!(in_pages(&inbox, limit).await, all, "{limit}");
    }
    all.sort();
    assert_eq!(all, ["ada", "bob", "cid", "dan", "eve"]);
    let of_bank = list(&inbox, "support", "agent=bank").await.body;
    assert_eq!(users(&of_bank).len(), 3);

    let question = of_bank["questions"][0].clone();
    let no = json!({ "approved": false, "reason": "no" });
    let reply = post(&inbox, "support", answering(&question, no)).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED);
    // The same thread id at the other server is another thread.
    let everything = ConversationQuery::new();
    let at_shop = shop.questions(&everything, &support()).await.unwrap();
    assert_eq!(at_shop.questions.len(), 2);
    answer(&shop, &at_shop.questions[0], support(), Decision::Approve).unwrap();
    assert_eq!(*refunds.lock().unwrap(), [1]);
}

/// The order changes while it waits, and the customer lets the conversation go on without an
/// answer. Sam, who is the customer, works in support.
#[tokio::test]
async fn an_answer_counts_for_what_was_shown_and_for_who_may_give_it() {
    let cents = Arc::new(AtomicU32::new(10));
    let refunds = Arc::<Mutex<Vec<Value>>>::default();
    let total = cents.clone();
    let made = refunds.clone();
    let refund = Tool::function("refund", "", move |arguments: Value| {
        made.lock().unwrap().push(arguments["cents"].clone());
        "refunded"
    });
    let model = ScriptedModel::new([Turn::tool("refund", json!({})), Turn::from_text("Done.")]);
    let approval = Approval::of_tools(["refund"]).by_role("support");
    let approval = approval.not_by(|run| Some(ConversationKey::of(run)?.user.to_string()));
    let agent = Agent::builder(model)
        .tool(refund)
        .on_tool(before_tool(move |call| {
            call.arguments_mut()["cents"] = total.load(Ordering::SeqCst).into();
        }))
        .on_tool(approval)
        .build()
        .unwrap();
    let server = AgUi::builder(agent).allow_partial_history().build();
    let says = async |messages: Vec<Message>| {
        let input = RunAgentInput::new("my order", "run", messages);
        let run = server.run_for("sam", input).await.unwrap();
        run.for_each(|_| std::future::ready(())).await;
    };
    says(vec![Message::user("u1", "My money back.")]).await;
    let inbox = InboxService::new(server.clone(), |parts| {
        let name = parts.headers["x-role"].to_str().unwrap();
        Roles::new(["support"]).named(name)
    });
    let shown = list(&inbox, "kim", "").await.body["questions"][0].clone();
    cents.store(900_000, Ordering::SeqCst);
    says(vec![]).await;

    let yes = json!({ "approved": true });
    let stale = post(&inbox, "kim", answering(&shown, yes.clone())).await;
    assert_eq!(code(&stale), (404, "not_open"));
    let asked = list(&inbox, "kim", "").await.body["questions"][0].clone();
    assert_eq!(asked["payload"]["arguments"]["cents"], 900_000);
    let own = post(&inbox, "sam", answering(&asked, yes.clone())).await;
    assert_eq!(code(&own), (403, "forbidden"));
    let unfit = json!({ "approved": true, "editedArgs": {} });
    let unfit = post(&inbox, "kim", answering(&asked, unfit)).await;
    assert_eq!(code(&unfit), (400, "invalid"));
    assert_eq!(list(&inbox, "kim", "").await.body["questions"][0], asked);
    assert_eq!(*refunds.lock().unwrap(), [] as [Value; 0]);

    let app = asked["key"]["app"].as_str().unwrap();
    let key = ConversationKey::new(app, "sam", "my order");
    let id = asked["id"].as_str().unwrap();
    let answer = Resolution::resolved(id, Decision::Approve);
    let roles = Roles::new(["support"]).named("kim");
    Inbox::answer(&server, key, roles, answer)
        .await
        .unwrap()
        .await;
    assert_eq!(*refunds.lock().unwrap(), [900_000]);
}

/// A body of an answer in which a value stands in one field.
type Field = (&'static str, fn(&Value, Value) -> Value);

const FIELDS: [Field; 6] = [
    ("app", |question, value| in_key(question, "app", value)),
    ("user", |question, value| in_key(question, "user", value)),
    ("id of the conversation", |question, value| {
        in_key(question, "id", value)
    }),
    (
        "key",
        |question, value| json!({ "key": value, "id": question["id"], "answer": true }),
    ),
    (
        "id",
        |question, value| json!({ "key": question["key"], "id": value, "answer": true }),
    ),
    (
        "answer",
        |question, value| json!({ "key": question["key"], "id": question["id"], "answer": value }),
    ),
];

fn in_key(question: &Value, field: &str, value: Value) -> Value {
    let mut key = question["key"].clone();
    key[field] = value;
    json!({ "key": key, "id": question["id"], "answer": { "approved": true } })
}

#[tokio::test]
async fn nothing_that_staff_says_multiplies_or_is_a_fault_of_the_server() {
    let model = ScriptedModel::new([wants(5), Turn::from_text("You have it back.")]);
    let refunds = Refunds::default();
    let server = AgUi::new(agent(&model, &refunds));
    Page::new("ada").says(&server, "I want my money back.");
    let service = service(server.clone());
    let question = list(&service, "support", "").await.body["questions"][0].take();
    let mut broken = Vec::new();
    let mut look = |place: &str, number: usize, sent: usize, reply: &Reply| {
        let length = reply.body.to_string().len();
        // A refusal may quote what it refuses once.
        if !reply.status.is_client_error() || length > sent + 4096 {
            broken.push(format!(
                "{place}, value {number}: {}, {length} bytes",
                reply.status
            ));
        }
    };
    for (number, value) in values().into_iter().enumerate() {
        for (field, build) in FIELDS {
            // The application of this server has no name, as the question's own key says.
            let is_right = field == "app" && value == "";
            // An answer of `null` fits every question: the server takes it.
            let is_null = field == "answer" && value.is_null();
            if is_right || is_null {
                continue;
            }
            let body = build(&question, value.clone()).to_string();
            let sent = body.len();
            let reply = post(&service, "support", body).await;
            look(field, number, sent, &reply);
        }
    }
    for (number, after) in ["x", "bnVsbA", "W10", &"W".repeat(1 << 14)]
        .into_iter()
        .enumerate()
    {
        let reply = list(&service, "support", &format!("after={after}")).await;
        look("after", number, after.len(), &reply);
    }
    for (number, limit) in ["-1", "1e9", "99999999999999999999", "x"]
        .into_iter()
        .enumerate()
    {
        let reply = list(&service, "support", &format!("limit={limit}")).await;
        look("limit", number, limit.len(), &reply);
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    for limit in ["0", "4294967295"] {
        let listed = list(&service, "support", &format!("limit={limit}")).await;
        assert_eq!(listed.body["questions"].as_array().map(Vec::len), Some(1));
    }
    // A name of somebody who does not exist is none of a fault either.
    let long = "x".repeat(1 << 14);
    for query in [format!("agent={long}"), format!("role={long}")] {
        let listed = list(&service, "support", &query).await;
        let length = listed.body.to_string().len();
        assert!(
            !listed.status.is_server_error() && length < long.len() + 4096,
            "{length}"
        );
    }
    // Nothing of that has counted as an answer.
    assert_eq!(*refunds.lock().unwrap(), [0; 0]);
    let approved = answering(&question, json!({ "approved": true }));
    let reply = post(&service, "support", approved).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED);
}
