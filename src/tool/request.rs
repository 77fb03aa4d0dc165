use std::sync::Arc;

use serde_json::Value;

use super::arguments::{looks_like_object, wrapped};
use super::declaration::{Effect, ToolDeclaration};
use super::response::ToolResponse;
use super::seen::SeenToolRequest;
use crate::call::{Attempts, BoxCallService, CallKind, Extensions, Origin, Request};
use crate::chance;
use crate::context::{RunContext, StateTrace};
use crate::error::{Interrupt, Resolution, Result};
use crate::message::ToolCall;

/// The request of a tool call. Cloning is O(1).
///
/// ```
/// use serde_json::json;
/// use tower_agent::ToolRequest;
/// use tower_agent::message::ToolCall;
///
/// let mut request = ToolRequest::new(ToolCall::new("call_1", "add", json!({ "a": 1, "b": 2 })));
/// request.arguments_mut()["b"] = json!(3);
/// assert_eq!(request.arguments()["b"], 3);
/// assert_eq!(request.call().arguments.as_str(), r#"{"a":1,"b":2}"#); // the model's own arguments
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ToolRequest {
    call: ToolCall,
    /// `None` until the arguments are changed.
    arguments: Option<Arc<Value>>,
    declaration: Option<Arc<ToolDeclaration>>,
    /// The idempotency key is that of the model's own arguments.
    keeps_key: bool,
    /// The tool, where the agent has looked it up.
    tool: Option<BoxCallService<ToolRequest>>,
    extensions: Extensions,
    context: RunContext,
    attempts: Attempts,
}

/// A key in place of the one that follows from the call. Few requests have one, so it is no field.
struct IdempotencyKey(Arc<str>);

impl ToolRequest {
    /// Creates a request in a new run of its own.
    pub fn new(call: ToolCall) -> Self {
        Self {
            attempts: Attempts::default(),
            ..Self::in_run(&RunContext::default(), &call, None, None)
        }
    }

    /// Creates the request of a call of a run, to be answered by this tool.
    pub(crate) fn in_run(
        context: &RunContext,
        call: &ToolCall,
        declaration: Option<&Arc<ToolDeclaration>>,
        tool: Option<&BoxCallService<Self>>,
    ) -> Self {
        Self {
            // Wrapped before any callback runs: a guard must find an argument where the schema
            // says.
            arguments: declaration.and_then(|tool| wrapped_for(tool, call, None)),
            call: call.clone(),
            declaration: declaration.cloned(),
            keeps_key: false,
            tool: tool.cloned(),
            extensions: Extensions::new(),
            context: context.clone(),
            attempts: Attempts::in_stack(),
        }
    }

    /// Sets the run that the request belongs to.
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.context = context;
        self
    }

    /// Traces the use that the call makes of the [state](RunContext::state) from here on, by the
    /// context of this request. A program that keeps a handle of the state itself, and uses it in
    /// the call, is not seen.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Request, ToolRequest};
    /// use tower_agent::message::ToolCall;
    ///
    /// let mut request = ToolRequest::new(ToolCall::new("call_1", "add", json!({})));
    /// request.context().state().set("seen", 2);
    /// let trace = request.trace_state();
    /// request.context().state().get("seen");
    /// request.context().state().set("sum", 3);
    /// assert_eq!(trace.read(), [("seen".to_owned(), json!(2))]);
    /// assert_eq!(trace.written(), ["sum"]);
    /// ```
    pub fn trace_state(&mut self) -> StateTrace {
        self.context.trace_state()
    }

    /// Sets the tool's declaration.
    ///
    /// If the model sent bare arguments, such as `"disk"` for a tool whose one property is `value`,
    /// they are wrapped, so that all code finds them where the tool's
    /// [parameters](ToolDeclaration::parameters) say.
    pub fn with_declaration(mut self, declaration: Option<Arc<ToolDeclaration>>) -> Self {
        let changed = self.arguments.as_deref();
        let wrapped = declaration
            .as_ref()
            .and_then(|tool| wrapped_for(tool, &self.call, changed));
        self.arguments = wrapped.or(self.arguments);
        self.declaration = declaration;
        self
    }

    /// Sets the [idempotency key](Self::idempotency_key), in a layer that makes a call again which
    /// was begun under this key, such as in another run.
    pub fn with_idempotency_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.extensions.insert(IdempotencyKey(key.into()));
        self
    }

    /// Keeps the [idempotency key](Self::idempotency_key) as it is, whatever a callback or layer
    /// inside makes of the arguments. For a layer that shows the key to somebody.
    pub fn keep_idempotency_key(mut self) -> Self {
        if self.arguments.is_some() {
            let key = self.idempotency_key();
            return self.with_idempotency_key(key);
        }
        // The call has these arguments for good, and few tools ask for a key.
        self.keeps_key = true;
        self
    }

    pub(crate) fn context_mut(&mut self) -> &mut RunContext {
        &mut self.context
    }

    pub(crate) fn seen(&self) -> SeenToolRequest {
        SeenToolRequest {
            call: self.call.clone(),
            arguments: self.arguments.clone(),
        }
    }

    /// Takes the tool that executes the call, if it is already known.
    pub(super) fn take_tool(&mut self) -> Option<BoxCallService<Self>> {
        self.tool.take()
    }

    /// Returns the call as the model made it, unchanged by callbacks.
    pub fn call(&self) -> &ToolCall {
        &self.call
    }

    /// Returns the provider's id of the call.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.call.id
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.call.name
    }

    /// Returns the arguments for the tool, in the form that its
    /// [parameters](ToolDeclaration::parameters) describe: an object. Arguments of another type,
    /// such as a number or a list, are its property `value`.
    #[must_use]
    pub fn arguments(&self) -> &Value {
        self.changed_arguments()
            .unwrap_or_else(|| self.call.arguments.value())
    }

    /// Returns the arguments for the tool, to change them. They must stay an object.
    pub fn arguments_mut(&mut self) -> &mut Value {
        let arguments = self
            .arguments
            .get_or_insert_with(|| Arc::new(self.call.arguments.value().clone()));
        Arc::make_mut(arguments)
    }

    /// Returns the arguments that a callback has changed, or `None` if they are the call's own.
    /// Unlike [`arguments`](Self::arguments), it does not parse those.
    #[must_use]
    pub fn changed_arguments(&self) -> Option<&Value> {
        self.arguments.as_deref()
    }

    /// Returns a key for the service that the tool calls, so that a call that is made again has no
    /// further effect there. It names the run, the call, the tool and its arguments, and is the
    /// same whenever this call is made, also in another process, if the run has the same
    /// [id](crate::AgentRequest::with_run_id). In a durable run it is also the same whatever a
    /// callback makes of the arguments.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        if let Some(IdempotencyKey(key)) = self.extensions.get() {
            return key.to_string();
        }
        let run = self.context.run_id();
        let path = self.context.step_path();
        // The arguments are part of it: a person who approves a call may change them, and a service
        // refuses other data under a key that it has seen.
        let arguments = if self.keeps_key {
            self.call.arguments.value()
        } else {
            self.arguments()
        };
        let arguments = arguments.to_string();
        chance::name(&[run, &path, self.id(), self.name(), &arguments]).to_string()
    }

    /// Returns the answer to a question about this call, or the error that asks it and interrupts
    /// the run, as [`RunContext::ask`] does. The question is bound to the tool and its arguments as
    /// they are now: if something changes them before the answer, it is asked anew.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::{Error, Interrupt, Tool, ToolRequest};
    ///
    /// let pay = Tool::function_with("pay", "Pays.", |cents: u32, call: ToolRequest| {
    ///     let question = Interrupt::new("sure", "confirmation").with_message(format!("Pay {cents} cents?"));
    ///     let answer = call.ask(question)?;
    ///     Ok::<_, Error>(format!("answered: {:?}", answer.outcome))
    /// });
    /// # drop(pay);
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with the [interrupt](crate::Error::interrupt), until there is an answer.
    pub fn ask(&self, question: Interrupt) -> Result<Resolution> {
        let call = self.context.call_path();
        let question = question.about(&call, self.name(), self.arguments());
        // Also a tool that is called without an agent.
        self.context.ask_in(question, true)
    }

    /// Returns the declaration of the tool, or `None` if the tool does not exist.
    #[must_use]
    pub fn declaration(&self) -> Option<&Arc<ToolDeclaration>> {
        self.declaration.as_ref()
    }

    /// Returns the data attached to this call.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Returns the data attached to this call, to change it.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

