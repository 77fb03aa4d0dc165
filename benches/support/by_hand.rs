//! The loop of [`work`](super::work) written without this crate, and without anything that the
//! result does not need: no cancellation, no limits, no path in an error, no caught panics.
//!
//! Messages are shared by reference counts. The model's arguments are text, and are parsed into the
//! tool's type once; the tool is found by name, and its result is serialised as JSON. Tokens are
//! added up. Hooks are boxed futures; without hooks they cost nothing.

use std::sync::Arc;

use futures::future::BoxFuture;
use tower_agent::BoxError;

use super::work::Add;

pub enum Message {
    User(String),
    Assistant { text: String, calls: Vec<Arc<Call>> },
    Tool { call: String, text: String },
}

pub struct Call {
    id: String,
    name: String,
    arguments: String,
}

pub struct ModelRequest {
    messages: Vec<Arc<Message>>,
}

pub struct ModelResponse {
    message: Message,
    tokens: u64,
}

pub struct ToolRequest {
    call: Arc<Call>,
}

pub struct ToolResponse {
    text: String,
}

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
    sums: usize,
    on_model: Vec<Box<dyn Hook<ModelRequest, ModelResponse>>>,
    on_tool: Vec<Box<dyn Hook<ToolRequest, ToolResponse>>>,
}

impl Loop {
    /// A loop with this many hooks around each call.
    pub fn new(sums: usize, hooks: usize) -> Self {
        Self {
            sums,
            on_model: (0..hooks).map(|_| Box::new(Idle) as _).collect(),
            on_tool: (0..hooks).map(|_| Box::new(Idle) as _).collect(),
        }
    }

    /// The conversation and its token usage.
    pub async fn run(&self, question: &str) -> Result<(Vec<Arc<Message>>, u64), BoxError> {
        let mut messages = vec![Arc::new(Message::User(question.to_owned()))];
        let mut tokens = 0;
        loop {
            let request = ModelRequest {
                messages: messages.clone(),
            };
            let answer = around(&self.on_model, request, async |request| {
                self.model(request).await
            })
            .await?;
            tokens += answer.tokens;
            let calls = match &answer.message {
                Message::Assistant { calls, .. } => calls.clone(),
                Message::User(_) | Message::Tool { .. } => Vec::new(),
            };
            messages.push(Arc::new(answer.message));
            if calls.is_empty() {
                return Ok((messages, tokens));
            }
            for call in calls {
                let request = ToolRequest { call: call.clone() };
                let answer = around(&self.on_tool, request, tool).await?;
                let message = Message::Tool {
                    call: call.id.clone(),
                    text: answer.text,
                };
                messages.push(Arc::new(message));
            }
        }
    }

    /// The same model as [`work::answer`](super::work::answer).
    async fn model(&self, request: &ModelRequest) -> Result<ModelResponse, BoxError> {
        let turn = request.messages.len() / 2;
        let message = if turn < self.sums {
            let call = Call {
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
}

async fn tool(request: &ToolRequest) -> Result<ToolResponse, BoxError> {
    match &*request.call.name {
        "add" => {
            let Add { a, b } = serde_json::from_str(&request.call.arguments)?;
            Ok(ToolResponse {
                text: serde_json::to_string(&(a + b))?,
            })
        }
        name => Err(format!("there is no tool `{name}`").into()),
    }
}

/// A call with its hooks.
async fn around<Q, A>(
    hooks: &[Box<dyn Hook<Q, A>>],
    mut request: Q,
    call: impl AsyncFnOnce(&Q) -> Result<A, BoxError>,
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
