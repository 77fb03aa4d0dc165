use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tower::Service;
use tower_agent::call::Request;
use tower_agent::model::ModelRequest;
use tower_agent::stream::PromptPart;
use tower_layer::Layer;

use crate::lock::lock;
use crate::without_sink::without_sink;

/// Checks that each model call of a run begins with what the previous one sent, so that the
/// provider's prompt cache can be used. Clones share the record.
///
/// Instructions, tools, the settings that a provider puts into the prompt, and messages are
/// compared with those of the previous call of the same agent in the same run; new messages may
/// only be appended. It changes neither requests nor responses. Place it directly around the model,
/// where it sees what callbacks and layers have made of a request.
///
/// ```
/// use serde_json::{Value, json};
/// use tower_agent::callback::before_model;
/// use tower_agent::{Agent, Request, Tool};
/// use tower_agent_test::{ScriptedModel, StablePrefixLayer, Turn};
/// use tower_layer::Layer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("done")]);
/// let prefix = StablePrefixLayer::new();
/// let agent = Agent::builder(prefix.layer(model))
///     .tool(Tool::function("look", "Looks.", |_: Value| "seen"))
///     // The instructions differ from call to call: nothing can be read from the cache.
///     .on_model(before_model(|request| {
///         let turn = request.context().iteration();
///         request.add_instructions(&format!("This is turn {turn}."));
///     }))
///     .build()?;
/// agent.run("Look!").await?;
///
/// let fault = &prefix.faults()[0];
/// assert_eq!(fault.to_string(), "agent `agent`, model call 1: the instructions changed");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct StablePrefixLayer {
    record: Arc<Mutex<PrefixRecord>>,
}

/// A service that compares its requests; created by [`StablePrefixLayer`].
#[derive(Clone, Debug)]
pub struct StablePrefix<S> {
    inner: S,
    record: Arc<Mutex<PrefixRecord>>,
}

/// A model call that did not begin with what the previous one sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefixFault {
    /// The path of the agent's call, as in [`call_path`](tower_agent::RunContext::call_path).
    pub agent: String,
    /// The number of model calls before this one, as in
    /// [`iteration`](tower_agent::RunContext::iteration).
    pub iteration: u32,
    /// The first part of the prompt that differs.
    pub changed: PromptPart,
}

/// The prompts to compare with, and the faults so far.
#[derive(Debug, Default)]
struct PrefixRecord {
    /// The latest prompt of each agent's loop, by run and call path.
    latest: HashMap<(String, String), (u32, ModelRequest)>,
    faults: Vec<PrefixFault>,
}

impl StablePrefixLayer {
    /// Creates a layer without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the calls that did not begin with what the previous one sent, in call order.
    #[must_use]
    pub fn faults(&self) -> Vec<PrefixFault> {
        lock(&self.record).faults.clone()
    }
}

impl PrefixRecord {
    fn note(&mut self, request: &ModelRequest) {
        let context = request.context();
        let iteration = context.iteration();
        let agent = context.call_path();
        let earlier = self
            .latest
            .get(&(context.run_id().to_owned(), agent.clone()));
        // An earlier iteration belongs to another call of the agent.
        let earlier = earlier.filter(|(at, _)| *at <= iteration);
        if let Some(changed) = earlier.and_then(|(_, earlier)| earlier.changed_in_prompt(request)) {
            self.faults.push(PrefixFault {
                agent: agent.clone(),
                iteration,
                changed,
            });
        }
        self.latest.insert(
            (context.run_id().to_owned(), agent),
            (iteration, without_sink(request)),
        );
    }
}

impl fmt::Display for PrefixFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent `{}`, model call ", self.agent)?;
        write!(f, "{}: {} changed", self.iteration, self.changed)
    }
}

impl<S> Layer<S> for StablePrefixLayer {
    type Service = StablePrefix<S>;

    fn layer(&self, inner: S) -> Self::Service {
        StablePrefix {
            inner,
            record: self.record.clone(),
        }
    }
}

impl<S: Service<ModelRequest>> Service<ModelRequest> for StablePrefix<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ModelRequest) -> S::Future {
        // When it is called, and not when it ends: parallel calls keep their order.
        lock(&self.record).note(&request);
        self.inner.call(request)
    }
}
