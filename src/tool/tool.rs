use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tower::service_fn;
use tower::util::MapErr;
use tower_layer::Layer;

use super::arguments::{self, ToolArguments};
use super::declaration::{Effect, ToolDeclaration};
use super::function::IntoToolFuture;
use super::request::ToolRequest;
use super::schema::Parameters;
use super::service::{BoxTool, ToolService};
use crate::context::OfCallbacks;
use crate::error::Error;
use crate::function::Seal;
use crate::maybe_future::MaybeFuture;

/// A tool: its declaration for the model, the service that executes it, and the layers around it.
///
/// See the [module](crate::tool) for typed functions and layers around one tool.
#[derive(Clone)]
#[must_use]
pub struct Tool {
    declaration: Arc<ToolDeclaration>,
    service: BoxTool,
    /// In registration order; applied in reverse, so that the first is outermost.
    layers: Vec<ToolLayer>,
    failure_message: Option<Cow<'static, str>>,
    /// The tools of the agents that implement it.
    inner_tools: BTreeMap<Arc<str>, bool>,
    /// The outline of the agent that implements it, of a type that this floor does not know.
    outline: Option<Arc<dyn Any + Send + Sync>>,
}

/// Names the layers of tools, for people. Implemented where lists of callbacks are known, whose
/// names are those of the callbacks in them.
pub(crate) trait NameLayers {
    fn names_of<L: 'static>(layer: &L) -> Vec<String>;
}

#[derive(Clone)]
pub(crate) struct ToolLayer {
    /// The names of the callbacks in it, or that of its type.
    pub(crate) names: Vec<String>,
    apply: Arc<dyn Fn(BoxTool) -> BoxTool + Send + Sync>,
}

impl Tool {
    /// Creates a tool from a function of its arguments, sync or async.
    ///
    /// The schema is derived with [`JsonSchema`](schemars::JsonSchema), including doc comments.
    /// Arguments that do not match fail with [`InvalidArguments`](super::InvalidArguments), which
    /// names the field. See [`IntoToolResponse`](super::IntoToolResponse) for possible return
    /// types.
    pub fn function<A, F, O, M>(
        name: impl Into<Arc<str>>,
        description: impl Into<String>,
        function: F,
    ) -> Self
    where
        A: ToolArguments,
        F: Fn(A) -> O + Send + Sync + 'static,
        O: IntoToolFuture<M>,
    {
        Self::function_with(name, description, move |arguments: A, _| {
            function(arguments)
        })
    }

    /// Creates a tool from a function of its arguments and the whole request, which has the call's
    /// id, context and state.
    ///
    /// ```
    /// use serde_json::Value;
    /// use tower_agent::{Request, Tool, ToolRequest};
    ///
    /// let visits = Tool::function_with("visits", "Counts.", |_: Value, request: ToolRequest| {
    ///     let state = request.context().state();
    ///     let visits = state.get("visits").and_then(|n| n.as_u64()).unwrap_or(0) + 1;
    ///     state.set("visits", visits);
    ///     visits
    /// });
    /// # drop(visits);
    /// ```
    pub fn function_with<A, F, O, M>(
        name: impl Into<Arc<str>>,
        description: impl Into<String>,
        function: F,
    ) -> Self
    where
        A: ToolArguments,
        F: Fn(A, ToolRequest) -> O + Send + Sync + 'static,
        O: IntoToolFuture<M>,
    {
        let parameters = Parameters::of::<A>();
        let check_parameters = parameters.clone();
        // A guard that asks about a call checks its arguments as the function will parse them.
        let declaration = ToolDeclaration::new(name, description)
            .with_parameters(parameters.schema.clone())
            .with_check(move |arguments| {
                arguments::parse::<A>(arguments, &check_parameters)?;
                Ok(())
            });
        let call = Arc::new(move |request: ToolRequest| {
            // Unchanged arguments are parsed from the model's text: a `Value` would lose large
            // numbers and take a second pass.
            let arguments = match request.changed_arguments() {
                Some(changed) => arguments::parse(changed, &parameters),
                None => arguments::parse_text(&request.call().arguments, &parameters),
            };
            match arguments {
                Ok(arguments) => function(arguments, request).into_tool_future(Seal),
                Err(invalid) => MaybeFuture::ready(Err(invalid.into())),
            }
        });
        Self::service(declaration, service_fn(move |request| call(request)))
    }

