//! The loop of [`work`](super::work) as a program would write it without this crate: plain structs,
//! `serde_json`, a boxed async function for the model and for each tool, a history that the loop
//! and the model's request share by one reference count.
//!
//! The model's arguments are text, and are parsed into the tool's type once; the tool is found by
//! name, its result is serialised as JSON, and the model reads its error. Tokens are added up.
//! Hooks are boxed futures; without hooks they cost nothing.
//!
//! It has nothing that the result does not need: no cancellation, limits, caught panics, ids of
//! messages, interrupts, resume, sub-agents, state, streams, effects.

use std::sync::Arc;

use futures::future::BoxFuture;
use tower_agent::BoxError;

use super::work::Add;

#[derive(Clone)]
pub enum Message {
    User(String),
    Assistant {
        text: String,
        calls: Vec<Arc<ToolCall>>,
    },
    Tool {
        call: String,
        text: String,
    },
}

pub struct ToolCall {
    id: String,
    name: String,
    arguments: String,
}

pub struct ModelRequest {
    history: Arc<Vec<Message>>,
}

pub struct ModelResponse {
    message: Message,
    tokens: u64,
}

pub struct ToolRequest {
    call: Arc<ToolCall>,
}

pub struct ToolResponse {
    text: String,
}

/// An async function of a model or a tool.
type Call<Q, A> = Box<dyn for<'a> Fn(&'a Q) -> BoxFuture<'a, Result<A, BoxError>> + Send + Sync>;

/// The hooks around a call.
pub trait Hook<Q, A>: Send + Sync {
    fn before<'a>(&'a self, request: &'a mut Q) -> BoxFuture<'a, Result<(), BoxError>>;
    fn after<'a>(
        &'a self,
        request: &'a Q,
        answer: &'a mut A,
    ) -> BoxFuture<'a, Result<(), BoxError>>;
}

/// A hook that does nothing.
struct Idle;

impl<Q: Send + Sync, A: Send + Sync> Hook<Q, A> for Idle {
    fn before<'a>(&'a self, request: &'a mut Q) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            std::future::ready(()).await;
            std::hint::black_box(request);
            Ok(())
        })
    }

    fn after<'a>(
        &'a self,
        request: &'a Q,
        answer: &'a mut A,
    ) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async move {
            std::future::ready(()).await;
            std::hint::black_box((request, answer));
            Ok(())
        })
    }
}

/// The loop.
pub struct Loop {
    model: Call<ModelRequest, ModelResponse>,
    tools: Vec<(String, Call<ToolRequest, ToolResponse>)>,
    on_model: Vec<Box<dyn Hook<ModelRequest, ModelResponse>>>,
    on_tool: Vec<Box<dyn Hook<ToolRequest, ToolResponse>>>,
}

impl Loop {
    /// A loop whose model calls the tool so many times, with this many hooks around each call.
    pub fn new(sums: usize, hooks: usize) -> Self {
        Self {
            model: Box::new(move |request| Box::pin(model(request, sums))),
            tools: vec![("add".to_owned(), Box::new(|request| Box::pin(add(request))))],
            on_model: (0..hooks).map(|_| Box::new(Idle) as _).collect(),
            on_tool: (0..hooks).map(|_| Box::new(Idle) as _).collect(),
        }
    }

    /// The conversation and its token usage.
    pub async fn run(&self, question: &str) -> Result<(Arc<Vec<Message>>, u64), BoxError> {
        let mut history = Arc::new(vec![Message::User(question.to_owned())]);
        let mut tokens = 0;
        loop {
            let request = ModelRequest {
                history: history.clone(),
            };
            let answer = around(&self.on_model, request, &self.model).await?;
            tokens += answer.tokens;
            let calls = match &answer.message {
                Message::Assistant { calls, .. } => calls.clone(),
                Message::User(_) | Message::Tool { .. } => Vec::new(),
            };
            // The request is gone, so that nothing is copied.
            Arc::make_mut(&mut history).push(answer.message);
            if calls.is_empty() {
                return Ok((history, tokens));
            }
            for call in calls {
                let text = self
                    .call(call.clone())
                    .await
                    .unwrap_or_else(|error| error.to_string());
                let message = Message::Tool {
                    call: call.id.clone(),
                    text,
                };
                Arc::make_mut(&mut history).push(message);
            }
        }
    }

    async fn call(&self, call: Arc<ToolCall>) -> Result<String, BoxError> {
        let tool = self.tools.iter().find(|(name, _)| *name == call.name);
        let (_, tool) = tool.ok_or_else(|| format!("there is no tool `{}`", call.name))?;
        Ok(around(&self.on_tool, ToolRequest { call }, tool)
            .await?
            .text)
    }
}

/// The same model as [`work::answer`](super::work::answer).
async fn model(request: &ModelRequest, sums: usize) -> Result<ModelResponse, BoxError> {
    let turn = request.history.len() / 2;
    let message = if turn < sums {
        let call = ToolCall {
            id: format!("call_{turn}"),
            name: "add".to_owned(),
            arguments: format!(r#"{{"a":{turn},"b":1}}"#),
        };
        Message::Assistant {
            text: String::new(),
            calls: vec![Arc::new(call)],
        }
    } else {
        Message::Assistant {
            text: "done".to_owned(),
            calls: Vec::new(),
        }
    };
    Ok(ModelResponse {
        message,
        tokens: 110,
    })
}

async fn add(request: &ToolRequest) -> Result<ToolResponse, BoxError> {
    let Add { a, b } = serde_json::from_str(&request.call.arguments)?;
    Ok(ToolResponse {
        text: serde_json::to_string(&(a + b))?,
    })
}

/// A call with its hooks.
async fn around<Q, A>(
    hooks: &[Box<dyn Hook<Q, A>>],
    mut request: Q,
    call: &Call<Q, A>,
) -> Result<A, BoxError> {
    for hook in hooks {
        hook.before(&mut request).await?;
    }
    let mut answer = call(&request).await?;
    for hook in hooks.iter().rev() {
        hook.after(&request, &mut answer).await?;
    }
    Ok(answer)
}
