//! Runs that answer with a value of a type.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, StreamExt};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::agent::{Agent, ResponseFuture};
use super::stream::RunStream;
use crate::context::RunContext;
use crate::error::Result;
use crate::run::{AgentRequest, AnswerFormat, Checkpoint, TypedResponse};
use crate::stream::Event;

impl Agent {
    /// Runs the agent until it answers with a `T`.
    ///
    /// The model is asked for JSON of this type; if its answer does not match, it is told the
    /// problem and the schema, and answers again. The request's
    /// [answer format](AgentRequest::with_answer_format) says how and how often; without one it is
    /// `AnswerFormat::of::<T>()`.
    ///
    /// ```
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    /// use tower_agent::Agent;
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Weather {
    ///     city: String,
    ///     celsius: f64,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let model = ScriptedModel::new([
    ///     Turn::from_text(r#"{ "city": "Oslo" }"#),
    ///     Turn::from_text(r#"{ "city": "Oslo", "celsius": 21 }"#),
    /// ]);
    /// let agent = Agent::builder(model).build()?;
    /// let weather: Weather = agent.run_typed("How warm is it in Oslo?").await?.into_value()?;
    /// assert_eq!(weather.celsius, 21.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A run that is interrupted has no value yet. Resume it with another typed run.
    ///
    /// # Errors
    ///
    /// Fails as [`run`](Self::run) does, and with
    /// [`InvalidAnswer`](crate::ErrorKind::InvalidAnswer) if the final answer is not a `T`. That
    /// error has the answer, as [`InvalidAnswer`](crate::agent::InvalidAnswer), and the
    /// [checkpoint](crate::Error::checkpoint) to resume from.
    pub fn run_typed<T>(&self, request: impl Into<AgentRequest>) -> TypedFuture<T>
    where
        T: DeserializeOwned + JsonSchema,
    {
        TypedFuture {
            run: self.run(with_format_of::<T>(request.into())),
            value: PhantomData,
        }
    }

    /// Runs the agent as [`run_typed`](Self::run_typed) does, and returns a stream of its events.
    ///
    /// The text of an answer that does not match is streamed like any other;
    /// [`AnswerRejected`](crate::stream::EventKind::AnswerRejected) follows it, and then the next
    /// answer as another message.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use tower_agent::stream::EventKind;
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let model = ScriptedModel::new([
    /// #     Turn::from_text("Red and blue."),
    /// #     Turn::from_text(r#"{ "value": ["red", "blue"] }"#),
    /// # ]);
    /// # let agent = Agent::builder(model).build()?;
    /// let mut run = agent.stream_typed::<Vec<String>>("Name two colours.");
    /// let mut rejected = 0;
    /// while let Some(event) = run.next().await {
    ///     if matches!(event.kind, EventKind::AnswerRejected { .. }) {
    ///         rejected += 1;
    ///     }
    /// }
    /// assert_eq!(run.response().await?.into_value()?, ["red", "blue"]);
    /// assert_eq!(rejected, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn stream_typed<T>(&self, request: impl Into<AgentRequest>) -> TypedStream<T>
    where
        T: DeserializeOwned + JsonSchema,
    {
        TypedStream {
            run: self.stream(with_format_of::<T>(request.into())),
            value: PhantomData,
        }
    }
}

/// Adds the answer format of `T`, unless the request has one.
fn with_format_of<T: DeserializeOwned + JsonSchema>(request: AgentRequest) -> AgentRequest {
    match request.answer_format() {
        Some(_) => request,
        None => request.with_answer_format(AnswerFormat::of::<T>()),
    }
}

/// The future of [`Agent::run_typed`]. Dropping it cancels the run.
#[must_use = "a run does nothing until it is awaited"]
pub struct TypedFuture<T> {
    run: ResponseFuture,
    // A function pointer, so that the future is `Send` and `Unpin` whatever `T` is.
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + JsonSchema> Future for TypedFuture<T> {
    type Output = Result<TypedResponse<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(ready!(Pin::new(&mut self.run).poll(cx)).and_then(TypedResponse::new))
    }
}

impl<T> fmt::Debug for TypedFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedFuture").finish_non_exhaustive()
    }
}

/// A typed run as a stream of events; created by [`Agent::stream_typed`]. It is read like a
/// [`RunStream`].
#[must_use = "a run does nothing until its stream is read"]
pub struct TypedStream<T> {
    run: RunStream,
    value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + JsonSchema> TypedStream<T> {
    /// Returns the context of the run.
    #[must_use]
    pub fn context(&self) -> &RunContext {
        self.run.context()
    }

    /// Returns the checkpoint of the progress so far, as [`RunStream::checkpoint`] does.
    pub fn checkpoint(&self) -> Checkpoint {
        self.run.checkpoint()
    }

    /// Reads the stream to its end, and returns the response of the run.
    ///
    /// # Errors
    ///
    /// Fails as [`Agent::run_typed`] does.
    pub async fn response(self) -> Result<TypedResponse<T>> {
        self.run.response().await.and_then(TypedResponse::new)
    }
}

impl<T> Stream for TypedStream<T> {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.run.poll_next_unpin(cx)
    }
}

impl<T> fmt::Debug for TypedStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedStream").field(&self.run).finish()
    }
}
