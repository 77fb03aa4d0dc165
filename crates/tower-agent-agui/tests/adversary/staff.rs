//! People who answer in place of the client: some with the role, some without, some late, some
//! twice.

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::Resolution;
use tower_agent_agui::conversations::{ConversationKey, ConversationQuery, Question, Roles};
use tower_agent_agui::{AgUi, AgUiRun};

use super::client::place;
use super::world::{Rng, World};

/// The role that may grant.
pub(crate) const ROLE: &str = "support";

/// So many questions are remembered, most of which are answered by then.
const MEMORY: usize = 20;

pub(crate) struct Staff {
    server: AgUi,
    world: World,
    rng: Rng,
    seen: Vec<Question>,
    answers: usize,
    pub(crate) refused: usize,
}

impl Staff {
    pub(crate) fn new(server: AgUi, world: World, rng: Rng) -> Self {
        Self {
            server,
            world,
            rng,
            seen: Vec::new(),
            answers: 0,
            refused: 0,
        }
    }

    /// Looks for questions and answers one. Returns the questions that it saw, as somebody tells
    /// them to a client.
    pub(crate) async fn answer(&mut self) -> Vec<Value> {
        let all = [&[][..], &[ROLE], &["audit"], &["audit", ROLE]];
        let roles: &[&str] = self.rng.pick(&all).unwrap();
        let query = ConversationQuery::new();
        // A server whose clients keep the threads has no list.
        let Ok(page) = self
            .server
            .questions(&query, &Roles::new(roles.iter().copied()))
            .await
        else {
            return Vec::new();
        };
        for question in &page.questions {
            let role = question.interrupt.answerer.role();
            assert!(
                role.is_some_and(|role| roles.contains(&role)),
                "{roles:?} was shown {question:?}"
            );
            self.world.ask(&place_of(question), &on_the_wire(question));
        }
        let told = page.questions.iter().map(on_the_wire).collect();
        let late = self.rng.percent(30).then_some(&self.seen);
        let question = self.rng.pick(late.unwrap_or(&page.questions)).cloned();
        for question in page.questions {
            self.seen.push(question);
            if self.seen.len() > MEMORY {
                self.seen.remove(0);
            }
        }
        if let Some(question) = question {
            self.answer_one(&question).await;
        }
        told
    }

    async fn answer_one(&mut self, question: &Question) {
        let mut key = question.key.clone();
        if self.rng.percent(10) {
            key.user = "bob".into();
        }
        let roles: &[&str] = if self.rng.percent(75) {
            &[ROLE]
        } else {
            &["audit"]
        };
        self.answers += 1;
        let edited = json!({ "value": { "bill": format!("granted {}", self.answers) } });
        let answer = match self.rng.below(8) {
            0 => Resolution::cancelled(&*question.id),
            1 => Resolution::resolved(&*question.id, json!({ "approved": false })),
            2 => {
                let payload = json!({ "approved": true, "editedArgs": edited });
                Resolution::resolved(&*question.id, payload)
            }
            _ => Resolution::resolved(&*question.id, json!({ "approved": true })),
        };
        let times = if self.rng.percent(20) { 3 } else { 1 };
        let answers = (0..times).map(|_| {
            self.server.answer(
                key.clone(),
                Roles::new(roles.iter().copied()),
                answer.clone(),
            )
        });
        let runs = futures::future::join_all(answers).await;
        let place = place_of_key(&key);
        let mut entry = serde_json::to_value(&answer).unwrap();
        entry["interruptId"] = json!(question.id);
        for run in runs {
            match run {
                Ok(run) => {
                    self.world.answer(&place, &entry, roles);
                    self.read(run).await;
                }
                Err(_) => self.refused += 1,
            }
        }
    }

    /// Reads the run, which ends with the process of whoever has answered now and then.
    async fn read(&mut self, run: AgUiRun) {
        let most = if self.rng.percent(20) {
            self.rng.below(25)
        } else {
            usize::MAX
        };
        let mut run = run.take(most);
        while run.next().await.is_some() {}
        drop(run);
        for _ in 0..self.rng.below(12) {
            tokio::task::yield_now().await;
        }
    }
}

fn place_of_key(key: &ConversationKey) -> String {
    place(Some(&*key.user).filter(|user| !user.is_empty()), &key.id)
}

fn place_of(question: &Question) -> String {
    place_of_key(&question.key)
}

/// The question in the form that a client with the role gets.
fn on_the_wire(question: &Question) -> Value {
    json!({
        "id": question.id,
        "metadata": { "arguments": question.interrupt.payload["arguments"] },
    })
}