    /// Creates a tool that a `tower::Service<ToolRequest>` executes. A call whose arguments, as the
    /// model wrote them, do not [match the declaration](ToolDeclaration::check_arguments), or are
    /// not JSON, does not reach it, and fails with [`InvalidArguments`](super::InvalidArguments).
    /// What a callback has made of them is not checked.
    pub fn service<S: ToolService>(declaration: ToolDeclaration, service: S) -> Self {
        // The service adds the name to its errors, whether an agent calls it or other code.
        let name = Some(declaration.name().into());
        Self {
            declaration: Arc::new(declaration),
            service: BoxTool::leaf(service, name),
            layers: Vec::new(),
            failure_message: None,
            inner_tools: BTreeMap::new(),
            outline: None,
        }
    }

    /// Sets the side effects of the tool. Defaults to [`Mutating`](Effect::Mutating).
    pub fn effect(mut self, effect: Effect) -> Self {
        self.declaration_mut().effect = effect;
        self
    }

    /// Makes the result of the tool the answer of the run: after a turn in which the model has
    /// called it, the run ends with a message of the agent that has the text of the result, and the
    /// model is not called again. A failed call gives no answer: the model reads why. Of several in
    /// a turn, the first in the order of the calls gives it.
    ///
    /// The message is judged like one of the model, so that it may be the answer of a [typed
    /// run](crate::Agent::run_typed) as well. No callback for model calls sees it; those for tool
    /// calls and for the agent do.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Agent, Tool};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let submit = Tool::function("submit", "Submits a form.", |form: String| {
    ///     format!("{form} has been received.")
    /// });
    /// let model = ScriptedModel::new([Turn::tool("submit", json!({ "value": "Form A" }))]);
    /// let agent = Agent::builder(model).tool(submit.gives_answer()).build()?;
    /// assert_eq!(agent.run("Submit it.").await?.text(), "Form A has been received.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn gives_answer(mut self) -> Self {
        self.declaration_mut().gives_answer = true;
        self
    }

    /// Adds a layer inside the existing ones: a tower layer, a closure such as
    /// [`before_tool`](crate::callback::before_tool), or a list of [`Callbacks`](crate::Callbacks).
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<BoxTool, Service: ToolService> + Send + Sync + 'static,
    {
        self.layers.push(ToolLayer {
            names: OfCallbacks::names_of(&layer),
            apply: Arc::new(move |service| BoxTool::layer(layer.layer(service))),
        });
        self
    }

    /// Sets the text that the model reads when the tool fails, for tools whose errors may reveal
    /// internals or secrets. Defaults to the error's kind and message.
    ///
    /// Callbacks and the log receive the full error. Errors in the model's own arguments are always
    /// shown to the model. [`AgentBuilder::tool_failure_message`] sets the text for all tools.
    ///
    /// ```
    /// use tower_agent::{BoxError, Tool};
    ///
    /// async fn balance(account: u32) -> Result<f64, BoxError> {
    ///     Err(format!("no column `balance` in `accounts_v2` where id = {account}"))?
    /// }
    ///
    /// let tool = Tool::function("balance", "The balance of an account.", balance)
    ///     .failure_message("The bank cannot be reached just now.");
    /// # drop(tool);
    /// ```
    ///
    /// [`AgentBuilder::tool_failure_message`]: crate::AgentBuilder::tool_failure_message
    pub fn failure_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.failure_message = Some(message.into());
        self
    }

    /// Records that an agent with these tools and this outline implements this tool.
    pub(crate) fn of_agent(
        mut self,
        tools: BTreeMap<Arc<str>, bool>,
        outline: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        // Part of the declaration, which is all that callbacks and layers of the caller see of the
        // tool.
        self.declaration_mut().is_agent = true;
        self.inner_tools = tools;
        self.outline = Some(outline);
        self
    }

    pub(crate) fn outline(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.outline.as_ref()
    }

    /// Returns the tools of the agents that implement this tool, and whether those of each name are
    /// agents.
    pub(crate) fn inner_tools(&self) -> &BTreeMap<Arc<str>, bool> {
        &self.inner_tools
    }

    /// Returns the declaration that the model receives.
    #[must_use]
    pub fn declaration(&self) -> &Arc<ToolDeclaration> {
        &self.declaration
    }

    fn declaration_mut(&mut self) -> &mut ToolDeclaration {
        Arc::make_mut(&mut self.declaration)
    }

    pub(crate) fn layers(&self) -> &[ToolLayer] {
        &self.layers
    }

    /// Returns the service with its layers.
    #[must_use]
    pub fn into_service(self) -> BoxTool {
        // Inside the layers, so that their own errors, such as a refusal, keep their text.
        let service = match self.failure_message {
            None => self.service,
            Some(message) => BoxTool::new(MapErr::new(self.service, move |error: Error| {
                error.or_model_message(message.clone())
            })),
        };
        self.layers
            .iter()
            .rev()
            .fold(service, |service, layer| (layer.apply)(service))
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("declaration", &self.declaration)
            .field("layers", &self.layers.len())
            .finish_non_exhaustive()
    }
}
