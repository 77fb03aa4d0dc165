//! A user, who comes with an order or a question, and does not go before there is an answer.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tower_agent::{BoxError, Resolution};
use tower_agent_agui::{Conversation, Message};
use tower_agent_durable::journal::UnfinishedStep;

use crate::bank;
use crate::server::{JOBS, ROLE, USER};
use crate::wire::{self, Host};
use crate::world::World;

pub(crate) const SERVERS: [Host; 2] = ["server-1", "server-2"];

/// The tries after which a user is stuck.
const TRIES: u32 = 60;

/// A user of one thread.
struct User {
    world: World,
    name: String,
    conversation: Conversation,
    /// The answers to the questions of the last run.
    resume: Vec<Value>,
    /// Set if they are those of an operator.
    is_operator: bool,
    requests: u32,
}

/// The end of a run, for its user.
#[derive(Debug)]
enum End {
    Answered,
    Asked(Vec<Value>),
    /// It failed for good.
    Failed,
    /// The answers were not taken.
    Refused,
}

pub(crate) async fn run(world: World, number: u32) {
    let name = format!("user-{number}");
    let mut user = User {
        world: world.clone(),
        name: name.clone(),
        conversation: Conversation::new(Vec::new()),
        resume: Vec::new(),
        is_operator: false,
        requests: 0,
    };
    if world.once_in(3) {
        if user.job(&format!("{name}/job")).await {
            world.seen().done.insert(name);
        }
        return;
    }
    let orders = 1 + world.below(3);
    for order in 0..orders {
        let words = match world.below(8) {
            0 => format!("Look around, {name} {order}"),
            1 => format!("Good morning, {name} {order}"),
            _ => format!("Pay {name}/{order}"),
        };
        if !user.ask(order, &words).await {
            return;
        }
        sleep(world.time(Duration::from_secs(20))).await;
    }
    world.seen().done.insert(name);
}

impl User {
    /// Says something and waits for the answer; returns whether it came.
    async fn ask(&mut self, number: u32, words: &str) -> bool {
        let order = words.trim_start_matches("Pay ").to_owned();
        let says_yes = !self.world.once_in(6);
        let mut messages = self.conversation.messages().to_vec();
        messages.push(Message::user(format!("m{number}"), words));
        self.conversation = Conversation::new(messages);
        self.resume.clear();
        for _ in 0..TRIES {
            let server = SERVERS[self.world.below(2) as usize];
            self.count(words);
            let sent = self.send(server).await;
            self.note(format!("{server} {} answers: {sent:?}", self.resume.len()));

            match sent {
                Ok(End::Answered) => {
                    let last = self.conversation.messages().last();
                    let said = last.map(|message| json!(message).to_string());
                    if said.is_some_and(|said| said.contains("It is paid.")) {
                        self.world.seen().told.insert(order);
                    }
                    return true;
                }
                Ok(End::Failed) => return true,
                Ok(End::Asked(questions)) => {
                    self.resume.clear();
                    self.is_operator = false;
                    for question in &questions {
                        let reason = question["reason"].as_str().unwrap_or_default();
                        self.is_operator |= reason == UnfinishedStep::REASON;
                        let payload = answer(&self.world, reason, &order, says_yes).await;
                        let id = &question["id"];
                        self.resume.push(json!({
                            "interruptId": id, "status": "resolved", "payload": payload,
                        }));
                    }
                }
                Ok(End::Refused) => self.resume.clear(),
                Err(_) => {
                    let wait = self.world.time(Duration::from_secs(10));
                    sleep(Duration::from_secs(1) + wait).await;
                }
            }
        }
        false
    }

    /// Has an order paid by a run without a page; returns whether it came to an end.
    async fn job(&mut self, order: &str) -> bool {
        let mut answers = Vec::new();
        self.world.seen().approved.insert(order.to_owned());
        for _ in 0..TRIES {
            let server = SERVERS[self.world.below(2) as usize];
            let sent = self.send_job(server, order, &answers).await;
            let note = format!("{server} {} answers: {sent:?}", answers.len());
            self.note(note);
            let Ok(sent) = sent else {
                let wait = self.world.time(Duration::from_secs(10));
                sleep(Duration::from_secs(1) + wait).await;
                continue;
            };
            answers.clear();
            for question in sent["questions"].as_array().into_iter().flatten() {
                let reason = question["reason"].as_str().unwrap_or_default();
                let payload = answer(&self.world, reason, order, true).await;
                let id = question["id"].as_str().unwrap_or_default();
                answers.push(Resolution::resolved(id, payload));
            }
            if answers.is_empty() {
                if sent["text"] == "It is paid." {
                    self.world.seen().told.insert(order.to_owned());
                }
                return true;
            }
        }
        false
    }

