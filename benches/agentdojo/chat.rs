//! A model that is written as a program: it makes calls, and waits for their results.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tower::service_fn;
use tower_agent::error::ErrorKind;
use tower_agent::message::ToolCall;
use tower_agent::model::ModelService;
use tower_agent::{Error, ModelRequest, ModelResponse, Role};

/// The agent has ended.
#[derive(Debug)]
pub(crate) struct Ended;

/// The part of a call's result that the model reads.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

struct Asked {
    replies: Vec<Reply>,
    answer: oneshot::Sender<ModelResponse>,
}

/// The program's side of the model.
pub(crate) struct Chat {
    asked: mpsc::Receiver<Asked>,
    answer: Option<oneshot::Sender<ModelResponse>>,
}

/// Returns a model, and the program that speaks as it.
pub(crate) fn chat() -> (impl ModelService, Chat) {
    let (sender, asked) = mpsc::channel(1);
    let model = service_fn(move |request: ModelRequest| {
        let sender = sender.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            let replies = new_replies(&request);
            let asked = Asked { replies, answer };
            sender.send(asked).await.map_err(|_| program_has_ended())?;
            answered.await.map_err(|_| program_has_ended())
        }
    });
    let chat = Chat {
        asked,
        answer: None,
    };
    (model, chat)
}

fn program_has_ended() -> Error {
    Error::new(ErrorKind::Other, "the program has ended")
}

/// Returns the results after the model's last message.
fn new_replies(request: &ModelRequest) -> Vec<Reply> {
    let mut replies = Vec::new();
    for message in request.messages().iter() {
        if message.role() == Role::Assistant {
            replies.clear();
        }
        replies.extend(message.tool_results().map(|result| Reply {
            text: result.text().to_string(),
            is_error: result.is_error,
        }));
    }
    replies
}

impl Chat {
    async fn next(&mut self) -> Result<Vec<Reply>, Ended> {
        let asked = self.asked.recv().await.ok_or(Ended)?;
        self.answer = Some(asked.answer);
        Ok(asked.replies)
    }

    async fn say(&mut self, response: ModelResponse) -> Result<(), Ended> {
        if self.answer.is_none() {
            self.next().await?;
        }
        let answer = self.answer.take().ok_or(Ended)?;
        answer.send(response).map_err(|_| Ended)
    }

    /// Makes these calls in one turn, and returns what is read of their results.
    pub(crate) async fn call(&mut self, calls: &[(&str, Value)]) -> Result<Vec<Reply>, Ended> {
        let calls = calls
            .iter()
            .map(|(tool, arguments)| ToolCall::new("", *tool, arguments.clone()));
        self.say(ModelResponse::from_tool_calls(calls)).await?;
        self.next().await
    }

    /// Ends the conversation with this text.
    pub(crate) async fn end(mut self, text: String) -> Result<(), Ended> {
        self.say(ModelResponse::from_text(text)).await
    }
}

/// The answers of a reader to each question: honest, or of an attacker whose mark is in its data.
#[derive(Clone, Default)]
pub(crate) struct ReaderAnswers(Arc<Mutex<HashMap<String, ReaderAnswer>>>);

#[derive(Clone)]
pub(crate) struct ReaderAnswer {
    pub(crate) honest: String,
    pub(crate) attacked: String,
}

impl ReaderAnswers {
    pub(crate) fn add(&self, question: String, answer: ReaderAnswer) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(question, answer);
    }

    /// Returns the model of a reader that does what the data says.
    pub(crate) fn model(&self, mark: Option<String>) -> impl ModelService {
        let answers = self.clone();
        service_fn(move |request: ModelRequest| {
            let answer = answers.answer(&request, mark.as_deref());
            async move { answer.map(ModelResponse::from_text) }
        })
    }

    fn answer(&self, request: &ModelRequest, mark: Option<&str>) -> Result<String, Error> {
        let text: String = request.messages().iter().map(|one| one.text()).collect();
        let mut lines = text.lines();
        let question = lines.find_map(|line| line.strip_prefix("Question: "));
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = question.and_then(|question| answers.get(question));
        let answer = answer.ok_or_else(|| Error::new(ErrorKind::Other, "an unknown question"))?;
        let is_attacked = mark.is_some_and(|mark| text.contains(mark));
        Ok(if is_attacked {
            answer.attacked.clone()
        } else {
            answer.honest.clone()
        })
    }
}