/// Returns bare arguments in the object that the tool expects.
fn wrapped_for(
    tool: &ToolDeclaration,
    call: &ToolCall,
    changed: Option<&Value>,
) -> Option<Arc<Value>> {
    // Nearly all arguments are an object: these are not parsed only to find that out.
    if changed.is_none() && looks_like_object(call.arguments.as_str()) {
        return None;
    }
    let arguments = changed.unwrap_or_else(|| call.arguments.value());
    wrapped(arguments, tool.parameters()).map(Arc::new)
}

impl Request for ToolRequest {
    type Response = ToolResponse;
    const CALL: CallKind = CallKind::Tool;

    fn context(&self) -> &RunContext {
        &self.context
    }

    fn name(&self) -> Option<&str> {
        Some(&self.call.name)
    }

    fn refusal(&self, reason: impl Into<String>) -> Result<ToolResponse> {
        Ok(ToolResponse::error(reason))
    }

    fn count(response: &mut ToolResponse) -> bool {
        response.count()
    }

    fn attempts(&mut self) -> Option<&mut Attempts> {
        Some(&mut self.attempts)
    }

    /// Checks the model's arguments for a tool that is a service. A function parses them itself,
    /// and what a callback has made of them is the program's word.
    fn check(&self) -> Result<()> {
        let Some(tool) = self.declaration.as_ref() else {
            return Ok(());
        };
        let is_of_model = || match self.arguments.as_deref() {
            None => true,
            // A guard puts the arguments that it has decided on into the request, as they are.
            Some(arguments) => {
                arguments == self.call.arguments.value()
                    || self.arguments == wrapped_for(tool, &self.call, None)
            }
        };
        if tool.parses_arguments() || !is_of_model() {
            return Ok(());
        }
        tool.check_arguments(self.arguments())
    }

    /// Returns whether the tool's declared effect allows a retry.
    fn is_repeatable(&self) -> bool {
        let declaration = self.declaration.as_ref();
        declaration.is_some_and(|tool| tool.effect() != Effect::Mutating)
    }

    fn is_changed_from(&self, earlier: &Self) -> bool {
        // Unchanged arguments are those of the call: comparing them would parse both texts.
        let are_own = self.arguments.is_none() && earlier.arguments.is_none();
        self.call != earlier.call || !are_own && self.arguments() != earlier.arguments()
    }

    fn mark(&self, response: &mut ToolResponse, replaced: Option<&ToolResponse>, origin: Origin) {
        if origin != Origin::Service {
            response.origin = origin;
        }
        // The arguments that the tool received are those of the innermost band, which marks the
        // response first, also where an outer `after` replaces it.
        if let Some(replaced) = replaced {
            response.counted.take_over(replaced.counted);
            response.arguments = response
                .arguments
                .take()
                .or_else(|| replaced.arguments.clone());
        }
        if response.arguments.is_none() {
            response.arguments.clone_from(&self.arguments);
        }
    }
}