    async fn send_job(
        &mut self,
        server: Host,
        order: &str,
        answers: &[Resolution],
    ) -> Result<Value, BoxError> {
        self.count(&format!("Pay {order}"));
        let body = json!({ "order": order, "answers": answers });
        let sent = wire::post(server, JOBS, &[], &body);
        let response = timeout(Duration::from_secs(60), sent).await??;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if status == http::StatusCode::OK {
            Ok(serde_json::from_slice(&body)?)
        } else {
            Err(String::from_utf8_lossy(&body).into())
        }
    }

    fn note(&self, note: String) {
        let now = turmoil::sim_elapsed().unwrap_or_default();
        self.world.note(&self.name, format!("{now:?} {note}"));
    }

    /// Counts a request with these words.
    fn count(&self, words: &str) {
        let mut seen = self.world.seen();
        *seen.requests.entry(words.to_owned()).or_default() += 1;
    }

    async fn send(&mut self, server: Host) -> Result<End, BoxError> {
        self.requests += 1;
        let mut input = json!({
            "threadId": self.name,
            "runId": format!("{}-{}", self.name, self.requests),
            "messages": self.conversation.messages(),
        });
        if !self.resume.is_empty() {
            input["resume"] = json!(self.resume);
        }
        let operator = if self.is_operator {
            UnfinishedStep::ROLE
        } else {
            ""
        };
        let headers = [(USER, &*self.name), (ROLE, operator)];
        let sent = wire::post(server, "/", &headers, &input);
        let response = timeout(Duration::from_secs(30), sent).await??;
        let status = response.status().as_u16();
        let is_later = response.headers().contains_key(http::header::RETRY_AFTER);
        if status != 200 {
            let body = response.into_body().collect().await?.to_bytes();
            // Only its answers can be wrong with the request: somebody has given them already.
            if (400..500).contains(&status) && !is_later && !self.resume.is_empty() {
                self.world.fault("answers refused");
                return Ok(End::Refused);
            }
            let body = String::from_utf8_lossy(&body);
            return Err(format!("{status} {body}").into());
        }
        let mut body = response.into_body();
        let mut text = Vec::new();
        let mut end = Err("no end".into());
        while let Ok(Some(frame)) = timeout(Duration::from_secs(60), body.frame()).await {
            text.extend(frame?.into_data().unwrap_or_default());
            while let Some(at) = text.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = text.drain(..at + 2).collect();
                let event = String::from_utf8(event)?;
                let Some(event) = event.trim().strip_prefix("data: ") else {
                    continue;
                };
                let event: Value = serde_json::from_str(event)?;
                if let Some(ended) = end_in(&event) {
                    end = ended;
                }
                self.conversation.apply(&serde_json::from_value(event)?);
            }
        }
        end
    }
}

/// Returns the end of a run that an event tells of.
fn end_in(event: &Value) -> Option<Result<End, BoxError>> {
    match event["type"].as_str()? {
        "RUN_FINISHED" => Some(Ok(match event["outcome"]["interrupts"].as_array() {
            Some(questions) => End::Asked(questions.clone()),
            None => End::Answered,
        })),
        // A budget that is used up ends its run for good.
        "RUN_ERROR" if event["code"] == "budget_exceeded" => Some(Ok(End::Failed)),
        "RUN_ERROR" => Some(Err(event.to_string().into())),
        _ => None,
    }
}

/// Answers a question: the user's own, or one for an operator, who looks at the bank.
async fn answer(world: &World, reason: &str, order: &str, says_yes: bool) -> Value {
    {
        let mut seen = world.seen();
        *seen.asked.entry(reason.to_owned()).or_default() += 1;
    }
    if reason == UnfinishedStep::REASON {
        sleep(bank::SETTLED).await;
        return if world.seen().paid.contains_key(order) {
            UnfinishedStep::Done(json!("paid")).into()
        } else {
            UnfinishedStep::RunAgain.into()
        };
    }
    if says_yes {
        world.seen().approved.insert(order.to_owned());
    }
    json!({ "approved": says_yes })
}
